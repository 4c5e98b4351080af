/* See resident.h. */
#include "explain/resident.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/apart.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "ledger/ledger.h"

enum { ENTRIES = 512 };             /* of pagemap, read at a time */
#define PRESENT (UINT64_C(1) << 63) /* of an entry */
#define SAMPLE_MEAN \
    1048576.0 /* bytes between two samples, as trackers have it unless told otherwise */

struct sampled {
    uint64_t address, bytes;
    uint32_t site;
};

struct samples {
    pid_t pid;
    struct sampled *blocks;
    size_t n, room, seen, every; /* every nth of those that are seen is kept */
};

static int each_block(const struct book_block_view *block, void *context)
{
    struct samples *s = context;
    if (s->seen++ % s->every != 0)
        return 0;
    if (s->n == RESIDENT_BLOCKS_MAX) { /* keep every second one, and go on like that */
        for (size_t i = 0; i < s->n / 2; i++)
            s->blocks[i] = s->blocks[2 * i];
        s->n /= 2;
        s->every *= 2;
    }
    s->blocks[s->n++] = (struct sampled){block->id, block->bytes, block->site};
    return 0;
}

/* Bytes of the block that exist: a page in part belongs to its neighbours, too. */
static int64_t resident_in(int fd, const struct sampled *block, uint64_t page)
{
    uint64_t entries[ENTRIES], first = block->address / page;
    uint64_t end = (block->address + block->bytes + page - 1) / page;
    uint64_t n = 0, all = end - first;
    for (uint64_t at = first; at < end;) {
        size_t want = end - at < ENTRIES ? (size_t)(end - at) : ENTRIES;
        ssize_t got = pread(fd, entries, want * sizeof(*entries), (off_t)(at * sizeof(*entries)));
        if (got < (ssize_t)sizeof(*entries))
            return -1;
        for (size_t i = 0; i < (size_t)got / sizeof(*entries); i++)
            n += (entries[i] & PRESENT) != 0;
        at += (uint64_t)got / sizeof(*entries);
    }
    return all ? (int64_t)((double)block->bytes * (double)n / (double)all) : 0;
}

static int child(struct buffer *out, void *context)
{
    const struct samples *s = context;
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)s->pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    for (size_t i = 0; i < s->n; i++) {
        int64_t bytes = resident_in(fd, &s->blocks[i], (uint64_t)sysconf(_SC_PAGESIZE));
        buffer_append(out, &bytes, sizeof(bytes));
    }
    close(fd);
    return out->error;
}

/* A caller, found by account and frame. */
struct caller {
    uint64_t frame;
    uint32_t account, site;
};

static int by_frame(const void *a, const void *b)
{
    const struct caller *x = a, *y = b;
    if (x->frame != y->frame)
        return x->frame < y->frame ? -1 : 1;
    return (x->account > y->account) - (x->account < y->account);
}

/* The caller's site of each sampled stack, by the innermost frame; 0: none. */
static uint32_t *callers_of(const struct book_sites *sites)
{
    uint32_t *callers = calloc(sites->n_sites + 1, sizeof(*callers));
    MEMOIR_CLEANUP(freep)
    struct caller *known = calloc(sites->n_sites + 1, sizeof(*known));
    size_t n = 0;
    for (size_t i = 1; known && i < sites->n_sites; i++) {
        const struct book_site *s = &sites->sites[i];
        if (!(s->flags & BOOK_SITE_SAMPLED) && s->frames > 0)
            known[n++] = (struct caller){sites->frames[s->first_frame], s->account, (uint32_t)i};
    }
    if (n)
        qsort(known, n, sizeof(*known), by_frame);
    for (size_t i = 1; callers && n && i < sites->n_sites; i++) {
        const struct book_site *s = &sites->sites[i];
        if (!(s->flags & BOOK_SITE_SAMPLED) || s->frames == 0)
            continue;
        struct caller like = {sites->frames[s->first_frame], s->account, 0};
        const struct caller *found = bsearch(&like, known, n, sizeof(*known), by_frame);
        callers[i] = found ? found->site : 0;
    }
    return callers;
}

/* A sample stands for as many blocks as there are between two: large ones are nearly all there. */
static double weight(uint64_t bytes)
{
    double p = 1 - exp(-(double)bytes / SAMPLE_MEAN);
    return p > 0 ? 1 / p : 0;
}

static double *shares_of(const struct samples *s, const int64_t *resident,
                         const struct book_sites *sites, const uint32_t *callers)
{
    double *shares = calloc(sites->n_sites + 1, sizeof(*shares));
    MEMOIR_CLEANUP(freep)
    double *whole = calloc(sites->n_sites + 1, sizeof(*whole));
    MEMOIR_CLEANUP(freep)
    uint32_t *blocks = calloc(sites->n_sites + 1, sizeof(*blocks));
    if (!shares || !whole || !blocks) {
        free(shares);
        return NULL;
    }
    for (size_t i = 0; i < s->n; i++) {
        uint32_t site = s->blocks[i].site < sites->n_sites ? callers[s->blocks[i].site] : 0;
        if (!site || resident[i] < 0)
            continue;
        shares[site] += (double)resident[i] * weight(s->blocks[i].bytes);
        whole[site] += (double)s->blocks[i].bytes * weight(s->blocks[i].bytes);
        blocks[site]++;
    }
    for (size_t i = 0; i < sites->n_sites; i++) {
        /* A block that is larger than all samples would be has its pages counted one by one. */
        bool enough = blocks[i] >= RESIDENT_BLOCKS_MIN ||
                      (blocks[i] && whole[i] / blocks[i] > 4 * SAMPLE_MEAN);
        shares[i] = enough && whole[i] > 0 ? shares[i] / whole[i] : -1;
    }
    return shares;
}

double *resident_shares(pid_t pid, uint32_t owner, const struct ledger_book *book,
                        const struct book_sites *sites)
{
    MEMOIR_CLEANUP(freep)
    struct sampled *blocks = calloc(RESIDENT_BLOCKS_MAX, sizeof(*blocks));
    MEMOIR_CLEANUP(freep)
    uint32_t *callers = callers_of(sites);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer message = BUFFER_INIT(RESIDENT_BLOCKS_MAX * sizeof(int64_t));
    struct samples s = {.pid = pid, .blocks = blocks, .every = 1};
    MEMOIR_CLEANUP(closep)
    int fd = blocks && callers ? ledger_book_open(book) : -1;
    if (fd < 0 || book_reader_blocks(book->reader, fd, each_block, &s, NULL) < 0 || s.n == 0)
        return NULL;
    struct apart_options options = {.all_ms = RESIDENT_MS, .owner = owner};
    if (apart_run(child, &s, &options, &message) < 0 || message.len != s.n * sizeof(int64_t))
        return NULL;
    return shares_of(&s, (const int64_t *)(const void *)message.data, sites, callers);
}
