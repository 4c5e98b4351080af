/* A program whose heap is looked at from outside: it does what it reads, one command a line, and says after each what it holds
 * by its own count, "live BYTES BLOCKS". It uses no stdio: nothing but the commands allocates. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KEPT_MAX = 1 << 21, THREADS_MAX = 8, RING_MAX = 1 << 20, RING_BYTES = 200 };

static struct {
    void *block;
    size_t bytes;
} kept[KEPT_MAX];
static size_t n_kept, live_bytes;
static char **arguments;

static void keep(void *block, size_t bytes)
{
    if (!block || n_kept == KEPT_MAX)
        _exit(3);
    kept[n_kept].block = block;
    kept[n_kept++].bytes = bytes;
    live_bytes += bytes;
}

__attribute__((noinline)) static void alloc_some(size_t n, size_t bytes)
{
    for (size_t i = 0; i < n; i++)
        keep(malloc(bytes), bytes);
}

static void free_some(size_t n)
{
    while (n-- > 0 && n_kept > 0) {
        free(kept[--n_kept].block);
        live_bytes -= kept[n_kept].bytes;
    }
}

static void resize_last(size_t bytes)
{
    void *block = realloc(kept[n_kept - 1].block, bytes);
    if (!block)
        _exit(4);
    live_bytes += bytes - kept[n_kept - 1].bytes;
    kept[n_kept - 1].block = block;
    kept[n_kept - 1].bytes = bytes;
}

/* Every way to ask for memory, with `bytes` each. */
static void every_way(size_t bytes)
{
    void *block = NULL;
    keep(malloc(bytes), bytes);
    keep(calloc(bytes, 3), bytes * 3);
    keep(realloc(NULL, bytes), bytes);
    keep(aligned_alloc(64, bytes * 64), bytes * 64);
    if (posix_memalign(&block, sizeof(void *), bytes) == 0)
        keep(block, bytes);
    if (posix_memalign(&block, 4096, bytes) == 0)
        keep(block, bytes);
    keep(reallocarray(NULL, bytes, 5), bytes * 5);
    keep(malloc(0), 0);
}

/* Calls that fail, or have nothing to do. */
static void odd_ways(void)
{
    volatile size_t huge = SIZE_MAX / 4;
    void *block = NULL;
    free(NULL);
    if (malloc(huge) || calloc(huge, 16) || posix_memalign(&block, 64, huge) == 0)
        _exit(5);
    void *volatile kept_one = malloc(100);
    if (realloc(kept_one, huge))
        _exit(6);
    free(kept_one);
    kept_one = malloc(77);
    free(realloc(kept_one, 0)); /* a free, or a block of no bytes */
}

/* ---- threads that free what the next one allocated ---- */

static struct {
    pthread_barrier_t barrier;
    void **blocks[THREADS_MAX];
    size_t n, threads;
} crossing;

static void *cross(void *context)
{
    size_t self = (size_t)context, other = (self + 1) % crossing.threads;
    for (size_t i = 0; i < crossing.n; i++)
        crossing.blocks[self][i] = malloc(16 + (i * 7 + self) % 500);
    pthread_barrier_wait(&crossing.barrier);
    for (size_t i = 0; i < crossing.n; i++) {
        free(crossing.blocks[other][i]);
        crossing.blocks[other][i] = NULL;
        free(malloc(32 + i % 64)); /* the address may be one that another thread has just freed */
    }
    return NULL;
}

static void cross_threads(size_t threads, size_t n)
{
    pthread_t all[THREADS_MAX];
    crossing.n = n;
    crossing.threads = threads < THREADS_MAX ? threads : THREADS_MAX;
    pthread_barrier_init(&crossing.barrier, NULL, (unsigned)crossing.threads);
    for (size_t i = 0; i < crossing.threads; i++)
        keep(crossing.blocks[i] = calloc(n, sizeof(void *)), n * sizeof(void *));
    for (size_t i = 0; i < crossing.threads; i++)
        pthread_create(&all[i], NULL, cross, (void *)i);
    for (size_t i = 0; i < crossing.threads; i++)
        pthread_join(all[i], NULL);
    free_some(crossing.threads);
}

