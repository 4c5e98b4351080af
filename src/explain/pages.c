/* See pages.h. */
#include "explain/pages.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>

enum { PAGE = 4096 };

static int run_add(void *context, uint64_t start, uint64_t end)
{
    struct pages *pages = context;
    if (pages->n == pages->room) {
        if (pages->room >= PAGES_RUNS_MAX)
            return -E2BIG;
        size_t room = pages->room ? pages->room * 2 : 64;
        struct pages_run *grown = reallocarray(pages->runs, room, sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        pages->runs = grown;
        pages->room = room;
    }
    pages->runs[pages->n++] = (struct pages_run){start, end};
    return 0;
}

int pages_of(struct pages *pages, const struct smaps_mapping *m)
{
    int r = 0;
    pages->mapping = m;
    pages->n = pages->at = pages->n_heads = 0;
    pages->ahead = 1;
    bool whole = m->rss >= m->end - m->start || !pages->memory || pages->memory->pagemap < 0 ||
                 !scan_memory_may(pages->memory, m->end - m->start);
    if (!whole)
        r = scan_memory_runs(pages->memory, m->start, m->end, run_add, pages);
    if (r == -ENOMEM)
        return r;
    if (whole || r != 0) {
        pages->n = 0;
        r = run_add(pages, m->start, m->end);
    }
    return r;
}

void pages_release(struct pages *pages)
{
    free(pages->runs);
    pages->runs = NULL;
}

/* The run that ends above `at`; most questions are about the last one or the next. */
static size_t run_of(struct pages *pages, uint64_t at)
{
    size_t i = pages->at < pages->n && pages->runs[pages->at].start <= at ? pages->at : 0;
    while (i < pages->n && pages->runs[i].end <= at)
        i++;
    pages->at = i;
    return i;
}

uint64_t pages_resident(struct pages *pages, uint64_t start, uint64_t end)
{
    uint64_t sum = 0;
    for (size_t i = run_of(pages, start); i < pages->n && pages->runs[i].start < end; i++) {
        uint64_t from = pages->runs[i].start > start ? pages->runs[i].start : start;
        uint64_t to = pages->runs[i].end < end ? pages->runs[i].end : end;
        sum += to > from ? to - from : 0;
    }
    return sum;
}

uint64_t pages_next(struct pages *pages, uint64_t at)
{
    size_t i = run_of(pages, at);
    if (i == pages->n)
        return pages->mapping->end;
    return pages->runs[i].start > at ? pages->runs[i].start : at;
}

static bool heads_read(struct pages *pages, uint64_t at, size_t n)
{
    struct iovec places[PAGES_HEADS];
    for (size_t i = 0; i < n; i++)
        places[i] = (struct iovec){(void *)(uintptr_t)(at + i * PAGE), OWNER_HEAD};
    pages->left -= n;
    pages->n_heads = 0;
    if (!scan_memory_read_many(pages->memory, places, n, pages->heads, n * OWNER_HEAD))
        return false;
    pages->heads_from = at;
    pages->n_heads = n;
    return true;
}

const void *pages_head(struct pages *pages, uint64_t at)
{
    if (!pages->readable || at % PAGE != 0 || pages_next(pages, at) != at)
        return NULL;
    uint64_t index = (at - pages->heads_from) / PAGE;
    if (pages->n_heads && at >= pages->heads_from && index < pages->n_heads)
        return pages->heads + index * OWNER_HEAD;
    uint64_t there = (pages->runs[pages->at].end - at) / PAGE;
    size_t n = pages->ahead < there ? pages->ahead : there;
    if (n == 0 || n > pages->left)
        return NULL;
    pages->ahead = pages->ahead * 2 < PAGES_HEADS ? pages->ahead * 2 : PAGES_HEADS;
    return heads_read(pages, at, n) ? pages->heads : NULL;
}

void pages_hit(struct pages *pages)
{
    pages->ahead = 1;
}
