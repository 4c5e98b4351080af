/* family.c: every function of the malloc family, as a program may rely on it: sizes, alignments, zero bytes, contents,
 * errno. Where the standards leave a choice, what glibc does is asked for: programs were written against it. */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <string.h>
#include <unistd.h>

#include "cases.h"

static const size_t edges[] = {
    1,       2,       7,       8,       15,      16,      17,      24,     31,     32,     33,
    48,      63,      64,      65,      100,     127,     128,     129,    255,    256,    257,
    511,     512,     513,     1000,    1023,    1024,    1025,    2047,   2048,   2049,   4000,
    4095,    4096,    4097,    8191,    8192,    8193,    16383,   16384,  16385,  32767,  32768,
    32769,   40000,   65535,   65536,   65537,   131071,  131072,  131073, 262144, 524289, 1048575,
    1048576, 1048577, 2080000, 2097151, 2097152, 2097153, 3000000, 5000001};

enum { ALIGN_MAX = 16 << 20 };

/* First and last bytes, and some between: large blocks need not be resident to be checked. */
static size_t next_mark(size_t at, size_t bytes)
{
    enum { EDGE = 300 };
    if (at < EDGE || at + EDGE >= bytes)
        return at + 1;
    size_t step = at + bytes / 64 + 1;
    return step < bytes - EDGE ? step : bytes - EDGE;
}

static void mark(unsigned char *block, size_t bytes, unsigned char value)
{
    for (size_t i = 0; i < bytes; i = next_mark(i, bytes))
        block[i] = (unsigned char)(value + i % 251);
}

/* The first bytes of what was `of` bytes when it was marked. */
static bool marked(const unsigned char *block, size_t bytes, size_t of, unsigned char value)
{
    for (size_t i = 0; i < bytes; i = next_mark(i, of))
        if (block[i] != (unsigned char)(value + i % 251))
            return false;
    return true;
}

static void every_size_is_aligned_and_large_enough(void)
{
    for (size_t n = 0; n < 9 << 20; n += n < 2100 ? 1 : n / 50) {
        unsigned char *block = malloc(n);
        MUST_SAY(block && (uintptr_t)block % 16 == 0, "malloc(%zu) = %p", n, (void *)block);
        MUST_SAY(malloc_usable_size(block) >= n, "malloc(%zu) has %zu", n,
                 malloc_usable_size(block));
        mark(block, n, 3);
        MUST(marked(block, n, n, 3));
        free(block);
    }
}

static void zero_bytes_are_blocks_of_their_own(void)
{
    void *posix = NULL;
    MUST(posix_memalign(&posix, 64, 0) == 0);
    void *blocks[] = {malloc(0),
                      malloc(0),
                      calloc(0, 0),
                      calloc(0, 5),
                      calloc(5, 0),
                      realloc(NULL, 0),
                      memalign(64, 0),
                      aligned_alloc(16, 0),
                      valloc(0),
                      pvalloc(0),
                      reallocarray(NULL, 0, 5),
                      reallocarray(NULL, 5, 0),
                      posix};
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        MUST_SAY(blocks[i], "number %zu is NULL", i);
        for (size_t k = 0; k < i; k++)
            MUST_SAY(blocks[i] != blocks[k], "%zu and %zu are the same", i, k);
    }
    for (size_t i = 0; i < COUNT_OF(blocks); i++)
        free(blocks[i]);
    free(NULL);
    MUST(malloc_usable_size(NULL) == 0);
}

/* Three of each size side by side: what one may write is not the other's. */
static void usable_bytes_belong_to_one_block(void)
{
    enum { EACH = 3 };
    static unsigned char *blocks[2000 + COUNT_OF(edges)][EACH];
    static size_t usable[2000 + COUNT_OF(edges)][EACH];
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        size_t n = i < 2000 ? i : edges[i - 2000];
        for (size_t k = 0; k < EACH; k++) {
            blocks[i][k] = malloc(n);
            MUST(blocks[i][k]);
            usable[i][k] = malloc_usable_size(blocks[i][k]);
            MUST(usable[i][k] >= n);
            memset(blocks[i][k], (int)(i * EACH + k), usable[i][k]);
        }
    }
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        for (size_t k = 0; k < EACH; k++) {
            unsigned char value = (unsigned char)(i * EACH + k), *b = blocks[i][k];
            MUST(malloc_usable_size(b) == usable[i][k]);
            bool own = !usable[i][k] || (b[0] == value && memcmp(b, b + 1, usable[i][k] - 1) == 0);
            MUST_SAY(own, "a block with %zu usable bytes was written by another", usable[i][k]);
            free(b);
        }
    }
}

