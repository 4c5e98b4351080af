/* sample.c: see sample.h. */
#include "track/sample.h"

#include <string.h>

#include "base/hash.h"
#include "book/report.h"
#include "site/module.h"

enum { OWN_FRAMES_MAX = 16 };
#define NEVER     (INT64_MAX / 2)
#define LN2       0.69314718055994531
#define SQRT_HALF 0.70710678118654752

/* ---- stacks ---- */

void sample_own_code(uintptr_t *ret_start, uintptr_t *ret_end)
{
    static uintptr_t start, end;
    if (!load_acquire(&end)) {
        struct module_object object = {0};
        module_object_find((uintptr_t)sample_own_code, &object);
        store_relaxed(&start, object.map_start);
        store_release(&end, object.map_end);
    }
    *ret_start = load_relaxed(&start);
    *ret_end = load_relaxed(&end);
}

/* The one place where a stack is taken: whoever called us, innermost first; return addresses, and lines of
 * scripts where an interpreter is known. */
static size_t stack_take(struct track_thread *t, uintptr_t *pcs, size_t max,
                         struct unwind_trace *ret_trace)
{
    struct tracker *tracker = t->tracker;
    uintptr_t all[SCRIPT_FRAMES_MAX], start, end;
    static_assert(BOOK_SITE_FRAMES_MAX + OWN_FRAMES_MAX <= SCRIPT_FRAMES_MAX, "room");
    struct unwind_state state = UNWIND_STATE_CALLER();
    size_t n = script_stack(&tracker->writer, &t->book, &t->script, &tracker->python,
                            &tracker->unwind, &state, all, max + OWN_FRAMES_MAX, ret_trace);
    sample_own_code(&start, &end);
    size_t own = 0;
    while (own < n && all[own] > start && all[own] <= end)
        own++;
    size_t left = n - own;
    if (left > max) {
        left = max;
        ret_trace->flags |= UNWIND_CUT;
    }
    memcpy(pcs, all + own, left * sizeof(pcs[0]));
    return left;
}

uint32_t sample_stack_site(struct track_thread *t, uint32_t flags)
{
    struct tracker *tracker = t->tracker;
    uintptr_t pcs[BOOK_SITE_FRAMES_MAX];
    struct unwind_trace trace = {0};
    size_t n = stack_take(t, pcs, BOOK_SITE_FRAMES_MAX, &trace);
    if (n == 0)
        return BOOK_SITE_NONE;
    uint64_t key = hash_bytes(pcs, n * sizeof(pcs[0]), flags);
    struct track_stack *entry = &t->stacks[key >> (64 - TRACK_STACKS_BITS)];
    if (entry->key == key && entry->identity == trace.identity && !(trace.flags & UNWIND_UNSTABLE))
        return entry->site;
    if (!python_ready(&tracker->python)) {
        /* A new stack, so perhaps the first of an interpreter. */
        python_find(&tracker->python, pcs, n);
        if (python_ready(&tracker->python))
            return sample_stack_site(t, flags);
    }
    uint32_t cut = trace.flags & UNWIND_CUT ? BOOK_SITE_CUT : 0;
    uint32_t site =
        book_site_add(&tracker->writer, &t->book, tracker->account, pcs, n, flags | cut);
    if (site != BOOK_SITE_NONE)
        *entry = (struct track_stack){key, trace.identity, site};
    return site;
}

/* ---- numbers ---- */

double sample_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    int exponent = (int)(bits >> 52 & 0x7ff) - 1022;
    bits = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1022) << 52; /* 0.5 <= m < 1 */
    double m;
    memcpy(&m, &bits, sizeof(m));
    if (m < SQRT_HALF) {
        m *= 2;
        exponent--;
    }
    double s = (m - 1) / (m + 1), s2 = s * s; /* ln m = 2 atanh s, and |s| < 0.172 */
    return exponent * LN2 + 2 * s * (1 + s2 * (1.0 / 3 + s2 * (0.2 + s2 / 7)));
}

