/*
 * publish.c: turn the private image into a file that everybody can read, and end it.
 *
 * The lock: flock() belongs to the open file, and a mapping keeps the open file alive after its
 * descriptor is closed. So the lock taken here lasts exactly as long as somebody maps the book,
 * which ends with exit, exec and munmap, and anybody can test it without knowing our PID.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "book/descriptor.h"
#include "book/identity.h"
#include "book/place.h"
#include "book/sweep.h"
#include "book/text.h"
#include "book/writer.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { NAME_TRIES = 4 };

static int write_all(int fd, const void *bytes, size_t n, uint64_t offset)
{
    const uint8_t *at = bytes;
    while (n > 0) {
        ssize_t done = pwrite(fd, at, n, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -errno;
        if (done == 0)
            return -ENOSPC;
        at += done;
        n -= (size_t)done;
        offset += (uint64_t)done;
    }
    return 0;
}

/* PID-STARTTIME-SOURCE-RANDOM.book. Readers go by the header; the name is for people and sweeps. */
static void make_name(struct book_writer *w, unsigned try)
{
    const struct book_header *header = w->header;
    struct text text = text_begin(w->name, sizeof(w->name));
    text_add_number(&text, (uint64_t)header->pid);
    text_add(&text, "-");
    text_add_number(&text, header->start_ticks);
    text_add(&text, "-");
    text_add_number(&text, header->source);
    text_add(&text, "-");
    text_add_hex(&text, hash_combine(header->hash_seed, try));
    text_add(&text, ".book");
}

static int create(struct book_writer *w, int directory)
{
    for (unsigned try = 0; try < NAME_TRIES; try++) {
        make_name(w, try);
        /* What a daemon writes about somebody, he may read. */
        mode_t mode = w->header->compat & BOOK_COMPAT_ON_BEHALF ? 0644 : 0600;
        int fd = book_openat(directory, w->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
        if (fd != -EEXIST)
            return fd;
    }
    return -EEXIST;
}

/* ftruncate() beyond the limit would raise SIGXFSZ in the host. */
static int resize(int fd, uint64_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes)
        return -EFBIG;
    return ftruncate(fd, (off_t)bytes) < 0 ? -errno : 0;
}

int book_writer_each_open(const struct book_writer *w,
                          int (*each)(void *context, uint64_t offset, uint64_t bytes),
                          void *context)
{
    int r = each(context, 0, BOOK_HEADER_BYTES);
    for (size_t i = 0; i < BOOK_SECTIONS_MAX && r == 0; i++) {
        const struct book_section *section = &w->header->sections[i];
        uint64_t per_page = section->kind == BOOK_SECTION_BLOCKS
                                ? BOOK_BLOCK_PAGE_BYTES
                                : TABLE_CHUNKS_PER_PAGE * sizeof(struct table_head);
        if (section->kind != BOOK_SECTION_BLOCKS && section->kind != BOOK_SECTION_BLOCK_INDEX) {
            if (section->open > 0 && section->kind != BOOK_SECTION_MOVES)
                r = each(context, section->offset, section->open);
            continue;
        }
        uint64_t part = section->size / w->header->block_shards;
        for (uint32_t s = 0; s < w->header->block_shards && r == 0; s++)
            if (w->header->block_pages[s] > 0)
                r = each(context, section->offset + s * part, w->header->block_pages[s] * per_page);
    }
    return r;
}

struct target {
    const struct book_writer *w;
    int fd;
    uint8_t *base;
};

/* pwrite() reports a full file system; a store into the mapping would be killed for it. */
static int write_stretch(void *context, uint64_t offset, uint64_t bytes)
{
    const struct target *target = context;
    return write_all(target->fd, (const uint8_t *)target->w->header + offset, bytes, offset);
}

static int open_stretch(void *context, uint64_t offset, uint64_t bytes)
{
    const struct target *target = context;
    uint64_t page = target->w->page_bytes;
    bytes = (bytes + page - 1) / page * page;
    return mprotect(target->base + offset, bytes, PROT_READ | PROT_WRITE) < 0 ? -errno : 0;
}

static int map_file(const struct book_writer *w, int fd, void **ret_base)
{
    struct target target = {.w = w};
    target.base = book_reserve_new(w->map_bytes, fd);
    if (!target.base)
        return -errno;
    int r = w->bare ? open_stretch(&target, 0, w->map_bytes)
                    : book_writer_each_open(w, open_stretch, &target);
    /* Asks for a page that is there: tells whether the kernel knows how (5.14 and later). */
    if (r == 0 && madvise(target.base, BOOK_HEADER_BYTES, MADV_POPULATE_WRITE) < 0)
        r = errno == EINVAL ? -ENOSYS : -errno;
    if (r < 0) {
        book_reserve_free(target.base, w->map_bytes);
        return r;
    }
    madvise(target.base, w->map_bytes, MADV_DONTDUMP);
    *ret_base = target.base;
    return 0;
}

