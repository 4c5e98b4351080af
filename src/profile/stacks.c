/* Exact figures divided among sampled stacks. See stacks.h. */
#include "profile/stacks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"

enum { MEASURES = 4 };

static uint64_t *measure(struct profile_figures *figures, int i)
{
    uint64_t *const all[MEASURES] = {&figures->live_bytes, &figures->live_blocks,
                                     &figures->alloc_bytes, &figures->alloc_blocks};
    return all[i];
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

/* What a caller is found by. */
static uint64_t caller_hash(const struct profile *p, const struct profile_site *site)
{
    return hash_combine(hash_combine(p->seed, site->account), profile_stack(p, site)[0]);
}

/* The exact site of the caller of a sampled one. */
static uint32_t caller_of(const struct profile *p, const struct numbers *callers,
                          const struct profile_site *sampled)
{
    struct numbers_walk walk;
    uint64_t hash = caller_hash(p, sampled);
    uint32_t n = numbers_first(callers, hash, &walk);
    while (n != NUMBERS_NONE && (p->sites[n].account != sampled->account ||
                                 profile_stack(p, &p->sites[n])[0] != profile_stack(p, sampled)[0]))
        n = numbers_next(callers, &walk);
    return n;
}

/* ---- dividing ---- */

/* Of one caller: the sums of the estimates of its stacks, and how far the division has come. */
struct share {
    struct profile_figures estimates; /* of all its stacks */
    struct profile_figures so_far;    /* of those that have their share */
    struct profile_figures given;
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

static void divide(struct stacks *s, struct stack *stack, struct profile_figures whole,
                   struct share *share)
{
    struct profile_figures figures = {0};
    for (int i = 0; i < MEASURES; i++)
        if (*measure(&share->estimates, i))
            *measure(&figures, i) = share_next(
                *measure(&whole, i), *measure(&share->estimates, i), measure(&share->so_far, i),
                *measure(&stack->figures, i), measure(&share->given, i));
    stack->figures = figures;
    stack->estimate = true;
    profile_figures_add(&s->estimated, &figures);
}

/* What no stack of the caller was found for stays with the caller. */
static bool rest(struct stack *stack, const struct share *share)
{
    struct profile_figures estimates = share->estimates;
    bool any = false;
    for (int i = 0; i < MEASURES; i++) {
        if (*measure(&estimates, i))
            *measure(&stack->figures, i) = 0;
        any |= *measure(&stack->figures, i) != 0;
    }
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
        if (caller != NUMBERS_NONE)
            profile_figures_add(&shares[caller].estimates, &p->sites[i].figures);
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
            divide(&s, &stack, p->sites[caller].figures, &shares[caller]);
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
