/* See probe_place.h. */
#include "observe/probe_place.h"

/* An instruction of the few kinds that functions begin with. */
struct instruction {
    size_t bytes;     /* 0: not known */
    uint32_t changes; /* registers, as bits */
    bool cheap;
    bool copies; /* register `from` to `to`, all of it */
    uint8_t from, to;
};

struct decoder {
    const uint8_t *code;
    size_t n, at;
    bool wide;             /* REX.W */
    bool reg_high, b_high; /* REX.R, REX.B */
    uint8_t mod, reg, rm;
    bool bad;
};

static uint8_t byte_next(struct decoder *d)
{
    if (d->at >= d->n) {
        d->bad = true;
        return 0;
    }
    return d->code[d->at++];
}

static void skip(struct decoder *d, size_t n)
{
    d->at += n;
    d->bad |= d->at > d->n;
}

/* The byte that names a register and a register or a place in memory, with what belongs to it. */
static void operands_read(struct decoder *d)
{
    uint8_t byte = byte_next(d);
    d->mod = byte >> 6;
    d->reg = (byte >> 3 & 7) | (d->reg_high ? 8 : 0);
    d->rm = (byte & 7) | (d->b_high ? 8 : 0);
    if (d->mod == 3)
        return;
    uint8_t base = byte & 7;
    bool no_base = d->mod == 0 && base == 5; /* relative to the instruction */
    if (base == 4) {
        uint8_t sib = byte_next(d);
        no_base = d->mod == 0 && (sib & 7) == 5;
    }
    skip(d, no_base ? 4 : d->mod == 1 ? 1 : d->mod == 2 ? 4 : 0);
}

static uint32_t bit(uint8_t number)
{
    return 1u << number;
}

static uint32_t rm_changed(const struct decoder *d)
{
    return d->mod == 3 ? bit(d->rm) : 0;
}

/* Two bytes of operation code, of which the first was 0f. */
static void long_read(struct decoder *d, struct instruction *i)
{
    uint8_t code = byte_next(d);
    if (code >= 0x80 && code <= 0x8f) { /* jcc */
        skip(d, 4);
        i->cheap = true;
    } else if (code == 0x1f) { /* nop */
        operands_read(d);
    } else if (code == 0xb6 || code == 0xb7 || code == 0xbe || code == 0xbf ||
               (code >= 0x40 && code <= 0x4f)) { /* movzx, movsx, cmov */
        operands_read(d);
        i->changes = bit(d->reg);
    } else if (code >= 0x90 &&
               code <= 0x9f) { /* setcc: of a byte register, whose number may mean another */
        operands_read(d);
        i->changes = d->mod == 3 ? bit(d->rm) | bit(d->rm & 3) : 0;
    } else {
        d->bad = true;
    }
}

/* Arithmetic of two operands: 00-3f in steps of 8. */
static void arithmetic_read(struct decoder *d, uint8_t code, struct instruction *i)
{
    bool compares = (code & 0x38) == 0x38;
    switch (code & 7) {
    case 1: /* to register or memory */
        operands_read(d);
        i->changes = compares ? 0 : rm_changed(d);
        break;
    case 3: /* to a register */
        operands_read(d);
        i->changes = compares ? 0 : bit(d->reg);
        break;
    case 5: /* rax, with a number */
        skip(d, 4);
        i->changes = compares ? 0 : bit(0);
        break;
    default:
        d->bad = true;
    }
}

static void group_read(struct decoder *d, uint8_t code, struct instruction *i)
{
    operands_read(d);
    uint8_t which = d->reg & 7;
    if (code == 0xf7 || code == 0xf6) { /* test, not, neg; others change rdx */
        d->bad |= which == 1 || which > 3;
        skip(d, which == 0 ? (code == 0xf7 ? 4 : 1) : 0);
        i->changes = which == 0 ? 0 : rm_changed(d);
        d->bad |= code == 0xf6 && which != 0;
        return;
    }
    skip(d, code == 0x81 || code == 0xc7 ? 4 : code == 0xd1 ? 0 : 1);
    bool compares = (code == 0x81 || code == 0x83 || code == 0x80) && which == 7;
    i->changes = compares ? 0 : rm_changed(d);
    d->bad |= (code == 0x80 || code == 0xc6) && d->mod == 3 && !compares;
    d->bad |= (code == 0xc7 || code == 0xc6) && which != 0;
}

