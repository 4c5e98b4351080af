/* Finding CPython in another process, and its calls. See python_remote.h. */
#include "observe/python_remote.h"

#include <errno.h>
#include <string.h>

enum {
    RUNTIME_LOOKED_AT = 8192, /* bytes of _PyRuntime in which keys and threads are looked for */
    KEYS_MAX = 1024,          /* PTHREAD_KEYS_MAX of glibc */
    THREADS_MAX = 8,          /* descriptors of threads among these bytes */
    THREAD_SELF = 16,         /* x86-64: the descriptor's address, which also is its first word */
    CODE_UNIT = 2,
};

static bool read_u64(struct python_remote *r, uint64_t address, uint64_t *ret)
{
    return address % sizeof(*ret) == 0 &&
           remote_read_one(r->read, r->context, address, ret, sizeof(*ret));
}

/* ---- the interpreter ---- */

static const struct python_layout *layout_find(struct python_remote *r, struct module *module,
                                               const struct elf_symbol *runtime)
{
    struct elf_file *elf = &module->file->elf;
    struct elf_symbol symbol;
    uint64_t version, head[PYTHON_DEBUG_FREE_THREADED / 8 + 1];
    if (elf_file_symbol(elf, "Py_Version", &symbol) < 0)
        return python_layout_sized(runtime->bytes);
    if (elf_image_read(&elf->image, symbol.vaddr, &version, sizeof(version)) < 0)
        return NULL;
    const struct python_layout *layout = python_layout_of(version);
    if (!layout || layout->version < 0x030d)
        return layout;
    if (!remote_read_one(r->read, r->context, runtime->vaddr + module->bias, head, sizeof(head)) ||
        memcmp(head, PYTHON_DEBUG_MARK, sizeof(PYTHON_DEBUG_MARK) - 1) != 0 ||
        head[PYTHON_DEBUG_FREE_THREADED / 8] != 0)
        return NULL;
    return layout;
}

int python_remote_look(struct python_remote *r, struct module *module)
{
    static const char *const names[] = {"_PyEval_EvalFrameDefault", "_PyRuntime", "PyCode_Type",
                                        "PyUnicode_Type", "PyBytes_Type"};
    struct elf_symbol s[sizeof(names) / sizeof(names[0])];
    if (!module->file)
        return -ENOENT;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (elf_file_symbol(&module->file->elf, names[i], &s[i]) < 0)
            return -ENOENT;
    const struct python_layout *layout = layout_find(r, module, &s[1]);
    uint64_t bias = module->bias;
    if (!layout || (s[1].vaddr + bias) % sizeof(uint64_t) != 0)
        return -ENOENT;
    r->py.facts = (struct python_facts){
        .layout = *layout,
        .runtime = s[1].vaddr + bias,
        .runtime_bytes = s[1].bytes < RUNTIME_LOOKED_AT ? s[1].bytes : RUNTIME_LOOKED_AT,
        .code_type = s[2].vaddr + bias,
        .text_type = s[3].vaddr + bias,
        .bytes_type = s[4].vaddr + bias,
        .eval_start = s[0].vaddr + bias,
        .eval_end = s[0].vaddr + bias + s[0].bytes,
        .map_start = module->info.map_start,
        .map_end = module->info.map_end,
    };
    r->py.state = PYTHON_SEEN;
    return 0;
}

/* ---- threads ---- */

/* What glibc tells debuggers of a field: bits of an element, number of elements, offset in bytes. */
struct thread_db_field {
    uint32_t bits, count, offset;
};

static int libc_read(struct module *libc, const char *name, void *to, size_t bytes)
{
    struct elf_symbol symbol;
    int r = elf_file_symbol(&libc->file->elf, name, &symbol);
    return r < 0 ? r : elf_image_read(&libc->file->elf.image, symbol.vaddr, to, bytes);
}

/* Where pthread_getspecific() looks. */
static int specific_find(struct module *libc, struct python_kernel_facts *k)
{
    struct thread_db_field specific, data, block;
    uint32_t bytes;
    if (!libc->file ||
        libc_read(libc, "_thread_db_pthread_specific", &specific, sizeof(specific)) < 0 ||
        libc_read(libc, "_thread_db_pthread_key_data_data", &data, sizeof(data)) < 0 ||
        libc_read(libc, "_thread_db_pthread_key_data_level2_data", &block, sizeof(block)) < 0 ||
        libc_read(libc, "_thread_db_sizeof_pthread_key_data", &bytes, sizeof(bytes)) < 0)
        return -ENOENT;
    if (specific.bits % 64 != 0 || data.bits != 64 || block.count == 0 || block.count > KEYS_MAX ||
        bytes < 8 || bytes > 64 || data.offset > bytes - 8 || block.offset != 0 ||
        specific.offset > 16384 || specific.offset % 8 != 0)
        return -ENOENT;
    k->specific = specific.offset;
    k->key_bytes = bytes;
    k->key_data = data.offset;
    k->block_keys = block.count;
    return 0;
}

