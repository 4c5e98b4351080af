/*
 * range_save.c: write the heap as an image.
 *
 * Threads go on meanwhile, and what is written has to be of one moment. So it is written by a child, which has all memory as it was when
 * it was made, and treats the heaps of threads that it has not as any child of fork() does (thread.c). The child is made without a signal
 * for its end and with all signals blocked: neither a handler of the program's nor its wait() for children of its own ever sees it.
 */
#include <errno.h>
#include <fcntl.h>
#include <memoir/malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "book/descriptor.h"
#include "malloc/entry.h"
#include "malloc/huge.h"
#include "malloc/range.h"
#include "malloc/range_image.h"
#include "malloc/source.h"
#include "malloc/thread.h"

struct save {
    struct image_stream stream;
    struct image_macro macro;
    size_t n_words;
    int pagemap;                       /* /proc/self/pagemap, or -1 */
    int error;                         /* of a huge block */
    uint64_t entries[IMAGE_RUN_PAGES]; /* of the page map */
};

/* ---- pages ---- */

static bool is_zero(const char *page)
{
    const uint64_t *word = (const uint64_t *)page;
    for (size_t i = 0; i < OS_PAGE_BYTES / sizeof(*word); i += 4)
        if (word[i] | word[i + 1] | word[i + 2] | word[i + 3])
            return false;
    return true;
}

/* Of up to IMAGE_RUN_PAGES pages, clear the bits of those that are zero. Those that were never touched are not touched now: the kernel
 * tells which ones are in memory (bit 63) or swapped out (62). */
static void drop_zero(struct save *s, const char *at, size_t n, uint64_t *bits)
{
    /* The kernel's pages may be larger than those of images. */
    uintptr_t page = os_page_bytes(), from = (uintptr_t)at, first = from / page;
    size_t bytes = ((from + n * OS_PAGE_BYTES - 1) / page - first + 1) * sizeof(s->entries[0]);
    off_t offset = (off_t)(first * sizeof(s->entries[0]));
    bool known = s->pagemap >= 0 && pread(s->pagemap, s->entries, bytes, offset) == (ssize_t)bytes;
    for (size_t i = 0; i < n; i++) {
        uint64_t entry = known ? s->entries[(from + i * OS_PAGE_BYTES) / page - first] : 0;
        if (bit_is(bits, i) && ((known && entry >> 62 == 0) || is_zero(at + i * OS_PAGE_BYTES)))
            bit_clear(bits, i);
    }
}

static int put_pages(struct save *s, const char *at, size_t n)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < n; i++)
        r = image_put(&s->stream, at + i * OS_PAGE_BYTES, OS_PAGE_BYTES);
    return r;
}

/* ---- macro-blocks ---- */

/* Clear the bits of a list of free blocks. False: the list leaves its slab, or names a block twice. */
static bool drop_list(const struct slab *s, const void *block, uint64_t *bits)
{
    for (; block; block = *(void *const *)block) {
        uintptr_t distance = (uintptr_t)block - (uintptr_t)slab_memory(s);
        size_t i = distance / s->block_bytes;
        if (distance % s->block_bytes != 0 || i >= s->made || !bit_is(bits, i))
            return false;
        bit_clear(bits, i);
    }
    return true;
}

static void mark_pages(struct image_macro *to, size_t from, size_t bytes)
{
    for (size_t i = from / OS_PAGE_BYTES; i <= (from + bytes - 1) / OS_PAGE_BYTES; i++)
        bit_set(to->pages, i);
}

/* Which blocks of a slab are in use, and the pages that they lie in. 0: none is; 1; -EUCLEAN: its lists are broken. */
static int gather_small(struct save *s, const struct slab *slab)
{
    uint64_t *bits = s->macro.words + s->n_words, remote = load_acquire(&slab->remote);
    size_t words = image_words(slab->made), used = 0;
    size_t limit = ((size_t)slab->slices << SLICE_SHIFT) / size_of_class(slab->class);
    if (slab->slices != size_slices[slab->class] || slab->made > limit ||
        slab->block_bytes != size_of_class(slab->class))
        return -EUCLEAN;
    memset(bits, 0, words * sizeof(*bits));
    for (size_t i = 0; i < slab->made; i++)
        bit_set(bits, i);
    if (!drop_list(slab, slab->free, bits) || !drop_list(slab, remote_head(slab, remote), bits))
        return -EUCLEAN;
    size_t at = (size_t)slab_slice(slab) << SLICE_SHIFT;
    for (size_t i = 0; i < slab->made; i++)
        if (bit_is(bits, i)) {
            mark_pages(&s->macro, at + i * slab->block_bytes, slab->block_bytes);
            used++;
        }
    s->n_words += used ? words : 0;
    return used > 0;
}

