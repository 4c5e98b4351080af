/* Call sites of other processes. See stacks.h. */
#include "observe/stacks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "observe/deadline.h"
#include "observe/parser_pool.h"
#include "observe/stack_python.h"
#include "observe/stack_walk.h"
#include "site/key.h"

struct stacks {
    struct module_files files;
    struct walk_rule *rules;
    struct deadline *deadline;
    struct parser_pool *pool; /* for memory of processes; NULL: this process interprets it */
    struct stacks_figures figures;
    struct walk_stack walked; /* the stack at hand */
};

struct stack_process {
    struct stacks *stacks;
    struct walk_process walk;
    struct stack_python python;
};

static size_t rules_bytes(void)
{
    return sizeof(struct walk_rule) << WALK_RULES_BITS;
}

int stacks_new(struct stacks **ret_stacks)
{
    struct stacks *s = calloc(1, sizeof(*s));
    /* Pages that no rule needs stay untouched. */
    struct walk_rule *rules =
        s ? mmap(NULL, rules_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
          : MAP_FAILED;
    if (rules == MAP_FAILED) {
        free(s);
        return -ENOMEM;
    }
    s->rules = rules;
    int r = deadline_new(&s->deadline);
    if (r < 0) {
        stacks_free(s);
        return r;
    }
    s->files.deadline = s->deadline;
    *ret_stacks = s;
    return 0;
}

int stacks_parser_set(struct stacks *stacks, struct elf_parser *parser)
{
    stacks->files.parser = parser;
    return parser_pool_new(&stacks->pool);
}

void stacks_free(struct stacks *stacks)
{
    if (!stacks)
        return;
    module_files_release(&stacks->files);
    munmap(stacks->rules, rules_bytes());
    parser_pool_free(stacks->pool);
    deadline_free(stacks->deadline);
    free(stacks);
}

int stack_process_new(struct stacks *stacks, pid_t pid, struct stack_process **ret_process)
{
    struct stack_process *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    p->stacks = stacks;
    remote_memory_init(&p->python.memory, pid, stacks->deadline);
    p->python.pool = stacks->pool;
    p->walk.rules = stacks->rules;
    p->walk.figures = &stacks->figures;
    int r = module_map_init(&p->walk.map, &stacks->files, pid);
    if (r == 0)
        r = walk_maps_read(&p->walk);
    if (r < 0) {
        stack_process_free(p);
        return r;
    }
    *ret_process = p;
    return 0;
}

void stack_process_free(struct stack_process *process)
{
    if (!process)
        return;
    stack_python_release(&process->python);
    module_map_release(&process->walk.map);
    free(process);
}

void stack_process_changed(struct stack_process *process)
{
    process->walk.changed = true;
}

int stack_process_python(struct stack_process *process, struct python_kernel_facts *ret_facts)
{
    walk_maps_refresh(&process->walk, false);
    return stack_python_look(&process->python, &process->walk.map, process->walk.maps_number,
                             ret_facts);
}

void stack_process_trampoline_for_test(struct stack_process *process, uint64_t start)
{
    process->walk.trampolines[0][0] = start;
    process->walk.trampolines[0][1] = start + 4096;
    process->walk.n_trampolines = 1;
}

void stacks_forget_for_test(struct stacks *stacks, struct stack_process *process)
{
    memset(stacks->rules, 0, rules_bytes());
    memset(process->walk.codes, 0, sizeof(process->walk.codes));
    for (uint32_t i = 0; i < stacks->files.n; i++)
        elf_file_drop(&stacks->files.files[i]->elf);
}

/* ---- results ---- */

/* The words of all native frames of a result. */
struct stack_words {
    uint32_t n;
    struct stack_word words[STACK_FRAMES_MAX];
    const struct module *modules[STACK_FRAMES_MAX]; /* that they return to */
};

static bool is_libc(const struct module *module)
{
    const char *path = module ? module->info.path : NULL;
    const char *name = path ? strrchr(path, '/') : NULL;
    return name && strncmp(name, "/libc.so.", strlen("/libc.so.")) == 0;
}

/* A thread that has begun stays in the functions that started it (_start, __libc_start_main, clone3, start_thread) until it ends: their
 * words need not be compared. They are the outermost ones, in the C library, but for _start. */
static void words_of_start_drop(struct stack_words *all)
{
    if (all->n > 2 && is_libc(all->modules[all->n - 2]))
        all->n--;
    while (all->n > 1 && is_libc(all->modules[all->n - 1]))
        all->n--;
}

/* Words of the native frames that are in the result. If there are too many, those are taken that lie evenly between the innermost and
 * the outermost: the inner ones of two stacks that differ are often the same. */
static void words_fill(struct stack_result *result, const struct stack_words *all)
{
    uint32_t n = all->n < STACK_WORDS_MAX ? all->n : STACK_WORDS_MAX;
    if (n < all->n)
        result->flags |= STACK_WORDS_CUT;
    for (uint32_t i = 0; i < n; i++)
        result->words[i] = all->words[n < all->n ? i * (all->n - 1) / (n - 1) : i];
    result->n_words = n;
}

static void native_add(struct stack_result *result, const struct walk_frame *frame, uint64_t rsp,
                       struct stack_words *all)
{
    struct book_frame *to = &result->frames[result->n++];
    *to = (struct book_frame){.offset = frame->pc};
    if (frame->module) {
        to->module = &frame->module->info;
        to->offset = frame->pc - frame->module->bias;
    }
    if (frame->word == 0)
        result->flags |= STACK_WORDS_CUT;
    else {
        all->modules[all->n] = frame->module;
        all->words[all->n++] =
            (struct stack_word){.value = frame->raw, .offset = (uint32_t)(frame->word - rsp)};
    }
}

static void result_native(const struct walk_stack *walked, uint64_t rsp,
                          struct stack_result *result, struct stack_words *words)
{
    uint32_t n = walked->n;
    if (n > STACK_FRAMES_MAX) {
        n = STACK_FRAMES_MAX;
        result->flags |= STACK_CUT;
    }
    for (uint32_t i = 0; i < n; i++)
        native_add(result, &walked->frames[i], rsp, words);
}

/* Python calls and native frames as one stack. False: they do not fit together, nothing is in the result. */
static bool result_joined(struct stack_process *process, const struct walk_stack *walked,
                          uint64_t rsp, struct stack_result *result, struct stack_words *words)
{
    struct python_remote *r = process->python.remote;
    struct python_joined joined[STACK_FRAMES_MAX];
    uintptr_t pcs[WALK_FRAMES_MAX], sps[WALK_FRAMES_MAX];
    bool on_stack = false, cut = !walked->complete;
    for (uint32_t i = 0; i < walked->n; i++) {
        pcs[i] = walked->frames[i].pc;
        sps[i] = walked->frames[i].sp;
        on_stack = on_stack || walked->frames[i].module == process->python.module;
    }
    size_t n = on_stack ? python_join(&r->py, &r->stack, pcs, sps, walked->n, joined,
                                      STACK_FRAMES_MAX, &cut)
                        : 0;
    uint32_t calls = 0, native = 0;
    for (size_t i = 0; i < n; i++)
        if (joined[i].frame)
            calls = (uint32_t)(joined[i].frame - r->stack.frames) + 1;
    if (calls == 0)
        return false;
    uint64_t read_before = r->names_read;
    if (python_remote_names(r, calls) < calls)
        result->flags |= STACK_UNNAMED;
    process->stacks->figures.names_read += r->names_read - read_before;
    for (size_t i = 0; i < n; i++) {
        if (joined[i].frame) {
            size_t call = (size_t)(joined[i].frame - r->stack.frames);
            result->frames[result->n++] =
                (struct book_frame){.script = &r->scripts[call], .offset = r->lines[call]};
            continue;
        }
        while (walked->frames[native].pc != joined[i].pc) /* in the same order */
            native++;
        native_add(result, &walked->frames[native++], rsp, words);
    }
    result->flags |= STACK_PYTHON | (cut ? STACK_CUT : 0);
    return true;
}

int stack_resolve(struct stack_process *process, const struct stack_input *input,
                  struct stack_result *ret_result)
{
    struct stacks *stacks = process->stacks;
    struct walk_stack *walked = &stacks->walked;
    walk_maps_refresh(&process->walk, false);
    walk_stack(&process->walk, input, walked);
    stacks->figures.walks++;
    if (walked->flags & STACK_LOST)
        stacks->figures.lost++;
    ret_result->n = ret_result->n_words = 0;
    ret_result->flags = walked->flags;
    uint64_t rsp = input->registers.rsp;
    struct stack_words words = {.n = 0};
    if (!input->python || !stack_python_ready(&process->python) ||
        !python_remote_stack(process->python.remote, input->python) ||
        !result_joined(process, walked, rsp, ret_result, &words))
        result_native(walked, rsp, ret_result, &words);
    if (walked->complete)
        words_of_start_drop(&words);
    words_fill(ret_result, &words);
    return process->walk.gone ? -ESRCH : 0;
}

void stack_caller(struct stack_process *process, uint64_t pc, struct book_frame *ret_frame,
                  int *ret_fd, uint32_t *ret_up)
{
    walk_maps_refresh(&process->walk, false);
    struct module *module = walk_caller(&process->walk, pc, ret_up);
    *ret_frame = (struct book_frame){.offset = pc};
    *ret_fd = -1;
    if (!module)
        return;
    ret_frame->module = &module->info;
    ret_frame->offset = pc - module->bias;
    if (module->file)
        *ret_fd = module->file->fd;
}

uint64_t stack_result_key(const struct stack_result *result)
{
    return book_frames_key(result->frames, result->n);
}

void stacks_figures(const struct stacks *stacks, struct stacks_figures *ret_figures)
{
    *ret_figures = stacks->figures;
    ret_figures->files = stacks->files.n;
    ret_figures->file_bytes = 0;
    ret_figures->stuck = deadline_lost(stacks->deadline);
    if (stacks->pool)
        parser_pool_figures(stacks->pool, &ret_figures->parsers);
    for (uint32_t i = 0; i < stacks->files.n; i++)
        ret_figures->file_bytes += elf_file_loaded_bytes(&stacks->files.files[i]->elf);
}
