/* DWARF expressions, and the step from a frame to its caller.
 *
 * Expressions are rare: signal trampolines, procedure linkage tables, functions that realign their
 * stack, hand-written assembler. The evaluator knows the operations that make sense for frames. */
#include <errno.h>
#include <string.h>

#include "site/cfi.h"

struct machine {
    uintptr_t stack[CFI_EXPRESSION_DEPTH];
    unsigned depth;
    bool bad; /* stack under- or overflow, unknown register */
    bool missing;
};

static void push(struct machine *m, uintptr_t v)
{
    if (m->depth == CFI_EXPRESSION_DEPTH)
        m->bad = true;
    else
        m->stack[m->depth++] = v;
}

static uintptr_t pop(struct machine *m)
{
    if (m->depth == 0) {
        m->bad = true;
        return 0;
    }
    return m->stack[--m->depth];
}

static uintptr_t peek(struct machine *m, unsigned below)
{
    if (below >= m->depth) {
        m->bad = true;
        return 0;
    }
    return m->stack[m->depth - 1 - below];
}

static uintptr_t register_value(struct machine *m, const struct cfi_regs *regs, uint64_t reg)
{
    if (reg >= ARCH_REG_COUNT) {
        m->bad = true;
        return 0;
    }
    if (reg == ARCH_REG_RA && ARCH_RA_BELOW_CFA) /* there the column stands for the code address */
        return regs->pc;
    if (!(regs->valid & (1u << reg)))
        m->missing = true;
    return regs->r[reg];
}

static int arithmetic(struct machine *m, uint8_t op)
{
    uintptr_t b = pop(m), a = pop(m);
    intptr_t sa = (intptr_t)a, sb = (intptr_t)b;
    bool tiny = b < 64;
    switch (op) {
    case 0x1a: /* and */
        push(m, a & b);
        return 0;
    case 0x1b: /* div */
        if (sb == 0 || (sb == -1 && sa == INTPTR_MIN))
            return -EBADMSG;
        push(m, (uintptr_t)(sa / sb));
        return 0;
    case 0x1c: /* minus */
        push(m, a - b);
        return 0;
    case 0x1d: /* mod */
        if (b == 0)
            return -EBADMSG;
        push(m, a % b);
        return 0;
    case 0x1e: /* mul */
        push(m, a * b);
        return 0;
    case 0x21: /* or */
        push(m, a | b);
        return 0;
    case 0x22: /* plus */
        push(m, a + b);
        return 0;
    case 0x24: /* shl */
        push(m, tiny ? a << b : 0);
        return 0;
    case 0x25: /* shr */
        push(m, tiny ? a >> b : 0);
        return 0;
    case 0x26: /* shra */
        push(m, (uintptr_t)(sa >> (tiny ? b : 63)));
        return 0;
    case 0x27: /* xor */
        push(m, a ^ b);
        return 0;
    case 0x29: /* eq, ge, gt, le, lt, ne */
        push(m, sa == sb);
        return 0;
    case 0x2a:
        push(m, sa >= sb);
        return 0;
    case 0x2b:
        push(m, sa > sb);
        return 0;
    case 0x2c:
        push(m, sa <= sb);
        return 0;
    case 0x2d:
        push(m, sa < sb);
        return 0;
    case 0x2e:
        push(m, sa != sb);
        return 0;
    default:
        return -ENOTSUP;
    }
}

static int dereference(const struct cfi_expression *e, struct machine *m, unsigned bytes)
{
    uintptr_t v;
    uintptr_t addr = pop(m);
    if (bytes == 0 || bytes > sizeof(v))
        return -EBADMSG;
    /* An unknown register cannot make an address; the caller tries again with more registers. */
    if (m->missing)
        return -EAGAIN;
    if (m->bad || !e->read(e->context, addr, &v))
        return -EFAULT;
    if (bytes < sizeof(v))
        v &= ((uintptr_t)1 << (8 * bytes)) - 1;
    push(m, v);
    return 0;
}

