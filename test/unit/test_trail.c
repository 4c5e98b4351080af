/* Walks that go on where an earlier one has been, compared with walks by the tables alone at the same moment.
 *
 * Built without frame pointers, as test_unwind.c. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "check.h"
#include "site/trail.h"
#include "stack_shapes.h"

#if defined(__x86_64__)

enum { MAX = TRAIL_FRAMES_MAX + 8 };

static struct unwind_cache cache;

/* One for each thread, too large for its stack. */
struct traced {
    struct trail trail;
    uintptr_t pcs[MAX], sps[MAX];
    bool busy;
    unsigned walked, refused;
    uint64_t frames, kept;
};
static __thread struct traced *traced;

static struct traced *traced_get(void)
{
    if (!traced)
        traced = calloc(1, sizeof(*traced));
    return traced;
}

/* 1; below that: what is wrong. */
static int compare_from(const struct unwind_state *from)
{
    struct traced *t = traced_get();
    if (t->busy)
        return 1;
    t->busy = true;
    uint32_t kept = 0;
    int r = trail_walk(&t->trail, &cache, from, &kept), result = 1;
    if (r < 0) {
        t->refused++;
    } else {
        const struct trail *trail = &t->trail;
        size_t n = unwind_stack_places(NULL, from, t->pcs, t->sps, MAX, NULL);
        t->walked++;
        t->frames += n;
        t->kept += kept;
        if (trail->n != n || kept > n)
            result = -1;
        for (size_t i = 0; i < n && result == 1; i++)
            if (trail->frames[n - 1 - i].pc != t->pcs[i] ||
                trail->frames[n - 1 - i].sp != t->sps[i])
                result = -2;
        if (result == 1 && !trail_hold(trail->checks, trail->frames[trail->n - 1].checks))
            result = -3;
    }
    t->busy = false;
    return result;
}

static __attribute__((noinline)) int compare_here(void)
{
    struct unwind_state from = UNWIND_STATE_CALLER();
    int r = compare_from(&from);
    sink++;
    return r;
}

static int run(unsigned seed, int depth)
{
    struct plan plan = {.leaf = compare_here, .again = compare_here, .seed = seed, .depth = depth};
    plan.shapes = seed % 8 ? SHAPES - 1 : 0;
    return go_on(&plan);
}

static void equals_a_walk_by_the_tables_on_many_stacks(void **state)
{
    for (unsigned seed = 0; seed < 1500; seed++)
        if (run(seed, (int)(seed % 40)) != 1)
            fail_msg("seed %u: %d", seed, run(seed, (int)(seed % 40)));
#ifndef UNDER_ASAN /* its frames are too large for rules */
    assert_true(traced->walked > traced->refused);
    assert_true(traced->kept > traced->frames / 2);
#endif
}

/* The same from the same place, and from another line of the same function. */
static __attribute__((noinline)) int inner(void)
{
    int r = compare_here();
    sink++;
    return r;
}
static __attribute__((noinline)) int two_lines(int which)
{
    int r;
    if (which)
        r = inner();
    else
        r = inner();
    sink += (unsigned)r + (unsigned)which;
    return r;
}
static __attribute__((noinline)) int two_lines_further_out(int which)
{
    int r;
    if (which & 2)
        r = two_lines(which & 1);
    else
        r = two_lines(which & 1);
    sink += (unsigned)r;
    return r;
}

static void a_stack_that_differs_further_out_is_another(void **state)
{
    unsigned order = 1;
    for (volatile int i = 0; i < 500; i++) {
        order = order * 1103515245 + 12345;
        assert_int_equal(two_lines_further_out((int)(order >> 16 & 3)), 1);
    }
}

/* ---- stacks made by hand ---- */

/* Code that never runs: only its tables count. Frames by a register that is saved; by sp, with and without saving
 * it; and one that is the outermost. */
