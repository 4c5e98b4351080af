/* Unwinding copied stacks. See stack_walk.h. */
#include "observe/stack_walk.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "site/rules.h"

enum {
    PC_MIN = 4096, /* nothing is mapped below: such a return address is an end mark or garbage */
    MAPS_COST_FACTOR = 20,  /* reading maps takes a twentieth of the time at most, */
    MAPS_MISS_FACTOR = 100, /* and a hundredth for addresses that are in no mapping */
};
#define WORD sizeof(uint64_t)

struct walk {
    struct walk_process *process;
    const struct stack_input *input;
    uint64_t lo, hi; /* the copied bytes are [lo, hi) */
    uint64_t pc, sp, fp;
    uint64_t word, raw; /* where pc came from */
    size_t n_returns;   /* saved return addresses without a place that are used up */
    struct walk_stack *out;
    bool beyond;          /* a read failed above the copied bytes */
    bool full;            /* all registers are kept, so that any row can be applied */
    bool missing;         /* a row needed a register that is not kept: start again with `full` */
    struct cfi_regs regs; /* meaningful if full */
};

/* ---- code addresses ---- */

static void trampolines_find(struct walk_process *p)
{
    p->n_trampolines = 0;
    for (uint32_t i = 0; i < p->map.n_ranges && p->n_trampolines < WALK_TRAMPOLINES_MAX; i++) {
        if (p->map.ranges[i].kind != MODULE_RANGE_TRAMPOLINE)
            continue;
        p->trampolines[p->n_trampolines][0] = p->map.ranges[i].start;
        p->trampolines[p->n_trampolines++][1] = p->map.ranges[i].end;
    }
}

int walk_maps_read(struct walk_process *p)
{
    uint64_t now = clock_monotonic_ns();
    int r = module_map_read(&p->map);
    p->figures->maps_read++;
    p->maps_ns = clock_monotonic_ns();
    p->maps_cost_ns = p->maps_ns - now;
    p->changed = false;
    p->gone = r == -ESRCH;
    if (r < 0)
        return r;
    p->maps_number++;
    memset(p->codes, 0, sizeof(p->codes));
    trampolines_find(p);
    return 0;
}

bool walk_maps_refresh(struct walk_process *p, bool miss)
{
    uint64_t age = clock_monotonic_ns() - p->maps_ns;
    bool due = miss || p->changed || age > STACK_MAPS_AGE_NS;
    bool lasting = miss && !p->changed;
    uint64_t least = p->maps_cost_ns * (lasting ? MAPS_MISS_FACTOR : MAPS_COST_FACTOR);
    return !p->gone && due && age >= least && walk_maps_read(p) == 0;
}

/* The rule at an address of a file; 0: it has none. */
static uint32_t rule_of(struct walk_process *p, struct module_file *file, uint64_t vaddr)
{
    struct elf_rule found;
    uint64_t key = (uint64_t)file->number << 40 | (vaddr & ((UINT64_C(1) << 40) - 1));
    struct walk_rule *rule = &p->rules[hash_mix(key) >> (64 - WALK_RULES_BITS)];
    if (rule->key == key && vaddr >> 40 == 0)
        return rule->rule;
    p->figures->rules_made++;
    int r = module_files_rule(p->map.cache, file, vaddr, &found);
    uint32_t made = r < 0 ? 0 : found.rule;
    /* What could not be read now may be later; that there is no rule is lasting. */
    if ((r == 0 || r == -ENOENT) && vaddr >> 40 == 0)
        *rule = (struct walk_rule){key, made};
    return made;
}

static const struct walk_code *code_find_slow(struct walk_process *p, uint64_t pc,
                                              struct walk_code *code)
{
    struct module_range *range = module_map_range(&p->map, pc);
    if (!range && walk_maps_refresh(p, true))
        range = module_map_range(&p->map, pc);
    struct walk_code found = {.pc = pc};
    if (range && range->kind == MODULE_RANGE_FILE)
        found.module = module_map_module(&p->map, range);
    if (found.module && found.module->file)
        found.rule = rule_of(p, found.module->file, pc - found.module->bias);
    *code = found;
    if (!range)
        code->pc = 0; /* it may be mapped next time */
    return code;
}

