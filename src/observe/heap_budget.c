/* How much of the process's time probes may take.
 *
 * A call with its probe takes about a microsecond longer. Where that is more than the budget, probes are in for windows only, and what
 * they count stands for all: figures become estimates (heap_estimate.c). A window stands for the work that the process did since the one
 * before, in CPU time without the probes': with them it does less in the same time. Counting begins when all probes are in and ends
 * before the first one goes, so that CPU time and counts are of the same moments. Windows come after pauses of random length, so that
 * nothing the program does in turns falls between them. */
#include <errno.h>
#include <time.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "observe/heap_internal.h"

enum {
    COST_NS = 1000,    /* CPU time of one call, until it is measured: see heap_cost.c */
    COST_MIN_NS = 100, /* what is measured must be between these, */
    COST_MAX_NS = 50000,
    MEASURE_SHARE = 4, /* and is measured once probes take a part in so many of the budget */
    OVER_LOOKS = 8,    /* looks in a row above the budget before windows begin */
    WINDOW_MS = 500,   /* how long probes are in */
    PAUSE_MAX_S = 120, /* between two windows at most, whatever they cost */
};
#define FREE_SHARE \
    0.01 /* of one processor that probes may take of a process that does next to nothing */
#define COST_DOUBT 0.2  /* by how much of itself the cost differs among programs and machines */
#define OWN_LEAST  0.02 /* of the CPU time in a window that is taken to be the process's own */

static uint64_t cpu_ns(pid_t pid)
{
    clockid_t clock;
    struct timespec now;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &now) < 0)
        return 0;
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void mark(struct heap *h)
{
    h->budget.calls = heap_calls(h);
    h->budget.cpu_ns = cpu_ns(h->options->pid);
    h->budget.marked_ns = clock_monotonic_ns();
}

/* Since the last mark. A process that did nothing took nothing. */
static double share(const struct heap *h)
{
    uint64_t calls = heap_calls(h) - h->budget.calls;
    uint64_t took = cpu_ns(h->options->pid) - h->budget.cpu_ns;
    return took > NS_PER_MS ? (double)calls * h->budget.cost_ns / (double)took : 0;
}

/* Do probes take so little that no budget matters? */
static bool is_little(const struct heap *h)
{
    double passed = (double)(clock_monotonic_ns() - h->budget.marked_ns);
    return (double)(heap_calls(h) - h->budget.calls) * h->budget.cost_ns < passed * FREE_SHARE;
}

void heap_budget_begin(struct heap *h)
{
    h->estimate.scale = 1;
    h->budget.cost_ns = COST_NS;
    h->budget.begun_cpu_ns = cpu_ns(h->options->pid);
    h->budget.in = true;
    h->budget.random = clock_monotonic_ns() | 1;
    mark(h);
}

/* 0.5 to 1.5. */
static double random_factor(struct heap_budget *b)
{
    b->random ^= b->random << 13;
    b->random ^= b->random >> 7;
    b->random ^= b->random << 17;
    return 0.5 + (double)(b->random >> 11) / 9007199254740992.0;
}

/* What the window stands for: all that the process did since the last one closed, by its CPU time without the probes'. */
static void window_weigh(struct heap *h)
{
    const struct heap_budget *b = &h->budget;
    uint64_t now = cpu_ns(h->options->pid), calls = heap_calls(h) - b->calls;
    double in = (double)(now - b->cpu_ns), before = (double)(b->cpu_ns - b->closed_cpu_ns);
    double probes = (double)calls * b->cost_ns, own = in - probes;
    own = own > in * OWN_LEAST ? own : in * OWN_LEAST;
    bool worked = own > 0 && before > 0;
    heap_estimate_begin(h, worked ? (before + own) / own : 1, before + own,
                        own > 0 ? COST_DOUBT * probes / own : 0);
}

/* Counting has ended: the probes go, and come back after a while. */
static void window_pause(struct heap *h)
{
    struct heap_budget *b = &h->budget;
    double most = (double)h->options->budget / 100, duty = b->share > most ? most / b->share : 1;
    double least = (double)WINDOW_MS / 1000 / PAUSE_MAX_S;
    duty = duty < least ? least : duty;
    b->closed_cpu_ns = cpu_ns(h->options->pid);
    b->closed_ns = clock_monotonic_ns();
    heap_probes_out(h);
    b->in = false;
    b->next_ns = clock_monotonic_ns() +
                 (uint64_t)(WINDOW_MS * NS_PER_MS * (1 / duty - 1) * random_factor(b));
}

