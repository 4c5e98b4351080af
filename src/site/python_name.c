/* Names and lines of Python frames, read from code objects. */
#include <string.h>

#include "base/hash.h"
#include "site/python.h"
#include "site/python_lines.h"
#include "site/python_text.h"
#include "site/stack.h"

enum {
    CODE_BYTES = 144, /* no field that is read lies further on */
    TEXT_BYTES = 40,
    BYTES_BYTES = 32,
    LINES_MAX = 1 << 20, /* bytes of a line table that are looked at */
};

static uint32_t load_u32(uintptr_t addr)
{
    uintptr_t word = stack_load(addr & ~(sizeof(uintptr_t) - 1));
    return (uint32_t)(word >> (addr % sizeof(uintptr_t) * 8));
}

/* ---- strings ---- */

static bool object_has_type(uintptr_t object, size_t bytes, uintptr_t type)
{
    return object != 0 && object % sizeof(uintptr_t) == 0 && stack_probe(object, bytes) &&
           stack_load(object + PYTHON_OBJECT_COUNT) != 0 &&
           stack_load(object + PYTHON_OBJECT_TYPE) == type;
}

static bool text_find(const struct python *py, uintptr_t object, struct python_text *ret)
{
    if (!object_has_type(object, TEXT_BYTES, py->facts.text_type))
        return false;
    size_t start;
    bool usable = python_text_shape(&py->facts.layout, load_u32(object + PYTHON_TEXT_STATE),
                                    stack_load(object + PYTHON_TEXT_LENGTH), ret, &start);
    ret->chars = object + start;
    return usable && stack_probe(ret->chars, ret->length * ret->width);
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
    struct python_text file, function;
    const uint8_t *table;
    size_t len;
    if (!object_has_type(frame->code, CODE_BYTES, py->facts.code_type) ||
        !text_find(py, stack_load(frame->code + l->code_file), &file) ||
        !text_find(py, stack_load(frame->code + l->code_name), &function) ||
        !lines_find(py, frame->code, &table, &len))
        return false;
    ret_name->function_cut =
        python_text_copy(&function, ret_name->function, sizeof(ret_name->function), false);
    ret_name->file_cut = python_text_copy(&file, ret_name->file, sizeof(ret_name->file), true);
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
        state & PYTHON_TEXT_ASCII ? py->facts.layout.text_ascii : py->facts.layout.text_wide;
    return bytes_check((const void *)(object + start),
                       length * (state >> PYTHON_TEXT_KIND_SHIFT & PYTHON_TEXT_KIND_MASK), 0);
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
