/* A program that knows nothing of memoir, whose heap has one peak: large blocks, small ones, and those of a thread are all
 * there at once. Then they are freed and others take a fifth of it. It says "ready" and waits for the end of its input. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define APART __attribute__((noinline))

enum {
    LARGE = 40,
    LARGE_BYTES = 1 << 20,
    SMALL = 200000,
    SMALL_BYTES = 100,
    THEIRS = 1000,
    THEIRS_BYTES = 20000,
    LATER = 200,
    LATER_BYTES = 100000,
};

static void *large[LARGE], *small[SMALL], *theirs[THEIRS], *later[LATER];
static pthread_barrier_t at_peak, freed;

#define ASKS(name, bytes)                  \
    APART static void *name(void)          \
    {                                      \
        void *block = malloc(bytes);       \
        __asm__ volatile("" ::: "memory"); \
        return block;                      \
    }
ASKS(ask_large, LARGE_BYTES)
ASKS(ask_small, SMALL_BYTES)
ASKS(ask_theirs, THEIRS_BYTES)
ASKS(ask_later, LATER_BYTES)

static void *thread(void *unused)
{
    for (int i = 0; i < THEIRS; i++)
        theirs[i] = ask_theirs();
    pthread_barrier_wait(&at_peak);
    for (int i = 0; i < THEIRS; i++)
        free(theirs[i]);
    pthread_barrier_wait(&freed);
    return unused;
}

int main(void)
{
    pthread_t id;
    setvbuf(stdin, NULL, _IONBF, 0);
    pthread_barrier_init(&at_peak, NULL, 2);
    pthread_barrier_init(&freed, NULL, 2);
    if (pthread_create(&id, NULL, thread, NULL) != 0)
        return 1;
    for (int i = 0; i < SMALL; i++)
        small[i] = ask_small();
    for (int i = 0; i < LARGE; i++)
        large[i] = ask_large();
    pthread_barrier_wait(&at_peak);
    for (int i = LARGE; i-- > 0;)
        free(large[i]);
    for (int i = 0; i < SMALL; i++)
        free(small[i]);
    pthread_barrier_wait(&freed);
    pthread_join(id, NULL);
    for (int i = 0; i < LATER; i++)
        later[i] = ask_later();
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
