/* How fast processes grow: for each window a ring of past figures, noted at the same moments for all
 * processes, so that a figure takes four bytes and a moment is kept once. */
#include <math.h>

#include "base/clock.h"
#include "ledger/host_rows.h"

/* What a process held some time ago. */
struct figure {
    uint64_t age_ns;
    double bytes;
};

/* Twelve steps cover a window and its slack. */
void host_windows_init(struct host *host)
{
    host->window_ns[HOST_10S] = 10 * NS_PER_S;
    host->window_ns[HOST_1MIN] = 60 * NS_PER_S;
    host->window_ns[HOST_10MIN] = 600 * NS_PER_S;
    host->window_ns[HOST_STEADY] = HOST_STEADY_S * NS_PER_S;
}

void host_set_steady(struct host *host, uint64_t window_ns)
{
    host->window_ns[HOST_STEADY] = window_ns;
    for (size_t i = 0; i < host->n; i++)
        host_row(host->rows[i])->rings[HOST_STEADY].first = host->ticks[HOST_STEADY].n;
}

void host_ticks_advance(struct host *host)
{
    for (int w = 0; w < HOST_WINDOWS; w++) {
        struct host_ticks *ticks = &host->ticks[w];
        uint64_t step_ns = host->window_ns[w] / 10;
        uint64_t last = ticks->n ? ticks->time_ns[(ticks->n - 1) % HOST_RING] : 0;
        /* A little early is fine: refreshes come each second, give or take. */
        ticks->now = ticks->n == 0 || host->time_ns - last >= step_ns - step_ns / 10;
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

/* The latest figure that is at least so old. False: there is none, or the only ones are much older, after a pause: they are of
 * another window. */
static bool figure_of(const struct host *host, const struct host_row *row, enum host_window window,
                      uint64_t least_ns, uint64_t most_ns, struct figure *ret)
{
    const struct host_ticks *ticks = &host->ticks[window];
    const struct host_ring *ring = &row->rings[window];
    for (uint64_t i = ticks->n; i > ring->first && i + HOST_RING > ticks->n; i--) {
        uint64_t age = host->time_ns - ticks->time_ns[(i - 1) % HOST_RING];
        uint32_t pages = ring->pages[(i - 1) % HOST_RING];
        if (age < least_ns)
            continue;
        if (age > most_ns || pages == HOST_PAGES_UNKNOWN)
            return false;
        *ret = (struct figure){age, (double)pages * host->page_bytes};
        return true;
    }
    return false;
}

bool host_rate(const struct host *host, const struct host_process *process, enum host_window window,
               double *ret_bytes_per_s)
{
    uint64_t length = host->window_ns[window];
    struct figure then;
    if (!(process->valid & HOST_HAS_MEMORY) ||
        !figure_of(host, host_row(process), window, length - length / 20, length + length / 2,
                   &then))
        return false;
    *ret_bytes_per_s =
        ((double)process->rss_bytes - then.bytes) * (double)NS_PER_S / (double)then.age_ns;
    return true;
}

bool host_steady(const struct host *host, const struct host_process *process,
                 double *ret_bytes_per_s)
{
    uint64_t length = host->window_ns[HOST_STEADY];
    struct figure later = {0, (double)process->rss_bytes};
    double least = INFINITY;
    if (!(process->valid & HOST_HAS_MEMORY))
        return false;
    for (uint64_t part = 1; part <= HOST_STEADY_PARTS; part++) {
        struct figure then;
        uint64_t age = length * part / HOST_STEADY_PARTS;
        if (!figure_of(host, host_row(process), HOST_STEADY, age - age / 20, age + length / 2,
                       &then) ||
            then.age_ns <= later.age_ns)
            return false;
        double rate =
            (later.bytes - then.bytes) * (double)NS_PER_S / (double)(then.age_ns - later.age_ns);
        least = rate < least ? rate : least;
        later = then;
    }
    *ret_bytes_per_s = least > 0 ? least : 0;
    return true;
}
