/* recall.c: see recall.h. */
#include "track/recall.h"

#include <link.h>
#include <string.h>
#include <sys/auxv.h>

#include "base/hash.h"
#include "site/module.h"
#include "site/module_symbol.h"
#include "site/rules.h"
#include "track/sample.h"
#include "track/track.h"

enum { CHAIN_MAX = 1024 };

/* Of entries: what Python was at. Any other number is a hash of lines and of where their frames are. */
enum {
    SCRIPT_UNKNOWN = 0, /* no interpreter was known then */
    SCRIPT_NONE = 1,    /* none of its calls is on the stack */
};

/* ---- Python ---- */

/* Nothing of an interpreter is read unless it is on our stack: else it may be gone, or take away what belongs to this
 * thread. That a return address into it is where one was says enough for that. */
static bool script_is_near(const struct recall *recall, uintptr_t sp)
{
    uintptr_t at = recall->python.at;
    return at >= sp && at < stack_own_top() && stack_load(at) == recall->python.value &&
           recall->python_closes == load_relaxed(&track_closes);
}

/* The lines that this thread's calls of Python are at; false if one of them has to be read first. */
static bool script_now(struct track_thread *t, uintptr_t sp, uint64_t *ret_script)
{
    const struct python *py = &t->tracker->python;
    struct python_stack *calls = &t->recall.calls;
    if (!python_ready(py)) {
        *ret_script = SCRIPT_UNKNOWN;
        return !t->tracker->interpreter;
    }
    *ret_script = SCRIPT_NONE;
    if (!script_is_near(&t->recall, sp) || !python_stack_get(py, calls))
        return true;
    uint64_t hash = calls->cut;
    uint32_t f = 0;
    for (uint32_t r = 0; r < calls->n_runs; r++) {
        hash = hash_combine(hash, calls->runs[r].stack);
        for (; f < calls->runs[r].end; f++) {
            uint64_t frame = script_frame_known(&t->script, py, &calls->frames[f]);
            if (frame == 0)
                return false;
            hash = hash_combine(hash, frame);
        }
    }
    *ret_script = hash | 2;
    return true;
}

/* ---- stacks that are known ---- */

/* Where to look for a stack. First by its caller; but many a program has one function through which it calls malloc(), so
 * that stacks of the same caller at the same place are many: those lie where the callers further out say. */
static struct recall_entry *set_of(struct recall *recall, uintptr_t caller, uintptr_t sp,
                                   uint64_t script)
{
    uint64_t hash = ((caller ^ script) + (sp << 20)) * HASH_K0;
    return recall->set[hash >> (64 - RECALL_BITS)];
}

/* What is read here only decides where to look: it need not be right, but must be the same each time. */
static uint64_t callers_hash(struct track_thread *t, uintptr_t caller, uintptr_t sp)
{
    const struct recall *recall = &t->recall;
    uintptr_t top = stack_own_top(), at = 0, pc = caller;
    for (int i = 0; i < RECALL_OWN && at == 0; i++) {
        uintptr_t place = sp + recall->own[i] * sizeof(uintptr_t);
        if (place < top && stack_load(place) == caller)
            at = place;
    }
    uint64_t hash = 0;
    for (int i = 0; i < RECALL_CALLERS && at != 0; i++) {
        uint32_t rule = rule_find(&t->tracker->unwind, pc - 1);
        at += rule_cfa(rule);
        if (rule == 0 || rule_base(rule) != RULE_SP || at >= top)
            break;
        pc = stack_load(at);
        hash = hash_fold_(hash ^ pc, HASH_K0);
    }
    return hash;
}

static struct recall_entry *set_beside(struct track_thread *t, uintptr_t caller, uintptr_t sp,
                                       uint64_t script)
{
    return set_of(&t->recall, caller, sp, script + callers_hash(t, caller, sp));
}

/* Are both ways taken by other stacks of that caller at that place? */
static bool is_crowded(const struct recall_entry *set, uintptr_t pc, uintptr_t sp)
{
    return set[0].pc == pc && set[0].sp == sp && set[1].pc == pc && set[1].sp == sp;
}