int book_writer_fill(struct book_writer *w, int fd)
{
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return -errno;
    int r = resize(fd, w->map_bytes);
    if (r < 0)
        return r;
    w->header->state = BOOK_STATE_OPEN;
    struct target target = {.w = w, .fd = fd};
    r = book_writer_each_open(w, write_stretch, &target);
    void *base = NULL;
    if (r == 0)
        r = map_file(w, fd, &base);
    /* The magic comes last, and by write(), so that whoever watches the directory is told. */
    if (r == 0)
        r = write_all(fd, BOOK_MAGIC, 8, 0);
    if (r < 0) {
        if (base)
            book_reserve_free(base, w->map_bytes);
        w->header->state = BOOK_STATE_INITIAL;
        return r;
    }
    /* The old image goes last: another thread may fork at any moment, and its child reads whichever
     * of the two our pointers lead to. */
    void *image = w->header;
    book_writer_rebase(w, base);
    w->published = true;
    book_reserve_free(image, w->map_bytes);
    return 0;
}

static int publish_as(struct book_writer *w, int directory, int fd)
{
    if (fd < 0)
        return fd;
    int r = book_writer_fill(w, fd);
    if (r < 0)
        unlinkat(directory, w->name, 0);
    close(fd);
    return r;
}

/* Take one of the empty files that whoever started this process holds open ($MEMOIR_KEEP_IN), so that a daemon which removes the book when this
 * process dies does not take it from him: it gets the book's name. -errno: there is none (left). */
static int adopt(struct book_writer *w, int directory)
{
    const char *in = book_keep_asked() ? secure_getenv(BOOK_KEEP_IN) : NULL;
    if (!in || strncmp(in, BOOK_KEEP_PREFIX, sizeof(BOOK_KEEP_PREFIX) - 1) != 0 || strchr(in, '/'))
        return -ENOENT;
    make_name(w, 0);
    for (unsigned i = 0; i < BOOK_KEEP_FILES; i++) {
        char name[NAME_MAX + 1];
        struct text text = text_begin(name, sizeof(name));
        text_add(&text, in);
        text_add(&text, "/");
        text_add_number(&text, i);
        int fd = text.cut ? -ENAMETOOLONG
                          : book_openat(directory, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0);
        struct stat info;
        if (fd < 0)
            continue;
        if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == 0 &&
            info.st_uid == geteuid() && info.st_nlink == 1 &&
            renameat2(directory, name, directory, w->name, RENAME_NOREPLACE) == 0)
            return fd;
        close(fd);
    }
    return -ENOENT;
}

static int publish_in(struct book_writer *w, int directory)
{
    w->header->exec_count = book_sweep(directory, w->header);
    int fd = adopt(w, directory);
    return publish_as(w, directory, fd < 0 ? create(w, directory) : fd);
}

int book_writer_publish_at(struct book_writer *w, int directory)
{
    int fd = create(w, directory);
    if (fd >= 0)
        (void)fchmod(fd, 0644); /* the umask must not keep the subject from reading it */
    return publish_as(w, directory, fd);
}

int book_writer_publish(struct book_writer *w)
{
    int first_error = -ENOENT;
    for (unsigned which = 0; which < BOOK_PLACE_CANDIDATES; which++) {
        int directory = book_place_open(which, w->directory, sizeof(w->directory));
        int r = directory < 0 ? directory : publish_in(w, directory);
        if (directory >= 0)
            close(directory);
        if (r == 0)
            return 0;
        if (first_error == -ENOENT)
            first_error = r;
    }
    w->directory[0] = '\0';
    return first_error;
}

struct copy {
    const uint8_t *from;
    uint8_t *to;
};

static int copy_open(void *context, uint64_t offset, uint64_t bytes)
{
    const struct copy *copy = context;
    memcpy(copy->to + offset, copy->from + offset, bytes);
    return 0;
}

void book_writer_detach(struct book_writer *w)
{
    if (!w->published)
        return; /* private already */
    struct copy copy = {.from = (const uint8_t *)w->header};
    copy.to = mmap(NULL, w->map_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (copy.to == MAP_FAILED)
        return;
    /* The parent goes on meanwhile, and opens pages that were closed when it was forked. */
    mprotect(w->header, w->map_bytes, PROT_READ | PROT_WRITE);
    book_writer_each_open(w, copy_open, &copy);
    /* One mapping on top of the other in one step: nobody finds a gap. */
    if (mremap(copy.to, w->map_bytes, w->map_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, w->header) ==
        MAP_FAILED)
        munmap(copy.to, w->map_bytes);
    w->published = false;
}

void book_writer_close(struct book_writer *w, bool leave)
{
    if (!w->header || !w->published)
        return;
    store_release(&w->header->state, BOOK_STATE_CLOSED);
    if (leave || w->sealed)
        return;
    int directory = book_openat(AT_FDCWD, w->directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    if (directory < 0)
        return;
    /* After chroot or a change of user the path may lead elsewhere: the name is random enough that
     * it can only be ours. */
    unlinkat(directory, w->name, 0);
    close(directory);
}
