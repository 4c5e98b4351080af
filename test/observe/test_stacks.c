/* Stacks that another process copied, unwound from outside and compared with what its own unwinder finds. */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define CAPTURE_DEFINE
#include "base/clock.h"
#include "capture.h"
#include "check.h"
#include "site/unwind.h"
#include "stack_shapes.h"

enum { MAX = 192, SHAPES_SMALL = SHAPES - 1 };

typedef int cpp_fn(int depth, int (*leaf)(void *), void *context);

/* What the child leaves for us. */
struct shared {
    struct capture capture;
    uintptr_t pcs[MAX], sps[MAX];
    size_t n;
    uint32_t trace;
    uint64_t key;
};

static struct shared *shared;
static struct stacks *stacks;
static struct unwind_cache cache;
static uintptr_t stack_top;

/* In the child: the same stack by the in-process unwinder, and the key that its own book has. */
__attribute__((noinline)) int capture_fill(struct capture *c)
{
    struct unwind_trace trace;
    struct unwind_state from = {.sp = c->registers.rsp + 8, .fp = c->registers.rbp};
    from.pc = *(const uintptr_t *)c->registers.rsp;
    c->top = stack_top;
    capture_copy(c);
    shared->n = unwind_stack_places(&cache, &from, shared->pcs, shared->sps, MAX, &trace);
    shared->trace = trace.flags;
    __asm__ volatile("" ::: "memory");
    return (int)shared->n;
}

static int leaf(void)
{
    int r = capture_take(&shared->capture);
    sink++;
    return r;
}

static int leaf_of(void *context)
{
    return leaf();
}

static void key_compute(void)
{
    static struct book_writer w;
    static struct book_thread t;
    if (book_writer_init(&w, &(struct book_writer_options){.source = BOOK_SOURCE_TRACK}) < 0)
        return;
    book_thread_init(&w, &t);
    int account = book_account_add(&w, &t, 1, BOOK_DEVICE_HOST, "heap");
    size_t n = shared->n < STACK_FRAMES_MAX ? shared->n : STACK_FRAMES_MAX;
    uint32_t site = book_site_add(&w, &t, (uint32_t)account, shared->pcs, n, 0);
    shared->key = ((const struct book_site *)w.at[BOOK_SECTION_SITES])[site].key;
}

/* A child that runs `body`, keeps its book's key and then waits to be killed. */
static pid_t child_run(int (*body)(unsigned), unsigned argument)
{
    int done[2];
    char byte;
    assert_int_equal(pipe(done), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* whatever fails here */
        body(argument);
        key_compute();
        (void)!write(done[1], "x", 1);
        for (;;)
            pause();
    }
    close(done[1]);
    assert_int_equal(read(done[0], &byte, 1), 1);
    close(done[0]);
    return pid;
}

static void child_end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static struct stack_input input_of(const struct capture *c)
{
    return (struct stack_input){
        .registers = c->registers, .bytes = c->bytes, .n_bytes = c->n_bytes};
}

static uint64_t address_of(const struct book_frame *frame)
{
    return frame->module ? frame->offset + frame->module->bias : frame->offset;
}

/* Frames up to where either ends: all of them if the stack was copied whole. */
static void compare(const struct stack_result *result, unsigned seed)
{
    size_t n = shared->n < STACK_FRAMES_MAX ? shared->n : STACK_FRAMES_MAX;
    if (result->flags & STACK_LOST)
        fail_msg("seed %u: lost after %u of %zu frames", seed, result->n, n);
    if (!(result->flags & STACK_CUT) && result->n != n)
        fail_msg("seed %u: %u frames, not %zu", seed, result->n, n);
    assert_true(result->n > 0 && result->n <= n);
    for (size_t i = 0; i < result->n; i++)
        if (address_of(&result->frames[i]) != shared->pcs[i])
            fail_msg("seed %u: frame %zu is %lx, not %lx", seed, i, address_of(&result->frames[i]),
                     shared->pcs[i]);
}

static int body_shapes(unsigned seed)
{
    struct plan plan = {
        .leaf = leaf, .seed = seed, .depth = (int)(seed % 8) + 1, .shapes = SHAPES_SMALL};
    return go_on(&plan);
}

static cpp_fn *cpp_shapes_of(const char *path)
{
    void *library = dlopen(path, RTLD_NOW);
    cpp_fn *shapes_fn = library ? (cpp_fn *)dlsym(library, "cpp_shapes") : NULL;
    if (!shapes_fn)
        _exit(1);
    return shapes_fn;
}

static int body_cpp(unsigned depth)
{
    return cpp_shapes_of(CPP_LIBRARY)((int)depth, leaf_of, NULL);
}

