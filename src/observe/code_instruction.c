/* See code_instruction.h. The maps of instructions are those of the processor's manual, by what matters here: whether a byte with operands
 * follows, and how many bytes of numbers. */
#include "observe/code_instruction.h"

#include <string.h>

struct reader {
    const uint8_t *code;
    size_t n, at;
    bool short_operand, short_address, wide;
    bool bad;
};

static uint8_t take(struct reader *r)
{
    if (r->at < r->n)
        return r->code[r->at++];
    r->bad = true;
    return 0;
}

static void skip(struct reader *r, size_t n)
{
    r->at += n;
    r->bad |= r->at > r->n;
}

/* A number of the operand's size, 4 bytes at most. */
static void skip_operand(struct reader *r)
{
    skip(r, r->short_operand ? 2 : 4);
}

static int64_t relative(struct reader *r, size_t bytes)
{
    int32_t value = 0;
    size_t at = r->at;
    skip(r, bytes);
    if (r->bad)
        return 0;
    if (bytes == 1)
        return (int64_t)r->at + (int8_t)r->code[at];
    memcpy(&value, r->code + at, sizeof(value));
    return (int64_t)r->at + value;
}

/* The byte that names operands, with what belongs to it. Returns its middle bits. */
static uint8_t operands(struct reader *r)
{
    uint8_t byte = take(r), mod = byte >> 6, base = byte & 7;
    if (mod == 3)
        return byte >> 3 & 7;
    bool far = mod == 2 || (mod == 0 && base == 5);
    if (base == 4) {
        uint8_t scaled = take(r);
        far |= mod == 0 && (scaled & 7) == 5;
    }
    skip(r, far ? 4 : mod == 1 ? 1 : 0);
    return byte >> 3 & 7;
}

/* ---- instructions of two bytes and more ---- */

static bool has_byte_0f(uint8_t op)
{
    return (op >= 0x70 && op <= 0x73) || op == 0xa4 || op == 0xac || op == 0xba || op == 0xc2 ||
           (op >= 0xc4 && op <= 0xc6);
}

static bool has_no_operands_0f(uint8_t op)
{
    return op == 0x05 || op == 0x06 || op == 0x08 || op == 0x09 || (op >= 0x30 && op <= 0x37) ||
           op == 0x77 || (op >= 0xa0 && op <= 0xa2) || (op >= 0xa8 && op <= 0xaa) ||
           (op >= 0xc8 && op <= 0xcf);
}

static void long_read(struct reader *r, struct code_instruction *i)
{
    uint8_t op = take(r);
    if (op == 0x38 || op == 0x3a) {
        take(r);
        operands(r);
        skip(r, op == 0x3a);
    } else if (op >= 0x80 && op <= 0x8f) {
        i->flow = CODE_BRANCH;
        i->target = relative(r, 4);
    } else if (op == 0x0b) { /* ud2 */
        i->flow = CODE_STOP;
    } else if (op == 0x04 || op == 0x07 || op == 0x0a || op == 0x0c || op == 0x0f) {
        r->bad = true;
    } else if (!has_no_operands_0f(op)) {
        i->nop = op == 0x1f;
        operands(r);
        skip(r, has_byte_0f(op));
    }
}

/* VEX and EVEX: `map` says which of the long ones it is. */
static void vector_read(struct reader *r, uint8_t map)
{
    uint8_t op = take(r);
    if (map < 1 || map > 3)
        r->bad = true;
    if (map == 1 && op == 0x77) /* vzeroupper */
        return;
    operands(r);
    skip(r, map == 3 || (map == 1 && has_byte_0f(op)));
}

/* ---- instructions of one byte ---- */

static void group_read(struct reader *r, uint8_t op, struct code_instruction *i)
{
    uint8_t which = operands(r);
    if (op == 0xf6 && which < 2)
        skip(r, 1);
    else if (op == 0xf7 && which < 2)
        skip_operand(r);
    else if (op == 0xff && (which == 4 || which == 5))
        i->flow = CODE_STOP;
    else if (op == 0xff && (which == 2 || which == 3))
        i->call = true;
    r->bad |= op == 0xff && which == 7;
}