/* ---- the rest ---- */

static void pairs(size_t n, size_t bytes)
{
    for (size_t i = 0; i < n; i++) {
        void *volatile block = malloc(bytes);
        free(block);
    }
}

static void work_some(void)
{
    volatile uint64_t work = 1;
    for (int k = 0; k < 20000; k++)
        work = work * 3 + 1;
}

/* A program that also works: 8 pairs for each block that it keeps, and about 15 us of its own. */
static void mixed(size_t n)
{
    for (size_t i = 0; i < n; i++) {
        keep(malloc(100), 100);
        pairs(8, 64);
        work_some();
    }
}

/* The same with a cache of so many blocks, of which the oldest one goes for each that comes; one in 8 steps loses a block. */
static void ring(size_t n, size_t slots)
{
    static void *all[RING_MAX];
    static size_t next;
    for (size_t i = 0; i < n; i++) {
        if (all[next])
            free(all[next]);
        else
            live_bytes += RING_BYTES;
        all[next] = malloc(RING_BYTES);
        next = (next + 1) % (slots < RING_MAX ? slots : RING_MAX);
        if (i % 8 == 0)
            keep(malloc(100), 100);
        pairs(4, 64);
        work_some();
    }
}

static double cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* A child that allocates and frees what it inherited: nothing of that is the parent's. */
static bool fork_child(void)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        pairs(1000, 50);
        alloc_some(100, 1000);
        free_some(SIZE_MAX);
        _exit(9);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 9;
}

/* A child that reads commands in its place, until it is told to exit. */
static void child_serve(void)
{
    pid_t child = fork();
    if (child > 0 && waitpid(child, NULL, 0) != child)
        _exit(11);
}

static void say(double value, const char *what)
{
    char line[128];
    int n = value < 0 ? snprintf(line, sizeof(line), "live %zu %zu\n", live_bytes, n_kept)
                      : snprintf(line, sizeof(line), "%s %.0f\n", what, value);
    if (write(STDOUT_FILENO, line, (size_t)n) != n)
        _exit(8);
}

static void act(const char *word, size_t first, size_t second)
{
    double before = cpu_ns();
    if (strcmp(word, "alloc") == 0)
        alloc_some(first, second);
    else if (strcmp(word, "free") == 0)
        free_some(first);
    else if (strcmp(word, "resize") == 0)
        resize_last(first);
    else if (strcmp(word, "every") == 0)
        every_way(first);
    else if (strcmp(word, "odd") == 0)
        odd_ways();
    else if (strcmp(word, "strdup") == 0)
        keep(strdup("a string that the C library copies"), 35);
    else if (strcmp(word, "mixed") == 0)
        mixed(first);
    else if (strcmp(word, "ring") == 0)
        ring(first, second);
    else if (strcmp(word, "cross") == 0)
        cross_threads(first, second);
    else if (strcmp(word, "fork") == 0 && !fork_child())
        _exit(10);
    else if (strcmp(word, "child") == 0)
        child_serve();
    else if (strcmp(word, "exec") == 0)
        execv("/proc/self/exe", arguments);
    else if (strcmp(word, "exit") == 0)
        _exit((int)first);
    if (strcmp(word, "pairs") == 0) {
        pairs(first, second);
        say((cpu_ns() - before) / (double)first, "pair");
    } else {
        say(-1, "");
    }
}

int main(int argc, char **argv)
{
    char line[256], word[32];
    size_t len = 0;
    arguments = argv;
    alloc_some(500, 2000); /* older than any attach */
    say(-1, "");
    for (ssize_t n; (n = read(STDIN_FILENO, line + len, sizeof(line) - 1 - len)) > 0;) {
        len += (size_t)n;
        line[len] = '\0';
        for (char *end; (end = strchr(line, '\n'));) {
            size_t first = 0, second = 0, used = (size_t)(end - line) + 1;
            *end = '\0';
            if (sscanf(line, "%31s %zu %zu", word, &first, &second) < 1)
                return 2;
            act(word, first, second);
            memmove(line, line + used, len - used + 1);
            len -= used;
        }
    }
    return 0;
}