static void short_read(struct decoder *d, uint8_t code, struct instruction *i)
{
    if (code >= 0x50 && code <= 0x57) { /* push */
        i->cheap = true;
    } else if ((code >= 0x70 && code <= 0x7f) || code == 0xeb) { /* jumps */
        skip(d, 1);
        i->cheap = true;
    } else if (code == 0xe9 || code == 0xe8) { /* jmp, call */
        skip(d, 4);
        i->cheap = true;
    } else if (code == 0x90) { /* nop */
        i->cheap = true;
    } else if (code < 0x40) {
        arithmetic_read(d, code, i);
    } else if (code == 0x89) { /* mov to register or memory */
        operands_read(d);
        i->changes = rm_changed(d);
        i->copies = d->wide && d->mod == 3;
        i->from = d->reg;
        i->to = d->rm;
    } else if (code == 0x8b || code == 0x8d || code == 0x63) { /* mov, lea, movslq */
        operands_read(d);
        i->changes = bit(d->reg);
    } else if (code == 0x84 || code == 0x85) { /* test */
        operands_read(d);
    } else if (code == 0xa8 || code == 0xa9) { /* test rax, with a number */
        skip(d, code == 0xa9 ? 4 : 1);
    } else if (code >= 0xb8 && code <= 0xbf) { /* mov of a number */
        skip(d, d->wide ? 8 : 4);
        i->changes = bit((code & 7) | (d->b_high ? 8 : 0));
    } else if (code == 0x80 || code == 0x81 || code == 0x83 || code == 0xc1 || code == 0xd1 ||
               code == 0xc6 || code == 0xc7 || code == 0xf6 || code == 0xf7) {
        group_read(d, code, i);
    } else {
        d->bad = true;
    }
}

static struct instruction instruction_read(const uint8_t *code, size_t n)
{
    static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
    struct instruction i = {0};
    struct decoder d = {.code = code, .n = n};
    bool same = n >= sizeof(endbr64);
    for (size_t k = 0; same && k < sizeof(endbr64); k++)
        same = code[k] == endbr64[k];
    if (same) {
        i.bytes = sizeof(endbr64);
        return i;
    }
    uint8_t first = byte_next(&d);
    bool segment = first == 0x64 || first == 0x65; /* memory of the thread */
    if (segment)
        first = byte_next(&d);
    bool rex = first >= 0x40 && first <= 0x4f;
    if (rex) {
        d.wide = first & 8;
        d.reg_high = first & 4;
        d.b_high = first & 1;
        first = byte_next(&d);
    }
    if (first == 0x0f)
        long_read(&d, &i);
    else
        short_read(&d, first, &i);
    /* With prefixes, the kernel may see another instruction: only push is known to be fine. */
    if (i.cheap && (segment || (rex && (first & 0xf8) != 0x50)))
        d.bad = true;
    i.bytes = d.bad || d.at > n ? 0 : d.at;
    return i;
}

/* Which argument a register holds: its number, or NONE. */
enum { REGISTERS = PROBE_REGISTERS, NONE = PROBE_NONE, RSP = 4 };

static void holds_update(const struct instruction *i, uint8_t holds[static REGISTERS])
{
    uint8_t copied = i->copies ? holds[i->from] : NONE;
    for (uint8_t r = 0; r < REGISTERS; r++)
        if (i->changes & bit(r))
            holds[r] = NONE;
    if (i->copies)
        holds[i->to] = copied;
}

/* False: an argument that is needed is in no register any more. */
static bool holds_find(const uint8_t holds[static REGISTERS], uint32_t needs, uint8_t *at)
{
    for (uint8_t a = 0; a < PROBE_ARGUMENTS; a++) {
        uint8_t r = 0;
        while (r < REGISTERS && holds[r] != a)
            r++;
        if (r == REGISTERS && needs & bit(a))
            return false;
        at[a] = r < REGISTERS ? r : 0;
    }
    return true;
}

void probe_place_find(const uint8_t *code, size_t n, uint32_t needs, struct probe_place *ret_place)
{
    static const uint8_t usual[PROBE_ARGUMENTS] = {PROBE_RDI, PROBE_RSI, PROBE_RDX};
    uint8_t holds[REGISTERS];
    struct probe_place entry = {.at = {PROBE_RDI, PROBE_RSI, PROBE_RDX}}, place = {0};
    for (uint8_t r = 0; r < REGISTERS; r++)
        holds[r] = NONE;
    for (uint8_t a = 0; a < PROBE_ARGUMENTS; a++)
        holds[usual[a]] = a;
    *ret_place = entry;
    if (n > PROBE_PLACE_BYTES)
        n = PROBE_PLACE_BYTES;
    while (place.offset < n) {
        struct instruction i = instruction_read(code + place.offset, n - place.offset);
        if (i.bytes == 0 || !holds_find(holds, needs, place.at))
            return;
        if (i.cheap) {
            place.cheap = true;
            *ret_place = place;
            return;
        }
        if (i.changes & bit(RSP))
            return;
        holds_update(&i, holds);
        place.offset += i.bytes;
    }
}

bool probe_instruction_follow(const uint8_t *code, size_t n, uint8_t holds[static PROBE_REGISTERS])
{
    struct instruction i = instruction_read(code, n);
    if (i.bytes != n || i.changes & bit(RSP))
        return false;
    holds_update(&i, holds);
    return true;
}
