/* Stack walks: the fast path over cached rules, and the slow ones behind it. */
#include "site/unwind.h"

#include <errno.h>

#include "base/hash.h"
#include "site/rules.h"
#include "site/stack.h"

enum {
    PC_MIN = 4096, /* nothing is mapped below: such a return address is an end mark or garbage */
    INNER_FRAMES_MAX = 64 /* frames between a full walk's start and the state it looks for */
};

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

struct walk {
    struct unwind_cache *cache; /* may be NULL */
    struct stack_bounds bounds; /* of the stack that sp is on */
    /* The frame the walk stands in; pc is a return address (or an exact one plus 1). */
    uintptr_t pc;
    uintptr_t sp;
    uintptr_t fp;
    uint64_t verified[4]; /* modules (bit numbers) found unchanged in this walk */
    struct unwind_trace trace;
    bool fp_only;         /* sp was lost: only frame pointers lead on */
    bool full;            /* regs are kept for every frame, so that any rule can be applied */
    bool missing;         /* a rule needed a register that is not kept: start again with `full` */
    struct cfi_regs regs; /* meaningful if full */
};

static bool module_known(const uint64_t verified[4], unsigned module)
{
    return module == 0 || (verified[module >> 6] >> (module & 63) & 1);
}

static void module_note(struct walk *w, unsigned module, uint64_t identity)
{
    if (module_known(w->verified, module))
        return;
    w->verified[module >> 6] |= UINT64_C(1) << (module & 63);
    w->trace.identity = hash_combine(w->trace.identity, identity);
}

static bool walk_has(struct walk *w, uintptr_t addr)
{
    return stack_has_word(&w->bounds, addr) || stack_reach(&w->bounds, addr);
}

/* For the interpreter: mostly the stack, but signal frames and assembler may point elsewhere. */
static bool walk_read(void *context, uintptr_t addr, uintptr_t *ret_value)
{
    if (!walk_has(context, addr) && !stack_probe(addr, sizeof(uintptr_t)))
        return false;
    *ret_value = stack_load(addr);
    return true;
}

/* Go to the caller's frame; false if that cannot be one. */
static bool walk_move(struct walk *w, uintptr_t pc, uintptr_t sp, uintptr_t fp)
{
    if (pc < PC_MIN)
        return false;
    w->pc = pc;
    w->sp = sp;
    w->fp = fp;
    if (sp < w->bounds.lo || sp >= w->bounds.hi)
        stack_bounds_find(sp, &w->bounds);
    return true;
}

/* Code without tables (JIT, assembler): believe the frame pointer if it points into this stack. */
static bool step_frame_pointer(struct walk *w)
{
    uintptr_t fp = w->fp;
    w->trace.flags |= UNWIND_UNSTABLE;
    if (w->full || fp < w->sp || fp % sizeof(uintptr_t) != 0 ||
        !walk_has(w, fp + sizeof(uintptr_t)))
        return false;
    w->fp_only = !ARCH_RA_BELOW_CFA;
    return walk_move(w, arch_strip_pc(stack_load(fp + sizeof(uintptr_t))),
                     fp + 2 * sizeof(uintptr_t), stack_load(fp));
}

/* Apply a row with the interpreter. */
static bool step_full(struct walk *w, const struct rule_source *source)
{
    struct cfi_regs regs = {.valid = 0};
    if (w->full)
        regs = w->regs;
    regs.r[ARCH_REG_SP] = w->sp;
    regs.r[ARCH_REG_FP] = w->fp;
    regs.valid |= 1u << ARCH_REG_SP | 1u << ARCH_REG_FP;
    regs.pc = w->pc - 1;
    uintptr_t old_sp = w->sp;
    int r = cfi_step(&source->section, &source->row, walk_read, w, &regs);
    if (r == -ENODATA)
        w->trace.flags |= UNWIND_COMPLETE;
    if (r == -EAGAIN && !w->full)
        w->missing = true;
    if (r < 0)
        return false;
    if (!(regs.valid & 1u << ARCH_REG_FP))
        regs.r[ARCH_REG_FP] = 0;
    uintptr_t sp = regs.r[ARCH_REG_SP];
    /* A stack only leads outwards, except that a signal may have come in on a stack of its own and
     * hand-written code may switch stacks. A frame of no size is no progress. */
    if (sp <= old_sp && !source->row.signal_frame && !source->row.cfa_is_expression &&
        !(sp == old_sp && regs.pc != w->pc && !ARCH_RA_BELOW_CFA))
        return false;
    w->regs = regs;
    return walk_move(w, regs.pc + (source->row.signal_frame ? 1 : 0), sp, regs.r[ARCH_REG_FP]);
}

