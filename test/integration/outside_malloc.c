/* A program whose memory grows, or does not, and that malloc serves or not.
 *
 * Usage: outside_malloc outside|steady|runtime|deep MS
 *
 *   outside  maps and touches 64 KiB every MS milliseconds, and keeps it
 *   steady   touches 64 KiB every MS milliseconds, and gives it back
 *   deep     takes 16 KiB by malloc() every MS milliseconds, through a function that others use, too
 *   runtime  lets the library that it was linked with take 64 KiB by malloc() every MS milliseconds: see collected.c
 *
 * It holds a megabyte of heap all the while, and says "ready". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { CHUNK = 64 << 10, HEAP = 1 << 20 };

void *collected_take(size_t bytes);

__attribute__((noinline)) static void *wrapper(size_t bytes)
{
    void *block = malloc(bytes);
    __asm__ volatile("" ::: "memory");
    return block;
}

__attribute__((noinline)) static void kept_here(void)
{
    for (int i = 0; i < 16; i++)
        memset(wrapper(1 << 10), 1, 1 << 10);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    void *heap = malloc(HEAP);
    if (!heap)
        return 1;
    memset(heap, 1, HEAP);
    puts("ready");
    fflush(stdout);
    for (;;) {
        struct timespec pause = {0, atol(argv[2]) * 1000000};
        if (strcmp(argv[1], "runtime") == 0) {
            memset(collected_take(CHUNK), 1, CHUNK);
        } else if (strcmp(argv[1], "deep") == 0) {
            kept_here();
            free(wrapper(CHUNK));
        } else {
            char *chunk =
                mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            memset(chunk, 1, CHUNK);
            if (strcmp(argv[1], "steady") == 0)
                munmap(chunk, CHUNK);
        }
        nanosleep(&pause, NULL);
    }
}
