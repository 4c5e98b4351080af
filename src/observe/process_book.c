/* See process_book.h. */
#include "observe/process_book.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "book/finder.h"
#include "book/place.h"
#include "book/reader.h"
#include "ledger/proc.h"
#include "ledger/subject.h"

struct predecessor {
    const struct book_header *header;
    size_t n;
};

/* A book that an observer before us wrote about the same process: ours takes its place. */
static int predecessor_remove(int dirfd, const char *name, void *context)
{
    struct predecessor *p = context;
    MEMOIR_CLEANUP(book_reader_freep)
    struct book_reader *reader = NULL;
    int pid;
    if (sscanf(name, "%d-", &pid) != 1 || pid != p->header->pid ||
        book_reader_open(dirfd, name, &reader) < 0)
        return 0;
    const struct book_identity *id = book_reader_identity(reader);
    if (id->source == p->header->source && id->compat & BOOK_COMPAT_ON_BEHALF &&
        id->st_uid == geteuid() && id->pid == p->header->pid && id->pid_ns == p->header->pid_ns &&
        proc_same_start(id->start_ticks, p->header->start_ticks)) {
        unlinkat(dirfd, name, 0);
        p->n++;
    }
    return 0;
}

static void predecessors_remove(const struct book_header *header, const char *path, uint32_t uid)
{
    struct book_place place = {.uid = uid};
    struct predecessor p = {header, 0};
    snprintf(place.path, sizeof(place.path), "%s", path);
    book_place_scan(&place, SIZE_MAX, predecessor_remove, &p, NULL);
    if (p.n)
        log_debug("took the place of %zu older books of process %d", p.n, header->pid);
}

/* Its user can read the book, which tells where the program allocates. So it must be one that this user could trace: not set-uid,
 * set-gid, privileged, or hidden, of which the kernel says in /proc that it is root's. */
static bool user_may_see(pid_t pid, uint32_t uid)
{
    char path[64];
    struct stat st;
    struct proc_ids ids;
    snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
    return proc_ids_read(pid, &ids) == 0 && proc_claim(pid, &ids, uid) == PROC_CLAIM_OWN &&
           stat(path, &st) == 0 && st.st_uid == uid;
}

static int writer_make(struct process_book *b, uint32_t source, pid_t pid)
{
    b->w = book_private_new(sizeof(*b->w));
    b->thread = book_private_new(sizeof(*b->thread));
    if (!b->w || !b->thread)
        return -ENOMEM;
    int r =
        book_writer_init(b->w, &(struct book_writer_options){.source = source, .on_behalf = true});
    if (r < 0)
        return r;
    struct book_header *header = b->w->header;
    r = subject_read(pid, 0, header);
    if (r < 0)
        return r;
    if (header->uid != 0 && !user_may_see(pid, header->uid))
        header->uid = 0;
    header->command[0] = '\0'; /* lies in memory of the process, which may never answer */
    header->parent_pid = 0;
    header->writer_pid = getpid();
    header->created_realtime_ns = clock_real_ns();
    header->created_monotonic_ns = proc_monotonic_ns();
    b->w->created_ns = clock_monotonic_coarse_ns();
    b->uid = header->uid;
    book_thread_init(b->w, b->thread);
    return 0;
}

int process_book_open(struct process_book *b, uint32_t source, pid_t pid, const char *dir)
{
    char path[256];
    *b = (struct process_book){.place = -1};
    int r = writer_make(b, source, pid);
    if (r >= 0) {
        b->place = book_place_open_for(dir, b->uid, path, sizeof(path));
        r = b->place < 0 ? b->place : 0;
    }
    if (r >= 0) {
        predecessors_remove(b->w->header, path, b->uid);
        r = book_writer_publish_at(b->w, b->place);
    }
    if (r < 0)
        process_book_close(b, PROCESS_BOOK_STAYS);
    return r;
}

void process_book_close(struct process_book *b, enum process_book_end end)
{
    if (!b->w && !b->thread)
        return;
    if (b->w && b->w->header) {
        if (end == PROCESS_BOOK_GOES && b->w->published)
            unlinkat(b->place, b->w->name, 0);
        if (end == PROCESS_BOOK_CLOSED && b->w->published)
            book_writer_close(b->w, true);
        book_writer_forget(
            b->w); /* ends its lock: whoever watches it takes it for dead only then */
    }
    if (b->w)
        book_private_free(b->w, sizeof(*b->w));
    if (b->thread)
        book_private_free(b->thread, sizeof(*b->thread));
    closep(&b->place);
    *b = (struct process_book){.place = -1};
}

uint64_t process_book_time(const struct process_book *b, uint64_t time_ns)
{
    uint64_t time =
        time_ns > b->w->created_ns ? (time_ns - b->w->created_ns) >> BOOK_TIME_SHIFT : 0;
    return time < UINT32_MAX ? time : UINT32_MAX;
}