/* What is in the result lives as long as the process object, which the caller frees. */
static struct stack_process *resolve(pid_t pid, struct stack_result *result)
{
    struct stack_process *process;
    struct stack_input input = input_of(&shared->capture);
    assert_int_equal(stack_process_new(stacks, pid, &process), 0);
    assert_int_equal(stack_resolve(process, &input, result), 0);
    return process;
}

static void frames_equal_those_of_the_process_itself(void **state)
{
    uint64_t whole = 0;
    for (unsigned seed = 0; seed < 60; seed++) {
        struct stack_process *process;
        struct stack_result result;
        pid_t pid = child_run(body_shapes, seed);
        struct stack_input input = input_of(&shared->capture);
        assert_int_equal(stack_process_new(stacks, pid, &process), 0);
        assert_int_equal(stack_resolve(process, &input, &result), 0);
        compare(&result, seed);
        if (!(result.flags & STACK_CUT)) {
            whole++;
            assert_int_equal(stack_result_key(&result), shared->key);
        }
        stack_process_free(process);
        child_end(pid);
    }
    assert_true(whole > 20);
}

static void frames_of_cpp_equal_too(void **state)
{
    for (unsigned depth = 0; depth < 10; depth++) {
        struct stack_process *process;
        struct stack_result result;
        pid_t pid = child_run(body_cpp, depth);
        struct stack_input input = input_of(&shared->capture);
        assert_int_equal(stack_process_new(stacks, pid, &process), 0);
        assert_int_equal(stack_resolve(process, &input, &result), 0);
        compare(&result, depth);
        if (!(result.flags & STACK_CUT))
            assert_int_equal(stack_result_key(&result), shared->key);
        assert_true(result.n > depth);
        stack_process_free(process);
        child_end(pid);
    }
}

/* Code of no file, which keeps a frame pointer: push %rbp; mov %rsp, %rbp; call *%rdi; pop %rbp; ret. */
static int body_jit(unsigned seed)
{
    static const uint8_t code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
    uint8_t *page =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        _exit(1);
    memcpy(page, code, sizeof(code));
    int r = ((int (*)(leaf_fn *))(void *)page)(leaf);
    sink++;
    return r;
}

static void on_signal(int number)
{
    leaf();
}

/* The trampoline of a signal, and code that was interrupted. */
static int body_signal(unsigned seed)
{
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
    sink++;
    return 0;
}

static void jit_code_and_signals_are_walked_through(void **state)
{
    int (*const bodies[])(unsigned) = {body_jit, body_signal};
    for (unsigned i = 0; i < 2; i++) {
        struct stack_result result;
        pid_t pid = child_run(bodies[i], 0);
        struct stack_process *process = resolve(pid, &result);
        child_end(pid);
        compare(&result, i);
        assert_false(result.flags & STACK_CUT);
        assert_int_equal(stack_result_key(&result), shared->key);
        bool jit = false;
        for (uint32_t k = 0; k < result.n; k++)
            jit = jit || !result.frames[k].module;
        assert_int_equal(jit, bodies[i] == body_jit);
        stack_process_free(process);
    }
}

static void words_are_the_return_addresses_on_the_stack(void **state)
{
    struct stack_result result;
    pid_t pid = child_run(body_shapes, 5);
    stack_process_free(resolve(pid, &result));
    child_end(pid);
    assert_true(result.n_words > 3 && result.n_words <= STACK_WORDS_MAX);
    assert_int_equal(result.words[0].offset, 0);
    for (uint32_t i = 0; i < result.n_words; i++) {
        uint64_t value;
        assert_true(result.words[i].offset + 8 <= shared->capture.n_bytes);
        memcpy(&value, shared->capture.bytes + result.words[i].offset, 8);
        assert_int_equal(value, result.words[i].value);
        if (!(result.flags & STACK_WORDS_CUT))
            assert_int_equal(value, shared->pcs[i]);
        assert_true(i == 0 || result.words[i].offset > result.words[i - 1].offset);
    }
}

/* They are part of the site, and not compared with the stacks of later calls: a thread stays in them. */
static void functions_that_start_a_thread_have_no_words(void **state)
{
    struct stack_result result;
    pid_t pid = child_run(body_shapes, 0);
    struct stack_process *process = resolve(pid, &result);
    child_end(pid);
    assert_false(result.flags & (STACK_WORDS_CUT | STACK_CUT));
    assert_in_range(result.n_words, 2, result.n - 2);
    const struct book_frame *last = &result.frames[result.n_words - 1];
    assert_null(strstr(last[0].module->path, "/libc.so."));
    assert_non_null(strstr(last[1].module->path, "/libc.so."));
    stack_process_free(process);
}

