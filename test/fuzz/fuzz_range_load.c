/* Images of heaps: whatever a file says, the process that loads it goes on with a heap that is whole. Checks over the image are made right first, as whoever
 * forges one would. A child tries each: what it takes is its heap from then on. One that it refuses is refused here, too, with nothing left behind. */
#include <errno.h>
#include <memoir/heap.h>
#include <memoir/malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/hash.h"
#include "malloc/range_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CHILD_LOADED = 3, CHILD_REFUSED = 4, SMALL = 200 };

/* Before anything asks the allocator. */
__attribute__((constructor)) static void settle(void)
{
    setenv("MEMOIR_MALLOC", "range=auto,range_bytes=256M,slot=3,receive=1", 1);
}

static void *next(uint8_t *image, size_t n, size_t *at, size_t bytes, uint64_t *check)
{
    if (bytes > n - *at)
        return NULL;
    void *here = image + *at;
    *check = hash_bytes(here, bytes, *check);
    *at += bytes;
    return here;
}

/* One by one, as they are read. */
static bool skip_pages(uint8_t *image, size_t n, size_t *at, uint64_t *check, size_t pages)
{
    for (; pages > 0; pages--)
        if (!next(image, n, at, OS_PAGE_BYTES, check))
            return false;
    return true;
}

static bool skip_macro(uint8_t *image, size_t n, size_t *at, uint64_t *check, uint32_t slabs)
{
    struct image_slab *all = next(image, n, at, (size_t)slabs * sizeof(*all), check);
    size_t words = 0, pages = 0;
    for (uint32_t i = 0; all && i < slabs; i++)
        words += all[i].class == SLAB_LARGE ? 0 : image_words(all[i].made);
    if (!all || !next(image, n, at, words * 8, check))
        return false;
    uint64_t *bits = next(image, n, at, IMAGE_MACRO_PAGES / 8, check);
    for (size_t i = 0; bits && i < IMAGE_MACRO_PAGES / 64; i++)
        pages += (size_t)__builtin_popcountll(bits[i]);
    return bits && skip_pages(image, n, at, check, pages);
}

static bool skip_huge(uint8_t *image, size_t n, size_t *at, uint64_t *check)
{
    struct image_run *run;
    do {
        run = next(image, n, at, sizeof(*run), check);
        if (!run || !skip_pages(image, n, at, check, run->n))
            return false;
    } while (run->n > 0);
    return true;
}

/* Its header's, and that at the end, as far as the image can be followed. */
static void checks_make(uint8_t *image, size_t n)
{
    struct memoir_malloc_range range = {.struct_size = sizeof(range)};
    struct image_header *header = (struct image_header *)image;
    size_t at = sizeof(*header);
    uint64_t check = 0, items = 0;
    if (n < at)
        return;
    if (image[offsetof(struct image_header, zero)] == 0 && memoir_malloc_range(&range) == 0) {
        header->layout = IMAGE_LAYOUT;
        header->base = range.base;
        header->range_bytes = range.bytes;
    }
    header->check = hash_bytes(header, offsetof(struct image_header, check), IMAGE_VERSION);
    check = hash_bytes(header, sizeof(*header), check);
    while (at + sizeof(struct image_item) <= n) {
        struct image_item *item = (struct image_item *)(image + at);
        if (item->kind == IMAGE_END) {
            item->at = items;
            item->bytes = check;
            return;
        }
        next(image, n, &at, sizeof(*item), &check);
        items++;
        if (item->kind == IMAGE_MACRO
                ? !skip_macro(image, n, &at, &check, item->n)
                : item->kind != IMAGE_HUGE || !skip_huge(image, n, &at, &check))
            return;
    }
}

static int load(const uint8_t *image, size_t n)
{
    int fd = memfd_create("image", MFD_CLOEXEC);
    void *root;
    if (fd < 0 || fs_write_all(fd, (const char *)image, n) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        abort();
    int r = memoir_malloc_range_load(fd, &root);
    close(fd);
    return r;
}

/* The heap serves, whatever is in it. */
static void use(void)
{
    void *blocks[SMALL];
    for (size_t i = 0; i < SMALL; i++)
        if (!(blocks[i] = memoir_malloc(8 + i * 97)))
            abort();
        else
            memset(blocks[i], 1, 8 + i * 97);
    for (size_t i = 0; i < SMALL; i++)
        memoir_malloc_free(blocks[i]);
}

static void attempt(const uint8_t *image, size_t n)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        int r = load(image, n);
        if (memoir_malloc_check(STDERR_FILENO) != 0)
            abort();
        use();
        _exit(r == 0 ? CHILD_LOADED : CHILD_REFUSED);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return;
    if (!WIFEXITED(status) ||
        (WEXITSTATUS(status) != CHILD_LOADED && WEXITSTATUS(status) != CHILD_REFUSED))
        abort();
    struct memoir_malloc_range range = {.struct_size = sizeof(range)};
    if (WEXITSTATUS(status) == CHILD_REFUSED &&
        (load(image, n) == 0 || memoir_malloc_range(&range) < 0 || !range.waiting ||
         range.mapped_bytes != 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *image = size ? malloc(size) : NULL;
    if (!image)
        return 0;
    memcpy(image, data, size);
    checks_make(image, size);
    attempt(image, size);
    free(image);
    return 0;
}
