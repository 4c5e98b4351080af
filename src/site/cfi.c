/* The .eh_frame reader: search table, CIE and FDE records, and the frame program.
 *
 * The format is described in the Linux Standard Base (exception frames) and DWARF 4 section 6.4. */
#include "site/cfi.h"

#include <errno.h>
#include <string.h>

/* Pointer encodings: low four bits are the format, the next three what it is relative to. */
enum {
    ENC_ABSPTR = 0x00,
    ENC_ULEB128 = 0x01,
    ENC_UDATA2 = 0x02,
    ENC_UDATA4 = 0x03,
    ENC_UDATA8 = 0x04,
    ENC_SLEB128 = 0x09,
    ENC_SDATA2 = 0x0a,
    ENC_SDATA4 = 0x0b,
    ENC_SDATA8 = 0x0c,
    ENC_PCREL = 0x10,
    ENC_DATAREL = 0x30,
    ENC_OMIT = 0xff,
    /* What every linker writes for the search table: pairs of 32-bit offsets from the header. */
    ENC_TABLE = ENC_DATAREL | ENC_SDATA4,
};

struct cie {
    uint64_t code_align;
    int64_t data_align;
    uint64_t ra_reg;
    struct cfi_cursor program;
    uint8_t fde_encoding;
    bool has_augmentation_data;
    bool signal_frame;
};

struct program {
    const struct cfi_section *section;
    const struct cie *cie;
    uintptr_t location;
    uintptr_t pc;
    struct cfi_row row;
    struct cfi_row initial; /* what the CIE's program left: for DW_CFA_restore */
    struct cfi_row remembered[CFI_REMEMBER_MAX];
    unsigned depth;
};

uint64_t cfi_read_fixed(struct cfi_cursor *cursor, unsigned bytes)
{
    uint64_t v = 0;
    if ((size_t)(cursor->end - cursor->at) < bytes) {
        cursor->bad = true;
        cursor->at = cursor->end;
        return 0;
    }
    for (unsigned i = 0; i < bytes; i++)
        v |= (uint64_t)cursor->at[i] << (8 * i);
    cursor->at += bytes;
    return v;
}

uint64_t cfi_read_uleb(struct cfi_cursor *cursor)
{
    uint64_t v = 0;
    for (unsigned shift = 0;; shift += 7) {
        if (cursor->at == cursor->end || shift > 63) {
            cursor->bad = true;
            return 0;
        }
        uint8_t byte = *cursor->at++;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return v;
    }
}

int64_t cfi_read_sleb(struct cfi_cursor *cursor)
{
    uint64_t v = 0;
    for (unsigned shift = 0;;) {
        if (cursor->at == cursor->end || shift > 63) {
            cursor->bad = true;
            return 0;
        }
        uint8_t byte = *cursor->at++;
        v |= (uint64_t)(byte & 0x7f) << shift;
        shift += 7;
        if (byte & 0x80)
            continue;
        if ((byte & 0x40) && shift < 64)
            v |= ~UINT64_C(0) << shift;
        return (int64_t)v;
    }
}

static uint64_t read_encoded_value(struct cfi_cursor *cursor, uint8_t encoding)
{
    switch (encoding & 0x0f) {
    case ENC_ABSPTR:
        return cfi_read_fixed(cursor, sizeof(uintptr_t));
    case ENC_UDATA2:
        return cfi_read_fixed(cursor, 2);
    case ENC_UDATA4:
        return cfi_read_fixed(cursor, 4);
    case ENC_UDATA8:
    case ENC_SDATA8:
        return cfi_read_fixed(cursor, 8);
    case ENC_SDATA2:
        return (uint64_t)(int64_t)(int16_t)cfi_read_fixed(cursor, 2);
    case ENC_SDATA4:
        return (uint64_t)(int64_t)(int32_t)cfi_read_fixed(cursor, 4);
    case ENC_ULEB128:
        return cfi_read_uleb(cursor);
    case ENC_SLEB128:
        return (uint64_t)cfi_read_sleb(cursor);
    default:
        cursor->bad = true;
        return 0;
    }
}

/* A pointer; the section's header is the base of data-relative ones. Indirect and text-relative ones do not occur
 * for code on Linux and count as bad. */
static uintptr_t read_encoded(struct cfi_cursor *cursor, uint8_t encoding,
                              const struct cfi_section *section)
{
    uintptr_t place = (uintptr_t)cursor->at;
    uint64_t v = read_encoded_value(cursor, encoding);
    switch (encoding & 0xf0) {
    case 0:
        return (uintptr_t)v + section->shift;
    case ENC_PCREL:
        return place + (uintptr_t)v;
    case ENC_DATAREL:
        return (uintptr_t)section->hdr + (uintptr_t)v;
    default:
        cursor->bad = true;
        return 0;
    }
}

