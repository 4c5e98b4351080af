/* Exact figures divided among sampled stacks. See stacks.h. */
#include "profile/stacks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"

/* What is divided: live and freed, in bytes and blocks. Allocated is their sum, so that no stack holds more
 * than it ever asked for, and the sums over the stacks of a caller stay exact. */
enum { MEASURES = 4 };
struct parts {
    uint64_t of[MEASURES]; /* live bytes, live blocks, freed bytes, freed blocks */
};

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static struct parts parts_of(const struct profile_figures *f)
{
    return (struct parts){{f->live_bytes, f->live_blocks, less(f->alloc_bytes, f->live_bytes),
                           less(f->alloc_blocks, f->live_blocks)}};
}

static struct profile_figures figures_of(const struct parts *p)
{
    struct profile_figures f = {.live_bytes = p->of[0], .live_blocks = p->of[1]};
    if (__builtin_add_overflow(p->of[0], p->of[2], &f.alloc_bytes))
        f.alloc_bytes = UINT64_MAX;
    if (__builtin_add_overflow(p->of[1], p->of[3], &f.alloc_blocks))
        f.alloc_blocks = UINT64_MAX;
    return f;
}

struct stack stack_of(const struct profile *p, const struct profile_site *site)
{
    return (struct stack){
        .frames = profile_stack(p, site),
        .n_frames = site->n_frames,
        .cut = site->flags & PROFILE_SITE_CUT,
        .bare = site->flags & PROFILE_SITE_CALLER_ONLY,
        .account = site->account,
        .first_seen_ns = site->first_seen_ns,
        .figures = site->figures,
    };
}

uint64_t stack_caller(const struct profile *p, uint32_t frame)
{
    uint32_t module = p->frames[frame].module;
    return p->modules[module].kind == PROFILE_MODULE_ADDRESS ? UINT64_C(1) << 32 | module : frame;
}

/* What a caller is found by. */
static uint64_t caller_hash(const struct profile *p, const struct profile_site *site)
{
    return hash_combine(hash_combine(p->seed, site->account),
                        stack_caller(p, profile_stack(p, site)[0]));
}

/* The exact site of the caller of a sampled one. */
static uint32_t caller_of(const struct profile *p, const struct numbers *callers,
                          const struct profile_site *sampled)
{
    struct numbers_walk walk;
    uint64_t hash = caller_hash(p, sampled);
    uint32_t n = numbers_first(callers, hash, &walk);
    while (n != NUMBERS_NONE && (p->sites[n].account != sampled->account ||
                                 stack_caller(p, profile_stack(p, &p->sites[n])[0]) !=
                                     stack_caller(p, profile_stack(p, sampled)[0])))
        n = numbers_next(callers, &walk);
    return n;
}

/* ---- dividing ---- */

/* Of one caller: the sums of the estimates of its stacks, and how far the division has come. */
struct share {
    struct parts estimates; /* of all its stacks */
    struct parts so_far;    /* of those that have their share */
    struct parts given;
};

/* The next stack's share of `whole`. Shares are differences of rounded running sums, so that together they
 * are exactly the whole. */
static uint64_t share_next(uint64_t whole, uint64_t estimates, uint64_t *so_far, uint64_t estimate,
                           uint64_t *given)
{
    if (__builtin_add_overflow(*so_far, estimate, so_far) || *so_far > estimates)
        *so_far = estimates;
    uint64_t until = (uint64_t)((unsigned __int128)whole * *so_far / estimates);
    uint64_t share = until - *given;
    *given = until;
    return share;
}

static void divide(struct stacks *s, struct stack *stack, const struct profile_figures *whole,
                   struct share *share)
{
    struct parts all = parts_of(whole), estimate = parts_of(&stack->figures), parts = {0};
    for (int i = 0; i < MEASURES; i++)
        if (share->estimates.of[i])
            parts.of[i] = share_next(all.of[i], share->estimates.of[i], &share->so_far.of[i],
                                     estimate.of[i], &share->given.of[i]);
    stack->figures = figures_of(&parts);
    stack->estimate = true;
    profile_figures_add(&s->estimated, &stack->figures);
}

/* What no stack of the caller was found for stays with the caller. */
static bool rest(struct stack *stack, const struct share *share)
{
    struct parts parts = parts_of(&stack->figures);
    bool any = false;
    for (int i = 0; i < MEASURES; i++) {
        if (share->estimates.of[i])
            parts.of[i] = 0;
        any |= parts.of[i] != 0;
    }
    stack->figures = figures_of(&parts);
    return any;
}

static bool is_sampled(const struct profile_site *site)
{
    return site->flags & PROFILE_SITE_SAMPLED && site->n_frames > 0;
}

static bool is_caller(const struct profile_site *site)
{
    return !(site->flags & PROFILE_SITE_SAMPLED) && site->flags & PROFILE_SITE_CALLER_ONLY &&
           site->n_frames > 0;
}

static int find_callers(const struct profile *p, struct numbers *callers)
{
    for (size_t i = 0; i < p->n_sites; i++)
        if (is_caller(&p->sites[i]) &&
            numbers_add(callers, caller_hash(p, &p->sites[i]), (uint32_t)i) < 0)
            return -ENOMEM;
    return 0;
}

static bool sum_estimates(const struct profile *p, const struct numbers *callers,
                          struct share *shares)
{
    bool any = false;
    for (size_t i = 0; i < p->n_sites; i++) {
        if (!is_sampled(&p->sites[i]))
            continue;
        uint32_t caller = caller_of(p, callers, &p->sites[i]);
        any = true;
        if (caller == NUMBERS_NONE)
            continue;
        struct parts parts = parts_of(&p->sites[i].figures);
        uint64_t *to = shares[caller].estimates.of;
        for (int k = 0; k < MEASURES; k++)
            if (__builtin_add_overflow(to[k], parts.of[k], &to[k]))
                to[k] = UINT64_MAX;
    }
    return any;
}

int stacks_take(const struct profile *p, struct stacks *ret_stacks)
{
    MEMOIR_CLEANUP(stacks_release)
    struct stacks s = {.list = calloc(p->n_sites + 1, sizeof(*s.list))};
    MEMOIR_CLEANUP(freep)
    struct share *shares = calloc(p->n_sites + 1, sizeof(*shares));
    MEMOIR_CLEANUP(numbers_release)
    struct numbers callers = {0};
    if (!s.list || !shares || find_callers(p, &callers) < 0)
        return -ENOMEM;
    bool sampled = sum_estimates(p, &callers, shares);
    for (size_t i = 0; i < p->n_sites; i++) {
        const struct profile_site *site = &p->sites[i];
        struct stack stack = stack_of(p, site);
        if (is_sampled(site)) {
            uint32_t caller = caller_of(p, &callers, site);
            if (caller == NUMBERS_NONE) {
                s.orphans++;
                continue;
            }
            divide(&s, &stack, &p->sites[caller].figures, &shares[caller]);
        } else if (site->flags & PROFILE_SITE_SAMPLED) {
            continue;
        } else if (!rest(&stack, &shares[i])) {
            continue;
        } else if (sampled && stack.bare) {
            profile_figures_add(&s.bare, &stack.figures);
        }
        s.list[s.n++] = stack;
    }
    *ret_stacks = s;
    s = (struct stacks){0};
    return 0;
}

void stacks_release(struct stacks *s)
{
    free(s->list);
    *s = (struct stacks){0};
}