static bool is_outside(const struct trail *trail, const struct recall_entry *entry)
{
    const struct trail_frame *frame = &trail->frames[entry->kept - 1];
    return entry->kept <= trail->n && frame->place_hash == entry->outer &&
           trail_hold(trail->checks, frame->checks);
}

static bool is_same(const struct recall *recall, const struct recall_entry *entry,
                    const struct unwind_state *from, uint64_t script)
{
    return entry->pc == from->pc && entry->sp == from->sp && entry->script == script &&
           entry->closes == load_relaxed(&track_closes) && entry->top == stack_own_top() &&
           (!entry->fp_used || entry->fp == from->fp) && trail_hold(entry->checks, entry->n) &&
           (entry->kept == 0 || is_outside(&recall->trail, entry));
}

static inline const struct recall_entry *entry_of(const struct recall *recall,
                                                  const struct recall_entry *set,
                                                  const struct unwind_state *from, uint64_t script)
{
    static_assert(RECALL_WAYS == 2, "here and in is_crowded()");
    if (is_same(recall, &set[0], from, script))
        return &set[0];
    return is_same(recall, &set[1], from, script) ? &set[1] : NULL;
}

__attribute__((noinline)) bool recall_quickly(struct track_thread *t, uintptr_t caller,
                                              struct recall_found *ret_found,
                                              struct unwind_state *ret_from)
{
    struct recall *recall = &t->recall;
    struct unwind_state from = UNWIND_STATE_CALLER();
    uint64_t script, use = ++recall->uses;
    *ret_from = from;
    fence_signal();
    if (unlikely(t->inside) || unlikely(!stack_is_own(from.sp)) ||
        unlikely(!script_now(t, from.sp, &script)))
        return false;
    const struct recall_entry *set = set_of(recall, caller, from.sp, script);
    const struct recall_entry *found = entry_of(recall, set, &from, script);
    if (!found && is_crowded(set, from.pc, from.sp))
        found = entry_of(recall, set_beside(t, caller, from.sp, script), &from, script);
    if (!found)
        return false;
    ret_found->counters = found->counters;
    ret_found->site = found->site;
    fence_signal();
    /* A handler that came meanwhile and allocated may have changed what was compared. */
    return likely(recall->uses == use);
}

/* ---- stacks that are not ---- */

/* Frames of the trail less our own, which are the innermost ones. */
static uint32_t frames_outside(const struct trail *trail)
{
    uintptr_t start, end;
    sample_own_code(&start, &end);
    uint32_t n = trail->n;
    while (n > 0 && trail->frames[n - 1].pc > start && trail->frames[n - 1].pc <= end)
        n--;
    return n;
}

