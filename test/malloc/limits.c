/* limits.c: where memory ends. Each way to run out gives NULL and ENOMEM, hurts nothing that is there, and is over once
 * something was freed. */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

static const size_t sizes[] = {32, 48, 100, 1000, 5000, 20000, 40000, 100000, 1000000, 3000000};

enum { ROOM = 96 << 20 };

/* Bytes of address space in use, by the kernel's count. */
static size_t space_used(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long pages = 0;
    MUST(file && fscanf(file, "%lu", &pages) == 1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void limit_space(int what, size_t room)
{
    struct rlimit limit;
    MUST(getrlimit(what, &limit) == 0);
    limit.rlim_cur = space_used() + room;
    MUST(setrlimit(what, &limit) == 0);
}

struct link {
    struct link *next;
    size_t bytes;
};

/* As many as there are, each with a word at its end. */
static size_t take_all(struct link **list, size_t bytes)
{
    size_t count = 0;
    for (;;) {
        errno = 0;
        struct link *block = malloc(bytes);
        if (!block) {
            MUST_SAY(errno == ENOMEM, "malloc(%zu) failed with errno %d", bytes, errno);
            return count;
        }
        block->next = *list;
        block->bytes = bytes;
        ((unsigned char *)block)[bytes - 1] |= 1;
        *list = block;
        count++;
    }
}

static void give_all(struct link **list)
{
    while (*list) {
        struct link *block = *list;
        MUST(((unsigned char *)block)[block->bytes - 1] & 1);
        *list = block->next;
        free(block);
    }
}

static void exhaust(int what)
{
    limit_space(what, ROOM);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct link *list = NULL;
        size_t size = sizes[i], first = take_all(&list, size);
        MUST_SAY(first * size > ROOM / 2, "only %zu blocks of %zu", first, size);
        give_all(&list);
        size_t second = take_all(&list, size);
        MUST_SAY(second >= first / 10 * 9, "%zu blocks of %zu, then only %zu", first, size, second);
        give_all(&list);
    }
}

static void address_space_ends_and_comes_back(void)
{
    exhaust(RLIMIT_AS);
}

static void data_limit_ends_and_comes_back(void)
{
    exhaust(RLIMIT_DATA);
}

/* Every function at the end of memory, and the blocks that are there stay. */
static void all_functions_fail_cleanly_at_the_limit(void)
{
    struct link *list = NULL;
    unsigned char *kept = malloc(5000), *large = malloc(500000);
    MUST(kept && large);
    memset(kept, 7, 5000);
    memset(large, 8, 500000);
    limit_space(RLIMIT_AS, ROOM);
    for (size_t i = COUNT_OF(sizes); i-- > 0;) /* the small ones fill what the large ones leave */
        take_all(&list, sizes[i]);
    volatile size_t n = ROOM / 4;
    void *block = kept;
#define FAILS(call)                                                                \
    do {                                                                           \
        errno = 0;                                                                 \
        MUST_SAY((call) == NULL && errno == ENOMEM, "%s: errno %d", #call, errno); \
    } while (0)
    FAILS(malloc(n));
    FAILS(calloc(n, 1));
    FAILS(realloc(kept, n));
    FAILS(realloc(large, n));
    FAILS(reallocarray(kept, n, 1));
    FAILS(memalign(4096, n));
    FAILS(aligned_alloc(64, n));
    FAILS(valloc(n));
    FAILS(pvalloc(n));
    MUST(posix_memalign(&block, 64, n) == ENOMEM && block == kept);
    MUST(kept[0] == 7 && memcmp(kept, kept + 1, 4999) == 0);
    MUST(large[0] == 8 && memcmp(large, large + 1, 499999) == 0);
    large = realloc(large, 100); /* smaller must work even now */
    MUST(large && large[99] == 8);
    give_all(&list);
    free(kept);
    free(large);
    kept = malloc(n);
    MUST(kept);
    free(kept);
}

/* Memory that was small blocks serves a large one when there is no other. */
static void small_blocks_make_room_for_a_large_one(void)
{
    struct link *list = NULL;
    limit_space(RLIMIT_AS, ROOM);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        take_all(&list, sizes[i]);
        give_all(&list);
        void *large = malloc(ROOM / 2);
        MUST_SAY(large, "after blocks of %zu, nothing is left for %d", sizes[i], ROOM / 2);
        free(large);
    }
}

/* And the other way round, with a huge one that was touched. */
static void a_large_block_makes_room_for_small_ones(void)
{
    struct link *list = NULL;
    limit_space(RLIMIT_AS, ROOM);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        char *large = malloc(ROOM / 4 * 3);
        MUST_SAY(large, "before blocks of %zu", sizes[i]);
        for (size_t k = 0; k < ROOM / 4 * 3; k += 1 << 20)
            large[k] = 1;
        free(large);
        size_t count = take_all(&list, sizes[i]);
        MUST_SAY(count * sizes[i] > ROOM / 2, "only %zu of %zu", count, sizes[i]);
        give_all(&list);
    }
}

/* Nothing that is kept is missed: after blocks of any size there is as much for those of any other. */
static void any_size_makes_room_for_any_other(void)
{
    static const size_t some[] = {100, 20000, 100000, 3000000};
    struct link *list = NULL;
    size_t best[COUNT_OF(some)];
    for (size_t i = 0; i < COUNT_OF(some); i++) {
        best[i] = take_all(&list, some[i]);
        give_all(&list);
    }
    for (size_t i = 0; i < COUNT_OF(some); i++)
        for (size_t k = 0; k < COUNT_OF(some); k++) {
            take_all(&list, some[k]);
            give_all(&list);
            size_t count = take_all(&list, some[i]);
            MUST_SAY(count >= best[i] - best[i] / 20,
                     "%zu blocks of %zu, but %zu after those of %zu", best[i], some[i], count,
                     some[k]);
            /* Of 20,000 bytes each takes two slices of 16 KiB. */
            MUST_SAY(count * some[i] > ROOM / 9 * 5, "only %zu blocks of %zu", count, some[i]);
            give_all(&list);
        }
}

