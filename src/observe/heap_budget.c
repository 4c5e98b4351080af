/* How much of the process's time probes may take.
 *
 * A call with its probe takes about a microsecond longer. Where that is more than the budget, probes are in for windows only, and what
 * they count stands for all: figures become estimates. A window stands for the work that the process did since the one before, in CPU
 * time: with probes it does less in the same time. Windows come after pauses of random length, so that nothing the program does
 * in turns falls between them. An allocation is seen with the probability that windows take of the time; a free counts by the
 * probability with which it is seen (heap.bpf.c), so that a block which lives as long as another one is expected to come and go
 * as often. Estimates go up and down around the truth by the square root of what was seen. */
#include <errno.h>
#include <time.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "observe/heap_internal.h"

enum {
    COST_NS =
        900, /* of one call: a malloc with its free took 1.75 us on the machine of bench/results/attach */
    OVER_LOOKS = 8,    /* looks in a row above the budget before windows begin */
    WINDOW_MS = 500,   /* how long probes are in */
    PAUSE_MAX_S = 120, /* between two windows at most, whatever they cost */
};
#define OWN_LEAST 0.02 /* of the CPU time in a window that is taken to be the process's own */

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
}

/* Since the last mark. A process that did nothing took nothing. */
static double share(const struct heap *h)
{
    uint64_t calls = heap_calls(h) - h->budget.calls;
    uint64_t took = cpu_ns(h->options->pid) - h->budget.cpu_ns;
    return took > NS_PER_MS ? (double)calls * COST_NS / (double)took : 0;
}

void heap_budget_begin(struct heap *h)
{
    h->budget.scale = 1;
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
static double window_scale(const struct heap *h)
{
    const struct heap_budget *b = &h->budget;
    uint64_t now = cpu_ns(h->options->pid), calls = heap_calls(h) - b->calls;
    double in = (double)(now - b->cpu_ns), before = (double)(b->cpu_ns - b->closed_cpu_ns);
    double own = in - (double)calls * COST_NS;
    own = own > in * OWN_LEAST ? own : in * OWN_LEAST;
    return own > 0 && before > 0 ? (before + own) / own : 1;
}

static void window_close(struct heap *h)
{
    struct heap_budget *b = &h->budget;
    struct heap_state *s = heap_kernel_state(h->kernel);
    uint64_t now = clock_monotonic_ns();
    b->share = share(h);
    double most = (double)h->options->budget / 100, duty = b->share > most ? most / b->share : 1;
    double least = (double)WINDOW_MS / 1000 / PAUSE_MAX_S;
    duty = duty < least ? least : duty;
    heap_probes_out(h);
    b->in = false;
    b->closed_cpu_ns = cpu_ns(h->options->pid);
    store_relaxed(&s->inverse, (uint32_t)((b->scale > 1 ? b->scale : 1 / duty) * 256));
    b->next_ns = now + (uint64_t)(WINDOW_MS * NS_PER_MS * (1 / duty - 1) * random_factor(b));
}

static int window_open(struct heap *h)
{
    struct heap_state *s = heap_kernel_state(h->kernel);
    store_relaxed(&s->window_units, (uint32_t)(WINDOW_MS * NS_PER_MS >> HEAP_TIME_SHIFT));
    store_relaxed(&s->window_start, (uint32_t)(clock_monotonic_ns() >> HEAP_TIME_SHIFT));
    int r = heap_probes_in(h);
    h->budget.windows++;
    h->budget.in = true;
    h->budget.next_ns = clock_monotonic_ns() + WINDOW_MS * NS_PER_MS;
    mark(h);
    return r;
}

static void windows_begin(struct heap *h)
{
    struct heap_budget *b = &h->budget;
    log_info(
        "probes take %.0f %% of the CPU time of process %d: they are in for part of the time now, and "
        "figures are estimates",
        b->share * 100, (int)h->options->pid);
    heap_book_tell(h);
    b->windowed = true;
    book_account_at(h->book.w, h->account)->flags |= BOOK_ACCOUNT_SAMPLED;
    window_close(h);
    store_relaxed(&heap_kernel_state(h->kernel)->windowed, 1);
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
        b->scale = window_scale(h);
        b->closing = true;
        heap_book_tell(h);
        b->closing = false;
        window_close(h);
        return 0;
    }
    b->share = share(h);
    mark(h);
    b->over = b->share * 100 > (double)h->options->budget ? b->over + 1 : 0;
    if (b->over >= OVER_LOOKS)
        windows_begin(h);
    return 0;
}
