/* winding.c: allocates on stacks of every kind, many times over: for what takes a stack of each call. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "../unit/stack_shapes.h"

static __attribute__((noinline)) int allocate(void)
{
    for (volatile int i = 0; i < 3; i++) {
        char *block = malloc(24 + (unsigned)i), *more = calloc(1, 100);
        block = realloc(block, 80);
        free(more);
        free(block);
    }
    free(malloc(10));
    return 1;
}

static int run(unsigned seed, int depth)
{
    struct plan plan = {.leaf = allocate, .again = allocate, .seed = seed, .depth = depth};
    plan.shapes = seed % 8 ? SHAPES - 1 : 0;
    return go_on(&plan);
}

static jmp_buf jump;
static int leaf_jump(void)
{
    allocate();
    longjmp(jump, 1);
}

static void handler(int sig)
{
    run((unsigned)sig, 3);
}
static int leaf_raise(void)
{
    allocate();
    raise(SIGUSR1);
    return allocate();
}

static ucontext_t here, there;
static void coroutine(void)
{
    for (unsigned seed = 0;; seed++) {
        run(seed, 4);
        swapcontext(&there, &here);
    }
}

static void *thread(void *arg)
{
    for (unsigned seed = 0; seed < 30; seed++)
        run(seed, 6);
    return arg;
}

int main(void)
{
    enum { BYTES = 256 << 10 };
    for (unsigned seed = 0; seed < 150; seed++)
        run(seed, (int)(seed % 30));
    for (volatile unsigned seed = 0; seed < 50; seed++)
        if (setjmp(jump) == 0) {
            struct plan plan = {.leaf = leaf_jump, .seed = seed, .depth = (int)(seed % 20)};
            go_on(&plan);
        }
    static char memory[2][BYTES];
    stack_t stack = {.ss_sp = memory[0], .ss_size = BYTES};
    sigaltstack(&stack, NULL);
    for (int flags = 0; flags < 2; flags++) {
        struct sigaction action = {.sa_handler = handler, .sa_flags = flags ? SA_ONSTACK : 0};
        sigaction(SIGUSR1, &action, NULL);
        for (unsigned seed = 0; seed < 20; seed++) {
            struct plan plan = {.leaf = leaf_raise, .seed = seed, .depth = 5};
            go_on(&plan);
        }
    }
    getcontext(&there);
    there.uc_stack.ss_sp = memory[1];
    there.uc_stack.ss_size = BYTES;
    makecontext(&there, coroutine, 0);
    for (unsigned seed = 0; seed < 30; seed++) {
        run(seed, 5);
        swapcontext(&here, &there);
    }
    for (int round = 0; round < 3; round++) {
        pthread_t threads[2];
        for (int i = 0; i < 2; i++)
            pthread_create(&threads[i], NULL, thread, NULL);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
    }
    puts("done");
    return 0;
}
