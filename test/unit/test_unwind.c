/* Walks over call frame information, compared with libgcc's unwinder frame by frame.
 *
 * Built without frame pointers, so that only the tables can lead the way. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include "check.h"
#include "site/unwind.h"
#include "stack_shapes.h"

enum { MAX = 128 };

static struct unwind_cache cache;

/* ---- the reference ---- */

struct reference {
    uintptr_t pcs[MAX];
    size_t n;
};

static _Unwind_Reason_Code reference_add(struct _Unwind_Context *context, void *arg)
{
    struct reference *ref = arg;
    int before = 0;
    uintptr_t pc = _Unwind_GetIPInfo(context, &before);
    if (pc == 0 || ref->n == MAX)
        return _URC_END_OF_STACK;
    ref->pcs[ref->n++] = pc + (before ? 1 : 0);
    return _URC_NO_REASON;
}

/* Take both stacks here and compare all frames but this one. Returns the number of frames, or minus
 * the number of the first that differs. Usable in a signal handler: no assertion inside. */
static __attribute__((noinline)) int compare_here(void)
{
    uintptr_t pcs[MAX];
    struct reference ref = {.n = 0};
    size_t n = unwind_stack(&cache, pcs, MAX);
    _Unwind_Backtrace(reference_add, &ref);
    for (size_t i = 1; i < n || i < ref.n; i++)
        if (i >= n || i >= ref.n || pcs[i] != ref.pcs[i])
            return -(int)i;
    return (int)n;
}

static void equals_libgcc_on_many_stacks(void **state)
{
    for (unsigned seed = 0; seed < 3000; seed++) {
        int depth = (int)(seed % 40) + 1;
        int n = run_plan(compare_here, seed, depth);
        if (n < depth * 2)
            fail_msg("seed %u depth %d: %d", seed, depth, n);
    }
#ifndef UNDER_ASAN /* its frames are too large for rules */
    assert_true(cache.misses > 30);
#endif
    /* Warm: only frames too large for a rule are interpreted again. */
    uint64_t misses = cache.misses;
    for (unsigned seed = 0; seed < 100; seed++)
        run_plan(compare_here, seed, 3);
    assert_true(cache.misses - misses < 400);
}

static void each_shape_is_walked_alone(void **state)
{
    for (unsigned i = 0; i < SHAPES; i++) {
        struct plan plan = {.leaf = compare_here, .seed = 77, .depth = 0};
        int n = shapes[i](&plan);
        if (n <= 4)
            fail_msg("shape %u: %d", i, n);
    }
}

/* One call site each, whatever the compiler unrolls. */
static __attribute__((noinline)) int walk_realigned(unsigned which)
{
    struct plan plan = {.leaf = compare_here, .seed = 5, .depth = 0};
    int (*shape)(struct plan *) = which ? shape_aligned : shape_aligned_alloca;
    int n = shape(&plan);
    sink++;
    return n;
}

static void frames_that_realign_the_stack_are_cached(void **state)
{
    uint64_t misses = 0;
    for (volatile unsigned i = 0; i < 6; i++) {
        assert_true(walk_realigned(i & 1) > 4);
        if (i == 1)
            misses = cache.misses;
    }
    assert_int_equal(cache.misses, misses);
}

/* ---- limits ---- */

static size_t limit;
static int take_limited(void)
{
    uintptr_t pcs[MAX + 1], all[MAX];
    memset(pcs, 0xee, sizeof(pcs));
    struct unwind_state from = UNWIND_STATE_CALLER();
    struct unwind_trace trace;
    size_t n = unwind_stack_from(&cache, &from, pcs, limit, &trace);
    if (n != limit || pcs[limit] != (uintptr_t)0xeeeeeeeeeeeeeeee || !(trace.flags & UNWIND_CUT))
        return -1;
    n = unwind_stack_from(&cache, &from, all, MAX, &trace);
    if (n <= limit || memcmp(all, pcs, limit * sizeof(all[0])) != 0 || (trace.flags & UNWIND_CUT) ||
        !(trace.flags & UNWIND_COMPLETE))
        return -2;
    return 1;
}

static void stops_at_the_given_number_of_frames(void **state)
{
    for (limit = 1; limit < 30; limit++)
        assert_int_equal(run_plan(take_limited, 5, 20), 1);
}

