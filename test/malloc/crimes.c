/* One crime against the heap for each name: `crimes NAME` commits it. What is to be seen is how the allocator ends the program; who
 * comes to the end of main() was not caught, and says so. Functions that allocate and free are apart, so that their names are in
 * the stacks. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define APART __attribute__((noinline))

static char *volatile kept; /* what the compiler must not see through */
static void *(*volatile hidden_malloc)(size_t) = malloc;
static void *(*volatile hidden_realloc)(void *, size_t) = realloc;
static void (*volatile hidden_free)(void *) = free;

APART static char *crime_allocate(size_t bytes)
{
    char *block = hidden_malloc(bytes);
    kept = block;
    return memset(block, 1, bytes);
}

APART static void crime_free_first(void *block)
{
    hidden_free(block);
    kept = NULL;
}

APART static void crime_free_second(void *block)
{
    hidden_free(block);
    kept = (char *)&kept; /* or the two would be one function to a compiler */
}

static void free_many(size_t bytes, int n)
{
    for (int i = 0; i < n; i++)
        hidden_free(hidden_malloc(bytes));
}

static void double_free(void)
{
    char *block = crime_allocate(24);
    crime_free_first(block);
    crime_free_second(block);
}

static void double_free_large(void)
{
    char *block = crime_allocate(100000);
    crime_free_first(block);
    crime_free_second(block);
}

static void double_free_huge(void)
{
    char *block = crime_allocate(5 << 20);
    crime_free_first(block);
    crime_free_second(block);
}

/* With a heap as programs have it: the first blocks of a process lie elsewhere. */
static void warm_up(void)
{
    for (int i = 0; i < 3000; i++)
        memset(hidden_malloc((size_t)i % 300 + 1), 1, (size_t)i % 300 + 1);
}

static void double_free_warm(void)
{
    warm_up();
    double_free();
}

/* With other frees in between. */
static void double_free_later(void)
{
    warm_up();
    char *block = crime_allocate(24), *others[10];
    for (int i = 0; i < 10; i++)
        others[i] = hidden_malloc(24);
    crime_free_first(block);
    for (int i = 0; i < 10; i++)
        hidden_free(others[i]);
    crime_free_second(block);
}

static void free_inside_warm(void)
{
    warm_up();
    crime_free_first(crime_allocate(100) + 48);
}

/* Where no block can begin. */
static void free_inside_odd(void)
{
    warm_up();
    crime_free_first(crime_allocate(100) + 8);
}

static void realloc_inside(void)
{
    warm_up();
    kept = hidden_realloc(crime_allocate(100) + 16, 200);
}

static void realloc_freed(void)
{
    warm_up();
    char *block = crime_allocate(100);
    crime_free_first(block);
    kept = hidden_realloc(block, 200);
}

static void double_free_realloc(void)
{
    char *block = crime_allocate(24);
    kept = hidden_realloc(block, 4000);
    crime_free_second(block);
    kept = NULL; /* so that this function is still there when the other is called */
}

static void *free_here(void *block)
{
    crime_free_first(block);
    return NULL;
}

static void double_free_threads(void)
{
    pthread_t thread;
    char *block = crime_allocate(24);
    if (pthread_create(&thread, NULL, free_here, block) == 0)
        pthread_join(thread, NULL);
    crime_free_second(block);
}

static void free_inside(void)
{
    crime_free_first(crime_allocate(100) + 16);
}

static void free_inside_large(void)
{
    crime_free_first(crime_allocate(200000) + 150000);
}

static void free_stack(void)
{
    char here[64];
    kept = here;
    crime_free_first(kept + 16);
}

static void free_static(void)
{
    static char here[64];
    kept = here;
    crime_free_first(kept);
}

static void free_wild(void)
{
    kept = (char *)UINT64_C(0x123456789000);
    crime_free_first(kept);
}

static void overrun_by_one(void)
{
    char *block = crime_allocate(24);
    kept[24] = 0;
    crime_free_first(block);
}