/* Jumps, calls and returns. False: another one. */
static bool flow_read(struct reader *r, uint8_t op, struct code_instruction *i)
{
    switch (op) {
    case 0x70 ... 0x7f:
    case 0xe0 ... 0xe3:
        i->flow = CODE_BRANCH;
        i->target = relative(r, 1);
        return true;
    case 0xe8:
        i->call = true;
        skip(r, 4);
        return true;
    case 0xe9:
    case 0xeb:
        i->flow = CODE_JUMP;
        i->target = relative(r, op == 0xe9 ? 4 : 1);
        return true;
    case 0xc2:
    case 0xc3:
        i->flow = CODE_RETURN;
        skip(r, op == 0xc2 ? 2 : 0);
        return true;
    case 0xcc:
    case 0xf4:
        i->flow = CODE_STOP;
        return true;
    default:
        return false;
    }
}

static void short_read(struct reader *r, uint8_t op, struct code_instruction *i)
{
    if (flow_read(r, op, i))
        return;
    switch (op) {
    case 0x00 ... 0x3f: /* arithmetic; what lies between was invalid or a prefix */
        if ((op & 7) < 4)
            operands(r);
        else if ((op & 7) == 4)
            skip(r, 1);
        else if ((op & 7) == 5)
            skip_operand(r);
        else
            r->bad = true;
        break;
    case 0x50 ... 0x5f:
    case 0x6c ... 0x6f:
    case 0x90 ... 0x99:
    case 0x9b ... 0x9f:
    case 0xa4 ... 0xa7:
    case 0xaa ... 0xaf:
    case 0xc9:
    case 0xd7:
    case 0xec ... 0xef:
    case 0xf5:
    case 0xf8 ... 0xfd:
        i->nop = op == 0x90;
        break;
    case 0x63:
    case 0x84 ... 0x8f:
    case 0xd0 ... 0xd3:
    case 0xd8 ... 0xdf:
        operands(r);
        break;
    case 0x68:
    case 0xa9:
        skip_operand(r);
        break;
    case 0x69:
    case 0x81:
    case 0xc7:
        operands(r);
        skip_operand(r);
        break;
    case 0x6a:
    case 0xa8:
    case 0xb0 ... 0xb7:
    case 0xcd:
    case 0xe4 ... 0xe7:
        skip(r, 1);
        break;
    case 0x6b:
    case 0x80:
    case 0x83:
    case 0xc0:
    case 0xc1:
    case 0xc6:
        operands(r);
        skip(r, 1);
        break;
    case 0xa0 ... 0xa3:
        skip(r, r->short_address ? 4 : 8);
        break;
    case 0xb8 ... 0xbf:
        skip(r, r->wide ? 8 : r->short_operand ? 2 : 4);
        break;
    case 0xc8:
        skip(r, 3);
        break;
    case 0xf6:
    case 0xf7:
    case 0xfe:
    case 0xff:
        group_read(r, op, i);
        break;
    default:
        r->bad = true;
    }
}

/* Prefixes; returns the first byte behind them. */
static uint8_t prefixes_read(struct reader *r)
{
    uint8_t byte;
    while (byte = take(r), byte == 0x66 || byte == 0x67 || byte == 0xf0 || byte == 0xf2 ||
                               byte == 0xf3 || byte == 0x2e || byte == 0x36 || byte == 0x3e ||
                               byte == 0x26 || byte == 0x64 || byte == 0x65) {
        r->short_operand |= byte == 0x66;
        r->short_address |= byte == 0x67;
    }
    if (byte >= 0x40 && byte <= 0x4f) {
        r->wide = byte & 8;
        r->short_operand &= !r->wide;
        byte = take(r);
    }
    return byte;
}

struct code_instruction code_instruction_read(const uint8_t *code, size_t n)
{
    struct code_instruction i = {.flow = CODE_NEXT};
    struct reader r = {.code = code, .n = n < CODE_INSTRUCTION_MAX ? n : CODE_INSTRUCTION_MAX};
    uint8_t op = prefixes_read(&r);
    if (op == 0x0f) {
        long_read(&r, &i);
    } else if (op == 0xc5) {
        take(&r);
        vector_read(&r, 1);
    } else if (op == 0xc4) {
        uint8_t map = take(&r) & 0x1f;
        take(&r);
        vector_read(&r, map);
    } else if (op == 0x62) {
        uint8_t map = take(&r) & 7;
        skip(&r, 2);
        vector_read(&r, map);
    } else {
        short_read(&r, op, &i);
    }
    if (r.bad)
        return (struct code_instruction){.flow = CODE_BAD};
    i.bytes = r.at;
    return i;
}
