/*
 * reader.c: open a book and keep it mapped.
 *
 * Opening copies the header page with pread(), checks that copy and keeps only what was checked.
 * What stays mapped afterwards: the header page (live values), and the open bytes of the registry,
 * the counter index and the counters. A mapping follows its section's growth with mremap(), which
 * needs no descriptor. Everything else is read by the caller's descriptor: reader_sites.c,
 * reader_blocks.c.
 */
#include "book/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "book/guard.h"
#include "book/reader_internal.h"
#include "book/reader_shape.h"

/* ---- helpers for all reader files ---- */

int book_pread_all(int fd, void *out, size_t len, uint64_t offset)
{
    char *p = out;
    while (len > 0) {
        ssize_t got = pread(fd, p, len, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            return -EIO; /* cut short */
        p += got;
        len -= (size_t)got;
        offset += (uint64_t)got;
    }
    return 0;
}

uint64_t book_next_data(int fd, uint64_t from, uint64_t end)
{
    if (from >= end)
        return end;
    off_t data = lseek(fd, (off_t)from, SEEK_DATA);
    if (data < 0)
        return errno == ENXIO ? end : from; /* no holes known here: read everything */
    if ((uint64_t)data < from)
        return from;
    return (uint64_t)data < end ? (uint64_t)data : end;
}

uint64_t book_holes(int fd, uint64_t from, uint64_t end, uint64_t max)
{
    uint64_t holes = 0;
    while (from < end && holes <= max) {
        uint64_t data = book_next_data(fd, from, end);
        holes += data - from;
        off_t hole = data < end ? lseek(fd, (off_t)data, SEEK_HOLE) : -1;
        if (hole < 0 || (uint64_t)hole <= data)
            break;
        from = (uint64_t)hole;
    }
    return holes;
}

void book_text_copy(char *out, size_t out_size, const char *text, size_t len)
{
    size_t n = strnlen(text, len), o = 0;
    for (size_t i = 0; i < n && o + 1 < out_size;) {
        size_t step = utf8_sequence(text + i, n - i);
        unsigned char c = (unsigned char)text[i];
        /* U+0080 to U+009F are control characters too: C2 80 to C2 9F. */
        bool control =
            c < 0x20 || c == 0x7f || (step == 2 && c == 0xc2 && (unsigned char)text[i + 1] < 0xa0);
        if (step == 0 || control) {
            out[o++] = '?';
            i += step ? step : 1;
            continue;
        }
        if (o + step >= out_size)
            break;
        memcpy(out + o, text + i, step);
        o += step;
        i += step;
    }
    memset(out + o, 0, out_size - o);
}

int book_reader_check_fd(const struct book_reader *reader, int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_dev != reader->identity.st_dev || st.st_ino != reader->identity.st_ino ||
        !S_ISREG(st.st_mode))
        return -ESTALE;
    /* What was cut off would read as holes. */
    return (uint64_t)st.st_size < reader->file_size ? -EIO : 0;
}

/* ---- live values ---- */

struct book_live book_reader_live(const struct book_reader *reader, enum book_section_kind kind)
{
    const struct book_shape *s = &reader->shape[kind];
    struct book_live live = {0};
    if (s->size == 0)
        return live;
    const struct book_header *h = (const void *)reader->header.base;
    const struct book_section *section = &h->sections[s->slot];
    /* `used` first: its acquire makes what it counts visible, and `open` grew before it. */
    uint64_t used = load_acquire(&section->used);
    uint64_t open = load_acquire(&section->open);
    live.open = open < s->size ? open : s->size;
    live.n = book_entries_within(s, used, live.open);
    return live;
}

struct live_call {
    const struct book_reader *reader;
    enum book_section_kind kind;
    struct book_live live;
};

static int live_guarded(void *context)
{
    struct live_call *c = context;
    c->live = book_reader_live(c->reader, c->kind);
    return 0;
}

int book_reader_live_get(const struct book_reader *reader, enum book_section_kind kind,
                         struct book_live *ret_live)
{
    struct live_call c = {.reader = reader, .kind = kind};
    int r = book_guard_run(live_guarded, &c);
    if (r < 0)
        return r;
    *ret_live = c.live;
    return 0;
}

struct status_call {
    const struct book_reader *reader;
    struct book_status status;
};

/* Whether the open bytes of a section have pages. */
static enum { DENSE, IN_SHARDS, NOT_TOLD } pages_of(uint32_t kind)
{
    switch (kind) {
    case BOOK_SECTION_CONTROL:
    case BOOK_SECTION_REGISTRY:
    case BOOK_SECTION_COUNTER_INDEX:
    case BOOK_SECTION_COUNTERS:
    case BOOK_SECTION_MODULES:
    case BOOK_SECTION_FRAMES:
    case BOOK_SECTION_SITES:
    case BOOK_SECTION_TAGS:
    case BOOK_SECTION_SCRIPTS:
        return DENSE;
    case BOOK_SECTION_BLOCKS:
    case BOOK_SECTION_BLOCK_INDEX:
        return IN_SHARDS;
    default:
        return NOT_TOLD;
    }
}

