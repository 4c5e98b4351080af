/* See heap_scan.h. */
#include "daemon/heap_scan.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/sum.h"
#include "ledger/proc.h"

static int by_bytes(const void *a, const void *b)
{
    const struct heap_scan_site *x = a, *y = b;
    if (x->state != y->state)
        return x->state < y->state ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return (x->site > y->site) - (x->site < y->site);
}

static void block_add(const struct scan_block *block, uint64_t age_ns, struct heap_scan_site *row)
{
    row->blocks++;
    sum_add(&row->bytes, block->bytes);
    if (age_ns > row->oldest_ns)
        row->oldest_ns = age_ns;
}

/* Blocks by site and state, the reachable ones left out. */
static int group(const struct scan *scan, const struct heap_scan_wish *wish,
                 struct heap_scan_found *found)
{
    size_t sites = (size_t)wish->sites + 1, n = 0;
    MEMOIR_CLEANUP(freep)
    struct heap_scan_site *rows = calloc(sites * SCAN_REACHABLE, sizeof(*rows));
    if (!rows)
        return -ENOMEM;
    for (size_t i = 0; i < scan->n; i++) {
        const struct scan_block *block = &scan->blocks[i];
        if (block->state >= SCAN_REACHABLE)
            continue;
        if (block->inherited) {
            found->inherited.blocks++;
            sum_add(&found->inherited.bytes, block->bytes);
            continue;
        }
        uint64_t time_ns =
            wish->heap.created_ns + ((uint64_t)block->time << BOOK_TRAILER_TIME_SHIFT);
        uint32_t site = block->site < sites ? block->site : 0;
        struct heap_scan_site *row = &rows[site * (size_t)SCAN_REACHABLE + block->state];
        row->site = site;
        row->state = block->state;
        block_add(block, wish->heap.now_ns > time_ns ? wish->heap.now_ns - time_ns : 0, row);
    }
    for (size_t i = 0; i < sites * SCAN_REACHABLE; i++)
        if (rows[i].blocks)
            rows[n++] = rows[i];
    qsort(rows, n, sizeof(*rows), by_bytes);
    found->n_sites = n < HEAP_SCAN_SITES ? (uint32_t)n : HEAP_SCAN_SITES;
    found->sites_more = n - found->n_sites;
    for (size_t i = 0; i < found->n_sites; i++)
        found->sites[i] = rows[i];
    return 0;
}

int heap_scan_look(const struct heap_scan_wish *wish, struct heap_scan_found *ret_found)
{
    const struct heap_ages_wish *heap = &wish->heap;
    struct scan_options options = {
        .pid = heap->pid,
        .key = {.key = heap->trailer_key, .generation = heap->trailer_generation},
        .glibc = book_trailer_glibc(heap->trailer_format),
        .beside = {heap->beside_heap, heap->beside_words, heap->beside_span},
        .words = book_trailer_words(heap->trailer_format),
        .sites = wish->sites,
        .time_max = scan_time_max(heap->created_ns, heap->now_ns),
        .gaps_are_roots = wish->gaps_are_roots != 0,
    };
    struct scan_threads *threads = NULL;
    MEMOIR_CLEANUP(scan_freep)
    struct scan *scan = NULL;
    uint64_t begin_ns = clock_monotonic_ns();
    int r = scan_threads_stop(heap->pid, &threads);
    if (r < 0)
        return r;
    struct heap_scan_found found = {.threads = scan_threads_count(threads)};
    r = scan_run(&options, threads, &scan);
    scan_threads_release(threads);
    if (r < 0)
        return r;
    found.stood_ns = clock_monotonic_ns() - begin_ns;
    found.unread_bytes = scan->unread_bytes;
    found.left_out = scan->left_out;
    found.whole = scan->whole;
    for (size_t i = 0; i < SCAN_STATES; i++)
        found.sums[i] = scan->sums[i];
    r = group(scan, wish, &found);
    if (r == 0)
        *ret_found = found;
    return r;
}