/* Apply a rule of any form but RULE_FULL. */
static bool step_rule(struct walk *w, uint32_t rule)
{
    uintptr_t sp = w->sp, fp = w->fp, cfa = sp + rule_cfa(rule);
    unsigned saved = rule_fp(rule);
    switch (rule_base(rule)) {
    case RULE_SPECIAL:
        w->trace.flags |= UNWIND_COMPLETE;
        return false;
    case RULE_FP:
        cfa = fp + rule_cfa(rule);
        break;
    case RULE_FP_DEREF:
        if (fp - rule_cfa(rule) < sp || !walk_has(w, fp - rule_cfa(rule)))
            return false;
        cfa = stack_load(fp - rule_cfa(rule));
        break;
    }
    uintptr_t below = cfa - sizeof(uintptr_t);
    if (cfa <= sp || cfa % sizeof(uintptr_t) != 0 || !walk_has(w, below))
        return false;
    uintptr_t slot = saved == RULE_FP_AT_FP ? fp : cfa - saved * sizeof(uintptr_t);
    if (saved != RULE_FP_SAME && !walk_read(w, slot, &fp))
        return false;
    uintptr_t ra = ARCH_RA_BELOW_CFA ? below : slot + sizeof(uintptr_t);
    return walk_move(w, arch_strip_pc(stack_load(ra)), cfa, fp);
}

/* Where tables cannot describe a signal's frame: is this the trampoline, and who was interrupted? */
static bool step_signal(struct walk *w)
{
    struct cfi_regs regs = {.valid = UINT32_MAX};
    uintptr_t at = w->sp + ARCH_SIGNAL_REGS_AT;
    if (w->pc % 4 != 0 || !stack_probe(w->pc, 8) || !arch_is_sigreturn((const uint32_t *)w->pc))
        return false;
    for (int i = 0; i < ARCH_REG_COUNT; i++)
        if (!walk_read(w, at + (uintptr_t)i * sizeof(uintptr_t), &regs.r[i]))
            return false;
    if (!walk_read(w, at + ARCH_REG_COUNT * sizeof(uintptr_t), &regs.pc))
        return false;
    w->regs = regs;
    w->fp_only = false;
    return walk_move(w, regs.pc + 1, regs.r[ARCH_REG_SP], regs.r[ARCH_REG_FP]);
}

/* One step by the tables themselves; fills the cache. */
static __attribute__((noinline)) bool step_miss(struct walk *w)
{
    struct rule_source source;
    uintptr_t pc = w->pc - 1;
    if (ARCH_SIGNAL_REGS_AT != 0 && step_signal(w))
        return true;
    int r = rule_source_find(w->cache, pc, &source);
    if (r < 0)
        return step_frame_pointer(w);
    uint32_t rule = rule_make(w->cache, pc, &source);
    if (!source.cacheable)
        w->trace.flags |= UNWIND_UNSTABLE;
    else if (source.module != 0)
        module_note(w, source.module, rule_source_identity(&source));
    return w->full || rule_is_full(rule) ? step_full(w, &source) : step_rule(w, rule);
}