static bool push_constant(struct machine *m, struct cfi_cursor *c, uint8_t op)
{
    switch (op) {
    case 0x03: /* addr */
    case 0x0e: /* const8u */
    case 0x0f: /* const8s */
        push(m, cfi_read_fixed(c, 8));
        return true;
    case 0x08: /* const1u */
        push(m, cfi_read_fixed(c, 1));
        return true;
    case 0x09: /* const1s */
        push(m, (uintptr_t)(intptr_t)(int8_t)cfi_read_fixed(c, 1));
        return true;
    case 0x0a: /* const2u */
        push(m, cfi_read_fixed(c, 2));
        return true;
    case 0x0b: /* const2s */
        push(m, (uintptr_t)(intptr_t)(int16_t)cfi_read_fixed(c, 2));
        return true;
    case 0x0c: /* const4u */
        push(m, cfi_read_fixed(c, 4));
        return true;
    case 0x0d: /* const4s */
        push(m, (uintptr_t)(intptr_t)(int32_t)cfi_read_fixed(c, 4));
        return true;
    case 0x10: /* constu */
        push(m, cfi_read_uleb(c));
        return true;
    case 0x11: /* consts */
        push(m, (uintptr_t)cfi_read_sleb(c));
        return true;
    case 0x30 ... 0x4f: /* lit0 to lit31 */
        push(m, op - 0x30);
        return true;
    default:
        return false;
    }
}

/* Registers, memory, the order of the stack; whatever is no jump. */
static int operate(const struct cfi_expression *e, struct machine *m, struct cfi_cursor *c,
                   uint8_t op)
{
    uintptr_t a, b, d;
    uint64_t reg;
    switch (op) {
    case 0x06: /* deref */
        return dereference(e, m, sizeof(uintptr_t));
    case 0x12: /* dup */
        push(m, peek(m, 0));
        return 0;
    case 0x13: /* drop */
        pop(m);
        return 0;
    case 0x14: /* over */
        push(m, peek(m, 1));
        return 0;
    case 0x15: /* pick */
        push(m, peek(m, (unsigned)cfi_read_fixed(c, 1)));
        return 0;
    case 0x16: /* swap */
        a = pop(m);
        b = pop(m);
        push(m, a);
        push(m, b);
        return 0;
    case 0x17: /* rot */
        a = pop(m);
        b = pop(m);
        d = pop(m);
        push(m, a);
        push(m, d);
        push(m, b);
        return 0;
    case 0x19: /* abs */
        a = pop(m);
        push(m, (intptr_t)a < 0 ? -a : a);
        return 0;
    case 0x1f: /* neg */
        push(m, -pop(m));
        return 0;
    case 0x20: /* not */
        push(m, ~pop(m));
        return 0;
    case 0x23: /* plus_uconst */
        push(m, pop(m) + cfi_read_uleb(c));
        return 0;
    case 0x70 ... 0x8f: /* breg0 to breg31 */
        push(m, register_value(m, e->regs, op - 0x70u) + (uintptr_t)cfi_read_sleb(c));
        return 0;
    case 0x92: /* bregx */
        reg = cfi_read_uleb(c);
        push(m, register_value(m, e->regs, reg) + (uintptr_t)cfi_read_sleb(c));
        return 0;
    case 0x94: /* deref_size */
        return dereference(e, m, (unsigned)cfi_read_fixed(c, 1));
    case 0x96: /* nop */
        return 0;
    default:
        return push_constant(m, c, op) ? 0 : arithmetic(m, op);
    }
}

int cfi_evaluate(const struct cfi_expression *e, uint32_t at, uintptr_t *ret_value)
{
    const struct cfi_section *s = e->section;
    struct machine m = {0};
    if (at >= (size_t)(s->hi - s->lo))
        return -EBADMSG;
    struct cfi_cursor c = {.at = s->lo + at, .end = s->hi};
    uint64_t length = cfi_read_uleb(&c);
    if (c.bad || length > (size_t)(c.end - c.at))
        return -EBADMSG;
    const uint8_t *start = c.at;
    c.end = c.at + length;
    if (e->push_cfa)
        push(&m, e->cfa);

    for (unsigned steps = 0; c.at < c.end; steps++) {
        if (steps == CFI_EXPRESSION_STEPS)
            return -EBADMSG;
        uint8_t op = *c.at++;
        int r = 0;
        if (op == 0x28 || op == 0x2f) { /* bra, skip */
            int16_t jump = (int16_t)cfi_read_fixed(&c, 2);
            if (op == 0x2f || pop(&m) != 0) {
                if (jump < start - c.at || jump > c.end - c.at)
                    return -EBADMSG;
                c.at += jump;
            }
        } else {
            r = operate(e, &m, &c, op);
        }
        if (r < 0)
            return r;
        if (c.bad || m.bad)
            return -EBADMSG;
    }
    uintptr_t value = pop(&m);
    if (m.bad)
        return -EBADMSG;
    if (m.missing)
        return -EAGAIN;
    *ret_value = value;
    return 0;
}