static void check_zero(const unsigned char *block, size_t bytes)
{
    MUST_SAY(bytes == 0 || (block[0] == 0 && memcmp(block, block + 1, bytes - 1) == 0),
             "calloc of %zu bytes is not zero", bytes);
}

static void dirty_and_free(size_t bytes, size_t count)
{
    static void *blocks[16];
    for (size_t i = 0; i < count; i++) {
        blocks[i] = malloc(bytes);
        MUST(blocks[i]);
        memset(blocks[i], 0xff, malloc_usable_size(blocks[i]));
    }
    for (size_t i = 0; i < count; i++)
        free(blocks[i]);
}

static void calloc_is_zero_where_others_were(void)
{
    for (int trim = 0; trim < 2; trim++) {
        for (size_t n = 1; n < 3 << 20; n += n < 600 ? 1 : n / 12) {
            dirty_and_free(n, 8);
            if (trim && n % 5 == 0)
                malloc_trim(0);
            unsigned char *blocks[8];
            for (size_t i = 0; i < COUNT_OF(blocks); i++) {
                size_t members = i % 2 ? 1 : n, each = i % 2 ? n : 1;
                blocks[i] = calloc(members, each);
                MUST(blocks[i]);
                check_zero(blocks[i], n);
                memset(blocks[i], 0xee, malloc_usable_size(blocks[i]));
            }
            for (size_t i = 0; i < COUNT_OF(blocks); i++)
                free(blocks[i]);
        }
    }
    for (size_t n = 4 << 20; n <= 64 << 20; n *= 2) { /* huge ones, kept for reuse or not */
        dirty_and_free(n, 1);
        unsigned char *block = calloc(1, n);
        MUST(block);
        check_zero(block, n);
        free(block);
    }
}

/* What calloc gave, realloc made larger or smaller, and free took: zero again. */
static void calloc_is_zero_after_realloc(void)
{
    for (size_t i = 0; i < COUNT_OF(edges); i++) {
        for (size_t k = 0; k < COUNT_OF(edges); k += 3) {
            unsigned char *block = calloc(1, edges[i]);
            MUST(block);
            check_zero(block, edges[i]);
            block = realloc(block, edges[k]);
            MUST(block);
            mark(block, malloc_usable_size(block), 0x81);
            free(block);
        }
    }
}

static void realloc_keeps_contents(void)
{
    for (size_t i = 0; i < COUNT_OF(edges); i++) {
        for (size_t k = 0; k < COUNT_OF(edges); k++) {
            size_t from = edges[i], to = edges[k], less = from < to ? from : to;
            unsigned char *block = (i + k) % 4 == 3 ? memalign(1024, from) : malloc(from);
            MUST(block);
            mark(block, from, 9);
            unsigned char *moved = (i + k) % 2 ? realloc(block, to) : reallocarray(block, to, 1);
            MUST_SAY(moved && malloc_usable_size(moved) >= to, "from %zu to %zu", from, to);
            MUST_SAY(marked(moved, less, from, 9), "from %zu to %zu: contents differ", from, to);
            mark(moved, to, 77);
            MUST(marked(moved, to, to, 77));
            free(moved);
        }
    }
}

static void realloc_grows_and_shrinks_step_by_step(void)
{
    unsigned char *block = NULL;
    size_t had = 0;
    for (size_t n = 1; n < 40 << 20; n += n / 5 + 1) {
        block = realloc(block, n);
        MUST_SAY(block && marked(block, had, had, 5), "up to %zu", n);
        mark(block, n, 5);
        had = n;
    }
    for (size_t n = had; n > 0; n -= n / 6 + 1) {
        unsigned char first = block[0], last = block[n < 300 ? n - 1 : 299];
        block = realloc(block, n);
        MUST_SAY(block && block[0] == first && block[n < 300 ? n - 1 : 299] == last, "down to %zu",
                 n);
    }
    free(block);
}

