/* info.c: what the allocator tells about itself, by the functions that glibc has for it. */
#include <errno.h>
#include <malloc.h>
#include <string.h>

#include "cases.h"

static const size_t sizes[] = {32, 48, 100, 1000, 5000, 20000, 40000, 100000, 1000000, 3000000};

struct link {
    struct link *next;
};

/* The figures move with what is in use. */
static void mallinfo_follows_use(void)
{
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        enum { WANTED = 32 << 20 };
        struct link *list = NULL;
        size_t count = WANTED / sizes[i];
        struct mallinfo2 before = mallinfo2();
        for (size_t k = 0; k < count; k++) {
            struct link *block = malloc(sizes[i]);
            MUST(block);
            block->next = list;
            list = block;
        }
        struct mallinfo2 during = mallinfo2();
        while (list) {
            struct link *block = list;
            list = block->next;
            free(block);
        }
        struct mallinfo2 after = mallinfo2();
        size_t rise = during.uordblks + during.hblkhd - before.uordblks - before.hblkhd;
        MUST_SAY(rise >= count * sizes[i] / 10 * 9 && rise < count * sizes[i] * 3,
                 "%zu bytes of %zu taken, in use rose by %zu", count * sizes[i], sizes[i], rise);
        size_t still = after.uordblks + after.hblkhd;
        MUST_SAY(still < during.uordblks + during.hblkhd - rise / 10 * 8,
                 "in use fell only from %zu to %zu after %zu bytes were freed",
                 during.uordblks + during.hblkhd, still, count * sizes[i]);
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    struct mallinfo old = mallinfo();
#pragma GCC diagnostic pop
    MUST(old.uordblks >= 0 && old.arena >= 0);
}

static void malloc_info_is_xml(void)
{
    char text[65536];
    memset(text, 0, sizeof(text));
    FILE *file = fmemopen(text, sizeof(text) - 1, "w");
    MUST(file);
    void *block = malloc(1000);
    MUST(malloc_info(0, file) == 0);
    fclose(file);
    free(block);
    size_t length = strlen(text);
    MUST_SAY(strncmp(text, "<malloc version=", 16) == 0 && length > 30 &&
                 strcmp(text + length - 10, "</malloc>\n") == 0,
             "it begins %.60s", text);
    MUST(malloc_info(1, stderr) == EINVAL);
}

static void mallopt_and_statistics_do_no_harm(void)
{
    MUST(mallopt(M_TRIM_THRESHOLD, 1 << 20) == 1);
    MUST(mallopt(M_TOP_PAD, 1 << 16) == 1);
    MUST(mallopt(M_MMAP_THRESHOLD, 1 << 20) == 1);
    MUST(mallopt(M_ARENA_MAX, 2) == 1);
    mallopt(M_MXFAST, 0);
    mallopt(12345, 6);
    void *block = malloc(100);
    MUST(block);
    malloc_stats();
    free(block);
    MUST(malloc_trim(0) >= 0 && malloc_trim(1 << 20) >= 0 && malloc_trim(SIZE_MAX) >= 0);
}

int main(int argc, char **argv)
{
#define CASE(name)  \
    {               \
#name, name \
    }
    static const struct test_case cases[] = {
        CASE(mallinfo_follows_use),
        CASE(malloc_info_is_xml),
        CASE(mallopt_and_statistics_do_no_harm),
    };
    return cases_main(argc, argv, cases, COUNT_OF(cases));
}