/* All that a slab can be asked for later. */
static int gather_slab(struct save *s, const struct slab *slab, struct image_slab *to)
{
    *to = (struct image_slab){
        .class = slab->class, .first = (uint8_t)slab_slice(slab), .slices = slab->slices};
    if (slab->class == SLAB_LARGE) {
        size_t bytes = (size_t)slab->slices << SLICE_SHIFT;
        /* Of a thread that was about to write these, and had not got the block yet. */
        bool told = slab->start < SLICE_BYTES && slab->asked <= bytes - slab->start;
        to->start = told ? slab->start : 0;
        to->asked = told ? (uint32_t)slab->asked : 0;
        mark_pages(&s->macro, (size_t)to->first << SLICE_SHIFT, (size_t)to->slices << SLICE_SHIFT);
        return 1;
    }
    to->made = slab->made;
    return slab->class < SIZE_CLASSES ? gather_small(s, slab) : 0;
}

/* The number of slabs with blocks in use. */
static int gather(struct save *s, struct macro *m)
{
    int n = 0;
    s->n_words = 0;
    memset(s->macro.pages, 0, sizeof(s->macro.pages));
    for (unsigned i = 1; i < MACRO_SLICES;) {
        struct slab *slab = macro_slab(m, i);
        if (bit_is(m->free, i)) {
            i++;
            continue;
        }
        if (slab->slices == 0 || i + slab->slices > MACRO_SLICES)
            return -EUCLEAN;
        int r = gather_slab(s, slab, &s->macro.slabs[n]);
        if (r < 0)
            return r;
        n += r;
        i += slab->slices;
    }
    return n;
}

static int save_macro(struct save *s, struct macro *m)
{
    struct image_macro *to = &s->macro;
    int n = gather(s, m);
    if (n <= 0)
        return n;
    drop_zero(s, (char *)m, IMAGE_MACRO_PAGES, to->pages);
    struct image_item item = {.kind = IMAGE_MACRO, .n = (uint32_t)n, .at = (uintptr_t)m};
    s->stream.items++;
    int r = image_put(&s->stream, &item, sizeof(item));
    if (r == 0)
        r = image_put(&s->stream, to->slabs, (size_t)n * sizeof(to->slabs[0]));
    if (r == 0)
        r = image_put(&s->stream, to->words, s->n_words * sizeof(to->words[0]));
    if (r == 0)
        r = image_put(&s->stream, to->pages, sizeof(to->pages));
    for (size_t i = 0; r == 0 && i < IMAGE_MACRO_PAGES; i++)
        if (bit_is(to->pages, i))
            r = put_pages(s, (char *)m + i * OS_PAGE_BYTES, 1);
    return r;
}

/* ---- huge blocks ---- */

static int save_runs(struct save *s, const char *at, size_t pages)
{
    int r = 0;
    for (size_t from = 0; r == 0 && from < pages; from += IMAGE_RUN_PAGES) {
        size_t n = pages - from < IMAGE_RUN_PAGES ? pages - from : IMAGE_RUN_PAGES;
        uint64_t bits[IMAGE_RUN_PAGES / 64];
        memset(bits, 0xff, sizeof(bits));
        drop_zero(s, at + from * OS_PAGE_BYTES, n, bits);
        for (size_t i = 0; r == 0 && i < n; i++) {
            struct image_run run = {.first = from + i, .n = bits_in_row(bits, i, n)};
            if (run.n == 0)
                continue;
            r = image_put(&s->stream, &run, sizeof(run));
            if (r == 0)
                r = put_pages(s, at + run.first * OS_PAGE_BYTES, run.n);
            i += run.n;
        }
    }
    struct image_run none = {0};
    return r == 0 ? image_put(&s->stream, &none, sizeof(none)) : r;
}