static void overrun_long(void)
{
    char *block = crime_allocate(24);
    memset(kept, 7, 48);
    crime_free_first(block);
}

static void overrun_large(void)
{
    char *block = crime_allocate(70001);
    kept[70001] = 0;
    crime_free_first(block);
}

static void overrun_realloc(void)
{
    char *block = crime_allocate(24);
    kept[24] = 0;
    kept = hidden_realloc(block, 100);
}

static void write_after_free(void)
{
    char *block = crime_allocate(40);
    crime_free_first(block);
    block[8] = 3;
    free_many(4000, 4000);
}

static void read_before_written(void)
{
    char *block = hidden_malloc(24);
    kept = block;
    if (kept[5] == 'x')
        puts("by chance");
    hidden_free(block);
}

static void lost(void)
{
    crime_allocate(777);
    kept = NULL;
}

static void touch_beyond_page(void)
{
    crime_allocate(8192);
    kept[8192] = 1;
}

static void touch_before_page(void)
{
    crime_allocate(8192);
    kept[-1] = 1;
}

static void touch_after_free_page(void)
{
    char *block = crime_allocate(8192);
    crime_free_first(block);
    block[100] = 1;
}

static void touch_beyond_huge(void)
{
    crime_allocate(3 << 20);
    for (size_t i = 0; i < 3 * 4096; i += 16)
        kept[(3 << 20) + i] = 1;
}

/* Nothing wrong here: all sizes and alignments, across threads, with zeros where they are promised. */
static bool good_round(size_t bytes, size_t align)
{
    char *block = NULL, *zero = calloc(1, bytes);
    if (posix_memalign((void **)&block, align, bytes) != 0 || (uintptr_t)block % align != 0 ||
        !zero)
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (zero[i] != 0)
            return false;
    memset(block, 1, bytes);
    block = realloc(block, bytes * 2 + 1);
    if (!block || (bytes > 0 && (block[0] != 1 || block[bytes - 1] != 1)))
        return false;
    memset(block, 2, bytes * 2 + 1);
    free(block);
    free(zero);
    return true;
}

static void *good_rounds(void *unused)
{
    for (size_t align = sizeof(void *); align <= 1 << 16; align *= 2)
        for (size_t bytes = 0; bytes < 3 << 20; bytes = bytes * 3 + 7)
            if (!good_round(bytes, align))
                _exit(3);
    return unused;
}

static void innocent(void)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, good_rounds, NULL);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    good_rounds(NULL);
}

static const struct {
    const char *name;
    void (*commit)(void);
} crimes[] = {
    {"double_free", double_free},
    {"double_free_warm", double_free_warm},
    {"double_free_later", double_free_later},
    {"double_free_large", double_free_large},
    {"double_free_huge", double_free_huge},
    {"double_free_realloc", double_free_realloc},
    {"double_free_threads", double_free_threads},
    {"free_inside", free_inside},
    {"free_inside_warm", free_inside_warm},
    {"free_inside_odd", free_inside_odd},
    {"free_inside_large", free_inside_large},
    {"realloc_inside", realloc_inside},
    {"realloc_freed", realloc_freed},
    {"free_stack", free_stack},
    {"free_static", free_static},
    {"free_wild", free_wild},
    {"overrun_by_one", overrun_by_one},
    {"overrun_long", overrun_long},
    {"overrun_large", overrun_large},
    {"overrun_realloc", overrun_realloc},
    {"write_after_free", write_after_free},
    {"read_before_written", read_before_written},
    {"lost", lost},
    {"touch_beyond_page", touch_beyond_page},
    {"touch_before_page", touch_before_page},
    {"touch_after_free_page", touch_after_free_page},
    {"touch_beyond_huge", touch_beyond_huge},
    {"innocent", innocent},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < sizeof(crimes) / sizeof(crimes[0]); i++)
        if (strcmp(argv[1], crimes[i].name) == 0) {
            crimes[i].commit();
            puts("not caught");
            return 0;
        }
    fprintf(stderr, "usage: crimes NAME\n");
    return 2;
}