static int find_cfa(struct cfi_expression *e, const struct cfi_row *row, uintptr_t *ret_cfa)
{
    if (row->cfa_is_expression)
        return cfi_evaluate(e, (uint32_t)row->cfa_value, ret_cfa);
    if (row->cfa_reg >= ARCH_REG_COUNT)
        return -EBADMSG;
    if (!(e->regs->valid & (1u << row->cfa_reg)))
        return -EAGAIN;
    *ret_cfa = e->regs->r[row->cfa_reg] + (uintptr_t)(intptr_t)row->cfa_value;
    return 0;
}

/* The caller's value of one register. 1: not known. */
static int find_register(struct cfi_expression *e, const struct cfi_row *row, unsigned reg,
                         uintptr_t *ret_value)
{
    const struct cfi_regs *regs = e->regs;
    int32_t value = row->value[reg];
    uintptr_t addr = 0;
    int r;
    switch (row->how[reg]) {
    case CFI_SAME:
        *ret_value = regs->r[reg];
        return regs->valid & (1u << reg) ? 0 : 1;
    case CFI_OFFSET:
        addr = e->cfa + (uintptr_t)(intptr_t)value;
        return e->read(e->context, addr, ret_value) ? 0 : -EFAULT;
    case CFI_VAL_OFFSET:
        *ret_value = e->cfa + (uintptr_t)(intptr_t)value;
        return 0;
    case CFI_REGISTER:
        if (value < 0 || value >= ARCH_REG_COUNT)
            return 1;
        *ret_value = regs->r[value];
        return regs->valid & (1u << value) ? 0 : 1;
    case CFI_EXPRESSION:
        r = cfi_evaluate(e, (uint32_t)value, &addr);
        if (r < 0)
            return r == -EAGAIN ? 1 : r;
        return e->read(e->context, addr, ret_value) ? 0 : -EFAULT;
    case CFI_VAL_EXPRESSION:
        r = cfi_evaluate(e, (uint32_t)value, ret_value);
        return r == -EAGAIN ? 1 : r;
    default:
        return 1;
    }
}

int cfi_step(const struct cfi_section *section, const struct cfi_row *row, cfi_read_fn *read,
             void *context, struct cfi_regs *regs)
{
    struct cfi_expression e = {.section = section, .regs = regs, .read = read, .context = context};
    uintptr_t cfa;
    int r = find_cfa(&e, row, &cfa);
    if (r < 0)
        return r;
    e.push_cfa = true;
    e.cfa = cfa;

    unsigned ra = row->ra_reg;
    if (ra >= ARCH_REG_COUNT)
        return -EBADMSG;
    if (row->how[ra] == CFI_UNDEFINED)
        return -ENODATA;
    struct cfi_regs next = {0};
    for (unsigned reg = 0; reg < ARCH_REG_COUNT; reg++) {
        r = find_register(&e, row, reg, &next.r[reg]);
        if (r < 0)
            return r;
        if (r == 0)
            next.valid |= 1u << reg;
    }
    if (!(next.valid & (1u << ra)))
        return -EAGAIN;
    next.pc = arch_strip_pc(next.r[ra]);
    /* The caller's stack pointer is the CFA unless a rule says otherwise, as in signal frames. */
    if (row->how[ARCH_REG_SP] == CFI_SAME || row->how[ARCH_REG_SP] == CFI_UNDEFINED)
        next.r[ARCH_REG_SP] = cfa;
    next.valid |= 1u << ARCH_REG_SP;
    *regs = next;
    return 0;
}