void hand_by_fp(void);
void hand_by_sp(void);
void hand_saving(void);
void hand_end(void);
__asm__(".text\n"
        "hand_by_fp:\n"
        ".cfi_startproc\n"
        ".cfi_def_cfa %rbp, 16\n"
        ".cfi_offset %rbp, -16\n"
        "nop\nnop\nnop\nnop\n"
        ".cfi_endproc\n"
        "hand_by_sp:\n"
        ".cfi_startproc\n"
        ".cfi_def_cfa %rsp, 32\n"
        "nop\nnop\nnop\nnop\n"
        ".cfi_endproc\n"
        "hand_saving:\n"
        ".cfi_startproc\n"
        ".cfi_def_cfa %rsp, 32\n"
        ".cfi_offset %rbp, -24\n"
        "nop\nnop\nnop\nnop\n"
        ".cfi_endproc\n"
        "hand_end:\n"
        ".cfi_startproc\n"
        ".cfi_undefined %rip\n"
        "nop\nnop\nnop\nnop\n"
        ".cfi_endproc\n");
/* The stack is the thread's own: the sanitizer would put such a variable elsewhere. */
#define ON_THE_STACK __attribute__((no_sanitize("address")))
#define BY_FP        ((uintptr_t)hand_by_fp + 2)
#define BY_SP        ((uintptr_t)hand_by_sp + 2)
#define SAVING       ((uintptr_t)hand_saving + 2)
#define END          ((uintptr_t)hand_end + 2)

ON_THE_STACK static void a_return_address_that_is_left_over_is_not_believed(void **state)
{
    uintptr_t area[64] = {0};
    /* The frame register, as the walk begins, says where the frame is. */
    area[20] = 0;
    area[21] = END;
    struct unwind_state from = {.pc = BY_FP, .sp = (uintptr_t)area, .fp = (uintptr_t)&area[20]};
    assert_int_equal(compare_from(&from), 1);
    assert_int_equal(traced->trail.n, 2);
    assert_true(traced->trail.frames[1].fp_used);
    /* Now it is larger, and called from elsewhere; what was there before is still on the stack. */
    area[31] = BY_SP;
    area[32 + 3] = END;
    from.fp = (uintptr_t)&area[30];
    assert_int_equal(compare_from(&from), 1);
    assert_int_equal(traced->trail.n, 3);
}

ON_THE_STACK static void a_saved_frame_pointer_that_is_another_is_noticed(void **state)
{
    uintptr_t area[64] = {0};
    /* area[0..3]: by sp, saves the register; then a frame by that register. */
    area[1] = (uintptr_t)&area[20];
    area[3] = BY_FP;
    area[21] = END;
    area[31] = BY_SP;
    area[32 + 3] = END;
    struct unwind_state from = {.pc = SAVING, .sp = (uintptr_t)area, .fp = 1};
    assert_int_equal(compare_from(&from), 1);
    assert_int_equal(traced->trail.n, 3);
    assert_false(traced->trail.frames[2].fp_used); /* the walk may begin with anything in it */
    assert_int_equal(traced->trail.frames[2].checks, 3);
    area[1] = (uintptr_t)&area[30];
    assert_int_equal(compare_from(&from), 1);
    assert_int_equal(traced->trail.n, 4);
    /* A register that is saved and that nobody needs may hold anything. */
    area[3] = END;
    assert_int_equal(compare_from(&from), 1);
    assert_int_equal(traced->trail.frames[1].checks, 1);
}

ON_THE_STACK static void a_walk_joins_only_with_the_register_it_was_there_with(void **state)
{
    uintptr_t area[64] = {0};
    struct unwind_state from = {.pc = BY_SP, .sp = (uintptr_t)area, .fp = (uintptr_t)&area[20]};
    area[3] = BY_SP; /* sp is area[4] then */
    area[7] = BY_FP;
    area[21] = END;
    area[31] = END;
    assert_int_equal(compare_from(&from), 1);
    assert_true(traced->trail.frames[traced->trail.n - 1].fp_used);
    from.pc = SAVING; /* what is on the stack is the same but for this */
    area[1] = (uintptr_t)&area[30];
    assert_int_equal(compare_from(&from), 1);
    assert_true(traced->trail.frames[0].sp == (uintptr_t)&area[32]);
}