/* Whichever way a block takes to its next size, the place that it had is free then. */
static void realloc_leaves_nothing_behind(void)
{
    static const size_t sizes[] = {120, 900, 1100, 5000, 30000, 200, 40};
    enum { TIMES = 20000 };
    size_t before = 0;
    for (int i = 0; i < TIMES; i++) {
        char *block = malloc(24);
        for (size_t k = 0; k < sizeof(sizes) / sizeof(*sizes); k++) {
            MUST((block = realloc(block, sizes[k])));
            block[0] = block[sizes[k] - 1] = 1;
        }
        free(block);
        if (i == TIMES / 4)
            before = case_resident();
    }
    size_t after = case_resident(); /* what was left of the smallest would be 480 KB */
    MUST_SAY(after < before + (384 << 10), "%zu bytes resident, then %zu", before, after);
}

/* A huge neighbour must not be in the way, nor be hurt. */
static void realloc_of_huge_blocks_leaves_neighbours(void)
{
    enum { N = 6 };
    unsigned char *blocks[N];
    size_t size[N];
    for (size_t i = 0; i < N; i++) {
        size[i] = (3 + i) << 20;
        MUST((blocks[i] = malloc(size[i])));
        mark(blocks[i], size[i], (unsigned char)(i * 31));
    }
    uint64_t random = 11;
    for (int round = 0; round < 200; round++) {
        size_t i = case_random(&random) % N;
        size_t to = (case_random(&random) % 24 << 20) + case_random(&random) % 10000 + 1;
        unsigned char *moved = realloc(blocks[i], to);
        MUST(moved);
        MUST_SAY(marked(moved, to < size[i] ? to : size[i], size[i], (unsigned char)(i * 31)),
                 "%zu to %zu", size[i], to);
        blocks[i] = moved;
        size[i] = to;
        mark(moved, to, (unsigned char)(i * 31));
        for (size_t k = 0; k < N; k++)
            MUST(marked(blocks[k], size[k], size[k], (unsigned char)(k * 31)));
    }
    for (size_t i = 0; i < N; i++)
        free(blocks[i]);
}

/* As glibc: it frees, and that is no failure. */
static void realloc_to_nothing_frees(void)
{
    size_t before = 0;
    for (int i = 0; i < 3000; i++) {
        for (size_t n = 10; n <= 10 << 20; n *= 100) {
            void *block = malloc(n);
            MUST(block);
            mark(block, n, 1);
            errno = 77;
            MUST((i % 2 ? realloc(block, 0) : reallocarray(block, 0, 8)) == NULL && errno == 77);
        }
        if (i == 100)
            before = case_resident();
    }
    size_t after = case_resident();
    MUST_SAY(after < before + (32 << 20), "%zu bytes resident, then %zu", before, after);
}

static void alignments_up_to_16_mib(void)
{
    static const size_t sizes[] = {0,    1,    15,    16,    17,     100,     1000,
                                   4096, 5000, 30000, 70000, 300000, 2097152, 5000000};
    for (size_t align = sizeof(void *); align <= ALIGN_MAX; align *= 2) {
        unsigned char *blocks[COUNT_OF(sizes)][3];
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            void *block = NULL;
            MUST_SAY(posix_memalign(&block, align, sizes[i]) == 0, "%zu at %zu", sizes[i], align);
            blocks[i][0] = block;
            blocks[i][1] = memalign(align, sizes[i]);
            blocks[i][2] = aligned_alloc(align, sizes[i]);
            for (size_t k = 0; k < 3; k++) {
                unsigned char *b = blocks[i][k];
                MUST_SAY(b && (uintptr_t)b % align == 0, "%zu bytes at %zu: %p", sizes[i], align,
                         (void *)b);
                MUST_SAY(malloc_usable_size(b) >= sizes[i], "%zu bytes at %zu: %zu usable",
                         sizes[i], align, malloc_usable_size(b));
                mark(b, malloc_usable_size(b), (unsigned char)(i * 3 + k));
            }
        }
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            for (size_t k = 0; k < 3; k++) {
                size_t usable = malloc_usable_size(blocks[i][k]);
                MUST_SAY(marked(blocks[i][k], usable, usable, (unsigned char)(i * 3 + k)),
                         "%zu bytes at %zu were written by another", sizes[i], align);
                free(blocks[i][k]);
            }
        }
    }
}

