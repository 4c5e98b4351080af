/* sweep.c: see sweep.h. No malloc, hence getdents64 by hand. */
#include "book/sweep.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "book/descriptor.h"
#include "book/layout.h"
#include "book/text.h"
#include "book/writer.h"

enum {
    LOOK_MAX = 8, /* books opened per sweep: 2 us each */
    MANY = 64,    /* with more than this around, age does not matter */
    OLD_SECONDS = 3600,
    LATER_SECONDS = 86400, /* a later version's, whose daemons and rules we do not know; or a
                              daemon of another PID namespace watched it, and may be gone */
    YOUNG_SECONDS = 10,    /* may still be in the making */
    NAMES_BYTES = 8192,    /* read at once: about a hundred names */
    NAMES_SLACK = 300,     /* less than this left: there are more */
    FURTHER_MAX = 16,
};

/* What a book is to the one who looks. */
enum look {
    LOOK_OLD,  /* somebody's post-mortem for an hour */
    LOOK_MANY, /* one of too many */
    LOOK_OWN,  /* of an earlier image of this process, whose memory went in order with exec */
};

/* What getdents64 fills in. */
struct entry {
    uint64_t ino;
    int64_t offset;
    uint16_t bytes;
    uint8_t type;
    char name[];
};

/* Too large for the stack: a thread may have little of it, a signal handler less. */
struct room {
    _Alignas(struct entry) char names[NAMES_BYTES];
    struct book_header header;
};

static bool is_book(const char *name)
{
    size_t n = strlen(name);
    return n > 5 && memcmp(name + n - 5, ".book", 5) == 0;
}

static int64_t age_of(const struct stat *info)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return now.tv_sec - info->st_mtim.tv_sec;
}

/* A daemon of another PID namespace cannot be looked up. It retires a book within seconds of its process's
 * end, so one that has left it for LATER_SECONDS does not live. */
static bool watcher_lives(const struct book_watcher *watcher, uint64_t pid_ns, int64_t age)
{
    if (!(watcher->flags & BOOK_CONTROL_WATCHED) || watcher->pid <= 0)
        return false;
    if (watcher->pid_ns != pid_ns)
        return age <= LATER_SECONDS;
    return kill(watcher->pid, 0) == 0 || errno == EPERM;
}

/* Does a daemon that still lives watch it? */
static bool is_watched(int fd, const struct book_header *header, uint64_t pid_ns, int64_t age)
{
    for (size_t i = 0; i < BOOK_SECTIONS_MAX; i++) {
        struct book_control control;
        if (header->sections[i].kind != BOOK_SECTION_CONTROL)
            continue;
        if (pread(fd, &control, sizeof(control), (off_t)header->sections[i].offset) !=
            sizeof(control))
            return false;
        return watcher_lives(&control.watchers[0], pid_ns, age) ||
               watcher_lives(&control.watchers[1], pid_ns, age);
    }
    return (header->compat & BOOK_COMPAT_ON_BEHALF) != 0; /* a daemon's: it will see to it */
}

/* Whether a book whose writer is gone may go too. One without magic tells nothing to anybody, but may
 * still be in the making: its maker takes the lock a moment after it made the file. */
static bool is_ripe(int64_t age, bool ready, bool later, enum look look)
{
    if (!ready)
        return age > YOUNG_SECONDS;
    if (later)
        return age > LATER_SECONDS;
    return look != LOOK_OLD || age > OLD_SECONDS;
}

/* Remove the book if nobody will miss it. Gives the images before this one if it is of an earlier
 * image of `self`. */
static uint32_t look_at(int directory, const char *name, const struct book_header *self,
                        struct room *room, enum look look)
{
    struct book_header *header = &room->header;
    int fd = book_openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd < 0)
        return 0;
    struct stat info;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
        bool read_all = pread(fd, header, sizeof(*header), 0) == sizeof(*header);
        bool ready = read_all && memcmp(header->magic, BOOK_MAGIC, sizeof(header->magic)) == 0;
        bool later = ready && (header->incompat & ~BOOK_INCOMPAT_KNOWN) != 0;
        bool earlier = ready && !later && header->pid_ns == self->pid_ns && self->start_ticks != 0;
        if (look == LOOK_OWN && !earlier)
            look = LOOK_OLD;
        int64_t age = age_of(&info);
        if (is_ripe(age, ready, later, look) && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
            !(read_all && is_watched(fd, header, self->pid_ns, age)))
            unlinkat(directory, name, 0);
    }
    close(fd);
    return look == LOOK_OWN ? header->exec_count + 1 : 0;
}

static long read_names(int directory, char *buffer)
{
    return syscall(SYS_getdents64, directory, buffer, NAMES_BYTES);
}

/* Earlier images of `self` among these names, as book_sweep() counts them. */
static uint32_t look_for_earlier(int directory, struct room *room, long n,
                                 const struct book_header *self)
{
    char own[64];
    struct text prefix = text_begin(own, sizeof(own));
    text_add_number(&prefix, (uint64_t)self->pid);
    text_add(&prefix, "-");
    text_add_number(&prefix, self->start_ticks);
    text_add(&prefix, "-");
    text_add_number(&prefix, self->source);
    text_add(&prefix, "-");
    uint32_t earlier = 0;
    for (long at = 0; at < n;) {
        const struct entry *entry = (const struct entry *)(room->names + at);
        at += entry->bytes;
        if (!is_book(entry->name) || strncmp(entry->name, own, strlen(own)) != 0)
            continue;
        uint32_t before = look_at(directory, entry->name, self, room, LOOK_OWN);
        earlier = before > earlier ? before : earlier;
    }
    return earlier;
}

/* A handful in a row, begun anywhere: every book has the same chance, wherever it stands. Whatever goes by
 * the names or inodes themselves leaves some out for ever when those of the living come first. */
static void look_at_some(int directory, struct room *room, long n, const struct book_header *self)
{
    unsigned books = 0, number = 0;
    for (long at = 0; at < n;) {
        const struct entry *entry = (const struct entry *)(room->names + at);
        at += entry->bytes;
        books += is_book(entry->name);
    }
    if (books == 0)
        return;
    /* Not the bits that chose these names among many: see sweep_with(). */
    unsigned begin = (unsigned)((self->hash_seed >> 32) % books);
    for (long at = 0; at < n;) {
        const struct entry *entry = (const struct entry *)(room->names + at);
        at += entry->bytes;
        if (is_book(entry->name) && (number++ + books - begin) % books < LOOK_MAX)
            look_at(directory, entry->name, self, room, books > MANY ? LOOK_MANY : LOOK_OLD);
    }
}

static uint32_t sweep_with(int directory, const struct book_header *self, struct room *room)
{
    long n = read_names(directory, room->names);
    uint32_t earlier = look_for_earlier(directory, room, n, self);
    look_at_some(directory, room, n, self);
    if (n < NAMES_BYTES - NAMES_SLACK)
        return earlier;
    /* A crowded place: somewhere else, too. The buffer keeps what it has when there is no more. */
    long last = 0;
    for (uint64_t left = self->hash_seed % FURTHER_MAX + 1; left > 0 && n > 0; left--)
        if ((n = read_names(directory, room->names)) > 0)
            last = n;
    look_at_some(directory, room, last, self);
    return earlier;
}

uint32_t book_sweep(int directory, const struct book_header *self)
{
    struct room *room = book_private_new(sizeof(*room));
    if (!room)
        return 0;
    uint32_t earlier = sweep_with(directory, self, room);
    book_private_free(room, sizeof(*room));
    return earlier;
}
