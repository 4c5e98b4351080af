/* Trails: see the header for why they are right. */
#include "site/trail.h"

#include <errno.h>

#include "base/hash.h"
#include "site/rules.h"

enum {
    PC_MIN = 4096, /* no code is below */
    WORD = sizeof(uintptr_t),
};

struct walk {
    struct unwind_cache *cache;
    struct stack_bounds bounds;
    uintptr_t pc, sp, fp; /* of the frame it stands in */
    int32_t fp_from; /* the step whose function had saved fp; -1: it is what the walk began with */
    uint64_t verified[4]; /* modules (bit numbers) found unchanged in this walk */
    struct trail_step *steps;
    uint32_t n; /* steps that are done */
};

/* ---- rules ---- */

static __attribute__((noinline)) int rule_learn(struct walk *w, uint32_t *ret_rule)
{
    struct rule_source source;
    int r = rule_source_find(w->cache, w->pc - 1, &source);
    if (r < 0)
        return -ENOENT;
    if (!source.cacheable)
        return -ENOTSUP;
    *ret_rule = rule_make(w->cache, w->pc - 1, &source);
    w->verified[source.module >> 6] |= UINT64_C(1) << (source.module & 63);
    return 0;
}

static int rule_get(struct walk *w, uint32_t *ret_rule)
{
    uint32_t rule = rule_find(w->cache, w->pc - 1);
    unsigned module = rule_module(rule);
    if (rule == 0)
        return rule_learn(w, ret_rule);
    if (module != 0 && !(w->verified[module >> 6] >> (module & 63) & 1)) {
        uint64_t identity;
        if (!rule_module_verify(w->cache, module, w->pc - 1, &identity))
            return rule_learn(w, ret_rule);
        w->verified[module >> 6] |= UINT64_C(1) << (module & 63);
    }
    *ret_rule = rule;
    return 0;
}

/* ---- one frame ---- */

/* May this word be read, and does it belong to the frame or to one further out? */
static bool is_ours(const struct walk *w, uintptr_t at)
{
    return at >= w->sp && at % WORD == 0 && stack_has_word(&w->bounds, at);
}

/* The value of the frame register decides where the walk goes: so it has to be the same in all frames that it passed
 * through, and where it was saved. `last`: the innermost step it is not needed in. */
static void fp_use(struct walk *w, uint32_t last)
{
    for (int64_t i = (int64_t)last - 1; i > w->fp_from && !w->steps[i].fp_used; i--)
        w->steps[i].fp_used = true;
    if (w->fp_from >= 0)
        w->steps[w->fp_from].saved_used = true;
}

static int cfa_find(struct walk *w, uint32_t rule, struct trail_step *step, uintptr_t *ret_cfa)
{
    uintptr_t at = w->fp - rule_cfa(rule);
    switch (rule_base(rule)) {
    case RULE_SP:
        *ret_cfa = w->sp + rule_cfa(rule);
        return 0;
    case RULE_FP:
        fp_use(w, w->n + 1);
        *ret_cfa = w->fp + rule_cfa(rule);
        return 0;
    case RULE_FP_DEREF:
        fp_use(w, w->n + 1);
        if (!is_ours(w, at))
            return -ENOTSUP;
        step->base = (struct trail_check){at, stack_load(at)};
        *ret_cfa = step->base.value;
        return 0;
    default:
        return rule_is_full(rule) ? -ENOTSUP : 1;
    }
}

/* Go to the caller. 0; 1: there is none; -errno. */
static int step(struct walk *w)
{
    struct trail_step *step = &w->steps[w->n];
    *step = (struct trail_step){.pc = w->pc, .sp = w->sp, .fp = w->fp};
    uint32_t rule;
    uintptr_t cfa;
    int r = rule_get(w, &rule);
    if (r == 0)
        r = cfa_find(w, rule, step, &cfa);
    if (r != 0) {
        w->n += r == 1;
        return r;
    }
    if (cfa <= w->sp || !is_ours(w, cfa - WORD))
        return -ENOTSUP;
    step->back = (struct trail_check){cfa - WORD, stack_load(cfa - WORD)};
    unsigned saved = rule_fp(rule);
    if (saved != RULE_FP_SAME) {
        uintptr_t slot = cfa - saved * WORD;
        if (saved == RULE_FP_AT_FP) {
            fp_use(w, w->n + 1);
            slot = w->fp;
        }
        if (!is_ours(w, slot))
            return -ENOTSUP;
        step->saved = (struct trail_check){slot, stack_load(slot)};
        w->fp = step->saved.value;
        w->fp_from = (int32_t)w->n;
    }
    w->pc = step->back.value;
    w->sp = cfa;
    w->n++;
    return w->pc < PC_MIN ? -ENOENT : 0;
}