static void a_truncated_stack_gives_its_inner_frames_and_says_so(void **state)
{
    struct stack_process *process;
    struct stack_result all, part;
    pid_t pid = child_run(body_shapes, 7);
    struct stack_input input = input_of(&shared->capture);
    assert_int_equal(stack_process_new(stacks, pid, &process), 0);
    assert_int_equal(stack_resolve(process, &input, &all), 0);
    for (size_t n = 0; n < shared->capture.n_bytes; n += 8) {
        input.n_bytes = n;
        stack_resolve(process, &input, &part);
        assert_true(part.n <= all.n);
        if (part.n < all.n)
            assert_true(part.flags & STACK_CUT);
        assert_false(part.flags & STACK_LOST);
        for (uint32_t i = 0; i < part.n; i++)
            assert_int_equal(address_of(&part.frames[i]), address_of(&all.frames[i]));
    }
    stack_process_free(process);
    child_end(pid);
}

/* Any bytes and registers: the walk ends, and within its bounds. */
static void garbage_on_the_stack_is_survived(void **state)
{
    struct stack_process *process;
    struct stack_result result;
    pid_t pid = child_run(body_shapes, 11);
    struct capture *c = &shared->capture;
    unsigned seed = check_seed();
    assert_int_equal(stack_process_new(stacks, pid, &process), 0);
    for (int round = 0; round < 3000; round++) {
        struct stack_input input = input_of(c);
        uint8_t *bytes = malloc(c->n_bytes);
        memcpy(bytes, c->bytes, c->n_bytes);
        for (int i = 0; i < 20; i++) {
            seed = seed * 1103515245 + 12345;
            /* A code address, an address of the stack, or anything. */
            uint64_t value = seed % 3 == 0   ? shared->pcs[seed % shared->n]
                             : seed % 3 == 1 ? c->registers.rsp + seed % c->n_bytes
                                             : (uint64_t)seed << 32 | seed;
            memcpy(bytes + (seed >> 8) % (c->n_bytes - 8), &value, 8);
        }
        input.bytes = bytes;
        input.registers.rbp = round % 3 ? c->registers.rbp : c->registers.rsp + seed % 20000;
        stack_resolve(process, &input, &result);
        assert_true(result.n <= STACK_FRAMES_MAX && result.n_words <= STACK_WORDS_MAX);
        free(bytes);
    }
    stack_process_free(process);
    child_end(pid);
}

static void a_stack_whose_process_is_gone_is_told(void **state)
{
    struct stack_process *process;
    struct stack_result result;
    pid_t pid = child_run(body_shapes, 3);
    struct stack_input input = input_of(&shared->capture);
    assert_int_equal(stack_process_new(stacks, pid, &process), 0);
    child_end(pid);
    stack_process_changed(process);
    while (stack_resolve(process, &input, &result) != -ESRCH)
        ;
    compare(&result, 3); /* by what was known: the files have not moved */
    stack_process_free(process);
    assert_int_equal(stack_process_new(stacks, pid, &process), -ESRCH);
}

static void code_that_was_mapped_later_is_found(void **state)
{
    struct stack_process *process;
    struct stack_result result;
    int go[2];
    char byte;
    assert_int_equal(pipe(go), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* whatever fails here */
        (void)!read(go[0], &byte, 1);
        body_cpp(2);
        shared->trace = 1u << 31;
        for (;;)
            pause();
    }
    shared->trace = 0;
    assert_int_equal(stack_process_new(stacks, pid, &process), 0);
    assert_int_equal(write(go[1], "x", 1), 1);
    while (!(*(volatile uint32_t *)&shared->trace & 1u << 31))
        assert_int_equal(waitpid(pid, NULL, WNOHANG), 0); /* it lives */
    struct stack_input input = input_of(&shared->capture);
    stack_process_changed(process);
    bool found = false;
    do {
        assert_int_equal(stack_resolve(process, &input, &result), 0);
        for (uint32_t i = 0; i < result.n; i++)
            found = found || (result.frames[i].module &&
                              strstr(result.frames[i].module->path, "cpp_shapes"));
    } while (!found); /* maps are read again when it is due */
    compare(&result, 0);
    stack_process_free(process);
    child_end(pid);
    close(go[0]);
    close(go[1]);
}

