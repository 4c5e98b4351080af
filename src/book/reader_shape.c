/*
 * reader_shape.c: the checks that stand between a stranger's bytes and us.
 */
#include "book/reader_shape.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* What this version knows about each kind. Kinds with entry 0 are not read at all. */
static const struct {
    uint32_t entry;
    uint64_t entries_max; /* more are never looked at */
} known[BOOK_KINDS] = {
    [BOOK_SECTION_CONTROL] = {sizeof(struct book_control), 1},
    [BOOK_SECTION_REGISTRY] = {BOOK_RECORD_BYTES, BOOK_READER_ACCOUNTS_MAX},
    [BOOK_SECTION_COUNTER_INDEX] = {sizeof(struct book_counter_page),
                                    BOOK_READER_COUNTER_PAGES_MAX},
    [BOOK_SECTION_COUNTERS] = {BOOK_COUNTER_PAGE_BYTES, BOOK_READER_COUNTER_PAGES_MAX},
    [BOOK_SECTION_MODULES] = {sizeof(struct book_module), BOOK_MODULES_MAX},
    [BOOK_SECTION_FRAMES] = {sizeof(uint64_t), BOOK_READER_FRAMES_MAX},
    [BOOK_SECTION_SITES] = {sizeof(struct book_site), BOOK_SITES_MAX},
    [BOOK_SECTION_TAGS] = {sizeof(struct book_tag), BOOK_TAGS_MAX + 1},
    [BOOK_SECTION_SCRIPTS] = {sizeof(struct book_script), BOOK_SCRIPTS_MAX},
    [BOOK_SECTION_BLOCKS] = {sizeof(struct book_block_page), UINT64_MAX},
    [BOOK_SECTION_MOVES] = {sizeof(struct book_moves), UINT64_MAX},
};

enum {
    ENTRY_BYTES_MAX = 65536, /* one entry fits the buffers of the copying readers */
    TIME_SHIFT_MAX = 32,     /* a tick of more than four seconds is nonsense */
};

int book_header_read(int fd, uint64_t size, struct book_header *ret_header)
{
    struct book_header h = {0};
    if (size > BOOK_READER_FILE_MAX)
        return -EBADMSG;
    /* A file that is still being made may be short; the magic decides. */
    int r = book_pread_all(fd, &h, size < sizeof(h) ? size : sizeof(h), 0);
    if (r < 0)
        return r;
    static const char nothing[sizeof(h.magic)];
    if (memcmp(h.magic, nothing, sizeof(nothing)) == 0)
        return -EAGAIN;
    if (memcmp(h.magic, BOOK_MAGIC, sizeof(h.magic)) != 0)
        return -EBADMSG;
    if (h.endian_mark != BOOK_ENDIAN_MARK || h.version == 0)
        return -EBADMSG;
    if ((h.incompat & ~BOOK_INCOMPAT_KNOWN) != 0)
        return -EPROTONOSUPPORT; /* sound, for all that we know; not for us */
    /* From here on the file is known to hold at least a header. */
    if (h.header_bytes < BOOK_HEADER_BYTES || h.file_size < h.header_bytes || h.file_size > size)
        return -EBADMSG;
    if (h.time_shift > TIME_SHIFT_MAX)
        return -EBADMSG;
    *ret_header = h;
    return 0;
}

static int section_check(const struct book_header *h, const struct book_section *s)
{
    if (s->entry_size < known[s->kind].entry || s->entry_size > ENTRY_BYTES_MAX ||
        s->entry_size % 8 != 0) /* counters are read whole, so they must be aligned */
        return -EBADMSG;
    if (s->offset % BOOK_SECTION_ALIGN != 0 || s->offset < h->header_bytes)
        return -EBADMSG;
    if (s->offset > h->file_size || s->size > h->file_size - s->offset)
        return -EBADMSG;
    if (s->open > s->size)
        return -EBADMSG;
    return 0;
}

static int overlap_check(const struct book_shape shape[BOOK_KINDS])
{
    for (int a = 1; a < BOOK_KINDS; a++)
        for (int b = a + 1; b < BOOK_KINDS; b++) {
            const struct book_shape *x = &shape[a], *y = &shape[b];
            if (x->size && y->size && x->offset < y->offset + y->size &&
                y->offset < x->offset + x->size)
                return -EBADMSG;
        }
    return 0;
}

int book_shape_check(const struct book_header *header, struct book_shape shape[BOOK_KINDS])
{
    memset(shape, 0, BOOK_KINDS * sizeof(shape[0]));
    for (uint32_t i = 0; i < BOOK_SECTIONS_MAX; i++) {
        const struct book_section *s = &header->sections[i];
        if (s->kind == BOOK_SECTION_NONE || s->kind >= BOOK_KINDS || known[s->kind].entry == 0)
            continue;
        if (shape[s->kind].size != 0)
            continue; /* the first of its kind counts */
        int r = section_check(header, s);
        if (r < 0)
            return r;
        uint64_t max = known[s->kind].entries_max;
        uint64_t bytes = s->size;
        if (bytes / s->entry_size > max)
            bytes = max * s->entry_size;
        shape[s->kind] = (struct book_shape){
            .slot = i, .entry_size = s->entry_size, .offset = s->offset, .size = bytes};
    }
    return overlap_check(shape);
}

size_t book_page_lead(uint64_t offset)
{
    return (size_t)(offset % (uint64_t)sysconf(_SC_PAGESIZE));
}

size_t book_page_round(uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return (size_t)((bytes + page - 1) / page * page);
}

uint64_t book_mapped_bytes(const struct book_shape *shape, uint64_t open)
{
    return open < shape->size ? open : shape->size;
}
