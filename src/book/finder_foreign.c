/*
 * finder_foreign.c: books in mount namespaces that we are not part of.
 *
 * A container has its own tmpfs, which no path of ours reaches and whose paths we must not follow.
 * But every process that writes a book has it mapped, and /proc/PID/map_files gives root the very
 * file behind a mapping. Reading maps is the costly part (it holds the process's memory lock), so a
 * process is looked at rarely once it has been seen.
 *
 * A stranger can have tens of thousands of mappings and as many files that look like books, so a look at
 * one process ends after LOOK_NS, one that took SLOW_NS is not soon repeated, and a book that is not ready
 * takes one of the process's few places all the same.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/procfs.h"
#include "book/finder.h"

enum {
    BOOKS_PER_PROCESS_MAX = 8, /* one per source, and some to spare */
    REST_MAX = 64,             /* scans between two looks at the same process */
    NOT_READY_LOOKS = 8,       /* looks that come soon because a book was not ready */
    LINES_PER_CLOCK = 256,     /* of maps, between two looks at the clock */
    SLOW_NS = 5000000,
    LOOK_NS = 20000000,
};

struct seen_process {
    int pid;
    uint64_t start_ticks;
    uint32_t rest;      /* scans to wait after a look; doubles */
    uint32_t next_look; /* scans left until the next one */
    uint32_t n_books;
    uint32_t not_ready; /* bits by number of those below: offered again at the next look */
    uint32_t unready_looks;
    uint64_t books[BOOKS_PER_PROCESS_MAX]; /* inodes offered already */
};

/* Sorted by pid, like /proc itself: each scan walks the old list beside the directory and writes a
 * new one, so that the dead fall out by themselves. */
struct seen_list {
    struct seen_process *list;
    size_t n;
};

struct book_seen {
    struct seen_list last; /* of the last complete scan */
    struct seen_list next; /* of the one under way */
    int next_pid;          /* where it goes on; 0: none is under way */
};

int book_seen_new(struct book_seen **ret_seen)
{
    struct book_seen *seen = calloc(1, sizeof(*seen));
    if (!seen)
        return -ENOMEM;
    *ret_seen = seen;
    return 0;
}

void book_seen_free(struct book_seen *seen)
{
    if (!seen)
        return;
    free(seen->last.list);
    free(seen->next.list);
    free(seen);
}

typedef int foreign_each(int fd, int pid, const char *map_path, void *context);

struct foreign_scan {
    int proc_fd;
    uint64_t our_mnt_ns;
    foreign_each *each;
    void *context;
    size_t opened, denied; /* files behind mappings */
};

static int start_ticks_read(int pid_fd, uint64_t *ret_ticks)
{
    MEMOIR_CLEANUP(closep)
    int fd = openat(pid_fd, "stat", O_RDONLY | O_CLOEXEC);
    char text[1024];
    struct procfs_stat stat;
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return -ESRCH;
    text[n] = '\0';
    if (!procfs_stat_parse(text, &stat))
        return -EBADMSG;
    *ret_ticks = stat.start_ticks;
    return 0;
}

static int mnt_ns_read(int dir_fd, const char *path, uint64_t *ret_ns)
{
    struct stat st;
    if (fstatat(dir_fd, path, &st, 0) < 0)
        return -errno;
    *ret_ns = st.st_ino;
    return 0;
}

/* Open the file behind one mapping: only if it is a regular file in memory. The first descriptor is
 * O_PATH, so that nothing is really opened before it is known what it is, and the second is of the
 * same file even if the process maps another one meanwhile. */
static int map_file_open(int pid_fd, const struct procfs_mapping *mapped, struct stat *ret_st)
{
    char path[96];
    struct statx stx;
    if (!fs_device_is_memory(pid_fd, "mountinfo", mapped->dev_major, mapped->dev_minor))
        return -EBADMSG;
    snprintf(path, sizeof(path), "map_files/%" PRIx64 "-%" PRIx64, mapped->start, mapped->end);
    MEMOIR_CLEANUP(closep)
    int at = openat(pid_fd, path, O_PATH | O_CLOEXEC);
    if (at < 0)
        return -errno;
    /* It may be another file by now: what is cached of it tells which. */
    if (statx(at, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &stx) < 0)
        return -errno;
    if (!S_ISREG(stx.stx_mode) || stx.stx_dev_major != mapped->dev_major ||
        stx.stx_dev_minor != mapped->dev_minor)
        return -EBADMSG;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", at);
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -errno;
    if (fstat(fd, ret_st) == 0)
        return fd;
    int r = -errno;
    close(fd);
    return r;
}

