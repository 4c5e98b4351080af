/* python_memory.h: memory with objects of CPython 3.11 in it, as a process would have them. For tests. */
#pragma once

#include <stdint.h>
#include <string.h>

#include "observe/python_remote.h"
#include "site/python_layout.h"

#define PYTHON_MEMORY_AT UINT64_C(0x100000)

enum {
    PYTHON_MEMORY_BYTES = 65536,
    PYTHON_CODE_TYPE = 0x20000,
    PYTHON_STRING_TYPE = 0x20008,
    PYTHON_TABLE_TYPE = 0x20010,
};

struct python_memory {
    uint64_t reads; /* calls of python_memory_read() */
    size_t used;
    uint8_t bytes[PYTHON_MEMORY_BYTES];
};

/* A remote_read_fn. */
static inline void python_memory_read(void *context, struct remote_piece *pieces, size_t n)
{
    struct python_memory *m = context;
    m->reads++;
    for (size_t i = 0; i < n; i++) {
        uint64_t at = pieces[i].address - PYTHON_MEMORY_AT;
        pieces[i].done = at <= sizeof(m->bytes) && pieces[i].bytes <= sizeof(m->bytes) - at;
        if (pieces[i].done)
            memcpy(pieces[i].to, m->bytes + at, pieces[i].bytes);
    }
}

static inline void *python_memory_take(struct python_memory *m, size_t bytes, uint64_t *ret_address)
{
    void *at = m->bytes + m->used;
    *ret_address = PYTHON_MEMORY_AT + m->used;
    m->used += (bytes + 15) & ~(size_t)15;
    return m->used <= sizeof(m->bytes) ? at : NULL;
}

static inline void python_memory_u64(void *object, size_t at, uint64_t value)
{
    memcpy((uint8_t *)object + at, &value, sizeof(value));
}

/* A string of ASCII characters. */
static inline uint64_t python_memory_text(struct python_memory *m, const char *text)
{
    const struct python_layout *l = python_layout_of(0x030b0000);
    uint64_t address;
    void *object = python_memory_take(m, l->text_ascii + strlen(text) + 1, &address);
    python_memory_u64(object, PYTHON_OBJECT_COUNT, 1);
    python_memory_u64(object, PYTHON_OBJECT_TYPE, PYTHON_STRING_TYPE);
    python_memory_u64(object, PYTHON_TEXT_LENGTH, strlen(text));
    python_memory_u64(object, PYTHON_TEXT_HASH, address * 31);
    python_memory_u64(object, PYTHON_TEXT_STATE, 1u << 2 | 1u << 5 | 1u << 6);
    memcpy((uint8_t *)object + l->text_ascii, text, strlen(text));
    return address;
}

/* A code object without a line table. */
static inline uint64_t python_memory_code(struct python_memory *m, const char *function,
                                          const char *file, uint32_t first_line)
{
    const struct python_layout *l = python_layout_of(0x030b0000);
    uint64_t address, table, name = python_memory_text(m, function),
                             path = python_memory_text(m, file);
    void *lines = python_memory_take(m, 48, &table);
    python_memory_u64(lines, PYTHON_OBJECT_COUNT, 1);
    python_memory_u64(lines, PYTHON_OBJECT_TYPE, PYTHON_TABLE_TYPE);
    void *code = python_memory_take(m, 256, &address);
    python_memory_u64(code, PYTHON_OBJECT_COUNT, 1);
    python_memory_u64(code, PYTHON_OBJECT_TYPE, PYTHON_CODE_TYPE);
    python_memory_u64(code, l->code_name, name);
    python_memory_u64(code, l->code_file, path);
    python_memory_u64(code, l->code_lines, table);
    memcpy((uint8_t *)code + l->code_first_line, &first_line, sizeof(first_line));
    return address;
}

static inline void python_memory_remote(struct python_memory *m, struct python_remote *r,
                                        struct elf_parser *parser, uint32_t *deaths)
{
    memset(r, 0, sizeof(*r));
    r->read = python_memory_read;
    r->context = m;
    r->parser = parser;
    r->deaths = deaths;
    r->py.facts.layout = *python_layout_of(0x030b0000);
    r->py.facts.code_type = PYTHON_CODE_TYPE;
    r->py.facts.text_type = PYTHON_STRING_TYPE;
    r->py.facts.bytes_type = PYTHON_TABLE_TYPE;
    r->py.state = PYTHON_READY;
}
