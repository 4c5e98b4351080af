/* Estimates from windows.
 *
 * A window sees all calls for a while, and stands for all that the process did since the window before: each allocation and each free
 * counts `scale` times. What remains is to say at which site a free counts:
 *  - A block that came and went in the window: at its site. The window's end hides the frees of some others like it; by its age one
 *    knows of how many (heap.bpf.c, extra), and as many frees at the window's start are of blocks that came before it.
 *  - A block of an earlier window, or from the time before windows: at its site.
 *  - A block that came between windows: unknown. Such frees are divided among sites as the known old ones are, and never more of them
 *    than were seen: `old_weight`. Blocks that are older than the attach are among them, so no more are divided than the share
 *    of the time that windows take makes likely.
 * An entry of the table may be stale: its block was freed between windows, and the address was given out again. Its next free is
 * that of another block, but a free none the less, and most likely of the same kind. Only entries of short-lived blocks that the end of a
 * window left behind must not count, because their frees have been counted by age already: a site's `outlived` share of those
 * that were left says how many of its entries are more than that.
 *
 * How far estimates may be off: windows differ (variance, by the differences between neighbours); the probes' own share of the CPU time
 * is known to COST_DOUBT only (doubt_bytes); unknown frees may be divided wrongly (old_doubt). */
#include <math.h>

#include "base/atomic.h"
#include "observe/heap_internal.h"

#define MEMORY 0.8 /* of the sums of earlier windows that is kept */

static double clamped(double value, double least, double most)
{
    return value < least ? least : value > most ? most : value;
}

/* The share of a node's entries of earlier windows that lived longer than a window. */
static double outlived_share(const struct heap_told *told)
{
    return told->left > 0 ? clamped(told->outlived / told->left, 0, 1) : 1;
}

/* What was left of a node's allocations when the window closed. */
static void left_note(struct heap_told *told, const struct heap_change *c)
{
    double left = (double)(c->alloc_blocks - c->freed_blocks);
    if (left <= 0 && c->extra_blocks <= 0)
        return;
    left = left > 0 ? left : 0;
    told->left = told->left * MEMORY + left;
    told->outlived = told->outlived * MEMORY + left - (double)c->extra_blocks / 256;
}

/* All nodes: frees of old blocks that are known get those that are not, as many as the scale makes likely. The rest waits for the next
 * window, or is older than the attach. */
static double old_weight(struct heap *h)
{
    struct heap_estimate *e = &h->estimate;
    const struct heap_node *nodes = heap_kernel_nodes(h->kernel);
    uint64_t unknown = load_relaxed(&heap_kernel_state(h->kernel)->unknown_frees) - e->unknown;
    double olds = 0, stale = 0, extra = 0;
    for (uint32_t i = 0; i <= h->n_told; i++) {
        struct heap_change c = heap_book_change(&h->told[i], &nodes[i]);
        double share = outlived_share(&h->told[i]);
        olds += (double)c.old_blocks * share;
        stale += (double)c.old_blocks * (1 - share);
        extra += (double)c.extra_blocks / 256;
    }
    double young = extra > stale ? extra - stale : 0; /* among the unknown: from before the start */
    double left = e->undivided * MEMORY + clamped((double)unknown - young, 0, (double)unknown);
    double divided = clamped(olds * (e->scale - 1), 0, left);
    e->undivided = left - divided;
    return olds > 0 ? 1 + divided / olds : 1;
}

void heap_estimate_begin(struct heap *h, double scale, double work_ns, double doubt)
{
    struct heap_estimate *e = &h->estimate;
    e->scale = scale;
    e->work_ns = work_ns;
    e->doubt = doubt;
    e->net = 0;
    e->old_weight = old_weight(h);
}

/* The exact time before the first window tells how fast it grew, for the error until that one closes. */
void heap_estimate_exact(struct heap *h, double work_ns)
{
    struct heap_sums sums;
    heap_sums(h, &sums);
    if (work_ns > 0)
        h->estimate.rate = (double)(sums.alloc_bytes - sums.freed_bytes) / work_ns;
}

/* What is freed of what the site has; what is more is kept for the next window, and no longer. */
static uint64_t freed_of(double freed, uint64_t had, double *debt)
{
    double all = freed + *debt, most = (double)had;
    *debt = all > most ? clamped(all - most, 0, freed) : 0;
    return (uint64_t)((all > most ? most : all) + 0.5);
}

void heap_estimate_node(struct heap *h, struct heap_told *told, const struct heap_change *c,
                        struct book_site_counters *ret_add)
{
    struct heap_estimate *e = &h->estimate;
    double old = outlived_share(told) * e->old_weight;
    double alloc_bytes = (double)c->alloc_bytes * e->scale;
    double alloc_blocks = (double)c->alloc_blocks * e->scale;
    double freed_bytes =
        ((double)(c->freed_bytes + c->extra_bytes) + (double)c->old_bytes * old) * e->scale;
    double freed_blocks =
        ((double)c->freed_blocks + (double)c->extra_blocks / 256 + (double)c->old_blocks * old) *
        e->scale;
    left_note(told, c);
    ret_add->alloc_bytes = (uint64_t)(clamped(alloc_bytes, 0, alloc_bytes) + 0.5);
    ret_add->alloc_blocks = (uint64_t)(clamped(alloc_blocks, 0, alloc_blocks) + 0.5);
    uint64_t had_bytes = told->book.alloc_bytes - told->book.freed_bytes + ret_add->alloc_bytes;
    uint64_t had_blocks = told->book.alloc_blocks - told->book.freed_blocks + ret_add->alloc_blocks;
    ret_add->freed_bytes =
        freed_of(clamped(freed_bytes, 0, freed_bytes), had_bytes, &told->debt_bytes);
    ret_add->freed_blocks =
        freed_of(clamped(freed_blocks, 0, freed_blocks), had_blocks, &told->debt_blocks);
    e->net += (double)ret_add->alloc_bytes - (double)ret_add->freed_bytes;
    e->old_doubt += (double)c->old_bytes * (old > 1 ? old - 1 : 0) * e->scale / 2;
}

void heap_estimate_end(struct heap *h)
{
    struct heap_estimate *e = &h->estimate;
    if (e->work_ns <= 0)
        return;
    double rate = e->net / e->work_ns;
    double differ = e->work_ns * (rate - e->rate) * (1 - 1 / e->scale);
    e->doubt_bytes += fabs(e->net) * e->doubt;
    e->variance += differ * differ / 2;
    e->rate = rate;
}

double heap_estimate_error(const struct heap *h, double since_ns)
{
    const struct heap_estimate *e = &h->estimate;
    return 2 * sqrt(e->variance) + e->doubt_bytes + e->old_doubt + fabs(e->rate) * since_ns;
}
