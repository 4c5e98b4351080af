/* Names and lines of Python frames, read from code objects. */
#include <string.h>

#include "base/hash.h"
#include "site/python.h"
#include "site/python_lines.h"
#include "site/stack.h"

enum {
    CODE_BYTES = 144, /* no field that is read lies further on */
    TEXT_BYTES = 40,
    BYTES_BYTES = 32,
    KIND_SHIFT = 2, /* in the state of a string: bytes of a character */
    KIND_MASK = 7,
    STATE_COMPACT = 1u << 5,
    STATE_ASCII = 1u << 6,
    LINES_MAX = 1 << 20, /* bytes of a line table that are looked at */
};

static uint32_t load_u32(uintptr_t addr)
{
    uintptr_t word = stack_load(addr & ~(sizeof(uintptr_t) - 1));
    return (uint32_t)(word >> (addr % sizeof(uintptr_t) * 8));
}

/* ---- strings ---- */

/* A str object whose characters follow it. */
struct text {
    uintptr_t chars;
    size_t length;
    unsigned width; /* bytes of a character: 1, 2 or 4 */
};

static bool object_has_type(uintptr_t object, size_t bytes, uintptr_t type)
{
    return object != 0 && object % sizeof(uintptr_t) == 0 && stack_probe(object, bytes) &&
           stack_load(object + PYTHON_OBJECT_COUNT) != 0 &&
           stack_load(object + PYTHON_OBJECT_TYPE) == type;
}

static bool text_find(const struct python *py, uintptr_t object, struct text *ret)
{
    if (!object_has_type(object, TEXT_BYTES, py->facts.text_type))
        return false;
    uint32_t state = load_u32(object + PYTHON_TEXT_STATE);
    ret->width = state >> KIND_SHIFT & KIND_MASK;
    ret->length = stack_load(object + PYTHON_TEXT_LENGTH);
    ret->chars =
        object + (state & STATE_ASCII ? py->facts.layout.text_ascii : py->facts.layout.text_wide);
    return (state & STATE_COMPACT) && (ret->width == 1 || ret->width == 2 || ret->width == 4) &&
           ret->length < SIZE_MAX / 8 && stack_probe(ret->chars, ret->length * ret->width);
}

static uint32_t text_char(const struct text *text, size_t i)
{
    const volatile uint8_t *at = (const volatile uint8_t *)(text->chars + i * text->width);
    uint32_t c = at[0];
    if (text->width >= 2)
        c |= (uint32_t)at[1] << 8;
    if (text->width == 4)
        c |= (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    return c;
}

/* Names of files may hold half of a pair, for bytes that are no UTF-8. */
static bool is_character(uint32_t c)
{
    return c != 0 && c < 0x110000 && (c < 0xd800 || c > 0xdfff);
}

static size_t utf8_bytes(uint32_t c)
{
    return !is_character(c) || c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
}

static size_t utf8_put(char *out, uint32_t c)
{
    size_t n = utf8_bytes(c);
    if (n == 1) {
        out[0] = is_character(c) ? (char)c : '?';
        return n;
    }
    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf0 << (4 - n)) | c);
    return n;
}

/* As many characters as fit, from the front or from the end. */
static bool text_copy(const struct text *text, char *out, size_t size, bool from_end)
{
    size_t room = size - 1, first = 0, end = text->length, bytes = 0;
    if (from_end) {
        for (first = end; first > 0; first--) {
            bytes += utf8_bytes(text_char(text, first - 1));
            if (bytes > room)
                break;
        }
    }
    size_t n = 0, i = first;
    for (; i < end; i++) {
        uint32_t c = text_char(text, i);
        if (utf8_bytes(c) > room - n)
            break;
        n += utf8_put(out + n, c);
    }
    out[n] = '\0';
    return first > 0 || i < end;
}

/* ---- lines ---- */

/* The line table of a code object: its bytes. */
static bool lines_find(const struct python *py, uintptr_t code, const uint8_t **ret_table,
                       size_t *ret_len)
{
    uintptr_t object = stack_load(code + py->facts.layout.code_lines);
    if (!object_has_type(object, BYTES_BYTES, py->facts.bytes_type))
        return false;
    size_t len = stack_load(object + PYTHON_BYTES_LENGTH);
    *ret_len = len < LINES_MAX ? len : LINES_MAX;
    *ret_table = (const uint8_t *)(object + PYTHON_BYTES_START);
    return stack_probe((uintptr_t)*ret_table, *ret_len);
}