double sample_exp_minus(double x)
{
    if (x > 700)
        return 0;
    int halvings = (int)(x / LN2);
    double r = x - halvings * LN2; /* 0 <= r < ln 2 */
    double sum = 1, term = 1;
    for (int i = 1; i <= 8; i++) {
        term *= -r / i;
        sum += term;
    }
    uint64_t bits = (uint64_t)(1023 - halvings) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof(scale));
    return halvings < 1022 ? sum * scale : 0;
}

struct sample_weight sample_weigh(uint64_t bytes, uint64_t mean)
{
    double x = (double)bytes / (double)mean;
    /* Of a difference of two numbers close to 1 little would be left: the series is right there, and nearly all blocks are small. */
    double p = x < 1.0 / 32
                   ? x * (1 - x * (1.0 / 2 - x * (1.0 / 6 - x * (1.0 / 24 - x * (1.0 / 120)))))
                   : 1 - sample_exp_minus(x);
    double blocks = p > 0 ? 1 / p : 1;
    return (struct sample_weight){(uint64_t)((double)bytes * blocks + 0.5),
                                  (uint64_t)(blocks + 0.5)};
}

int64_t sample_distance(struct track_thread *t)
{
    return sample_distance_of(t, track_settings.sample_bytes);
}

/* Never less often than all others. */
uint64_t sample_close_bytes(void)
{
    return track_settings.sample_bytes < BOOK_CLOSE_BYTES ? track_settings.sample_bytes
                                                          : BOOK_CLOSE_BYTES;
}

int64_t sample_distance_of(struct track_thread *t, uint64_t mean)
{
    if (track_settings.stacks != TRACK_STACKS_SAMPLED)
        return NEVER;
    uint64_t random = t->random;
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    t->random = random;
    /* 53 random bits, never 0. */
    double uniform = ((double)(random >> 11) + 1) / 9007199254740993.0;
    return (int64_t)(-sample_log(uniform) * (double)mean) + 1;
}

/* ---- blocks ---- */

static struct book_site_counters gain_of(uint64_t bytes, bool close)
{
    struct sample_weight weight =
        sample_weigh(bytes, close ? sample_close_bytes() : track_settings.sample_bytes);
    return (struct book_site_counters){.alloc_bytes = weight.bytes, .alloc_blocks = weight.blocks};
}

static void count_gone(struct track_thread *t, const struct book_block *block)
{
    const struct book_site *sites = (const void *)t->tracker->writer.at[BOOK_SECTION_SITES];
    bool close = sites[book_place_site(block->place)].flags & BOOK_SITE_CLOSE;
    struct book_site_counters gain = gain_of(book_block_bytes(block), close);
    struct book_site_counters loss = {.freed_bytes = gain.alloc_bytes,
                                      .freed_blocks = gain.alloc_blocks};
    book_count_sampled(&t->tracker->writer, &t->book, book_place_site(block->place), &loss);
}

bool sample_alloc(struct track_thread *t, void *block, size_t bytes, bool close)
{
    struct book_writer *w = &t->tracker->writer;
    uint32_t site = close ? BOOK_SITE_NONE : recall_sampled_site(t);
    if (site == BOOK_SITE_NONE)
        site = sample_stack_site(t, BOOK_SITE_SAMPLED | (close ? BOOK_SITE_CLOSE : 0));
    struct book_site_counters gain = gain_of(bytes, close);
    if (site == BOOK_SITE_NONE || !book_count_sampled(w, &t->book, site, &gain))
        return false;
    struct book_block old,
        entry = {
            .id = (uintptr_t)block,
            .size_tag = bytes,
            .place = (uint64_t)book_time(w) << 32 | (uint64_t)site << 12 | t->tracker->account,
        };
    int r = table_put(w, &t->book, &entry, &old);
    if (r == 1) { /* somebody freed it behind our back */
        count_gone(t, &old);
        book_lose(w, BOOK_LOSS_REPLACED);
    } else if (r < 0) {
        count_gone(t, &entry);
        book_lose(w, BOOK_LOSS_BLOCKS_FULL);
        return false;
    }
    return true;
}

void sample_free(struct track_thread *t, const void *block)
{
    struct book_block old;
    if (table_take(&t->tracker->writer, &t->book, t->tracker->account, (uintptr_t)block, &old))
        count_gone(t, &old);
}
