/* beside.c: see beside.h. */
#include "track/beside.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "book/layout.h"
#include "book/mapping.h"

enum {
    SPAN_STEP = 8 << 20,   /* of the heap; a page of words is for 16 KiB */
    WORTH_PART = 4,        /* of all words, those that have to be in use: see is_worth_it() */
    HEAP_BEFORE = 1 << 20, /* there may be some of it already, for who is not counted */
    GUARD_BYTES = 65536,   /* a page or more: our memory stays a mapping of its own */
};

struct beside beside = {.span = BESIDE_CLOSED};

/* Address space only: no memory before it is used, whatever the system promises or locks. */
void beside_begin(void)
{
    struct rlimit limit;
    uintptr_t end = (uintptr_t)sbrk(0);
    if (!real.glibc || end == UINTPTR_MAX || getrlimit(RLIMIT_AS, &limit) < 0 ||
        limit.rlim_cur != RLIM_INFINITY)
        return;
    void *at = book_reserve_new(GUARD_BYTES + book_beside_offset(BESIDE_SPAN_MAX), -1);
    if (!at)
        return;
    beside.words = (uintptr_t)at + GUARD_BYTES;
    beside.heap = ((end - HEAP_BEFORE) & ~(uintptr_t)(BOOK_BESIDE_GRAIN - 1)) - 8;
    store_release(&beside.span, 0);
}

void beside_enter(struct book_header *header)
{
    if (!beside.words)
        return;
    header->trailer_format = BOOK_TRAILER_FORMAT_BESIDE;
    header->beside_heap = beside.heap + 8;
    header->beside_words = beside.words;
    header->beside_span = BESIDE_SPAN_MAX;
}

/* The words of 16 KiB of heap take a page, however few blocks with words lie there. Trailers take about 8
 * bytes a block: where blocks are large on average, that is much less. So the part grows only while the last
 * step has a word in use for each 128 bytes, which is 32 bytes a block. */
static bool is_worth_it(uint64_t span)
{
    const uint64_t *words = (const uint64_t *)beside.words;
    uint64_t end = span / BOOK_BESIDE_GRAIN, first = end - SPAN_STEP / BOOK_BESIDE_GRAIN, used = 0;
    if (span == 0)
        return true;
    for (uint64_t i = first; i < end; i++)
        used += load_relaxed(&words[i]) != 0;
    return used >= (end - first) / WORTH_PART;
}

/* Several threads may open the same pages: that does no harm, and one of them stores how far it went. */
bool beside_reach(const void *block)
{
    uint64_t span, distance;
    int saved = errno;
    while (span = load_acquire(&beside.span), (distance = beside_distance(block)) >= span) {
        if (span & BESIDE_CLOSED || distance >= BESIDE_SPAN_MAX)
            return false;
        uint64_t wanted = distance + span / 4 + SPAN_STEP;
        wanted = wanted < BESIDE_SPAN_MAX ? wanted & ~(uint64_t)(SPAN_STEP - 1) : BESIDE_SPAN_MAX;
        void *from = (void *)(beside.words + book_beside_offset(span));
        size_t bytes = book_beside_offset(wanted - span);
        bool open = is_worth_it(span) && mprotect(from, bytes, PROT_READ | PROT_WRITE) == 0;
        cas_acq_rel(&beside.span, &span, open ? wanted : span | BESIDE_CLOSED);
        errno = saved;
    }
    return true;
}
