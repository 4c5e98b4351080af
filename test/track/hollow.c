/* hollow.c: two threads, one after the other, whose stacks end at the same place. The first has frames in the lower part of an area
 * and in its middle; the second has only the upper part, runs a coroutine in the lower one, whose frames lie where the
 * first one's did, and in between nothing can be read. */
#include <alloca.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "own.h"

enum { AREA = 1 << 20, LOWER = 256 << 10, UPPER = 128 << 10, HOLE = 64 << 10, TIMES = 5 };

static char *area;
static uintptr_t low, middle; /* where frames are to be */
static uintptr_t leaf_at;
static void *volatile sink;

static __attribute__((noinline)) void leaf(void)
{
    leaf_at = (uintptr_t)__builtin_frame_address(0);
    sink = malloc(40);
    free(sink);
}

static __attribute__((noinline)) void from_low(void)
{
    uintptr_t here = (uintptr_t)alloca(16);
    *(volatile char *)alloca(here - low) = 1;
    leaf();
    __asm__ volatile("");
}

static __attribute__((noinline)) void from_middle(void)
{
    uintptr_t here = (uintptr_t)alloca(16);
    *(volatile char *)alloca(here - middle) = 1;
    from_low();
    __asm__ volatile("");
}

static void *whole(void *arg)
{
    for (int i = 0; i < TIMES; i++)
        from_middle();
    return arg;
}

static ucontext_t here, there;
static void coroutine(void)
{
    for (int i = 0; i < TIMES; i++)
        from_low();
}

static void *hollow(void *arg)
{
    leaf(); /* the top of its stack is known from now on */
    MUST(mprotect(area + AREA / 2 - HOLE / 2, HOLE, PROT_NONE) == 0);
    MUST(getcontext(&there) == 0);
    there.uc_stack.ss_sp = area;
    there.uc_stack.ss_size = LOWER;
    there.uc_link = &here;
    makecontext(&there, coroutine, 0);
    MUST(swapcontext(&here, &there) == 0);
    return arg;
}

static void run(void *(*function)(void *), void *stack, size_t bytes)
{
    pthread_attr_t attr;
    pthread_t thread;
    MUST(pthread_attr_init(&attr) == 0);
    MUST(pthread_attr_setstack(&attr, stack, bytes) == 0);
    MUST(pthread_create(&thread, &attr, function, NULL) == 0);
    MUST(pthread_join(thread, NULL) == 0);
    pthread_attr_destroy(&attr);
}

int main(void)
{
    area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(area != MAP_FAILED);
    low = (uintptr_t)area + LOWER / 2;
    middle = (uintptr_t)area + AREA / 2;
    run(whole, area, AREA);
    uintptr_t first = leaf_at;
    run(hollow, area + AREA - UPPER, UPPER);
    puts(leaf_at == first ? "same" : "elsewhere");
    return 0;
}