bool python_frame_name(const struct python *py, const struct python_frame *frame,
                       struct python_name *ret_name)
{
    const struct python_layout *l = &py->facts.layout;
    struct text file, function;
    const uint8_t *table;
    size_t len;
    if (!object_has_type(frame->code, CODE_BYTES, py->facts.code_type) ||
        !text_find(py, stack_load(frame->code + l->code_file), &file) ||
        !text_find(py, stack_load(frame->code + l->code_name), &function) ||
        !lines_find(py, frame->code, &table, &len))
        return false;
    ret_name->function_cut =
        text_copy(&function, ret_name->function, sizeof(ret_name->function), false);
    ret_name->file_cut = text_copy(&file, ret_name->file, sizeof(ret_name->file), true);
    ret_name->first_line = load_u32(frame->code + l->code_first_line);
    ret_name->line =
        python_line(l->lines, table, len, frame->at, ret_name->first_line, &ret_name->lines_used);
    return true;
}

/* ---- checks ---- */

static inline uint64_t load_u64(const unsigned char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

/* hash_bytes() for what is compared within this process only, in half the time: two chains, and no loop over single
 * bytes. */
static inline uint64_t bytes_check(const unsigned char *p, size_t n, uint64_t seed)
{
    uint64_t a = seed ^ HASH_K0 ^ n, b = seed ^ HASH_K2;
    if (n >= 16) {
        for (; n > 32; p += 32, n -= 32) {
            a = hash_fold_(load_u64(p) ^ HASH_K1, load_u64(p + 8) ^ a);
            b = hash_fold_(load_u64(p + 16) ^ HASH_K1, load_u64(p + 24) ^ b);
        }
        if (n > 16) {
            a = hash_fold_(load_u64(p) ^ HASH_K1, load_u64(p + 8) ^ a);
            p += 16;
            n -= 16;
        }
        /* The last 16, some of them perhaps for the second time. */
        b = hash_fold_(load_u64(p + n - 16) ^ HASH_K1, load_u64(p + n - 8) ^ b);
    } else if (n >= 8) {
        b = hash_fold_(load_u64(p) ^ HASH_K1, load_u64(p + n - 8) ^ b);
    } else {
        uint64_t word = 0;
        for (size_t i = 0; i < n; i++)
            word = word << 8 | p[i];
        b = hash_fold_(word ^ HASH_K1, b);
    }
    return hash_fold_(a ^ HASH_K1, b ^ HASH_K0);
}

/* A number for a string's content. That is its own hash, by a keyed function of the interpreter; -1 if nobody
 * asked for it yet. Names are interned, so they have one; a file's name need not. */
static inline uint64_t text_check(const struct python *py, uintptr_t object)
{
    uint64_t hash = stack_load(object + PYTHON_TEXT_HASH);
    if (__builtin_expect(hash != UINT64_MAX, 1))
        return hash;
    size_t length = stack_load(object + PYTHON_TEXT_LENGTH);
    uint32_t state = load_u32(object + PYTHON_TEXT_STATE);
    uintptr_t start =
        state & STATE_ASCII ? py->facts.layout.text_ascii : py->facts.layout.text_wide;
    return bytes_check((const void *)(object + start), length * (state >> KIND_SHIFT & KIND_MASK),
                       0);
}

/* The code object was found good before, at this address, and a frame holds it: it is mapped. If it is
 * another one now, it is as good, and the answer differs. */
uint64_t python_frame_check(const struct python *py, const struct python_frame *frame,
                            size_t lines_used)
{
    const struct python_layout *l = &py->facts.layout;
    uintptr_t code = frame->code;
    if (stack_load(code + PYTHON_OBJECT_COUNT) == 0 ||
        stack_load(code + PYTHON_OBJECT_TYPE) != py->facts.code_type)
        return 0;
    uintptr_t file = stack_load(code + l->code_file), name = stack_load(code + l->code_name);
    uint32_t first_line = load_u32(code + l->code_first_line);
    uint32_t version = l->code_version ? load_u32(code + l->code_version) : 0;
    uint64_t check =
        hash_fold_(file ^ name << 16 ^ HASH_K0, ((uint64_t)version << 32 | first_line) ^ HASH_K1);
    if (version != 0)
        return check | 1;
    uintptr_t lines = stack_load(code + l->code_lines);
    size_t len = stack_load(lines + PYTHON_BYTES_LENGTH);
    if (lines_used > len)
        return 0;
    check ^= text_check(py, name) * HASH_K0 + text_check(py, file);
    return bytes_check((const void *)(lines + PYTHON_BYTES_START), lines_used, check) | 1;
}