static void takes_no_frames_when_none_are_wanted(void **state)
{
    uintptr_t pc = 42;
    assert_int_equal(unwind_stack(&cache, &pc, 0), 0);
    assert_int_equal(pc, 42);
}

static int take_uncached(void)
{
    uintptr_t slow[MAX], fast[MAX];
    struct unwind_state from = UNWIND_STATE_CALLER();
    size_t n = unwind_stack_from(NULL, &from, slow, MAX, NULL);
    size_t m = unwind_stack_from(&cache, &from, fast, MAX, NULL);
    return n == m && memcmp(slow, fast, n * sizeof(slow[0])) == 0 ? (int)n : -1;
}

static void works_without_a_cache(void **state)
{
    for (unsigned seed = 0; seed < 50; seed++)
        assert_true(run_plan(take_uncached, seed, 12) > 12);
}

static int take_errno(void)
{
    uintptr_t pcs[MAX];
    errno = 4711;
    size_t n = unwind_stack(NULL, pcs, MAX);
    return errno == 4711 ? (int)n : -1;
}

static void keeps_errno(void **state)
{
    assert_true(run_plan(take_errno, 3, 12) > 12);
}

/* ---- threads ---- */

static void *thread_compare(void *arg)
{
    for (unsigned seed = 0; seed < 300; seed++)
        if (run_plan(compare_here, seed * 7 + (unsigned)(uintptr_t)arg, 9) < 9)
            return NULL;
    return arg;
}

static void walks_threads_at_once(void **state)
{
    pthread_t threads[4];
    static struct unwind_cache fresh;
    memcpy(&cache, &fresh, sizeof(cache));
    for (uintptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, thread_compare, (void *)(i + 1)), 0);
    for (uintptr_t i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_ptr_equal(result, (void *)(i + 1));
    }
}

static void walks_a_thread_on_a_stack_of_the_program(void **state)
{
    size_t size = 16 << 20;
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attr;
    pthread_t thread;
    void *result;
    pthread_attr_init(&attr);
    assert_int_equal(pthread_attr_setstack(&attr, memory, size), 0);
    assert_int_equal(pthread_create(&thread, &attr, thread_compare, (void *)9), 0);
    pthread_join(thread, &result);
    assert_ptr_equal(result, (void *)9);
    pthread_attr_destroy(&attr);
    munmap(memory, size);
}

static void walks_after_fork(void **state)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(run_plan(compare_here, 11, 15) > 15 ? 0 : 1);
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
}

static void *thread_fork(void *arg)
{
    walks_after_fork(NULL);
    return arg;
}

static void walks_after_fork_from_a_thread(void **state)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, thread_fork, NULL), 0);
    pthread_join(thread, NULL);
}

/* ---- coroutines ---- */

static ucontext_t coroutine_main, coroutine_other;
static int coroutine_result;
static void coroutine_entry(void)
{
    coroutine_result = run_plan(compare_here, 21, 10);
}

static void walks_coroutine_stacks_that_come_and_go(void **state)
{
    for (int round = 0; round < 20; round++) {
        size_t size = (size_t)(256 + 64 * (round % 3)) << 12;
        char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_int_equal(getcontext(&coroutine_other), 0);
        coroutine_other.uc_stack.ss_sp = memory;
        coroutine_other.uc_stack.ss_size = size;
        coroutine_other.uc_link = &coroutine_main;
        makecontext(&coroutine_other, coroutine_entry, 0);
        coroutine_result = 0;
        swapcontext(&coroutine_main, &coroutine_other);
        munmap(memory, size);
        assert_true(coroutine_result > 10);
    }
}

/* ---- signals ---- */

static volatile int handler_result;
static volatile unsigned handler_runs;

static void handler_compare(int sig)
{
    int n = compare_here();
    if (handler_runs++ == 0 || n < handler_result)
        handler_result = n;
}

