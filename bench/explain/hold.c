/* C: small and large blocks, threads with stacks in use, memory that is allocated and not touched, then a wait.
 *
 * Usage: hold [MEGABYTES]   small blocks, default 64 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 4, LARGE = 16, BLOCK = 200 };

static void *thread_run(void *unused)
{
    char *own[256];
    char used[64 << 10];
    (void)unused;
    memset(used, 1, sizeof(used));
    for (int i = 0; i < 256; i++) {
        own[i] = malloc(4000);
        memset(own[i], 1, 4000);
    }
    pause();
    return own[used[17]];
}

static char **small_make(size_t n)
{
    char **kept = malloc(n * sizeof(*kept));
    for (size_t i = 0; i < n; i++) {
        kept[i] = malloc(BLOCK);
        memset(kept[i], 1, BLOCK);
    }
    return kept;
}

int main(int argc, char **argv)
{
    size_t n = (argc > 1 ? strtoull(argv[1], NULL, 10) : 64) * 1000000 / BLOCK;
    char **kept = small_make(n);
    char *large[LARGE], *untouched = calloc(1, 32 << 20);
    pthread_t threads[THREADS];
    for (int i = 0; i < LARGE; i++) {
        large[i] = malloc(1 << 20);
        memset(large[i], 1, 1 << 20);
    }
    for (size_t i = 0; i < n; i += 4)
        free(kept[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, thread_run, NULL);
    sleep(1);
    puts("ready");
    fflush(stdout);
    sleep(600);
    return !kept || !untouched || !large[0];
}
