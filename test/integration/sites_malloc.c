/* A program that knows nothing of memoir and whose call stacks are known: 3,000 blocks by the left path and 1,000
 * by the right one, all from one line; every fourth is freed again. Then it says "ready" and waits. After a
 * line on its standard input it takes 500 more by the right path, and says so. */
#include <stdio.h>
#include <stdlib.h>

#ifdef __clang__
#define APART __attribute__((noinline))
#else
#define APART __attribute__((noinline, noclone))
#endif

enum { BYTES = 1000, LEFT = 3000, RIGHT = 1000, MORE = 500 };

static void *kept[LEFT + RIGHT + MORE];

APART static void ask(int i)
{
    kept[i] = malloc(BYTES);
    __asm__ volatile("" ::: "memory");
}

APART static void path_left(int i)
{
    ask(i);
    __asm__ volatile("nop");
}

APART static void path_right(int i)
{
    ask(i);
    __asm__ volatile("nop; nop");
}

int main(void)
{
    setvbuf(stdin, NULL, _IONBF, 0); /* its buffer would be allocated after "ready" */
    for (int i = 0; i < LEFT; i++)
        path_left(i);
    for (int i = LEFT; i < LEFT + RIGHT; i++)
        path_right(i);
    for (int i = 0; i < LEFT + RIGHT; i += 4)
        free(kept[i]);
    puts("ready");
    fflush(stdout);
    if (getchar() != EOF) {
        for (int i = LEFT + RIGHT; i < LEFT + RIGHT + MORE; i++)
            path_right(i);
        puts("more");
        fflush(stdout);
    }
    while (getchar() != EOF)
        ;
    return 0;
}