/* Whatever the fast path does not do itself. */
static __attribute__((noinline)) bool step_slow(struct walk *w)
{
    if (w->fp_only)
        return (ARCH_SIGNAL_REGS_AT != 0 && step_signal(w)) || step_frame_pointer(w);
    uint32_t rule = w->cache && !w->full ? rule_find(w->cache, w->pc - 1) : 0;
    if (rule == 0)
        return step_miss(w);
    unsigned module = rule_module(rule);
    if (!module_known(w->verified, module)) {
        uint64_t identity;
        if (!rule_module_verify(w->cache, module, w->pc - 1, &identity))
            return step_miss(w);
        module_note(w, module, identity);
    }
    return rule_is_full(rule) ? step_miss(w) : step_rule(w, rule);
}

/* One frame over a cached rule, for the common forms; false leaves everything as it was. */
static inline bool step_fast(const struct walk *w, uintptr_t *pc, uintptr_t *sp, uintptr_t *fp)
{
    const uintptr_t word = sizeof(uintptr_t);
    uint32_t rule = rule_find(w->cache, *pc - 1);
    unsigned saved = rule_fp(rule);
    uintptr_t cfa = rule_cfa(rule);
    /* A branch rather than a choice: the processor guesses it and need not wait. */
    if (rule_base(rule) == RULE_SP)
        cfa += *sp;
    else if (rule_base(rule) == RULE_FP)
        cfa += *fp;
    else
        return false;
    /* The slot may be below sp: at the end of a function that has popped it, the rule still says so. */
    uintptr_t slot = cfa - saved * word;
    if (unlikely(cfa <= *sp || cfa > w->bounds.hi || cfa % word != 0 || slot < w->bounds.lo ||
                 saved == RULE_FP_AT_FP || !module_known(w->verified, rule_module(rule))))
        return false;
    if (saved != RULE_FP_SAME)
        *fp = stack_load(slot);
    *sp = cfa;
    *pc = arch_strip_pc(stack_load(ARCH_RA_BELOW_CFA ? cfa - word : slot + word));
    return true;
}

/* The loop that matters: two dependent loads a frame. Whatever is unusual, unverified or out of
 * bounds goes to step_slow(), which checks again from the start. `sps` may be NULL: compiled twice. */
static inline __attribute__((always_inline)) size_t walk_loop(struct walk *w, uintptr_t *pcs,
                                                              uintptr_t *sps, size_t max)
{
    uintptr_t pc = w->pc, sp = w->sp, fp = w->fp;
    bool fast = w->cache && !w->full && !w->fp_only;
    size_t n = 0;
    while (pc >= PC_MIN) {
        /* Keeps compilers from packing pc and sp into one vector register, which is slow to leave. */
        __asm__("" : "+r"(pc), "+r"(sp));
        if (sps)
            sps[n] = sp;
        pcs[n++] = pc;
        if (n == max) {
            w->trace.flags |= UNWIND_CUT;
            break;
        }
        if (likely(fast && step_fast(w, &pc, &sp, &fp)))
            continue;
        w->pc = pc;
        w->sp = sp;
        w->fp = fp;
        if (!step_slow(w))
            break;
        pc = w->pc;
        sp = w->sp;
        fp = w->fp;
        fast = w->cache && !w->full && !w->fp_only;
    }
    return n;
}

static size_t walk_run(struct walk *w, uintptr_t *pcs, uintptr_t *sps, size_t max)
{
    return sps ? walk_loop(w, pcs, sps, max) : walk_loop(w, pcs, NULL, max);
}

static void walk_init(struct walk *w, struct unwind_cache *cache, const struct unwind_state *from)
{
    w->cache = cache;
    w->pc = from->pc;
    w->sp = from->sp;
    w->fp = from->fp;
    for (int i = 0; i < 4; i++)
        w->verified[i] = 0;
    w->trace = (struct unwind_trace){0};
    w->fp_only = w->full = w->missing = false;
    stack_bounds_find(from->sp, &w->bounds);
}

/* Some rule needs a register that the fast walk does not carry. Take all registers here, inside our
 * own code, and unwind with the tables alone until the frame where the walk was to start. */
