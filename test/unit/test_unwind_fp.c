/* Walks along saved frame pointers. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "check.h"
#include "site/stack.h"
#include "site/unwind.h"

enum { MAX = 64 };

static volatile int sink;
static uintptr_t seen[MAX];
static uintptr_t returns[MAX]; /* what each level itself knows as its return address */

static __attribute__((noinline)) size_t descend(int depth, size_t max)
{
    returns[depth] = (uintptr_t)__builtin_return_address(0);
    size_t n = depth == 0 ? unwind_frame_pointers(seen, max, (uintptr_t)__builtin_frame_address(0))
                          : descend(depth - 1, max);
    sink++;
    return n;
}

static void finds_every_return_address_in_order(void **state)
{
    size_t n = descend(30, MAX);
    assert_in_range(n, 31, MAX);
    for (int i = 0; i <= 30; i++)
        assert_true(seen[i] == returns[i]);
}

static void stops_at_the_given_number(void **state)
{
    memset(seen, 0xee, sizeof(seen));
    assert_int_equal(descend(30, 7), 7);
    assert_true(seen[7] == (uintptr_t)0xeeeeeeeeeeeeeeee);
    assert_int_equal(descend(30, 0), 0);
}

static void *thread_main(void *arg)
{
    return descend(20, MAX) >= 21 ? arg : NULL;
}

static void walks_a_thread(void **state)
{
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, thread_main, seen), 0);
    pthread_join(thread, &result);
    assert_ptr_equal(result, seen);
}

static void garbage_in_the_frame_register_ends_the_walk(void **state)
{
    static uintptr_t heap[4] = {1, 2, 3, 4};
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    uintptr_t bad[] = {0,
                       1,
                       8,
                       here + 3,
                       (uintptr_t)heap,
                       UINTPTR_MAX & ~7ul,
                       0x7fffffffe000,
                       4096,
                       here - (1 << 20)};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(unwind_frame_pointers(seen, MAX, bad[i]), 0);
}

static void chain_that_points_back_ends(void **state)
{
#ifdef UNDER_ASAN
    skip(); /* it keeps local arrays elsewhere than on the stack */
#endif
    uintptr_t frames[4];
    frames[0] = (uintptr_t)&frames[2];
    frames[1] = 0x123456;
    frames[2] = (uintptr_t)&frames[0];
    frames[3] = 0x654321;
    assert_int_equal(unwind_frame_pointers(seen, MAX, (uintptr_t)frames), 2);
    assert_true(seen[0] == 0x123456 && seen[1] == 0x654321);
}

static ucontext_t main_context, other_context;
static size_t other_frames;
static void other_entry(void)
{
    other_frames = descend(15, MAX);
}

static void walks_a_coroutine(void **state)
{
    size_t size = 64 << 10;
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    getcontext(&other_context);
    other_context.uc_stack.ss_sp = memory;
    other_context.uc_stack.ss_size = size;
    other_context.uc_link = &main_context;
    makecontext(&other_context, other_entry, 0);
    swapcontext(&main_context, &other_context);
    munmap(memory, size);
    assert_in_range(other_frames, 16, 20);
}

/* ---- what is readable ---- */

static void probe_tells_readable_from_unreadable(void **state)
{
    char *memory = mmap(NULL, 3 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(memory + 4096, 4096, PROT_NONE);
    assert_true(stack_probe((uintptr_t)memory, 4096));
    assert_true(stack_probe((uintptr_t)memory, 0));
    assert_false(stack_probe((uintptr_t)memory, 4097));
    assert_false(stack_probe((uintptr_t)memory + 4096, 1));
    assert_true(stack_probe((uintptr_t)memory + 8192, 4096));
    munmap(memory, 3 * 4096);
    assert_false(stack_probe((uintptr_t)memory, 8));
    assert_false(stack_probe(UINTPTR_MAX - 4, 8));
    assert_false(stack_probe(0, 8));
}

static void bounds_of_the_own_stack_reach_its_top(void **state)
{
    struct stack_bounds b;
    uintptr_t sp = (uintptr_t)__builtin_frame_address(0);
    stack_bounds_find(sp, &b);
    assert_true(b.lo <= sp && b.hi > sp && b.hi == b.limit);
    assert_true(stack_probe(b.lo, b.hi - b.lo));
}

static void bounds_of_another_stack_end_where_it_ends(void **state)
{
    size_t size = 8 * 4096;
    char *memory = mmap(NULL, size + 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(memory + size, 4096, PROT_NONE);
    struct stack_bounds b;
    uintptr_t sp = (uintptr_t)memory + 4096 + 16;
    stack_bounds_find(sp, &b);
    assert_true(b.lo <= sp && b.hi > sp);
    assert_true(stack_reach(&b, (uintptr_t)memory + size - 8));
    assert_true(stack_has_word(&b, (uintptr_t)memory + size - 8));
    assert_false(stack_reach(&b, (uintptr_t)memory + size - 4));
    assert_false(stack_reach(&b, (uintptr_t)memory));
    munmap(memory, size + 4096);
    stack_bounds_find(sp, &b);
    assert_true(b.lo == b.hi);
}

/* Just below a thread's stack (and its guard) lies another stack. It must not be taken for a part of
 * the thread's: it may go away. */
static void *thread_neighbour(void *arg)
{
    struct stack_bounds b;
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    char *near = (char *)((here & ~(uintptr_t)4095) - (20 << 20));
    char *memory = mmap(near, 4 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int round = 0; round < 2; round++) { /* before and after the own stack is known */
        stack_bounds_find((uintptr_t)memory + 64, &b);
        if (b.hi > (uintptr_t)memory + 4 * 4096 || b.hi == b.limit)
            return NULL;
        stack_bounds_find(here, &b);
        if (b.hi != b.limit || b.lo > here || b.hi <= here || !stack_probe(b.lo, b.hi - b.lo))
            return NULL;
    }
    munmap(memory, 4 * 4096);
    return arg;
}

static void neighbour_of_a_thread_stack_is_not_part_of_it(void **state)
{
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, thread_neighbour, seen), 0);
    pthread_join(thread, &result);
    assert_ptr_equal(result, seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_every_return_address_in_order),
        cmocka_unit_test(stops_at_the_given_number),
        cmocka_unit_test(walks_a_thread),
        cmocka_unit_test(garbage_in_the_frame_register_ends_the_walk),
        cmocka_unit_test(chain_that_points_back_ends),
        cmocka_unit_test(walks_a_coroutine),
        cmocka_unit_test(probe_tells_readable_from_unreadable),
        cmocka_unit_test(bounds_of_the_own_stack_reach_its_top),
        cmocka_unit_test(bounds_of_another_stack_end_where_it_ends),
        cmocka_unit_test(neighbour_of_a_thread_stack_is_not_part_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