ON_THE_STACK static void what_leads_nowhere_leaves_no_trail(void **state)
{
    uintptr_t area[64] = {0};
    struct unwind_state from = {.pc = BY_FP, .sp = (uintptr_t)area};
    uint32_t kept;
    struct traced *t = traced_get();
    const uintptr_t bad[] = {0, 8, (uintptr_t)area - 64, (uintptr_t)area + 4, UINTPTR_MAX - 7};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        from.fp = bad[i];
        assert_true(trail_walk(&t->trail, &cache, &from, &kept) < 0);
    }
    from = (struct unwind_state){.pc = BY_SP, .sp = (uintptr_t)area};
    assert_int_equal(trail_walk(&t->trail, &cache, &from, &kept), -ENOENT); /* to address 0 */
    area[3] = (uintptr_t)area;
    assert_int_equal(trail_walk(&t->trail, &cache, &from, &kept), -ENOENT); /* no code is there */
    assert_int_equal(compare_here(), 1);
}

/* ---- depth ---- */

static __attribute__((noinline)) int deep(int depth)
{
    int r = depth == 0 ? compare_here() : deep(depth - 1);
    sink += (unsigned)depth;
    return r;
}

static void a_stack_that_is_too_deep_leaves_no_trail(void **state)
{
    unsigned refused = traced_get()->refused;
    assert_int_equal(deep(TRAIL_FRAMES_MAX - 100), 1);
    assert_int_equal(traced->refused, refused);
    assert_int_equal(deep(TRAIL_FRAMES_MAX), 1);
    assert_int_equal(traced->refused, refused + 1);
    assert_int_equal(deep(40), 1);
    assert_int_equal(traced->refused, refused + 1);
}

/* ---- ways to leave a stack ---- */

static jmp_buf jump;
static int leaf_jump(void)
{
    if (compare_here() == 1)
        longjmp(jump, 1);
    return 0;
}

static void stacks_are_left_by_longjmp(void **state)
{
    for (volatile unsigned seed = 0; seed < 300; seed++) {
        struct plan plan = {.leaf = leaf_jump, .seed = seed, .depth = (int)(seed % 20)};
        if (setjmp(jump) == 0) {
            go_on(&plan);
            fail_msg("seed %u", seed);
        }
        assert_int_equal(compare_here(), 1);
        assert_int_equal(run(seed, 3), 1);
    }
}

static volatile int handled;
static void handler(int sig)
{
    handled = run((unsigned)handled, 5);
}
static int leaf_raise(void)
{
    handled = 0;
    raise(SIGUSR1);
    int r = compare_here();
    return handled == 1 && r == 1 ? 1 : -9;
}

static void signals_come_on_this_stack_and_on_others(void **state)
{
    enum { BYTES = 256 << 10 };
    stack_t stack = {.ss_sp = malloc(BYTES), .ss_size = BYTES}, old;
    assert_int_equal(sigaltstack(&stack, &old), 0);
    for (int flags = 0; flags < 2; flags++) {
        struct sigaction action = {.sa_handler = handler, .sa_flags = flags ? SA_ONSTACK : 0};
        assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
        for (unsigned seed = 0; seed < 100; seed++) {
            struct plan plan = {
                .leaf = leaf_raise, .again = compare_here, .seed = seed, .depth = 7};
            assert_int_equal(go_on(&plan), 1);
        }
    }
    signal(SIGUSR1, SIG_DFL);
    sigaltstack(&old, NULL);
    free(stack.ss_sp);
}

static ucontext_t here, there;
static int coroutine_result;
static void coroutine(void)
{
    for (;;) {
        int r = run(7, 9);
        coroutine_result = r < coroutine_result ? r : coroutine_result;
        swapcontext(&there, &here);
    }
}

