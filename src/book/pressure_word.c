/* pressure_word.c: see pressure_word.h. */
#include "book/pressure_word.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "book/descriptor.h"
#include "book/text.h"

enum { READ_TRIES = 1000 };

/* ---- where ---- */

static void place_add(struct pressure_places *places, const char *dir, const char *more)
{
    if (!dir || dir[0] != '/')
        return;
    struct text text = text_begin(places->dirs[places->n], PRESSURE_WORD_DIR_MAX);
    text_add(&text, dir);
    text_add(&text, more);
    places->n += !text.cut;
}

void pressure_places_set(struct pressure_places *ret_places, const char *root, const char *runtime)
{
    ret_places->n = 0;
    if (root) {
        place_add(ret_places, root, "");
        return;
    }
    place_add(ret_places, PRESSURE_WORD_DIR, "");
    place_add(ret_places, runtime, "/memoir");
}

void pressure_places_init(struct pressure_places *ret_places)
{
    pressure_places_set(ret_places, secure_getenv("MEMOIR_DIR"), secure_getenv("XDG_RUNTIME_DIR"));
}

/* ---- whether to believe it ---- */

static int close_and(int fd, int r)
{
    (void)syscall(SYS_close, fd);
    return r;
}

static bool is_trusted(const struct stat *st, bool sticky_is_fine)
{
    return (st->st_uid == 0 || st->st_uid == geteuid()) &&
           (!(st->st_mode & (S_IWGRP | S_IWOTH)) || (sticky_is_fine && st->st_mode & S_ISVTX));
}

static int word_open(const char *dir)
{
    struct stat st;
    int folder = book_openat(AT_FDCWD, dir, O_PATH | O_DIRECTORY, 0);
    if (folder < 0)
        return folder;
    if (fstat(folder, &st) < 0 || !is_trusted(&st, true))
        return close_and(folder, -EPERM);
    /* A pipe or a device that somebody has put there neither holds us up nor does anything. */
    int fd =
        book_openat(folder, PRESSURE_FILE_NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
    fd = close_and(folder, fd);
    if (fd < 0)
        return fd == -ELOOP ? -EPERM : fd;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || !is_trusted(&st, false))
        return close_and(fd, -EPERM);
    return st.st_size < PRESSURE_FILE_BYTES ? close_and(fd, -EBADMSG) : fd;
}

/* Read before it is mapped: bytes that were read are there, where a hole in a file would end us when the memory is full. */
static int word_check(int fd)
{
    struct pressure_page page;
    if (syscall(SYS_pread64, fd, &page, sizeof(page), 0) != (long)sizeof(page))
        return -EBADMSG;
    return memcmp(page.magic, PRESSURE_MAGIC, sizeof(page.magic)) == 0 &&
                   page.version == PRESSURE_VERSION && page.bytes >= sizeof(page)
               ? 0
               : -EBADMSG;
}

int pressure_word_map(const char *dir, void *at, const struct pressure_page **ret_page)
{
    int fd = word_open(dir);
    if (fd < 0)
        return fd;
    int r = word_check(fd);
    if (r < 0)
        return close_and(fd, r);
    /* By hand: a tracker that wraps mmap() must not be entered from inside malloc(). */
    long page = syscall(SYS_mmap, at, (size_t)PRESSURE_FILE_BYTES, PROT_READ,
                        MAP_SHARED | (at ? MAP_FIXED : 0), fd, 0L);
    r = page == -1 ? -errno : 0;
    if (r == 0)
        *ret_page = (const struct pressure_page *)page;
    return close_and(fd, r);
}

void pressure_word_unmap(const struct pressure_page *page)
{
    (void)syscall(SYS_munmap, page, (size_t)PRESSURE_FILE_BYTES);
}

int pressure_page_read(const struct pressure_page *page, struct pressure_page *ret_copy)
{
    struct pressure_page copy;
    for (int i = 0; i < READ_TRIES; i++) {
        uint64_t sequence = load_acquire(&page->sequence);
        memcpy(&copy, page, sizeof(copy));
        fence_acquire();
        if (sequence % 2 == 0 && load_relaxed(&page->sequence) == sequence) {
            *ret_copy = copy;
            return 0;
        }
        cpu_relax();
    }
    return -EAGAIN;
}
