/*
 * lock_all.c: mlockall() of a program that is tracked locks what it would lock without us.
 *
 * The kernel counts address space, with access or without, so our reserves would count: as locked memory of those who may lock any amount, and
 * against the limit of all others, whose call fails. So where the kernel refuses, each mapping of the program is locked by itself, and where it
 * does not, ours are unlocked again. A program that makes the system call itself gets what the kernel says.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/procfs.h"
#include "book/mapping.h"
#include "track/wrap.h"

EXPORT int mlockall(int flags);

#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif

enum { FILE_LINE_MAX = 160 };

struct ours {
    struct book_mapping list[BOOK_MAPPINGS_MAX];
    size_t n;
};

/* A file of /proc, line by line. */
struct file {
    int fd;
    char bytes[1024];
    ssize_t n, at;
};

static int file_next(struct file *f)
{
    if (f->at == f->n) {
        f->n = read(f->fd, f->bytes, sizeof(f->bytes));
        f->at = 0;
        if (f->n <= 0)
            return -1;
    }
    return (unsigned char)f->bytes[f->at++];
}

/* The next line, of which a long one is cut at its end: the names of files are not needed. False at the end. */
static bool file_line(struct file *f, char *line, size_t size)
{
    size_t len = 0;
    int c = file_next(f);
    if (c < 0)
        return false;
    for (; c >= 0 && c != '\n'; c = file_next(f))
        if (len < size - 1)
            line[len++] = (char)c;
    line[len] = '\0';
    return true;
}

/* Would the kernel let all but ours be locked? It compares the same figures. */
static bool fits_without(const struct ours *ours)
{
    struct file f = {.fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC)};
    struct rlimit limit;
    struct procfs_statm statm = {0};
    char line[FILE_LINE_MAX];
    uint64_t not_ours = 0;
    bool known = f.fd >= 0 && file_line(&f, line, sizeof(line)) && procfs_statm_parse(line, &statm);
    if (f.fd >= 0)
        close(f.fd);
    for (size_t i = 0; i < ours->n; i++)
        not_ours -= ours->list[i].end - ours->list[i].start;
    not_ours += statm.vms * getauxval(AT_PAGESZ);
    return known && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && not_ours <= limit.rlim_cur;
}

/* What is not ours of a mapping. The kernel passes over mappings that cannot be filled, and so do we. */
static void lock_part(const struct ours *ours, uintptr_t start, uintptr_t end, int flags)
{
    while (start < end) {
        uintptr_t next = end, behind = 0;
        for (size_t i = 0; i < ours->n; i++) {
            const struct book_mapping *m = &ours->list[i];
            if (m->start <= start && m->end > start)
                behind = m->end;
            else if (m->start > start && m->start < next)
                next = m->start;
        }
        if (behind == 0)
            (void)syscall(SYS_mlock2, start, next - start, flags);
        start = behind ? behind : next;
    }
}

static bool lock_each(const struct ours *ours, int flags)
{
    struct file f = {.fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC)};
    struct procfs_mapping m;
    char line[FILE_LINE_MAX];
    if (f.fd < 0)
        return false;
    while (file_line(&f, line, sizeof(line)))
        if (procfs_mapping_parse(line, line + strlen(line), &m))
            lock_part(ours, m.start, m.end, flags);
    close(f.fd);
    return true;
}

static int lock_without(const struct ours *ours, int flags)
{
    if (!fits_without(ours))
        return -ENOMEM;
    if ((flags & MCL_FUTURE) && syscall(SYS_mlockall, flags & ~MCL_CURRENT) < 0)
        return -errno;
    return lock_each(ours, flags & MCL_ONFAULT ? MLOCK_ONFAULT : 0) ? 0 : -ENOMEM;
}

int mlockall(int flags)
{
    int saved = errno, r = 0;
    struct ours ours;
    /* Before the call: what another thread maps meanwhile is not filled. */
    store_relaxed(&book_locks_future, flags & MCL_FUTURE ? 1 : 0);
    if (syscall(SYS_mlockall, flags) < 0)
        r = -errno;
    ours.n = book_mappings(ours.list);
    if (r == -ENOMEM && (flags & MCL_CURRENT))
        r = lock_without(&ours, flags);
    if (r < 0) {
        store_relaxed(&book_locks_future, 0);
        errno = -r;
        return -1;
    }
    for (size_t i = 0; i < ours.n; i++)
        munlock((void *)ours.list[i].start, ours.list[i].end - ours.list[i].start);
    errno = saved;
    return 0;
}