/* Copy the first `n` frames of the trail to where frames of Python are joined to them. Is it on the stack? */
static bool script_prepare(struct track_thread *t, uint32_t n)
{
    const struct trail *trail = &t->recall.trail;
    const struct python *py = &t->tracker->python;
    struct script_thread *s = &t->script;
    for (uint32_t i = 0; i < n; i++) {
        s->pcs[i] = trail->frames[n - 1 - i].pc;
        s->sps[i] = trail->frames[n - 1 - i].sp;
    }
    if (!python_on_stack(py, s->pcs, n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        if (s->pcs[i] <= py->facts.map_start || s->pcs[i] > py->facts.map_end)
            continue;
        t->recall.python = (struct trail_check){s->sps[i] - sizeof(uintptr_t), s->pcs[i]};
        t->recall.python_closes = load_relaxed(&track_closes);
    }
    return true;
}

/* The site of the first `n` frames of the trail, with lines of Python; *ret_script is what an entry needs to know of them,
 * SCRIPT_UNKNOWN if there must be none. */
static uint32_t site_of_script(struct track_thread *t, uint32_t n, uintptr_t sp,
                               uint64_t *ret_script)
{
    struct tracker *tracker = t->tracker;
    struct recall *recall = &t->recall;
    struct unwind_trace trace = {.flags = UNWIND_COMPLETE};
    if (n > SCRIPT_NATIVE_MAX)
        return BOOK_SITE_NONE;
    bool near = script_prepare(t, n);
    n = (uint32_t)script_join(&tracker->writer, &t->book, &t->script, &tracker->python, n,
                              recall->stack, BOOK_SITE_FRAMES_MAX, &trace);
    uint64_t script = SCRIPT_NONE;
    if (near && (!script_now(t, sp, &script) || script == SCRIPT_NONE))
        script = SCRIPT_UNKNOWN;
    *ret_script = script;
    return book_site_add(&tracker->writer, &t->book, tracker->account, recall->stack, n,
                         trace.flags & UNWIND_CUT ? BOOK_SITE_CUT : 0);
}

/* The same without. */
static uint32_t site_of_native(struct track_thread *t, uint32_t n, uint32_t flags)
{
    struct tracker *tracker = t->tracker;
    struct recall *recall = &t->recall;
    uint64_t key = recall->trail.frames[n - 1].code_hash, identity = UINT64_MAX ^ recall->closes;
    struct track_stack *entry = &t->stacks[key >> (64 - TRACK_STACKS_BITS)];
    if (entry->key == key && entry->identity == identity)
        return entry->site;
    struct trail_frame *frames = recall->trail.frames;
    for (uint32_t i = 0; i < n; i++) {
        recall->stack[i] = frames[n - 1 - i].pc;
        recall->places[i] = frames[n - 1 - i].tag;
    }
    python_find(&tracker->python, recall->stack, n);
    if (python_ready(&tracker->python))
        return BOOK_SITE_NONE; /* the first of an interpreter: its lines come by other means */
    uint32_t site = book_site_add_at(&tracker->writer, &t->book, tracker->account, recall->stack, n,
                                     flags, recall->places);
    for (uint32_t i = 0; i < n; i++)
        frames[n - 1 - i].tag = recall->places[i];
    if (site != BOOK_SITE_NONE) /* else it may be for a moment only */
        *entry = (struct track_stack){key, identity, site};
    return site;
}

/* How many frames of the trail an entry can leave to it: those that stayed from the walk before, since what they
 * are common to comes next; fewer if it can have more itself, more if it must. */
static uint32_t frames_left(const struct trail *trail, uint32_t kept)
{
    uint32_t all = trail->frames[trail->n - 1].checks;
    if (all <= RECALL_CHECKS)
        return 0;
    while (kept == 0 || all - trail->frames[kept - 1].checks > RECALL_CHECKS)
        kept++;
    return kept;
}

/* All but the last things, which recall_keep() knows. */
static void entry_prepare(struct track_thread *t, uintptr_t caller, const struct unwind_state *from,
                          uint32_t kept, uint64_t script)
{
    struct recall *recall = &t->recall;
    const struct trail *trail = &recall->trail;
    struct recall_entry *set = set_of(recall, caller, from->sp, script);
    if (is_crowded(set, from->pc, from->sp))
        set = set_beside(t, caller, from->sp, script);
    struct recall_entry *entry = &set[recall->next++ % RECALL_WAYS];
    kept = frames_left(trail, kept);
    uint32_t first = kept > 0 ? trail->frames[kept - 1].checks : 0;
    entry->pc = 0;
    fence_signal();
    entry->sp = from->sp;
    entry->fp = from->fp;
    entry->fp_used = trail->frames[trail->n - 1].fp_used;
    entry->top = trail->top;
    entry->script = script;
    entry->outer = kept > 0 ? trail->frames[kept - 1].place_hash : 0;
    entry->closes = recall->closes;
    entry->kept = (uint16_t)kept;
    entry->n = (uint8_t)(trail->frames[trail->n - 1].checks - first);
    memcpy(entry->checks, trail->checks + first, entry->n * sizeof(entry->checks[0]));
    recall->fresh_pc = from->pc;
    recall->fresh = entry;
}

/* Note how far from where walks begin our caller's return address is. */
static void own_learn(struct recall *recall, uintptr_t from, uintptr_t caller_sp)
{
    uint32_t words = (uint32_t)((caller_sp - from) / sizeof(uintptr_t)) - 1;
    for (int i = 0; i < RECALL_OWN; i++)
        if (recall->own[i] == words)
            return;
    recall->own[recall->own_next++ % RECALL_OWN] = words;
}

/* Bring the trail up to date: frames that are not our own, of which there are at least some; 0 if it cannot be. */
static uint32_t trail_renew(struct track_thread *t, const struct unwind_state *from,
                            uint32_t *ret_kept)
{
    struct recall *recall = &t->recall;
    uint32_t closes = load_relaxed(&track_closes);
    if (recall->closes != closes) {
        trail_forget(&recall->trail);
        recall->closes = closes;
    }
    if (trail_walk(&recall->trail, &t->tracker->unwind, from, ret_kept) < 0)
        return 0;
    return frames_outside(&recall->trail);
}

uint32_t recall_site(struct track_thread *t, uintptr_t caller, const struct unwind_state *from)
{
    struct recall *recall = &t->recall;
    uint32_t kept;
    recall->fresh = NULL;
    uint32_t n = from ? trail_renew(t, from, &kept) : 0;
    bool ready = python_ready(&t->tracker->python);
    uint64_t script = SCRIPT_UNKNOWN;
    uint32_t site = BOOK_SITE_NONE;
    if (n > 0)
        site = ready ? site_of_script(t, n, from->sp, &script) : site_of_native(t, n, 0);
    if (site == BOOK_SITE_NONE)
        return sample_stack_site(t, 0);
    recall_verify(t, site, from, 0, false);
    own_learn(recall, from->sp, recall->trail.frames[n - 1].sp);
    if (ready == (script != SCRIPT_UNKNOWN))
        entry_prepare(t, caller, from, kept, script);
    return site;
}

__attribute__((noinline)) uint32_t recall_sampled_site(struct track_thread *t)
{
    struct unwind_state from = UNWIND_STATE_CALLER();
    struct recall *recall = &t->recall;
    uint32_t kept, n;
    if (python_ready(&t->tracker->python))
        return BOOK_SITE_NONE;
    if (recall->rest > 0) {
        recall->rest--;
        return BOOK_SITE_NONE;
    }
    n = trail_renew(t, &from, &kept);
    if (n == 0 || n > BOOK_SITE_FRAMES_MAX) {
        recall->rest = RECALL_REST;
        return BOOK_SITE_NONE;
    }
    uint32_t site = site_of_native(t, n, BOOK_SITE_SAMPLED);
    if (site != BOOK_SITE_NONE)
        recall_verify(t, site, &from, BOOK_SITE_SAMPLED, false);
    return site;
}

void recall_keep(struct track_thread *t, uint32_t site)
{
    struct recall_entry *entry = t->recall.fresh;
    struct book_site_counters *page = t->book.site_pages[site / BOOK_SITES_PER_PAGE];
    if (!entry || !page)
        return;
    entry->counters = &page[site % BOOK_SITES_PER_PAGE];
    entry->site = site;
    fence_signal();
    entry->pc = t->recall.fresh_pc;
    t->recall.fresh = NULL;
}

/* What comes before the loader's own entry was there from the start, and stays: no lock is needed. */
bool recall_interpreter(void)
{
    struct module_object object;
    struct module_symbol symbol;
    if (module_object_find(getauxval(AT_BASE), &object) < 0)
        return false;
    const struct link_map *at = object.map;
    for (int n = 0; at && n < CHAIN_MAX; n++, at = at->l_prev)
        if (module_object_find((uintptr_t)at->l_ld, &object) == 0 &&
            module_symbol_find(&object, "Py_IsInitialized", &symbol) == 0)
            return true;
    return false;
}