static void any_size_makes_room_under_a_limit_of_the_kernel(void)
{
    limit_space(RLIMIT_AS, ROOM);
    any_size_makes_room_for_any_other();
}

/* The allocator reads its settings once. */
static void any_size_makes_room_under_a_limit_of_its_own(void)
{
    if (!getenv("CASE_LIMITED")) {
        char setting[40];
        snprintf(setting, sizeof(setting), "limit=%d", ROOM);
        MUST(setenv("MEMOIR_MALLOC", setting, 1) == 0 && setenv("CASE_LIMITED", "1", 1) == 0);
        execl("/proc/self/exe", program_invocation_name, __func__, NULL);
        case_fail(__FILE__, __LINE__, "exec: errno %d", errno);
    }
    any_size_makes_room_for_any_other();
}

static void *taker(void *unused)
{
    struct link *list = NULL;
    for (size_t i = COUNT_OF(sizes); i-- > 0;)
        take_all(&list, sizes[i]);
    give_all(&list);
    return unused;
}

/* Several at once; what they take in turns is always given back. */
static void threads_run_out_together(void)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    for (int round = 0; round < 3; round++) {
        if (round == 0)
            limit_space(RLIMIT_AS, ROOM + THREADS * (8 << 20));
        size_t started = 0;
        for (size_t i = 0; i < THREADS; i++)
            started += pthread_create(&threads[started], NULL, taker, NULL) == 0;
        MUST(started > 0); /* no stack may be left for the last ones */
        for (size_t i = 0; i < started; i++)
            pthread_join(threads[i], NULL);
    }
    void *block = malloc(16 << 20);
    MUST(block);
    free(block);
}

/* Programs are started under limits, too. */
static void starts_in_little_address_space(void)
{
    if (!getenv("CASE_LIMITED")) {
        struct rlimit limit = {64 << 20, 64 << 20};
        MUST(setrlimit(RLIMIT_AS, &limit) == 0 && setenv("CASE_LIMITED", "1", 1) == 0);
        execl("/proc/self/exe", program_invocation_name, __func__, NULL);
        case_fail(__FILE__, __LINE__, "exec: errno %d", errno);
    }
    size_t before = space_used();
    struct link *list = NULL;
    size_t count = take_all(&list, 1000);
    MUST_SAY(count * 1000 > 30 << 20, "%zu kB in use at the start, only %zu blocks", before / 1024,
             count);
    give_all(&list);
}

/* Locked memory cannot be given back by madvise(); what is reused after that is not zero. */
static void locked_memory_is_as_good(void)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_MEMLOCK, &limit);
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        case_skip("mlockall: %s", strerror(errno));
    static unsigned char *blocks[200];
    uint64_t random = 5;
    for (int round = 0; round < 30; round++) {
        for (size_t i = 0; i < COUNT_OF(blocks); i++) {
            size_t bytes = case_random(&random) % (i % 40 == 0 ? 3 << 20 : 60000) + 1;
            blocks[i] = calloc(1, bytes);
            MUST_SAY(blocks[i] && blocks[i][0] == 0 &&
                         memcmp(blocks[i], blocks[i] + 1, bytes - 1) == 0,
                     "calloc(1, %zu) in round %d", bytes, round);
            memset(blocks[i], 0xff, malloc_usable_size(blocks[i]));
        }
        for (size_t i = 0; i < COUNT_OF(blocks); i++)
            free(blocks[i]);
        malloc_trim(0);
    }
}

/* The program ends with a message, before anything is made of it. */
static void must_end_at(void *address, bool resize)
{
    pid_t child = case_fork();
    if (child == 0) {
        close(STDERR_FILENO);
        if (resize)
            address = realloc(address, 300000);
        else
            free(address);
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    MUST_SAY(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%p: ended with %#x", address,
             status);
}

static void addresses_that_are_no_blocks_end_the_program(void)
{
    enum { PAGE = 4096, MACRO = 2 << 20, SLICE = 16 << 10 };
    static char of_the_program[64];
    char *small = malloc(100), *large = malloc(100000), *huge = malloc(5 << 20);
    char *macro = (char *)((uintptr_t)small & ~(uintptr_t)(MACRO - 1));
    char *not_blocks[] = {of_the_program,    macro,     macro + 256, large + 16,
                          large + 2 * SLICE, huge + 16, huge + PAGE, huge + (3 << 20),
                          (char *)16};
    for (size_t i = 0; i < COUNT_OF(not_blocks); i++) {
        must_end_at(not_blocks[i], false);
        must_end_at(not_blocks[i], true);
    }
    free(small);
    free(large);
    free(huge);
}

int main(int argc, char **argv)
{
#define CASE(name)  \
    {               \
#name, name \
    }
    static const struct test_case cases[] = {
        CASE(address_space_ends_and_comes_back),
        CASE(data_limit_ends_and_comes_back),
        CASE(all_functions_fail_cleanly_at_the_limit),
        CASE(small_blocks_make_room_for_a_large_one),
        CASE(a_large_block_makes_room_for_small_ones),
        CASE(any_size_makes_room_under_a_limit_of_the_kernel),
        CASE(any_size_makes_room_under_a_limit_of_its_own),
        CASE(threads_run_out_together),
        CASE(starts_in_little_address_space),
        CASE(locked_memory_is_as_good),
        CASE(addresses_that_are_no_blocks_end_the_program),
    };
    return cases_main(argc, argv, cases, COUNT_OF(cases));
}