/* Threads whose descriptors _PyRuntime has the addresses of: the one that started the interpreter is among them. */
static size_t threads_find(struct python_remote *r, const uint64_t *words, size_t n,
                           uint64_t *threads)
{
    size_t found = 0;
    for (size_t i = 0; i < n && found < THREADS_MAX; i++) {
        uint64_t self[THREAD_SELF / 8 + 1];
        bool known = words[i] < 4096 || words[i] % 8 != 0 || words[i] >> 47 != 0;
        for (size_t k = 0; k < found; k++)
            known = known || threads[k] == words[i];
        if (!known && remote_read_one(r->read, r->context, words[i], self, sizeof(self)) &&
            self[0] == words[i] && self[THREAD_SELF / 8] == words[i])
            threads[found++] = words[i];
    }
    return found;
}

/* The state of a thread under a key; 0 if it has none. */
static uint64_t state_of(struct python_remote *r, const struct python_kernel_facts *k,
                         uint64_t thread, uint32_t key)
{
    uint64_t block, state, id;
    if (!read_u64(r, thread + k->specific + (uint64_t)(key / k->block_keys) * 8, &block) ||
        block == 0 ||
        !read_u64(r, block + (uint64_t)(key % k->block_keys) * k->key_bytes + k->key_data,
                  &state) ||
        state == 0 || !read_u64(r, state + r->py.facts.layout.thread_id, &id))
        return 0;
    return id == thread ? state : 0;
}

static void kernel_fill(struct python_remote *r, struct python_kernel_facts *k)
{
    const struct python_layout *l = &r->py.facts.layout;
    k->runtime = r->py.facts.runtime;
    k->key_at = r->py.facts.key_at;
    k->finalizing = r->py.facts.runtime + l->runtime_finalizing;
    k->version = l->version;
    k->link = l->link;
    k->owner_c_stack = PYTHON_OWNER_C_STACK;
    k->thread_record = l->thread_record;
    k->thread_frame = l->thread_frame;
    k->thread_id = l->thread_id;
    k->record_frame = l->record_frame;
    k->record_previous = l->record_previous;
    k->frame_code = l->frame_code;
    k->frame_previous = l->frame_previous;
    k->frame_instr = l->frame_instr;
    k->frame_owner = l->frame_owner;
    k->frame_flag = l->frame_flag;
}

int python_remote_key(struct python_remote *r, struct module *libc)
{
    struct python_kernel_facts k = {0};
    uint64_t words[RUNTIME_LOOKED_AT / 8], threads[THREADS_MAX];
    struct python_facts *facts = &r->py.facts;
    size_t bytes = facts->runtime_bytes & ~(size_t)7;
    int error = specific_find(libc, &k);
    if (error < 0)
        return error;
    if (!remote_read_one(r->read, r->context, facts->runtime, words, (uint32_t)bytes))
        return -EAGAIN;
    size_t n_threads = threads_find(r, words, bytes / 8, threads);
    const uint32_t *halves = (const uint32_t *)words;
    for (size_t i = 0; i + 1 < bytes / 4; i++) {
        uint32_t key = halves[i + PYTHON_TSS_KEY / sizeof(uint32_t)];
        if (halves[i] != 1 || key >= KEYS_MAX)
            continue;
        for (size_t t = 0; t < n_threads; t++) {
            if (state_of(r, &k, threads[t], key) == 0)
                continue;
            facts->key_at = facts->runtime + i * sizeof(uint32_t);
            kernel_fill(r, &k);
            r->kernel = k;
            r->py.state = PYTHON_READY;
            return 0;
        }
    }
    return -EAGAIN;
}

/* ---- calls ---- */

/* As frame_at() of site/python_stack.c. */
static int64_t call_at(const struct python_layout *l, uint64_t code, uint64_t instr)
{
    if (l->code_start)
        return (int64_t)(instr - (code + l->code_start));
    int32_t number = (int32_t)instr;
    return l->link == PYTHON_LINK_RECORD ? (int64_t)number * CODE_UNIT : number;
}

static void run_push(struct python_stack *s, uint64_t stack)
{
    if (s->n_runs < PYTHON_FRAMES_MAX)
        s->runs[s->n_runs++] = (struct python_run){stack, s->n};
}

bool python_remote_stack(struct python_remote *r, const struct python_capture *capture)
{
    const struct python_layout *l = &r->py.facts.layout;
    struct python_stack *s = &r->stack;
    uint64_t last = 0;
    s->n = s->n_runs = 0;
    s->cut = capture->flags & PYTHON_CAPTURE_CUT;
    if (r->py.state != PYTHON_READY || capture->n > PYTHON_CAPTURE_ENTRIES)
        return false;
    for (uint32_t i = 0; i < capture->n; i++) {
        const struct python_capture_entry *e = &capture->entries[i];
        if (e->code != 0) {
            r->checks[s->n] = e->check;
            s->frames[s->n++] = (struct python_frame){e->code, call_at(l, e->code, e->at)};
            if (l->link == PYTHON_LINK_ORDER)
                run_push(s, 0);
        } else {
            if (e->at != 0 && e->at <= last) /* runs lead outwards */
                break;
            run_push(s, e->at);
            last = e->at ? e->at : last;
        }
    }
    /* What came after the last run that is whole belongs to none. */
    s->n = s->n_runs ? s->runs[s->n_runs - 1].end : 0;
    return s->n > 0;
}