/* Where classes are fine: what the alignment adds to a size must not lead to a class that is no multiple of it. */
static void small_sizes_at_every_alignment(void)
{
    for (size_t align = 8; align <= 2048; align *= 2)
        for (size_t bytes = 0; bytes <= 1300; bytes++) {
            void *block[3];
            block[0] = memalign(align, bytes);
            block[1] = aligned_alloc(align, bytes);
            MUST_SAY(posix_memalign(&block[2], align, bytes) == 0, "%zu at %zu", bytes, align);
            for (int i = 0; i < 3; i++) {
                MUST_SAY(block[i] && (uintptr_t)block[i] % align == 0, "%zu bytes at %zu: %p",
                         bytes, align, block[i]);
                MUST_SAY(malloc_usable_size(block[i]) >= bytes, "%zu bytes at %zu: %zu usable",
                         bytes, align, malloc_usable_size(block[i]));
                memset(block[i], 'a' + i, bytes);
            }
            for (int i = 0; i < 3; i++) {
                const unsigned char *b = block[i];
                MUST_SAY(bytes == 0 || (b[0] == 'a' + i && b[bytes - 1] == 'a' + i),
                         "%zu bytes at %zu were written by another", bytes, align);
                free(block[i]);
            }
        }
}

static void realloc_of_aligned_blocks_keeps_contents(void)
{
    for (size_t align = 16; align <= ALIGN_MAX; align *= 4) {
        for (size_t from = 1; from < 9 << 20; from = from * 7 + 5) {
            for (size_t to = 1; to < 9 << 20; to = to * 9 + 1) {
                unsigned char *block = memalign(align, from);
                MUST(block);
                mark(block, from, 200);
                unsigned char *moved = realloc(block, to);
                MUST_SAY(moved && marked(moved, from < to ? from : to, from, 200),
                         "%zu at %zu to %zu", from, align, to);
                free(moved);
            }
        }
    }
}

static void odd_alignments_are_refused_or_rounded(void)
{
    static const size_t bad[] = {0, 1,  2,  3,    4,    5,        7,
                                 9, 12, 24, 4095, 4097, SIZE_MAX, SIZE_MAX - 7};
    int here;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        void *block = &here;
        int r = posix_memalign(&block, bad[i], 10);
        MUST_SAY(r == EINVAL && block == &here, "posix_memalign at %zu says %d", bad[i], r);
    }
    /* memalign() takes the next power of two; who asks for less than the natural alignment gets that. */
    for (size_t align = 0; align < 5000; align = align * 5 / 4 + 1) {
        size_t power = 16;
        while (power < align)
            power *= 2;
        void *block = memalign(align, 100);
        MUST_SAY(block && (uintptr_t)block % power == 0, "memalign(%zu, 100) = %p", align, block);
        free(block);
        errno = 0;
        block = aligned_alloc(align, 100); /* some refuse what is no power of two, and may */
        MUST_SAY(block ? (uintptr_t)block % power == 0 : errno == EINVAL,
                 "aligned_alloc(%zu, 100) = %p, errno %d", align, block, errno);
        free(block);
    }
    for (size_t i = 0; i < 8; i++) {
        volatile size_t align = i % 2 ? SIZE_MAX - i : SIZE_MAX / 2 + 2 + i;
        errno = 0;
        MUST(memalign(align, 10) == NULL && (errno == EINVAL || errno == ENOMEM));
    }
}