static bool section_has(const struct cfi_section *s, uintptr_t addr, size_t len)
{
    return addr >= (uintptr_t)s->lo && addr <= (uintptr_t)s->hi && (uintptr_t)s->hi - addr >= len;
}

/* Search the header's sorted table for the record that may cover pc; NULL if there is none. */
static const uint8_t *table_search(const struct cfi_section *s, uintptr_t pc)
{
    if (!section_has(s, (uintptr_t)s->hdr, 4))
        return NULL;
    struct cfi_cursor c = {.at = s->hdr + 4, .end = s->hi};
    uint8_t version = s->hdr[0], frame_enc = s->hdr[1], count_enc = s->hdr[2];
    if (version != 1 || s->hdr[3] != ENC_TABLE || count_enc == ENC_OMIT)
        return NULL;
    read_encoded(&c, frame_enc, s);
    uint64_t count = read_encoded_value(&c, count_enc);
    if (c.bad || count == 0 || count > (size_t)(c.end - c.at) / 8)
        return NULL;
    const uint8_t *table = c.at;
    int64_t wanted = (int64_t)(pc - (uintptr_t)s->hdr);
    if (wanted < INT32_MIN || wanted > INT32_MAX)
        return NULL;
    int32_t pair[2];
    size_t low = 0, high = count; /* the last entry that starts at or before pc is in [low, high) */
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        memcpy(pair, table + mid * 8, sizeof(pair));
        if (pair[0] <= wanted)
            low = mid;
        else
            high = mid;
    }
    memcpy(pair, table + low * 8, sizeof(pair));
    uintptr_t record = (uintptr_t)s->hdr + (uintptr_t)(intptr_t)pair[1];
    if (pair[0] > wanted || !section_has(s, record, 8))
        return NULL;
    return (const uint8_t *)record;
}

/* Open a CIE or FDE: a cursor over what follows its length field. */
static int record_open(const struct cfi_section *s, const uint8_t *record,
                       struct cfi_cursor *ret_cursor)
{
    struct cfi_cursor c = {.at = record, .end = s->hi};
    uint64_t length = cfi_read_fixed(&c, 4);
    if (length == 0xffffffff) /* 64-bit records: no linker writes them for .eh_frame */
        return -ENOTSUP;
    if (c.bad || length < 4 || length > (size_t)(c.end - c.at) || length > CFI_PROGRAM_MAX)
        return -EBADMSG;
    *ret_cursor = (struct cfi_cursor){.at = c.at, .end = c.at + length};
    return 0;
}

static int cie_augment(const struct cfi_section *s, const char *augmentation, struct cfi_cursor *c,
                       struct cie *cie)
{
    if (augmentation[0] != 'z')
        return augmentation[0] == '\0' ? 0 : -ENOTSUP;
    cie->has_augmentation_data = true;
    uint64_t length = cfi_read_uleb(c);
    if (c->bad || length > (size_t)(c->end - c->at))
        return -EBADMSG;
    struct cfi_cursor data = {.at = c->at, .end = c->at + length};
    c->at += length;
    for (const char *a = augmentation + 1; *a; a++) {
        switch (*a) {
        case 'R':
            cie->fde_encoding = (uint8_t)cfi_read_fixed(&data, 1);
            break;
        case 'P': {
            uint8_t encoding = (uint8_t)cfi_read_fixed(&data, 1);
            read_encoded_value(&data, encoding);
            break;
        }
        case 'L':
            cfi_read_fixed(&data, 1);
            break;
        case 'S':
            cie->signal_frame = true;
            break;
        case 'B': /* aarch64: return addresses signed with the B key */
        case 'G':
            break;
        default:
            /* Unknown letters may change the meaning of what follows. */
            return -ENOTSUP;
        }
    }
    return data.bad ? -EBADMSG : 0;
}

static int cie_parse(const struct cfi_section *s, const uint8_t *record, struct cie *ret_cie)
{
    struct cfi_cursor c;
    int r = record_open(s, record, &c);
    if (r < 0)
        return r;
    if (cfi_read_fixed(&c, 4) != 0)
        return -EBADMSG;
    uint64_t version = cfi_read_fixed(&c, 1);
    if (c.bad || (version != 1 && version != 3))
        return -ENOTSUP;
    const char *augmentation = (const char *)c.at;
    const uint8_t *nul = memchr(c.at, 0, (size_t)(c.end - c.at));
    if (!nul)
        return -EBADMSG;
    c.at = nul + 1;
    struct cie cie = {.fde_encoding = ENC_ABSPTR};
    cie.code_align = cfi_read_uleb(&c);
    cie.data_align = cfi_read_sleb(&c);
    cie.ra_reg = version == 1 ? cfi_read_fixed(&c, 1) : cfi_read_uleb(&c);
    r = cie_augment(s, augmentation, &c, &cie);
    if (r < 0)
        return r;
    if (c.bad || cie.ra_reg >= ARCH_REG_COUNT)
        return -EBADMSG;
    cie.program = c;
    *ret_cie = cie;
    return 0;
}