static bool save_huge(void *p, size_t usable, size_t asked, void *arg)
{
    struct save *s = arg;
    if (!os_places_has(p))
        return true;
    size_t offset =
        map_kind(p) == MAP_HUGE_ALONE ? OS_PAGE_MAX : (uintptr_t)p & (MAP_UNIT_BYTES - 1);
    char *start = (char *)p - offset;
    struct image_item item = {.kind = IMAGE_HUGE,
                              .at = (uintptr_t)start,
                              .bytes = offset + usable,
                              .asked = asked,
                              .offset = offset};
    s->stream.items++;
    s->error = image_put(&s->stream, &item, sizeof(item));
    if (s->error == 0)
        s->error = save_runs(s, start, item.bytes / OS_PAGE_BYTES);
    return s->error == 0;
}

/* ---- all ---- */

/* A child of _Fork() may have left memory behind that was half changed: that is in no list (source.h: generation; huge.h). */
static bool is_lost(void)
{
    const struct range_plan *plan = range_here();
    char *from = (char *)range_plan_from(plan);
    for (size_t at = 0; at < plan->bytes; at += MAP_UNIT_BYTES) {
        const struct macro *m = (const struct macro *)(from + at);
        if (map_kind(m) == MAP_MACRO && m->generation != m->source->generation)
            return true;
    }
    return huge_lost();
}

static int save_items(struct save *s)
{
    int r = 0;
    for (unsigned i = 0; source_at(i); i++)
        for (struct macro *m = source_at(i)->macros; r == 0 && m; m = m->next)
            r = save_macro(s, m);
    if (r == 0 && !huge_walk(save_huge, s))
        r = -EUCLEAN;
    return r == 0 ? s->error : r;
}

static int save_all(int fd, const void *root)
{
    const struct range_plan *plan = range_here();
    if (is_lost())
        return -ENOTRECOVERABLE;
    struct save *s = os_map(sizeof(*s), 1);
    if (!s)
        return -ENOMEM;
    s->stream.fd = fd;
    s->pagemap = book_openat(AT_FDCWD, "/proc/self/pagemap", O_RDONLY, 0);
    struct image_header h = {
        .version = IMAGE_VERSION,
        .bytes = sizeof(h),
        .layout = IMAGE_LAYOUT,
        .base = range_plan_from(plan),
        .range_bytes = plan->bytes,
        .slot = plan->slot,
        .root = (uintptr_t)root,
    };
    memcpy(h.magic, IMAGE_MAGIC, sizeof(h.magic));
    h.check = image_header_check(&h);
    int r = image_put(&s->stream, &h, sizeof(h));
    if (r == 0)
        r = save_items(s);
    struct image_item end = {.kind = IMAGE_END, .at = s->stream.items, .bytes = s->stream.check};
    if (r == 0)
        r = image_put(&s->stream, &end, sizeof(end));
    return r == 0 ? image_flush(&s->stream) : r;
}

static int wait_for(pid_t child)
{
    int status;
    long r;
    do
        r = syscall(SYS_wait4, child, &status, __WALL, NULL);
    while (r < 0 && errno == EINTR);
    if (r < 0)
        return -errno;
    return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}

static int save_by_child(int fd, const void *root)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_fork_prepare();
    pid_t child = (pid_t)syscall(SYS_clone, 0UL, NULL, NULL, NULL, 0UL);
    if (child == 0) {
        thread_fork_child();
        if (heap_own)
            heap_send_strays(heap_own, heap_own); /* they are free, and in no list of a slab */
        _exit(-save_all(fd, root));
    }
    int r = child < 0 ? -errno : 0;
    thread_fork_parent();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return r < 0 ? r : wait_for(child);
}

EXPORT int memoir_malloc_range_save(int fd, const void *root)
{
    enum range_state state;
    int saved = errno;
    int r = range_state_moved(&state);
    if (r < 0)
        return r;
    if (state == RANGE_WAITING)
        return -EAGAIN;
    if (root && !os_places_has(root))
        return -EINVAL;
    if (fcntl(fd, F_GETFD) < 0)
        r = -EBADF;
    else
        r = save_by_child(fd, root);
    errno = saved;
    return r;
}