static void handler_install(int sig, void (*fn)(int), int flags)
{
    struct sigaction action = {.sa_handler = fn, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    assert_int_equal(sigaction(sig, &action, NULL), 0);
    handler_result = 0;
    handler_runs = 0;
}

static int leaf_raise(void)
{
    raise(SIGUSR1);
    return handler_result;
}

static void walks_out_of_a_signal_handler(void **state)
{
    handler_install(SIGUSR1, handler_compare, 0);
    assert_true(run_plan(leaf_raise, 8, 12) > 15);
    signal(SIGUSR1, SIG_DFL);
}

static void walks_from_a_signal_stack_to_the_interrupted_one(void **state)
{
    size_t size = 256 << 10;
    stack_t stack = {.ss_sp = malloc(size), .ss_size = size}, old;
    assert_int_equal(sigaltstack(&stack, &old), 0);
    handler_install(SIGUSR1, handler_compare, SA_ONSTACK);
    assert_true(run_plan(leaf_raise, 8, 12) > 15);
    signal(SIGUSR1, SIG_DFL);
    sigaltstack(&old, NULL);
    free(stack.ss_sp);
}

/* A timer hits anywhere: in the walk itself, in libgcc's, in prologues and string functions. libgcc
 * is not made for that everywhere (it may lack a table where we have one), so outermost frames are
 * compared with what is known to be there. */
static uintptr_t storm_outer[2];
static volatile unsigned storm_bad;
static struct unwind_cache storm_cache;

static void handler_storm(int sig)
{
    uintptr_t pcs[MAX];
    int saved = errno;
    size_t n = unwind_stack(&storm_cache, pcs, MAX);
    if (n < 4 || n == MAX || pcs[n - 1] != storm_outer[0] || pcs[n - 2] != storm_outer[1] ||
        errno != saved)
        storm_bad++;
    handler_runs++;
}

static int leaf_storm(void)
{
    uintptr_t first[MAX], pcs[MAX];
    size_t n = 0;
    for (int i = 0; i < 40; i++) {
        size_t m = unwind_stack(&storm_cache, pcs, MAX);
        if (i == 0) {
            n = m;
            memcpy(first, pcs, sizeof(first));
        }
        if (m != n || memcmp(first + 1, pcs + 1, (n - 1) * sizeof(pcs[0])) != 0)
            return -1;
    }
    return (int)n;
}

static void survives_a_storm_of_signals_that_walk_too(void **state)
{
    uintptr_t pcs[MAX];
    size_t n = unwind_stack(&storm_cache, pcs, MAX);
    storm_outer[0] = pcs[n - 1];
    storm_outer[1] = pcs[n - 2];
    handler_install(SIGALRM, handler_storm, SA_RESTART);
    struct itimerval timer = {.it_interval.tv_usec = 50, .it_value.tv_usec = 50};
    setitimer(ITIMER_REAL, &timer, NULL);
    for (unsigned seed = 0; handler_runs < 3000 && seed < 2000000; seed++) {
        if (seed % 64 == 0)
            memset(storm_cache.rules, 0,
                   sizeof(storm_cache.rules)); /* misses get interrupted too */
        assert_true(run_plan(leaf_storm, seed, 10) > 10);
    }
    timer = (struct itimerval){0};
    setitimer(ITIMER_REAL, &timer, NULL);
    signal(SIGALRM, SIG_DFL);
    assert_true(handler_runs >= 1000);
    assert_int_equal(storm_bad, 0);
}

#if defined(__x86_64__)

/* ---- every instruction ---- */

static volatile int step_bad;
static volatile uintptr_t step_bad_pc;
static uintptr_t step_outer;

/* The trap flag is set: this runs after each instruction of what is being traced. */
static void handler_step(int sig, siginfo_t *info, void *context)
{
    ucontext_t *uc = context;
    uintptr_t pcs[MAX];
    struct reference ref = {.n = 0};
    size_t n = unwind_stack(&cache, pcs, MAX);
    _Unwind_Backtrace(reference_add, &ref);
    bool same = n == ref.n && pcs[n - 1] == step_outer;
    for (size_t i = 1; i < n && same; i++)
        same = pcs[i] == ref.pcs[i];
    if (!same && step_bad++ == 0)
        step_bad_pc = (uintptr_t)uc->uc_mcontext.gregs[REG_RIP];
    handler_runs++;
}

/* With tables of their own, so that they are no exception. */
void trap_flag_set(void);
void trap_flag_clear(void);
__asm__(".text\n"
        "trap_flag_set:\n"
        ".cfi_startproc\n"
        "pushfq\n"
        ".cfi_adjust_cfa_offset 8\n"
        "orq $0x100, (%rsp)\n"
        "popfq\n"
        ".cfi_adjust_cfa_offset -8\n"
        "ret\n"
        ".cfi_endproc\n"
        "trap_flag_clear:\n"
        ".cfi_startproc\n"
        "pushfq\n"
        ".cfi_adjust_cfa_offset 8\n"
        "andq $~0x100, (%rsp)\n"
        "popfq\n"
        ".cfi_adjust_cfa_offset -8\n"
        "ret\n"
        ".cfi_endproc\n");

static int leaf_stepped(void)
{
    char text[64];
    int values[] = {5, 4, 3, 2, 1};
    trap_flag_set();
    qsort(values, 5, sizeof(int), sort_compare);
    memset(text, 'x', sizeof(text));
    text[63] = '\0';
    sink += (unsigned)strlen(text) + (unsigned)atoi("1234") + (unsigned)strtod("1.5", NULL);
    shape_plain(&(struct plan){.leaf = take_errno, .depth = 1, .seed = 1});
    trap_flag_clear();
    return 1;
}

static void is_right_after_every_single_instruction(void **state)
{
#ifdef UNDER_TSAN
    skip(); /* it takes locks between instructions, and the handler would wait for them */
#endif
    uintptr_t pcs[MAX];
    size_t n = unwind_stack(&cache, pcs, MAX);
    step_outer = pcs[n - 1];
    handler_install(SIGTRAP, NULL, 0);
    struct sigaction action = {.sa_sigaction = handler_step, .sa_flags = SA_SIGINFO};
    assert_int_equal(sigaction(SIGTRAP, &action, NULL), 0);
    step_bad = 0;
    run_plan(leaf_stepped, 4, 6);
    signal(SIGTRAP, SIG_DFL);
    if (step_bad)
        fail_msg("%d of %u differ, first at %p", step_bad, handler_runs, (void *)step_bad_pc);
    assert_true(handler_runs > 2000);
}

/* ---- a frame that is found by a register only full walks carry ---- */

int frame_by_rbx(int (*fn)(void));
__asm__(".text\n"
        ".type frame_by_rbx, @function\n"
        "frame_by_rbx:\n"
        ".cfi_startproc\n"
        "push %rbx\n"
        ".cfi_def_cfa_offset 16\n"
        ".cfi_offset %rbx, -16\n"
        "mov %rsp, %rbx\n"
        ".cfi_def_cfa_register %rbx\n"
        "sub $64, %rsp\n"
        "and $-64, %rsp\n"
        "call *%rdi\n"
        "mov %rbx, %rsp\n"
        ".cfi_def_cfa_register %rsp\n"
        "pop %rbx\n"
        ".cfi_def_cfa_offset 8\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size frame_by_rbx, .-frame_by_rbx\n");

static int leaf_by_rbx(void)
{
    int r = frame_by_rbx(compare_here);
    sink++;
    return r;
}

static void starts_again_with_all_registers_when_a_frame_needs_one(void **state)
{
    for (unsigned seed = 0; seed < 100; seed++)
        assert_true(run_plan(leaf_by_rbx, seed, 6) > 10);
}

/* ---- code without tables ---- */

static uint32_t jit_flags;
static int take_through_jit(void)
{
    uintptr_t pcs[MAX];
    struct unwind_state from = UNWIND_STATE_CALLER();
    struct unwind_trace trace;
    size_t n = unwind_stack_from(&cache, &from, pcs, MAX, &trace);
    jit_flags = trace.flags;
    return (int)n;
}

static int (*jit_code)(int (*)(void));
static int leaf_jit(void)
{
    int r = jit_code(take_through_jit);
    sink++;
    return r;
}

static void follows_frame_pointers_through_generated_code(void **state)
{
    static const uint8_t code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(page, code, sizeof(code)); /* push rbp; mov rbp,rsp; call *rdi; pop rbp; ret */
    assert_int_equal(mprotect(page, 4096, PROT_READ | PROT_EXEC), 0);
    *(void **)&jit_code = page;
    int plain = run_plan(take_through_jit, 3, 8), through = run_plan(leaf_jit, 3, 8);
    assert_int_equal(through, plain + 2);
    assert_true(jit_flags & UNWIND_UNSTABLE);
    munmap(page, 4096);
}
#endif

/* ---- damaged stacks ---- */

static uint64_t random_state = 88172645463325252;
static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void survives_any_stack_content(void **state)
{
    enum { WORDS = 2048 };
    /* The end of readable memory follows the fake stack directly. */
    char *memory =
        mmap(NULL, 3 * WORDS * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_int_equal(munmap(memory, WORDS * 8), 0);
    assert_int_equal(munmap(memory + 2 * WORDS * 8, WORDS * 8), 0);
    uintptr_t *stack = (uintptr_t *)(memory + WORDS * 8);
    uintptr_t known[MAX], pcs[MAX];
    size_t n = unwind_stack(&cache, known, MAX);
    for (int round = 0; round < 200000; round++) {
        if (round % 50 == 0) {
            for (size_t i = 0; i < WORDS; i++) {
                uint64_t r = random_next();
                switch (r >> 32 & 7) {
                case 0 ... 2:
                    stack[i] = known[r % n];
                    break;
                case 3 ... 5: /* also below and past the end, and not aligned */
                    stack[i] = (uintptr_t)stack + r % (WORDS * 10) - WORDS;
                    break;
                case 6:
                    stack[i] = r;
                    break;
                default:
                    stack[i] = (uintptr_t)&known + r % 9000 - 4000;
                }
            }
        }
        struct unwind_state from = {.pc = known[random_next() % n],
                                    .sp = (uintptr_t)&stack[random_next() % WORDS],
                                    .fp = (uintptr_t)&stack[random_next() % (WORDS + 8)]};
        struct unwind_trace trace;
        size_t got = unwind_stack_from(&cache, &from, pcs, MAX, &trace);
        assert_in_range(got, 1, MAX);
        if (round % 16 == 0)
            unwind_frame_pointers(pcs, MAX, from.fp);
    }
    munmap(stack, WORDS * 8);
    /* Every address is bad. */
    for (int round = 0; round < 2000; round++) {
        struct unwind_state from = {
            .pc = random_next() >> (round % 64), .sp = random_next(), .fp = random_next()};
        if (round & 1)
            from.pc = known[random_next() % n];
        unwind_stack_from(&cache, &from, pcs, MAX, NULL);
        unwind_frame_pointers(pcs, MAX, from.fp);
        unwind_identity(&cache, from.pc);
    }
}

static __attribute__((noinline, no_sanitize("address", "undefined"))) int leaf_smash(void)
{
    /* Overwrite what lies above, return addresses included, then walk over it, and never return. */
    uintptr_t pcs[MAX];
    volatile uintptr_t *frame = __builtin_frame_address(0);
    for (int i = 1; i < 400; i++) {
        uint64_t r = random_next();
        frame[i] = r & 1 ? (uintptr_t)frame + r % 8000 : r & 2 ? frame[1] : r >> 20;
    }
    unwind_stack(&cache, pcs, MAX);
    unwind_frame_pointers(pcs, MAX, (uintptr_t)frame);
    _exit(0);
}

static void survives_a_smashed_real_stack(void **state)
{
    for (unsigned seed = 0; seed < 100; seed++) {
        random_next();
        pid_t pid = fork();
        if (pid == 0) {
            random_state += seed * 7919;
            run_plan(leaf_smash, seed, 12);
            _exit(1);
        }
        int status;
        waitpid(pid, &status, 0);
        if (status != 0)
            fail_msg("seed %u: status %x", seed, status);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_shape_is_walked_alone),
        cmocka_unit_test(equals_libgcc_on_many_stacks),
        cmocka_unit_test(frames_that_realign_the_stack_are_cached),
        cmocka_unit_test(stops_at_the_given_number_of_frames),
        cmocka_unit_test(takes_no_frames_when_none_are_wanted),
        cmocka_unit_test(works_without_a_cache),
        cmocka_unit_test(keeps_errno),
        cmocka_unit_test(walks_threads_at_once),
        cmocka_unit_test(walks_a_thread_on_a_stack_of_the_program),
        cmocka_unit_test(walks_after_fork),
        cmocka_unit_test(walks_after_fork_from_a_thread),
        cmocka_unit_test(walks_coroutine_stacks_that_come_and_go),
        cmocka_unit_test(walks_out_of_a_signal_handler),
        cmocka_unit_test(walks_from_a_signal_stack_to_the_interrupted_one),
        cmocka_unit_test(survives_a_storm_of_signals_that_walk_too),
#if defined(__x86_64__)
        cmocka_unit_test(is_right_after_every_single_instruction),
        cmocka_unit_test(starts_again_with_all_registers_when_a_frame_needs_one),
        cmocka_unit_test(follows_frame_pointers_through_generated_code),
#endif
        cmocka_unit_test(survives_any_stack_content),
        cmocka_unit_test(survives_a_smashed_real_stack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