/* Its place among the books of the process, or -1. */
static int place_of(const struct seen_process *process, uint64_t inode)
{
    for (uint32_t i = 0; i < process->n_books; i++)
        if (process->books[i] == inode)
            return (int)i;
    return -1;
}

/* Is it to be offered in this look? `again` has those that were not ready at the last one. */
static bool wanted(const struct seen_process *process, uint64_t inode, uint32_t again)
{
    int place = place_of(process, inode);
    return place < 0 ? process->n_books < BOOKS_PER_PROCESS_MAX : again >> place & 1;
}

/* One line of maps of `len` bytes, of which " (deleted)" is cut off. False if it is no book of ours. */
static bool line_parse(char *line, size_t len, struct procfs_mapping *ret)
{
    static const char deleted[] = " (deleted)";
    const size_t mark = sizeof(deleted) - 1;
    if (len > mark && strcmp(line + len - mark, deleted) == 0)
        line[len -= mark] = '\0';
    const char *slash = memrchr(line, '/', len); /* most lines end here */
    return slash && book_name_check(slash + 1) && procfs_mapping_parse(line, line + len, ret) &&
           ret->name[0] == '/';
}

/* One file that looks like a book. */
static int book_offer(struct foreign_scan *scan, int pid_fd, struct seen_process *process,
                      const struct procfs_mapping *mapped, uint32_t *again)
{
    struct stat st = {0};
    MEMOIR_CLEANUP(closep)
    int book = map_file_open(pid_fd, mapped, &st);
    scan->opened += book >= 0;
    scan->denied += book == -EPERM || book == -EACCES;
    if (book < 0 || !wanted(process, st.st_ino, *again))
        return 0;
    int place = place_of(process, st.st_ino);
    if (place < 0) {
        place = (int)process->n_books++;
        process->books[place] = st.st_ino;
    }
    *again &= ~(1u << place);
    process->not_ready &= ~(1u << place);
    int r = scan->each(book, process->pid, mapped->name, scan->context);
    if (r != -EAGAIN)
        return r;
    process->not_ready |= 1u << place;
    return 0;
}