/* ---- the frame program ---- */

static void rule_set(struct cfi_row *row, uint64_t reg, enum cfi_how how, int64_t value)
{
    /* Vector and other registers that take no part in finding the caller are left out. A value that
     * does not fit cannot describe a frame: then the register is lost. */
    if (reg >= ARCH_REG_COUNT)
        return;
    bool fits = value >= INT32_MIN && value <= INT32_MAX;
    row->how[reg] = (uint8_t)(fits ? how : CFI_UNDEFINED);
    row->value[reg] = fits ? (int32_t)value : 0;
}

static int64_t scaled(int64_t factor, int64_t align)
{
    int64_t v;
    return __builtin_mul_overflow(factor, align, &v) ? INT64_MAX : v;
}

/* Remember where an expression is, and step over it. */
static int64_t expression_at(struct program *p, struct cfi_cursor *c)
{
    int64_t at = c->at - p->section->lo;
    uint64_t length = cfi_read_uleb(c);
    if (c->bad || length > (size_t)(c->end - c->at) || length > CFI_EXPRESSION_BYTES) {
        c->bad = true;
        return 0;
    }
    c->at += length;
    return at;
}

static int cfa_set(struct cfi_row *row, uint64_t reg, int64_t value, bool expression)
{
    if (reg >= ARCH_REG_COUNT || value < INT32_MIN || value > INT32_MAX)
        return -EBADMSG;
    row->cfa_reg = (uint16_t)reg;
    row->cfa_value = (int32_t)value;
    row->cfa_is_expression = expression;
    return 0;
}

/* The operations that say where the frame is, and where the next row begins. */
static int execute_cfa(struct program *p, struct cfi_cursor *c, uint8_t op)
{
    struct cfi_row *row = &p->row;
    int64_t data_align = p->cie->data_align;
    uint64_t reg;
    switch (op) {
    case 0x01: /* set_loc */
        p->location = read_encoded(c, p->cie->fde_encoding, p->section);
        return 0;
    case 0x02: /* advance_loc1, 2, 4 */
    case 0x03:
    case 0x04:
        p->location += cfi_read_fixed(c, 1u << (op - 2)) * p->cie->code_align;
        return 0;
    case 0x0c: /* def_cfa */
        reg = cfi_read_uleb(c);
        return cfa_set(row, reg, (int64_t)cfi_read_uleb(c), false);
    case 0x0d: /* def_cfa_register */
        return row->cfa_is_expression ? -EBADMSG
                                      : cfa_set(row, cfi_read_uleb(c), row->cfa_value, false);
    case 0x0e: /* def_cfa_offset */
        return row->cfa_is_expression
                   ? -EBADMSG
                   : cfa_set(row, row->cfa_reg, (int64_t)cfi_read_uleb(c), false);
    case 0x0f: /* def_cfa_expression */
        return cfa_set(row, 0, expression_at(p, c), true);
    case 0x12: /* def_cfa_sf */
        reg = cfi_read_uleb(c);
        return cfa_set(row, reg, scaled(cfi_read_sleb(c), data_align), false);
    case 0x13: /* def_cfa_offset_sf */
        return row->cfa_is_expression
                   ? -EBADMSG
                   : cfa_set(row, row->cfa_reg, scaled(cfi_read_sleb(c), data_align), false);
    default:
        return -ENOTSUP;
    }
}

