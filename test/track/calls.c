/* calls.c: every entry point of a C allocator, each with its corner cases, by a program that counts. It must
 * say the same with libmemoir-track and without. */
#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "own.h"

static void *volatile sink;

/* Not all allocators do; what they say is not ours to change. */
static bool strict;
static bool said_no_memory(void)
{
    return errno == ENOMEM || !strict;
}

static void *got(void *block, size_t bytes)
{
    MUST(block);
    own_got(bytes);
    sink = block;
    return block;
}

static void gave(void *block, size_t bytes)
{
    own_gave(bytes);
    free(block);
}

/* All that may be used can be written, and comes back as it was. */
static void use(unsigned char *block, size_t bytes)
{
    size_t usable = malloc_usable_size(block);
    MUST(usable >= bytes);
    memset(block, 0xa5, usable);
    MUST(block[0] == 0xa5 && block[usable - 1] == 0xa5);
}

static void sizes(void)
{
    for (size_t n = 1; n < 5000; n += n < 300 ? 1 : 97) {
        unsigned char *block = got(malloc(n), n);
        use(block, n);
        gave(block, n);
    }
    gave(got(malloc(0), 0), 0);
    for (size_t n = 1 << 16; n <= 1 << 24; n *= 4) {
        use(got(malloc(n), n), n);
        void *block = sink;
        gave(block, n);
    }
}

static void zeroed(void)
{
    for (size_t n = 1; n < 3000; n += 37) {
        unsigned char *dirty = got(malloc(n * 3), n * 3);
        use(dirty, n * 3);
        gave(dirty, n * 3);
        unsigned char *block = got(calloc(n, 3), n * 3);
        for (size_t i = 0; i < n * 3; i++)
            MUST(block[i] == 0);
        use(block, n * 3);
        gave(block, n * 3);
    }
    volatile size_t huge = SIZE_MAX / 2;
    errno = 0;
    MUST(calloc(huge, 4) == NULL && said_no_memory());
    errno = 0;
    MUST(malloc(huge) == NULL && said_no_memory());
    MUST(malloc(huge * 2) == NULL);
}

static void *resized(void *block, size_t from, size_t to)
{
    void *moved = realloc(block, to);
    MUST(moved);
    own_gave(from);
    own_got(to);
    return moved;
}

static void resizes(void)
{
    unsigned char *block = got(realloc(NULL, 10), 10);
    size_t size = 10;
    for (size_t n = 11; n < 3000000; n = n * 5 / 4) {
        memset(block, 7, size);
        block = resized(block, size, n);
        MUST(block[0] == 7 && block[size - 1] == 7);
        use(block, n);
        size = n;
    }
    for (; size > 20; size /= 2)
        block = resized(block, size, size / 2);
    volatile size_t huge = SIZE_MAX / 2;
    memset(block, 9, size);
    errno = 0;
    MUST(realloc(block, huge) == NULL && said_no_memory() && block[size - 1] == 9);
    void *array = reallocarray(block, 7, 9);
    MUST(array);
    own_gave(size);
    own_got(63);
    errno = 0;
    MUST(reallocarray(array, huge, 4) == NULL && errno == ENOMEM);
    gave(array, 63);
    block = got(malloc(50), 50);
    own_gave(50);
    void *rest = realloc(block, 0);
    if (rest) /* some allocators give a block of no bytes */
        gave(got(rest, 0), 0);
    free(NULL);
}

static void aligned_ones(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t align = sizeof(void *); align <= 65536; align *= 2) {
        for (size_t n = 1; n < 20000; n = n * 3 + 1) {
            void *block = NULL;
            MUST(posix_memalign(&block, align, n) == 0 && (uintptr_t)block % align == 0);
            use(got(block, n), n);
            gave(block, n);
            size_t whole = n % 50 * align;
            block = got(aligned_alloc(align, whole), whole);
            MUST((uintptr_t)block % align == 0);
            gave(block, whole);
            block = got(memalign(align, n), n);
            MUST((uintptr_t)block % align == 0);
            use(block, n);
            gave(block, n);
        }
    }
    void *block = &page;
    volatile size_t odd = 3;
    MUST(posix_memalign(&block, odd, 10) == EINVAL && block == &page);
    block = got(valloc(100), 100);
    MUST((uintptr_t)block % page == 0);
    gave(block, 100);
    for (size_t n = 1; n <= page; n += page - 1) { /* all of the page may be used */
        block = got(pvalloc(n), page);
        MUST((uintptr_t)block % page == 0 && malloc_usable_size(block) >= page);
        memset(block, 1, page);
        gave(block, page);
    }
}

static void errno_stays(void)
{
    enum { N = 3000 };
    static void *blocks[N];
    for (size_t i = 0; i < N; i++) {
        errno = 77;
        blocks[i] = got(malloc(i), i);
        MUST(errno == 77);
    }
    for (size_t i = 0; i < N; i++) {
        gave(blocks[i], i);
        MUST(errno == 77);
    }
}

int main(int argc, char **argv)
{
    strict = argc > 1 && strcmp(argv[1], "glibc") == 0;
    MUST(malloc_usable_size(NULL) == 0);
    sizes();
    zeroed();
    resizes();
    aligned_ones();
    errno_stays();
    for (size_t i = 0; i < 1000; i++) /* these stay */
        got(malloc(i), i);
    own_say("end");
    return 0;
}