static void coroutines_take_turns(void **state)
{
    enum { BYTES = 1 << 20 };
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_int_equal(getcontext(&there), 0);
    there.uc_stack.ss_sp = memory;
    there.uc_stack.ss_size = BYTES;
    makecontext(&there, coroutine, 0);
    coroutine_result = 1;
    for (unsigned i = 0; i < 50; i++) {
        assert_int_equal(run(i, (int)(i % 9)), 1);
        swapcontext(&here, &there);
    }
    assert_int_equal(coroutine_result, 1);
    munmap(memory, BYTES);
}

/* A coroutine whose stack is a part of this one. */
static void coroutines_run_within_the_own_stack(void **state)
{
    char memory[256 << 10];
    assert_int_equal(getcontext(&there), 0);
    there.uc_stack.ss_sp = memory;
    there.uc_stack.ss_size = sizeof(memory);
    makecontext(&there, coroutine, 0);
    coroutine_result = 1;
    for (unsigned i = 0; i < 50; i++) {
        assert_int_equal(run(i, (int)(i % 9)), 1);
        swapcontext(&here, &there);
    }
    assert_int_equal(coroutine_result, 1);
}

static void *thread(void *arg)
{
    int result = 1;
    for (unsigned seed = 0; seed < 200; seed++)
        if (run(seed + (unsigned)(uintptr_t)arg, 9) != 1)
            result = 0;
    free(traced);
    return result ? arg : NULL;
}

static void threads_have_trails_of_their_own(void **state)
{
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, thread, (void *)(i + 1)), 0);
    for (uintptr_t i = 0; i < 3; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_ptr_equal(result, (void *)(i + 1));
    }
}

/* The trail of a thread that ended, whose stack may be gone: what is left of it is not read. */
static void *thread_taking_over(void *arg)
{
    traced = arg;
    return (void *)(intptr_t)run(3, 12);
}

static void a_trail_can_be_taken_over_by_another_thread(void **state)
{
    struct traced *t = calloc(1, sizeof(*t));
    for (unsigned i = 0; i < 20; i++) {
        size_t bytes = (size_t)(4096 - 512 * (i % 3)) << 10;
        char *memory =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        pthread_attr_t attr;
        pthread_t started;
        void *result;
        pthread_attr_init(&attr);
        assert_int_equal(pthread_attr_setstack(&attr, memory, bytes), 0);
        assert_int_equal(pthread_create(&started, &attr, thread_taking_over, t), 0);
        pthread_join(started, &result);
        assert_int_equal((intptr_t)result, 1);
        pthread_attr_destroy(&attr);
        munmap(memory, bytes);
    }
    free(t);
}

#define T(test) cmocka_unit_test(test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(equals_a_walk_by_the_tables_on_many_stacks),
        T(a_stack_that_differs_further_out_is_another),
        T(a_return_address_that_is_left_over_is_not_believed),
        T(a_saved_frame_pointer_that_is_another_is_noticed),
        T(a_walk_joins_only_with_the_register_it_was_there_with),
        T(what_leads_nowhere_leaves_no_trail),
        T(a_stack_that_is_too_deep_leaves_no_trail),
        T(stacks_are_left_by_longjmp),
        T(signals_come_on_this_stack_and_on_others),
        T(coroutines_take_turns),
        T(coroutines_run_within_the_own_stack),
        T(threads_have_trails_of_their_own),
        T(a_trail_can_be_taken_over_by_another_thread),
    };
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    free(traced);
    return r;
}

#else

/* Where return addresses are not always below the frame, every stack is walked. */
static void no_stack_leaves_a_trail(void **state)
{
    static struct trail trail;
    static struct unwind_cache cache;
    struct unwind_state from = UNWIND_STATE_CALLER();
    uint32_t kept;
    assert_int_equal(trail_walk(&trail, &cache, &from, &kept), -ENOTSUP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_stack_leaves_a_trail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