/* The block table and its index have holes: of these the part counts that the pages of the shards are of
 * the whole. Of the moves, which have pages only where blocks were transferred, and of kinds that this
 * version does not know, nothing is known from here: a shadow may be open over terabytes and empty. */
static uint64_t file_bytes(const struct book_reader *reader, const struct book_header *h)
{
    const struct book_shape *blocks = &reader->shape[BOOK_SECTION_BLOCKS];
    uint64_t size = reader->file_size, bytes = BOOK_HEADER_BYTES, pages = 0, all = 0;
    for (int i = 0; i < BOOK_BLOCK_SHARDS_MAX; i++)
        pages += load_relaxed(&h->block_pages[i]);
    if (blocks->size)
        all = book_reader_live(reader, BOOK_SECTION_BLOCKS).open / blocks->entry_size;
    for (int i = 0; i < BOOK_SECTIONS_MAX; i++) {
        uint32_t kind = load_relaxed(&h->sections[i].kind);
        if (pages_of(kind) == NOT_TOLD)
            continue;
        uint64_t open = load_relaxed(&h->sections[i].open);
        open = open < size ? open : size;
        if (pages_of(kind) == IN_SHARDS && pages < all)
            open = (uint64_t)((double)open * (double)pages / (double)all);
        bytes += open;
    }
    return bytes < size ? bytes : size;
}

static int status_guarded(void *context)
{
    struct status_call *c = context;
    const struct book_header *h = (const void *)c->reader->header.base;
    struct book_status *s = &c->status;
    s->state = load_acquire(&h->state);
    s->stop_reason = load_relaxed(&h->stop_reason);
    s->peak_error = load_relaxed(&h->peak_error);
    for (int i = 0; i < BOOK_LOSSES_MAX; i++)
        s->losses[i] = load_relaxed(&h->losses[i]);
    s->file_bytes = file_bytes(c->reader, h);
    return 0;
}

int book_reader_status(struct book_reader *reader, struct book_status *ret_status)
{
    struct status_call c = {.reader = reader};
    int r = book_guard_run(status_guarded, &c);
    if (r < 0)
        return r;
    *ret_status = c.status;
    return 0;
}

/* ---- opening ---- */

/* A copy that is no longer than what it holds; NULL without memory. */
static char *text_new(const char *text, size_t size)
{
    char copy[sizeof(((struct book_header *)0)->command)];
    book_text_copy(copy, size < sizeof(copy) ? size : sizeof(copy), text, size);
    return strdup(copy);
}

static int identity_fill(struct book_identity *id, const struct book_header *h,
                         const struct stat *st)
{
    memcpy(id->boot_id, h->boot_id, sizeof(id->boot_id));
    id->pid_ns = h->pid_ns;
    id->time_ns = h->time_ns;
    id->start_ticks = h->start_ticks;
    id->exec_id = h->exec_id;
    id->exec_random = h->exec_random;
    id->trailer_key = h->trailer_key;
    id->trailer_generation = h->trailer_generation;
    id->trailer_format = h->trailer_format;
    id->beside_heap = h->beside_heap;
    id->beside_words = h->beside_words;
    id->beside_span = h->beside_span;
    id->pid = h->pid;
    id->parent_pid = h->parent_pid;
    id->writer_pid = h->writer_pid;
    id->uid = h->uid;
    id->st_uid = st->st_uid;
    id->exec_count = h->exec_count;
    id->source = h->source;
    id->compat = h->compat;
    id->time_shift = h->time_shift;
    id->created_realtime_ns = h->created_realtime_ns;
    id->created_monotonic_ns = h->created_monotonic_ns;
    id->st_dev = st->st_dev;
    id->st_ino = st->st_ino;
    book_text_copy(id->comm, sizeof(id->comm), h->comm, sizeof(h->comm));
    book_text_copy(id->host, sizeof(id->host), h->host, sizeof(h->host));
    id->exe = text_new(h->exe, sizeof(h->exe));
    id->command = text_new(h->command, sizeof(h->command));
    return id->exe && id->command ? 0 : -ENOMEM;
}

/* Map at least one page, opened or not: there must be something for mremap() to grow later. */
static int map_section(int fd, uint64_t offset, uint64_t bytes, struct book_map *ret_map)
{
    size_t lead = book_page_lead(offset);
    size_t len = book_page_round(lead + (bytes ? bytes : 1));
    uint8_t *start = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, (off_t)(offset - lead));
    if (start == MAP_FAILED)
        return -errno;
    *ret_map = (struct book_map){.base = start + lead, .lead = lead, .bytes = len};
    return 0;
}