static int process_look(struct foreign_scan *scan, int pid_fd, struct seen_process *process)
{
    MEMOIR_CLEANUP(closep)
    int fd = openat(pid_fd, "maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0; /* gone, or not ours to look at */
    MEMOIR_CLEANUP(fclosep)
    FILE *maps = fdopen(fd, "r");
    if (!maps)
        return -errno;
    fd = -1;
    MEMOIR_CLEANUP(freep)
    char *line = NULL;
    size_t size = 0, lines = 0, denied = scan->denied;
    uint64_t start = clock_monotonic_ns();
    uint32_t again = process->not_ready;
    int r = 0;
    for (ssize_t n; r == 0 && (n = getline(&line, &size, maps)) > 0;) {
        struct procfs_mapping mapped;
        if (++lines % LINES_PER_CLOCK == 0 && clock_monotonic_ns() - start > LOOK_NS)
            break;
        if (line[n - 1] == '\n')
            line[--n] = '\0';
        if (line_parse(line, (size_t)n, &mapped) && wanted(process, mapped.inode, again))
            r = book_offer(scan, pid_fd, process, &mapped, &again);
        if (scan->denied > denied || (process->n_books == BOOKS_PER_PROCESS_MAX && again == 0))
            break; /* the others of this process would be no better */
    }
    if (clock_monotonic_ns() - start > SLOW_NS)
        process->rest = REST_MAX;
    else if (process->not_ready && process->unready_looks++ < NOT_READY_LOOKS)
        process->rest = 0; /* soon again */
    return r;
}

/* Gives 0, or what `each` or the system said. A pid of 0 means that there is nothing to remember. */
static int process_visit(struct foreign_scan *scan, const char *name,
                         const struct seen_process *known, struct seen_process *ret_process)
{
    MEMOIR_CLEANUP(closep)
    int pid_fd = openat(scan->proc_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (pid_fd < 0)
        return 0;
    struct seen_process process = {.pid = atoi(name)};
    if (start_ticks_read(pid_fd, &process.start_ticks) < 0)
        return 0;
    if (known && known->start_ticks == process.start_ticks)
        process = *known;
    int r = 0;
    if (process.next_look > 0) {
        process.next_look--;
    } else {
        uint64_t mnt_ns = 0;
        /* A process may still enter a namespace of its own, so those of ours rest like the others. */
        if (mnt_ns_read(pid_fd, "ns/mnt", &mnt_ns) == 0 && mnt_ns != scan->our_mnt_ns)
            r = process_look(scan, pid_fd, &process);
        process.rest = process.rest == 0 ? 1 : process.rest * 2;
        if (process.rest > REST_MAX)
            process.rest = REST_MAX;
        process.next_look = process.rest;
    }
    *ret_process = process;
    return r;
}

static int list_add(struct seen_list *list, const struct seen_process *process)
{
    if ((list->n & (list->n - 1)) == 0) { /* full at every power of two */
        size_t room = list->n ? list->n * 2 : 1;
        struct seen_process *grown = reallocarray(list->list, room, sizeof(*process));
        if (!grown)
            return -ENOMEM;
        list->list = grown;
    }
    list->list[list->n++] = *process;
    return 0;
}

static void dirp(DIR **dir)
{
    if (*dir)
        closedir(*dir);
}

/* May we look at files behind mappings at all? At our own, then. */
static bool permitted(int proc_fd)
{
    MEMOIR_CLEANUP(closep)
    int self = openat(proc_fd, "self/map_files", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    MEMOIR_CLEANUP(dirp)
    DIR *dir = self < 0 ? NULL : fdopendir(self);
    if (!dir)
        return false;
    int fd = dirfd(dir), file = -1;
    self = -1; /* the directory's by now */
    for (struct dirent *e; file < 0 && (e = readdir(dir));)
        if (e->d_name[0] != '.' && (file = openat(fd, e->d_name, O_PATH | O_CLOEXEC)) < 0 &&
            (errno == EPERM || errno == EACCES))
            return false;
    if (file >= 0)
        close(file);
    return file >= 0;
}

/* Processes from seen->next_pid on, in the order of their pids. 1 when the time was over. */
static int scan_some(struct foreign_scan *scan, DIR *proc, struct book_seen *seen,
                     uint64_t deadline_ns)
{
    size_t at = 0;
    for (struct dirent *e; (e = readdir(proc));) {
        int pid = isdigit((unsigned char)e->d_name[0]) ? atoi(e->d_name) : 0;
        if (pid == 0 || pid < seen->next_pid)
            continue;
        if (deadline_ns && clock_monotonic_ns() >= deadline_ns) {
            seen->next_pid = pid;
            return 1;
        }
        const struct seen_list *last = &seen->last;
        while (at < last->n && last->list[at].pid < pid)
            at++;
        const struct seen_process *known =
            at < last->n && last->list[at].pid == pid ? &last->list[at] : NULL;
        struct seen_process process = {0};
        int r = process_visit(scan, e->d_name, known, &process);
        if (r == 0 && process.pid != 0)
            r = list_add(&seen->next, &process);
        if (r != 0)
            return r;
    }
    return 0;
}

int book_foreign_scan_some(struct book_seen *seen, uint64_t budget_ns, foreign_each *each,
                           void *context)
{
    if (geteuid() != 0)
        return -EPERM;
    MEMOIR_CLEANUP(dirp)
    DIR *proc = opendir("/proc");
    if (!proc)
        return -errno;
    struct foreign_scan scan = {.proc_fd = dirfd(proc), .each = each, .context = context};
    int r = mnt_ns_read(scan.proc_fd, "self/ns/mnt", &scan.our_mnt_ns);
    if (r == 0)
        r = scan_some(&scan, proc, seen, budget_ns ? clock_monotonic_ns() + budget_ns : 0);
    /* One process may be closed to us; if we are, there is no use in going on. */
    if (r >= 0 && scan.denied > 0 && scan.opened == 0 && !permitted(scan.proc_fd))
        r = -EPERM;
    if (r == 1)
        return r;
    struct seen_list done = seen->next;
    seen->next = (struct seen_list){0};
    seen->next_pid = 0;
    if (r != 0) {
        free(done.list); /* what was seen before stays seen; the rest is offered again */
        return r;
    }
    free(seen->last.list);
    seen->last = done;
    return 0;
}

int book_foreign_scan(struct book_seen *seen, foreign_each *each, void *context)
{
    return book_foreign_scan_some(seen, 0, each, context);
}