/* The operations whose code is the whole first byte and that say where a register is. */
static int execute_extended(struct program *p, struct cfi_cursor *c, uint8_t op)
{
    struct cfi_row *row = &p->row;
    int64_t data_align = p->cie->data_align;
    uint64_t reg;
    switch (op) {
    case 0x00: /* nop */
        return 0;
    case 0x05: /* offset_extended */
        reg = cfi_read_uleb(c);
        rule_set(row, reg, CFI_OFFSET, scaled((int64_t)cfi_read_uleb(c), data_align));
        return 0;
    case 0x06: /* restore_extended */
        reg = cfi_read_uleb(c);
        if (reg < ARCH_REG_COUNT)
            rule_set(row, reg, p->initial.how[reg], p->initial.value[reg]);
        return 0;
    case 0x07: /* undefined */
        rule_set(row, cfi_read_uleb(c), CFI_UNDEFINED, 0);
        return 0;
    case 0x08: /* same_value */
        rule_set(row, cfi_read_uleb(c), CFI_SAME, 0);
        return 0;
    case 0x09: /* register */
        reg = cfi_read_uleb(c);
        rule_set(row, reg, CFI_REGISTER, (int64_t)cfi_read_uleb(c));
        return 0;
    case 0x0a: /* remember_state */
        if (p->depth == CFI_REMEMBER_MAX)
            return -ENOTSUP;
        p->remembered[p->depth++] = *row;
        return 0;
    case 0x0b: /* restore_state */
        if (p->depth == 0)
            return -EBADMSG;
        *row = p->remembered[--p->depth];
        return 0;
    case 0x10: /* expression */
        reg = cfi_read_uleb(c);
        rule_set(row, reg, CFI_EXPRESSION, expression_at(p, c));
        return 0;
    case 0x11: /* offset_extended_sf */
        reg = cfi_read_uleb(c);
        rule_set(row, reg, CFI_OFFSET, scaled(cfi_read_sleb(c), data_align));
        return 0;
    case 0x14: /* val_offset */
        reg = cfi_read_uleb(c);
        rule_set(row, reg, CFI_VAL_OFFSET, scaled((int64_t)cfi_read_uleb(c), data_align));
        return 0;
    case 0x15: /* val_offset_sf */
        reg = cfi_read_uleb(c);
        rule_set(row, reg, CFI_VAL_OFFSET, scaled(cfi_read_sleb(c), data_align));
        return 0;
    case 0x16: /* val_expression */
        reg = cfi_read_uleb(c);
        rule_set(row, reg, CFI_VAL_EXPRESSION, expression_at(p, c));
        return 0;
    case 0x2d: /* AARCH64_negate_ra_state: the code is stripped from every return address anyway */
        return 0;
    case 0x2e: /* GNU_args_size */
        cfi_read_uleb(c);
        return 0;
    case 0x2f: /* GNU_negative_offset_extended */
        reg = cfi_read_uleb(c);
        rule_set(row, reg, CFI_OFFSET, scaled((int64_t)(0 - cfi_read_uleb(c)), data_align));
        return 0;
    default:
        return execute_cfa(p, c, op);
    }
}

/* Run one program up to the row that holds at p->pc. */
static int execute(struct program *p, struct cfi_cursor c)
{
    while (c.at < c.end && p->location <= p->pc) {
        uint8_t op = *c.at++;
        uint8_t low = op & 0x3f;
        int r = 0;
        switch (op >> 6) {
        case 1: /* advance_loc */
            p->location += low * p->cie->code_align;
            break;
        case 2: /* offset */
            rule_set(&p->row, low, CFI_OFFSET,
                     scaled((int64_t)cfi_read_uleb(&c), p->cie->data_align));
            break;
        case 3: /* restore */
            if (low < ARCH_REG_COUNT)
                rule_set(&p->row, low, p->initial.how[low], p->initial.value[low]);
            break;
        default:
            r = execute_extended(p, &c, op);
        }
        if (r < 0)
            return r;
        if (c.bad)
            return -EBADMSG;
    }
    return 0;
}

int cfi_find(const struct cfi_section *section, uintptr_t pc, struct cfi_row *ret_row)
{
    const uint8_t *record = table_search(section, pc);
    struct cfi_cursor c;
    if (!record)
        return -ENOENT;
    int r = record_open(section, record, &c);
    if (r < 0)
        return r;
    uintptr_t cie_pointer = (uintptr_t)c.at;
    uint64_t cie_delta = cfi_read_fixed(&c, 4);
    if (cie_delta == 0 || !section_has(section, cie_pointer - cie_delta, 8))
        return -EBADMSG;
    struct cie cie;
    r = cie_parse(section, (const uint8_t *)(cie_pointer - cie_delta), &cie);
    if (r < 0)
        return r;
    uintptr_t start = read_encoded(&c, cie.fde_encoding, section);
    uintptr_t range = read_encoded_value(&c, cie.fde_encoding & 0x0f);
    if (cie.has_augmentation_data) {
        uint64_t length = cfi_read_uleb(&c);
        if (c.bad || length > (size_t)(c.end - c.at))
            return -EBADMSG;
        c.at += length;
    }
    if (c.bad)
        return -EBADMSG;
    if (pc < start || pc - start >= range)
        return -ENOENT;

    struct program p = {.section = section, .cie = &cie, .pc = pc, .location = start};
    p.row.cfa_reg = ARCH_REG_COUNT; /* none yet */
    p.row.signal_frame = cie.signal_frame;
    p.row.ra_reg = (uint16_t)cie.ra_reg;
    r = execute(&p, cie.program);
    if (r < 0)
        return r;
    p.initial = p.row;
    p.location = start;
    r = execute(&p, c);
    if (r < 0)
        return r;
    if (p.row.cfa_reg >= ARCH_REG_COUNT)
        return -EBADMSG;
    *ret_row = p.row;
    return 0;
}