static int map_all(struct book_reader *reader, int fd, const struct book_header *h)
{
    static const struct {
        enum book_section_kind kind;
        size_t map;
    } wanted[] = {
        {BOOK_SECTION_REGISTRY, offsetof(struct book_reader, registry)},
        {BOOK_SECTION_COUNTER_INDEX, offsetof(struct book_reader, index)},
        {BOOK_SECTION_COUNTERS, offsetof(struct book_reader, counters)},
    };
    int r = map_section(fd, 0, BOOK_HEADER_BYTES, &reader->header);
    for (size_t i = 0; r == 0 && i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        const struct book_shape *s = &reader->shape[wanted[i].kind];
        if (s->size == 0)
            continue;
        uint64_t open = h->sections[s->slot].open;
        struct book_map *map = (struct book_map *)((char *)reader + wanted[i].map);
        uint64_t bytes = book_mapped_bytes(s, open);
        reader->holes += book_holes(fd, s->offset, s->offset + bytes, BOOK_READER_HOLES_MAX);
        if (reader->holes > BOOK_READER_HOLES_MAX)
            return -ENODATA;
        r = map_section(fd, s->offset, bytes, map);
    }
    return r;
}

static int open_checked(int fd, const struct stat *st, const struct book_header *h,
                        struct book_reader **ret_reader)
{
    MEMOIR_CLEANUP(book_reader_freep)
    struct book_reader *reader = calloc(1, sizeof(*reader));
    if (!reader)
        return -ENOMEM;
    int r = book_shape_check(h, reader->shape);
    if (r < 0)
        return r;
    reader->file_size = h->file_size;
    r = identity_fill(&reader->identity, h, st);
    if (r < 0)
        return r;
    if (getrandom(&reader->hash_seed, sizeof(reader->hash_seed), GRND_NONBLOCK) < 0)
        reader->hash_seed = clock_monotonic_ns() ^ (uintptr_t)reader;
    r = map_all(reader, fd, h);
    if (r < 0)
        return r;
    reader->stale = true;
    r = book_reader_refresh(reader);
    if (r < 0)
        return r;
    *ret_reader = MEMOIR_TAKE(reader);
    return 0;
}

int book_reader_open_fd(int fd, struct book_reader **ret_reader)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EBADMSG;
    struct book_header h;
    int r = book_header_read(fd, (uint64_t)st.st_size, &h);
    if (r < 0)
        return r;
    r = book_guard_install();
    if (r < 0)
        return r;
    return open_checked(fd, &st, &h, ret_reader);
}

static int open_name(int dirfd, const char *name)
{
    if (strchr(name, '/') || name[0] == '\0')
        return -EINVAL; /* a name in this directory, not a path */
    /* O_NONBLOCK so that a fifo cannot hold us; links are somebody's trick. */
    int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    return fd < 0 ? -errno : fd;
}

int book_reader_open(int dirfd, const char *name, struct book_reader **ret_reader)
{
    MEMOIR_CLEANUP(closep)
    int fd = open_name(dirfd, name);
    if (fd < 0)
        return fd;
    return book_reader_open_fd(fd, ret_reader);
}

static void unmap(struct book_map *map)
{
    if (map->base)
        munmap((void *)(map->base - map->lead), map->bytes);
}

void book_reader_free(struct book_reader *reader)
{
    if (!reader)
        return;
    unmap(&reader->header);
    unmap(&reader->registry);
    unmap(&reader->index);
    unmap(&reader->counters);
    free(reader->devices);
    free(reader->accounts);
    free(reader->shards);
    free(reader->parts);
    free(reader->page_list);
    free(reader->identity.exe);
    free(reader->identity.command);
    free(reader);
}

void book_reader_freep(struct book_reader **reader)
{
    book_reader_free(*reader);
}

size_t book_reader_mapped(const struct book_reader *reader)
{
    return reader->header.bytes + reader->registry.bytes + reader->index.bytes +
           reader->counters.bytes;
}

void book_reader_set_mapped_max(struct book_reader *reader, size_t bytes)
{
    reader->mapped_max = bytes;
}

const struct book_identity *book_reader_identity(const struct book_reader *reader)
{
    return &reader->identity;
}

/* ---- liveness ---- */

int book_writer_alive_fd(int fd)
{
    /* A writer takes its lock before it stores the magic. Testing earlier could make that attempt
     * fail, because for a moment the test holds a lock itself. */
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EBADMSG;
    char magic[8];
    if ((uint64_t)st.st_size < sizeof(magic))
        return -EAGAIN;
    int r = book_pread_all(fd, magic, sizeof(magic), 0);
    if (r < 0)
        return r;
    if (memcmp(magic, BOOK_MAGIC, sizeof(magic)) != 0)
        return memcmp(magic, "\0\0\0\0\0\0\0", sizeof(magic)) == 0 ? -EAGAIN : -EBADMSG;
    if (flock(fd, LOCK_SH | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? 1 : -errno;
    flock(fd, LOCK_UN);
    return 0;
}

int book_writer_alive(int dirfd, const char *name)
{
    MEMOIR_CLEANUP(closep)
    int fd = open_name(dirfd, name);
    if (fd < 0)
        return fd;
    return book_writer_alive_fd(fd);
}