/* A probed function further out returns to the trampoline; which address it stands for, the probe saved. */
static void trampolines_are_left_by_saved_addresses(void **state)
{
    struct stack_process *process;
    struct stack_result plain, result;
    pid_t pid = child_run(body_shapes, 7);
    struct capture *c = &shared->capture;
    struct stack_input input = input_of(c);
    assert_int_equal(stack_process_new(stacks, pid, &process), 0);
    assert_int_equal(stack_resolve(process, &input, &plain), 0);
    assert_true(plain.n_words > 3);
    const struct stack_word *word = &plain.words[2];
    uint64_t trampoline = UINT64_C(0x7fffffffe000), value = word->value;
    stack_process_trampoline_for_test(process, trampoline);
    memcpy(c->bytes + word->offset, &trampoline, 8);
    /* Not supplied: lost there. */
    stack_resolve(process, &input, &result);
    uint32_t place = 0; /* of the frame that returns there */
    while (shared->sps[place] - 8 != c->registers.rsp + word->offset)
        place++;
    assert_int_equal(result.n, place);
    assert_true(result.flags & STACK_LOST);
    for (int by_place = 0; by_place < 2; by_place++) {
        struct stack_return saved = {by_place ? c->registers.rsp + word->offset : 0, value};
        input.returns = &saved;
        input.n_returns = 1;
        stack_resolve(process, &input, &result);
        assert_int_equal(result.n, plain.n);
        assert_int_equal(stack_result_key(&result), stack_result_key(&plain));
        assert_int_equal(result.words[2].value, trampoline); /* what lies there */
    }
    stack_process_free(process);
    child_end(pid);
}

/* What an address costs that is seen for the first time, in files that are known. */
static void cold_print(void)
{
    struct stacks *fresh;
    struct stacks_figures before, after;
    struct stack_result result;
    uint64_t took = 0, rules = 0;
    assert_int_equal(stacks_new(&fresh), 0);
    for (unsigned seed = 0; seed < 10; seed++) {
        struct stack_process *process;
        pid_t pid = child_run(body_shapes, seed);
        struct stack_input input = input_of(&shared->capture), caller = input;
        assert_int_equal(stack_process_new(fresh, pid, &process), 0);
        stack_resolve(process, &input, &result);
        /* The same code again, without what is known of its addresses. */
        stacks_forget_for_test(fresh, process);
        stacks_figures(fresh, &before);
        uint64_t from = clock_monotonic_ns();
        stack_resolve(process, &caller, &result);
        took += clock_monotonic_ns() - from;
        stacks_figures(fresh, &after);
        rules += after.rules_made - before.rules_made;
        stack_process_free(process);
        child_end(pid);
    }
    stacks_free(fresh);
    print_message("# %lu ns for an address that is new\n", took / (rules ? rules : 1));
}

static void a_known_stack_is_cheap(void **state)
{
    enum { ROUNDS = 20000 };
    struct stack_process *process;
    struct stack_result result;
    pid_t pid = child_run(body_shapes, 14);
    struct stack_input input = input_of(&shared->capture);
    assert_int_equal(stack_process_new(stacks, pid, &process), 0);
    uint64_t from = clock_monotonic_ns();
    stack_resolve(process, &input, &result);
    uint64_t cold = clock_monotonic_ns() - from, best = UINT64_MAX;
    struct stacks_figures before, after;
    stacks_figures(stacks, &before);
    for (int i = 0; i < ROUNDS; i++) {
        from = clock_monotonic_ns();
        stack_resolve(process, &input, &result);
        uint64_t took = clock_monotonic_ns() - from;
        best = took < best ? took : best;
    }
    stacks_figures(stacks, &after);
    print_message("# %u frames: first %lu ns, then %lu ns\n", result.n, cold, best);
    cold_print();
    assert_int_equal(after.rules_made, before.rules_made);
#if !defined(UNDER_ASAN) && !defined(UNDER_TSAN) && defined(__OPTIMIZE__)
    assert_true(best < 5000); /* far from it where nothing else runs */
#endif
    stack_process_free(process);
    child_end(pid);
}

static int group_setup(void **state)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    unsigned long lo, hi;
    while (maps && fgets(line, sizeof(line), maps))
        if (strstr(line, "[stack]") && sscanf(line, "%lx-%lx", &lo, &hi) == 2)
            stack_top = hi;
    if (maps)
        fclose(maps);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED || stack_top == 0 ? -1 : stacks_new(&stacks);
}

static int group_teardown(void **state)
{
    stacks_free(stacks);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_equal_those_of_the_process_itself),
        cmocka_unit_test(frames_of_cpp_equal_too),
        cmocka_unit_test(jit_code_and_signals_are_walked_through),
        cmocka_unit_test(words_are_the_return_addresses_on_the_stack),
        cmocka_unit_test(functions_that_start_a_thread_have_no_words),
        cmocka_unit_test(a_truncated_stack_gives_its_inner_frames_and_says_so),
        cmocka_unit_test(garbage_on_the_stack_is_survived),
        cmocka_unit_test(a_stack_whose_process_is_gone_is_told),
        cmocka_unit_test(code_that_was_mapped_later_is_found),
        cmocka_unit_test(trampolines_are_left_by_saved_addresses),
        cmocka_unit_test(a_known_stack_is_cheap),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