static void page_functions_give_pages(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t n = 1; n < 300000; n = n * 2 + 1) {
        void *block = valloc(n);
        MUST_SAY(block && (uintptr_t)block % page == 0 && malloc_usable_size(block) >= n,
                 "valloc(%zu)", n);
        memset(block, 1, n);
        free(block);
        size_t whole = (n + page - 1) / page * page;
        block = pvalloc(n);
        MUST_SAY(block && (uintptr_t)block % page == 0 && malloc_usable_size(block) >= whole,
                 "pvalloc(%zu)", n);
        memset(block, 1, whole);
        free(block);
    }
}

/* All ways to ask for more than there can be. */
static const size_t impossible[] = {SIZE_MAX,
                                    SIZE_MAX - 1,
                                    SIZE_MAX - 7,
                                    SIZE_MAX - 15,
                                    SIZE_MAX - 16,
                                    SIZE_MAX - 31,
                                    SIZE_MAX - 63,
                                    SIZE_MAX - 4094,
                                    SIZE_MAX - 4095,
                                    SIZE_MAX - 4096,
                                    SIZE_MAX - 16383,
                                    SIZE_MAX - 65536,
                                    SIZE_MAX - (2u << 20),
                                    SIZE_MAX - (3u << 20),
                                    (size_t)PTRDIFF_MAX + 1,
                                    PTRDIFF_MAX,
                                    PTRDIFF_MAX - 4096,
                                    PTRDIFF_MAX - (2u << 20),
                                    (size_t)1 << 62,
                                    (size_t)1 << 48};

/* No value of the function's own is left to the compiler, which knows some of the answers. */
#define FAILS(call)                                                                              \
    do {                                                                                         \
        errno = 0;                                                                               \
        void *volatile result = (call);                                                          \
        MUST_SAY(!result && errno == ENOMEM, "%s with n = %#zx: %p, errno %d", #call, n, result, \
                 errno);                                                                         \
    } while (0)

static void too_much_is_enomem(void)
{
    unsigned char *kept = malloc(1000);
    MUST(kept);
    mark(kept, 1000, 4);
    for (size_t i = 0; i < COUNT_OF(impossible); i++) {
        volatile size_t n = impossible[i];
        FAILS(malloc(n));
        FAILS(calloc(n, 1));
        FAILS(calloc(1, n));
        FAILS(realloc(NULL, n));
        FAILS(realloc(kept, n));
        FAILS(reallocarray(NULL, 1, n));
        FAILS(reallocarray(kept, n, 1));
        FAILS(memalign(8, n));
        FAILS(memalign(64, n));
        FAILS(memalign(8192, n));
        FAILS(memalign(4 << 20, n));
        FAILS(aligned_alloc(16, n));
        FAILS(aligned_alloc(4096, n));
        FAILS(valloc(n));
        FAILS(pvalloc(n));
        void *block = kept;
        MUST_SAY(posix_memalign(&block, 64, n) == ENOMEM && block == kept, "posix_memalign of %#zx",
                 n);
        MUST_SAY(posix_memalign(&block, 1 << 20, n) == ENOMEM && block == kept,
                 "posix_memalign of %#zx", n);
    }
    MUST(marked(kept, 1000, 1000, 4));
    free(kept);
}

static void products_that_overflow_are_enomem(void)
{
    static const size_t factors[][2] = {{SIZE_MAX, 2},
                                        {SIZE_MAX / 2 + 1, 2},
                                        {SIZE_MAX / 16 + 2, 16},
                                        {(size_t)1 << 32, (size_t)1 << 32},
                                        {((size_t)1 << 32) + 1, (size_t)1 << 32},
                                        {SIZE_MAX, SIZE_MAX},
                                        {SIZE_MAX / 3 + 1, 3}};
    unsigned char *kept = malloc(100);
    MUST(kept);
    mark(kept, 100, 6);
    for (size_t i = 0; i < COUNT_OF(factors); i++) {
        volatile size_t n = factors[i][0], m = factors[i][1];
        FAILS(calloc(n, m));
        FAILS(calloc(m, n));
        FAILS(reallocarray(NULL, n, m));
        FAILS(reallocarray(kept, n, m));
        FAILS(reallocarray(kept, m, n));
    }
    MUST(marked(kept, 100, 100, 6));
    free(kept);
}