static inline const struct walk_code *code_find(struct walk_process *p, uint64_t pc)
{
    struct walk_code *code = &p->codes[(pc * HASH_K0) >> (64 - WALK_CODES_BITS)];
    return __builtin_expect(code->pc == pc, 1) ? code : code_find_slow(p, pc, code);
}

static bool is_trampoline(const struct walk_process *p, uint64_t pc)
{
    for (uint32_t i = 0; i < p->n_trampolines; i++)
        if (pc >= p->trampolines[i][0] && pc < p->trampolines[i][1])
            return true;
    return false;
}

/* The address that a trampoline stands for, from those which the probes saved; false: it is not known. */
static bool trampoline_leave(struct walk *w)
{
    const struct stack_input *in = w->input;
    for (size_t i = 0; i < in->n_returns; i++) {
        if (in->returns[i].at == 0 || in->returns[i].at != w->word)
            continue;
        w->pc = in->returns[i].value;
        return true;
    }
    for (; w->n_returns < in->n_returns; w->n_returns++) {
        if (in->returns[w->n_returns].at != 0)
            continue;
        w->pc = in->returns[w->n_returns++].value;
        return true;
    }
    return false;
}

/* ---- steps ---- */

static inline bool walk_read(struct walk *w, uint64_t addr, uint64_t *ret_value)
{
    if (__builtin_expect(addr < w->lo || addr >= w->hi || w->hi - addr < WORD, 0)) {
        w->beyond = w->beyond || addr >= w->lo;
        return false;
    }
    memcpy(ret_value, w->input->bytes + (addr - w->lo), WORD);
    return true;
}

/* Go to the caller's frame, whose return address lies at `word`. */
static inline bool walk_move(struct walk *w, uint64_t word, uint64_t pc, uint64_t sp, uint64_t fp)
{
    if (pc < PC_MIN) {
        w->out->complete = w->out->complete || pc == 0;
        return false;
    }
    w->pc = w->raw = pc;
    w->word = word;
    w->sp = sp;
    w->fp = fp;
    return true;
}

/* Code without tables (JIT, assembler): believe the frame pointer if it points into this stack. */
static bool step_frame_pointer(struct walk *w)
{
    uint64_t fp = w->fp, pc, next;
    if (w->full || fp < w->sp || fp % WORD != 0 || !walk_read(w, fp + WORD, &pc) ||
        !walk_read(w, fp, &next))
        return false;
    return walk_move(w, fp + WORD, pc, fp + 2 * WORD, next);
}

/* Apply a rule of any form but RULE_FULL. */
static inline bool step_rule(struct walk *w, uint32_t rule)
{
    uint64_t sp = w->sp, fp = w->fp, cfa = sp + rule_cfa(rule), pc;
    unsigned saved = rule_fp(rule);
    switch (rule_base(rule)) {
    case RULE_SPECIAL:
        w->out->complete = true;
        return false;
    case RULE_FP:
        cfa = fp + rule_cfa(rule);
        break;
    case RULE_FP_DEREF:
        if (fp - rule_cfa(rule) < sp || !walk_read(w, fp - rule_cfa(rule), &cfa))
            return false;
        break;
    }
    if (cfa <= sp || cfa % WORD != 0 || !walk_read(w, cfa - WORD, &pc))
        return false;
    if (saved != RULE_FP_SAME &&
        !walk_read(w, saved == RULE_FP_AT_FP ? fp : cfa - saved * WORD, &fp))
        return false;
    return walk_move(w, cfa - WORD, pc, cfa, fp);
}

