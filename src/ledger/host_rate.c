/* How fast processes grow: for each of three windows a ring of past figures, noted at the same moments for all
 * processes, so that a figure takes four bytes and a moment is kept once. */
#include "base/clock.h"
#include "ledger/host_rows.h"

/* Twelve steps cover a window and its slack. */
static const uint64_t window_ns[HOST_WINDOWS] = {10 * NS_PER_S, 60 * NS_PER_S, 600 * NS_PER_S};

void host_ticks_advance(struct host *host)
{
    for (int w = 0; w < HOST_WINDOWS; w++) {
        struct host_ticks *ticks = &host->ticks[w];
        uint64_t last = ticks->n ? ticks->time_ns[(ticks->n - 1) % HOST_RING] : 0;
        /* A little early is fine: refreshes come each second, give or take. */
        ticks->now =
            ticks->n == 0 || host->time_ns - last >= window_ns[w] / 10 - window_ns[w] / 100;
        if (ticks->now)
            ticks->time_ns[ticks->n++ % HOST_RING] = host->time_ns;
    }
}

void host_ring_start(const struct host *host, struct host_row *row)
{
    for (int w = 0; w < HOST_WINDOWS; w++)
        row->rings[w].first = host->ticks[w].now ? host->ticks[w].n - 1 : host->ticks[w].n;
}

void host_ring_note(const struct host *host, struct host_row *row)
{
    uint64_t pages =
        row->p.valid & HOST_HAS_MEMORY ? row->p.rss_bytes / host->page_bytes : HOST_PAGES_UNKNOWN;
    if (pages > HOST_PAGES_UNKNOWN)
        pages = HOST_PAGES_UNKNOWN;
    for (int w = 0; w < HOST_WINDOWS; w++)
        if (host->ticks[w].now)
            row->rings[w].pages[(host->ticks[w].n - 1) % HOST_RING] = (uint32_t)pages;
}

bool host_rate(const struct host *host, const struct host_process *process, enum host_window window,
               double *ret_bytes_per_s)
{
    const struct host_ticks *ticks = &host->ticks[window];
    const struct host_ring *ring = &host_row(process)->rings[window];
    uint64_t length = window_ns[window];
    if (!(process->valid & HOST_HAS_MEMORY))
        return false;
    /* The latest figure that is old enough. Much older ones, after a pause, are of another window. */
    for (uint64_t i = ticks->n; i > ring->first && i + HOST_RING > ticks->n; i--) {
        uint64_t age = host->time_ns - ticks->time_ns[(i - 1) % HOST_RING];
        uint32_t pages = ring->pages[(i - 1) % HOST_RING];
        if (age < length - length / 20)
            continue;
        if (age > length + length / 2 || pages == HOST_PAGES_UNKNOWN)
            return false;
        double before = (double)pages * host->page_bytes;
        *ret_bytes_per_s = ((double)process->rss_bytes - before) * (double)NS_PER_S / (double)age;
        return true;
    }
    return false;
}