/* ---- the trail ---- */

/* Frames, from the outermost one on, that are as they were, if a walk gets there. */
static uint32_t frames_hold(const struct trail *trail, const struct walk *w)
{
    uint32_t n = trail->top == w->bounds.hi ? trail->n : 0;
    /* The stack ends here now: what is below is not the program's any more. */
    while (n > 0 && trail->frames[n - 1].sp < w->sp)
        n--;
    uint32_t checks = n > 0 ? trail->frames[n - 1].checks : 0, held = 0;
    while (held < checks && stack_load(trail->checks[held].at) == trail->checks[held].value)
        held++;
    while (n > 0 && trail->frames[n - 1].checks > held)
        n--;
    return n;
}

static bool is_at(const struct walk *w, const struct trail_frame *frame)
{
    return frame->sp == w->sp && frame->pc == w->pc && (!frame->fp_used || frame->fp == w->fp);
}

static void check_add(struct trail *trail, struct trail_frame *frame,
                      const struct trail_check *check)
{
    trail->checks[frame->checks++] = *check;
}

static void frame_add(struct trail *trail, uint32_t number, const struct trail_step *step)
{
    static const struct trail_frame none;
    const struct trail_frame *outer = number > 0 ? &trail->frames[number - 1] : &none;
    struct trail_frame frame = {
        .pc = step->pc,
        .sp = step->sp,
        .fp = step->fp,
        .fp_used = step->fp_used,
        .checks = outer->checks,
        .code_hash = hash_combine(outer->code_hash, step->pc),
    };
    frame.place_hash = hash_combine(hash_combine(outer->place_hash, step->pc), step->sp);
    if (step->fp_used)
        frame.place_hash = hash_combine(frame.place_hash, step->fp);
    if (step->base.at)
        check_add(trail, &frame, &step->base);
    if (step->back.at)
        check_add(trail, &frame, &step->back);
    if (step->saved_used)
        check_add(trail, &frame, &step->saved);
    trail->frames[number] = frame;
}

/* Frames may have three checks, but hardly any has: there is room for two each. */
static bool has_room(const struct trail *trail, const struct walk *w, uint32_t kept)
{
    uint32_t checks = kept > 0 ? trail->frames[kept - 1].checks : 0;
    for (uint32_t i = 0; i < w->n; i++)
        checks += 1u + w->steps[i].saved_used + (w->steps[i].base.at != 0);
    return kept + w->n <= TRAIL_FRAMES_MAX && checks <= TRAIL_CHECKS_MAX;
}

int trail_walk(struct trail *trail, struct unwind_cache *cache, const struct unwind_state *from,
               uint32_t *ret_kept)
{
    struct walk w = {
        .cache = cache,
        .pc = from->pc,
        .sp = from->sp,
        .fp = from->fp,
        .fp_from = -1,
        .verified = {1}, /* number 0 stands for all that are never unloaded */
        .steps = trail->steps,
    };
    if (!ARCH_RA_BELOW_CFA || from->leave || !stack_own_find(from->sp, &w.bounds))
        return -ENOTSUP;
    uint32_t kept = frames_hold(trail, &w);
    for (;;) {
        while (kept > 0 && trail->frames[kept - 1].sp < w.sp)
            kept--;
        if (kept > 0 && is_at(&w, &trail->frames[kept - 1])) {
            if (trail->frames[kept - 1].fp_used)
                fp_use(&w, w.n);
            break;
        }
        if (w.n == TRAIL_FRAMES_MAX)
            return -E2BIG;
        int r = step(&w);
        if (r < 0)
            return r;
        if (r > 0) {
            kept = 0;
            break;
        }
    }
    if (!has_room(trail, &w, kept))
        return -E2BIG;
    trail->n = 0; /* while it is not whole */
    fence_signal();
    trail->top = w.bounds.hi;
    for (uint32_t i = 0; i < w.n; i++)
        frame_add(trail, kept + i, &w.steps[w.n - 1 - i]);
    fence_signal();
    trail->n = kept + w.n;
    *ret_kept = kept;
    return 0;
}