/* Apply the row itself. */
static bool step_full(struct walk *w, const struct module *module)
{
    struct elf_frame frame = {0};
    const struct elf_stack stack = {w->lo, w->input->bytes, (uint32_t)(w->hi - w->lo)};
    if (w->full)
        frame.regs = w->regs;
    frame.regs.r[ARCH_REG_SP] = w->sp;
    frame.regs.r[ARCH_REG_FP] = w->fp;
    frame.regs.valid |= 1u << ARCH_REG_SP | 1u << ARCH_REG_FP;
    int r = module_files_step(w->process->map.cache, module->file, w->pc - 1 - module->bias, &stack,
                              &frame);
    w->beyond |= frame.beyond;
    if (r == -ENODATA)
        w->out->complete = true;
    if (r == -EAGAIN && !w->full)
        w->missing = true;
    if (r < 0)
        return false;
    struct cfi_regs *regs = &frame.regs;
    if (!(regs->valid & 1u << ARCH_REG_FP))
        regs->r[ARCH_REG_FP] = 0;
    uint64_t sp = regs->r[ARCH_REG_SP], word = 0, value;
    if (sp <= w->sp && !frame.signal_frame && !frame.cfa_is_expression)
        return false;
    if (sp - WORD >= w->lo && sp - WORD < w->hi && walk_read(w, sp - WORD, &value) &&
        value == regs->pc)
        word = sp - WORD;
    w->regs = *regs;
    return walk_move(w, word, regs->pc + (frame.signal_frame ? 1 : 0), sp, regs->r[ARCH_REG_FP]);
}

static inline bool step(struct walk *w, const struct walk_code *code)
{
    if (__builtin_expect(code->rule == 0, 0))
        return step_frame_pointer(w);
    return w->full || rule_is_full(code->rule) ? step_full(w, code->module)
                                               : step_rule(w, code->rule);
}

/* ---- the walk ---- */

/* The caller of the probed function: its return address is the first word. */
static bool walk_begin(struct walk *w)
{
    const struct stack_registers *r = &w->input->registers;
    w->pc = w->raw = 0;
    w->n_returns = 0;
    w->beyond = w->missing = false;
    w->out->n = 0;
    w->out->flags = 0;
    w->out->complete = false;
    w->word = r->rsp;
    w->sp = r->rsp + WORD;
    w->fp = r->rbp;
#if defined(__x86_64__)
    if (w->full) { /* as DWARF numbers them */
        w->regs = (struct cfi_regs){
            .r = {[3] = r->rbx,
                  [6] = r->rbp,
                  [7] = w->sp,
                  [12] = r->r12,
                  [13] = r->r13,
                  [14] = r->r14,
                  [15] = r->r15},
            .valid = ARCH_CAPTURED,
        };
    }
#endif
    if (!walk_read(w, r->rsp, &w->pc))
        return false;
    w->raw = w->pc;
    return w->pc >= PC_MIN;
}

/* True if it ended in order or was cut, false if it was lost. */
static bool walk_run(struct walk *w)
{
    struct walk_stack *out = w->out;
    if (!walk_begin(w))
        return false;
    for (;;) {
        uint64_t raw = w->pc;
        const struct walk_code *code = code_find(w->process, w->pc - 1);
        if (__builtin_expect(!code->module, 0) && is_trampoline(w->process, w->pc)) {
            if (!trampoline_leave(w) || w->pc < PC_MIN)
                return false;
            code = code_find(w->process, w->pc - 1);
        }
        out->frames[out->n++] = (struct walk_frame){
            .pc = w->pc, .sp = w->sp, .word = w->word, .raw = raw, .module = code->module};
        if (out->n == WALK_FRAMES_MAX) {
            out->flags |= STACK_CUT;
            return true;
        }
        if (!step(w, code))
            return out->complete;
    }
}

void walk_stack(struct walk_process *process, const struct stack_input *input,
                struct walk_stack *ret_stack)
{
    uint64_t n = input->n_bytes < STACK_BYTES_MAX ? input->n_bytes : STACK_BYTES_MAX;
    struct walk w = {
        .process = process,
        .input = input,
        .lo = input->registers.rsp,
        .out = ret_stack,
    };
    if (w.lo > UINT64_MAX - STACK_BYTES_MAX - 4096)
        n = 0;
    w.hi = w.lo + n;
    bool done = walk_run(&w);
    if (!done && w.missing) {
        w.full = true;
        done = walk_run(&w);
    }
    if (!done)
        ret_stack->flags |= w.beyond ? STACK_CUT : STACK_CUT | STACK_LOST;
}

struct module *walk_caller(struct walk_process *process, uint64_t pc, uint32_t *ret_up)
{
    struct elf_rule found;
    struct module *module = pc < PC_MIN ? NULL : code_find(process, pc - 1)->module;
    *ret_up = 0;
    if (module && module->file &&
        module_files_rule(process->map.cache, module->file, pc - 1 - module->bias, &found) == 0)
        *ret_up = found.up;
    return module;
}