static void too_large_alignments_fail(void)
{
    for (int shift = 48; shift < 64; shift++) {
        volatile size_t n = (size_t)1 << shift;
        void *block = &block;
        errno = 0;
        MUST_SAY(memalign(n, 100) == NULL && (errno == ENOMEM || errno == EINVAL),
                 "memalign(1 << %d)", shift);
        int r = posix_memalign(&block, n, 100);
        MUST_SAY((r == ENOMEM || r == EINVAL) && block == &block, "posix_memalign at 1 << %d: %d",
                 shift, r);
    }
}

/* Nothing that works says anything in errno, and free() nothing at all. */
#define QUIET(call)                                                             \
    do {                                                                        \
        errno = 77;                                                             \
        call;                                                                   \
        MUST_SAY(errno == 77, "%s with n = %zu: errno is %d", #call, n, errno); \
    } while (0)

static void errno_stays_when_nothing_failed(void)
{
    for (int round = 0; round < 2; round++) {
        for (size_t n = 0; n < 20 << 20; n += n < 2000 ? 3 : n / 9) {
            void *a, *b, *c, *d, *e, *f, *g, *h = NULL;
            QUIET(a = malloc(n));
            QUIET(b = calloc(n, 1));
            QUIET(c = realloc(NULL, n));
            QUIET(d = memalign(256, n));
            QUIET(e = aligned_alloc(64, n));
            QUIET(f = valloc(n));
            QUIET(g = pvalloc(n));
            QUIET(MUST(posix_memalign(&h, 32, n) == 0));
            QUIET(c = realloc(c, n * 2 + 1));
            QUIET(c = realloc(c, n / 2 + 1));
            QUIET(c = reallocarray(c, n + 1, 3));
            QUIET(malloc_usable_size(a));
            void *blocks[] = {a, b, c, d, e, f, g, h};
            for (size_t i = 0; i < COUNT_OF(blocks); i++) {
                MUST(blocks[i]);
                QUIET(free(blocks[i]));
            }
            QUIET(free(NULL));
        }
        size_t n = 0;
        QUIET(malloc_trim(0));
        QUIET(mallinfo2());
    }
}

static void retired_names_are_absent(void)
{
    const char *wanted = getenv("MALLOC_UNDER_TEST");
    static const char *const names[] = {"cfree", "malloc_get_state", "malloc_set_state",
                                        "__malloc_hook"};
    for (size_t i = 0; wanted && *wanted && i < COUNT_OF(names); i++) {
        Dl_info info;
        void *address = dlsym(RTLD_DEFAULT, names[i]);
        MUST_SAY(!address || !dladdr(address, &info) || !strstr(info.dli_fname, wanted),
                 "there is %s", names[i]);
    }
}

int main(int argc, char **argv)
{
#define CASE(name)  \
    {               \
#name, name \
    }
    static const struct test_case cases[] = {
        CASE(every_size_is_aligned_and_large_enough),
        CASE(zero_bytes_are_blocks_of_their_own),
        CASE(usable_bytes_belong_to_one_block),
        CASE(calloc_is_zero_where_others_were),
        CASE(calloc_is_zero_after_realloc),
        CASE(realloc_keeps_contents),
        CASE(realloc_grows_and_shrinks_step_by_step),
        CASE(realloc_leaves_nothing_behind),
        CASE(realloc_of_huge_blocks_leaves_neighbours),
        CASE(realloc_to_nothing_frees),
        CASE(alignments_up_to_16_mib),
        CASE(small_sizes_at_every_alignment),
        CASE(realloc_of_aligned_blocks_keeps_contents),
        CASE(odd_alignments_are_refused_or_rounded),
        CASE(page_functions_give_pages),
        CASE(too_much_is_enomem),
        CASE(products_that_overflow_are_enomem),
        CASE(too_large_alignments_fail),
        CASE(errno_stays_when_nothing_failed),
        CASE(retired_names_are_absent),
    };
    return cases_main(argc, argv, cases, COUNT_OF(cases));
}