static void window_close(struct heap *h)
{
    struct heap_budget *b = &h->budget;
    store_relaxed(&heap_kernel_state(h->kernel)->on, 0);
    b->share = share(h);
    window_weigh(h);
    b->closing = true;
    heap_book_tell(h);
    b->closing = false;
    heap_estimate_end(h);
    log_debug("window %llu: stands for %.2f of itself, %.2f s; old frees for %.2f; %.0f bytes more",
              (unsigned long long)b->windows, h->estimate.scale, h->estimate.work_ns / 1e9,
              h->estimate.old_weight, h->estimate.net);
    window_pause(h);
}

double heap_budget_since(const struct heap *h)
{
    return (double)(cpu_ns(h->options->pid) - h->budget.closed_cpu_ns);
}

static int window_open(struct heap *h)
{
    struct heap_state *s = heap_kernel_state(h->kernel);
    int r = heap_probes_in(h);
    store_relaxed(&s->window_units, (uint32_t)(WINDOW_MS * NS_PER_MS >> HEAP_TIME_SHIFT));
    store_relaxed(&s->window_start, (uint32_t)(clock_monotonic_ns() >> HEAP_TIME_SHIFT));
    mark(h);
    h->estimate.unknown = load_relaxed(&s->unknown_frees);
    store_relaxed(&s->on, 1);
    h->budget.windows++;
    h->budget.in = true;
    h->budget.next_ns = clock_monotonic_ns() + WINDOW_MS * NS_PER_MS;
    return r;
}

/* Only where it matters: most programs never come near the budget. */
static void cost_measure(struct heap *h)
{
    struct heap_budget *b = &h->budget;
    double cost_ns = 0;
    b->tried = true;
    int r = heap_cost_measure(h->parser, h->options->two_links, &cost_ns);
    if (r < 0 || cost_ns < COST_MIN_NS || cost_ns > COST_MAX_NS) {
        log_info("the cost of a probe cannot be measured: taken to be %.0f ns", b->cost_ns);
        return;
    }
    b->cost_ns = cost_ns;
    b->measured = true;
    log_info("a probe costs %.0f ns here", cost_ns);
    mark(h); /* the child took a while */
}

uint64_t heap_budget_age_ns(const struct heap *h)
{
    const struct heap_budget *b = &h->budget;
    return b->windowed && b->closed_ns ? clock_monotonic_ns() - b->closed_ns : 0;
}

static void windows_begin(struct heap *h)
{
    struct heap_budget *b = &h->budget;
    log_info(
        "probes take %.0f %% of the CPU time of process %d: they are in for part of the time now, and "
        "figures are estimates",
        b->share * 100, (int)h->options->pid);
    store_relaxed(&heap_kernel_state(h->kernel)->on, 0);
    heap_book_tell(h); /* the last exact figures */
    b->windowed = true;
    store_relaxed(&heap_kernel_state(h->kernel)->windowed, 1);
    book_account_at(h->book.w, h->account)->flags |= BOOK_ACCOUNT_SAMPLED;
    heap_estimate_exact(h, (double)(cpu_ns(h->options->pid) - b->begun_cpu_ns) -
                               (double)heap_calls(h) * b->cost_ns);
    window_pause(h);
}

int heap_budget_look(struct heap *h)
{
    struct heap_budget *b = &h->budget;
    if (!h->options->budget)
        return 0;
    if (b->windowed) {
        if (clock_monotonic_ns() < b->next_ns)
            return 0;
        if (!b->in)
            return window_open(h);
        window_close(h);
        return 0;
    }
    b->share = share(h);
    if (!b->tried && b->share * 100 * MEASURE_SHARE > (double)h->options->budget && !is_little(h)) {
        cost_measure(h);
        return 0;
    }
    b->over = b->share * 100 > (double)h->options->budget && !is_little(h) ? b->over + 1 : 0;
    mark(h);
    if (b->over >= OVER_LOOKS)
        windows_begin(h);
    return 0;
}