static __attribute__((noinline)) bool walk_init_full(struct walk *w, struct unwind_cache *cache,
                                                     const struct unwind_state *from)
{
    uintptr_t pc;
    walk_init(w, cache, from);
    ARCH_CAPTURE(w->regs.r, pc);
    w->regs.valid = ARCH_CAPTURED;
    w->full = true;
    w->pc = pc + 1;
    w->sp = w->regs.r[ARCH_REG_SP];
    w->fp = w->regs.r[ARCH_REG_FP];
    for (int i = 0; i < INNER_FRAMES_MAX; i++) {
        if (w->sp == from->sp && w->pc == from->pc)
            return true;
        if (!step_slow(w))
            return false;
    }
    return false;
}

static bool walk_leave(struct walk *w, const struct unwind_state *from)
{
    return !from->leave || step_slow(w);
}

size_t unwind_stack_places(struct unwind_cache *cache, const struct unwind_state *from,
                           uintptr_t *pcs, uintptr_t *sps, size_t max,
                           struct unwind_trace *ret_trace)
{
    struct walk w;
    size_t n = 0;
    walk_init(&w, cache, from);
    if (max > 0 && from->pc >= PC_MIN && walk_leave(&w, from))
        n = walk_run(&w, pcs, sps, max);
    if (unlikely(w.missing)) {
        uint32_t flags = w.trace.flags;
        if (walk_init_full(&w, cache, from) && walk_leave(&w, from))
            n = walk_run(&w, pcs, sps, max);
        else
            w.trace.flags = flags;
    }
    if (ret_trace)
        *ret_trace = w.trace;
    return n;
}

size_t unwind_stack_from(struct unwind_cache *cache, const struct unwind_state *from,
                         uintptr_t *pcs, size_t max, struct unwind_trace *ret_trace)
{
    return unwind_stack_places(cache, from, pcs, NULL, max, ret_trace);
}

__attribute__((noinline)) size_t unwind_stack(struct unwind_cache *cache, uintptr_t *pcs,
                                              size_t max)
{
    struct unwind_state from = UNWIND_STATE_CALLER();
    size_t n = unwind_stack_from(cache, &from, pcs, max, NULL);
    /* Not a tail call: the walk may have to find its start in this very frame's caller. */
    __asm__ volatile("" ::: "memory");
    return n;
}

uint64_t unwind_identity(struct unwind_cache *cache, uintptr_t pc)
{
    uint64_t identity;
    uint32_t rule = cache ? rule_find(cache, pc - 1) : 0;
    unsigned module = rule_module(rule);
    if (rule != 0 && module == 0)
        return 0;
    if (rule != 0 && rule_module_verify(cache, module, pc - 1, &identity))
        return identity;
    /* Not seen yet: make its rule, so that the next time is cheap. */
    struct rule_source source;
    if (rule_source_find(cache, pc - 1, &source) < 0)
        return rule_identity_find(cache, pc - 1);
    rule_make(cache, pc - 1, &source);
    if (!source.cacheable)
        return UINT64_MAX;
    return source.module == 0 ? 0 : rule_source_identity(&source);
}

size_t unwind_frame_pointers(uintptr_t *pcs, size_t max, uintptr_t fp)
{
    struct stack_bounds bounds;
    const uintptr_t record = 2 * sizeof(uintptr_t);
    size_t n = 0;
    stack_bounds_find((uintptr_t)__builtin_frame_address(0), &bounds);
    while (n < max && fp % sizeof(uintptr_t) == 0) {
        /* Code that keeps data in the frame register mostly ends here, with no system call. */
        if (fp < bounds.lo || fp > UINTPTR_MAX - record ||
            (fp + record > bounds.hi && !stack_reach(&bounds, fp + sizeof(uintptr_t))))
            break;
        uintptr_t next = stack_load(fp);
        uintptr_t pc = arch_strip_pc(stack_load(fp + sizeof(uintptr_t)));
        if (pc < PC_MIN)
            break;
        pcs[n++] = pc;
        if (next <= fp)
            break;
        fp = next;
    }
    return n;
}
