/* Objects of CPython in memory of a hostile process (python_objects.h): keys of threads, code objects, strings, line tables. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "observe/python_objects.h"
#include "site/python_layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MEMORY_AT UINT64_C(0x10000)

/* The memory, and what the observer would still read for the question. */
struct memory {
    const uint8_t *at;
    size_t n;
    uint64_t bytes_left, pieces_left;
};

static void memory_read(void *context, struct remote_piece *pieces, size_t n)
{
    struct memory *m = context;
    for (size_t i = 0; i < n; i++) {
        uint64_t at = pieces[i].address - MEMORY_AT;
        if (pieces[i].bytes == 0) {
            pieces[i].done = true;
            continue;
        }
        if (m->pieces_left == 0 || m->bytes_left < pieces[i].bytes)
            abort(); /* the child would be ended over a process that did nothing wrong */
        m->pieces_left--;
        m->bytes_left -= pieces[i].bytes;
        pieces[i].done = at <= m->n && pieces[i].bytes <= m->n - at;
        if (pieces[i].done)
            memcpy(pieces[i].to, m->at + at, pieces[i].bytes);
    }
}

/* The memory is _PyRuntime and all that it leads to. */
static void key_try(struct memory *m, uint16_t version)
{
    struct python_key_told told = {0};
    const struct python_key_ask ask = {
        .runtime = MEMORY_AT,
        .runtime_bytes = m->n < PYTHON_RUNTIME_MAX ? (uint32_t)m->n : PYTHON_RUNTIME_MAX,
        .version = version,
        .specific = 64,
        .key_bytes = 16,
        .key_data = 8,
        .block_keys = 32,
    };
    m->pieces_left = PYTHON_KEY_PIECES;
    m->bytes_left = PYTHON_KEY_BYTES;
    if (python_objects_key(&ask, memory_read, m, &told) == 0 && told.at + 8 > ask.runtime_bytes)
        abort();
}

static void text_check(const char *text, size_t size)
{
    if (strnlen(text, size) == size)
        abort();
}

/* Calls come first: code, instruction and check value of each. */
static void names_try(struct memory *m, uint16_t version)
{
    static struct python_names_ask ask;
    static struct python_names_told told;
    size_t n = m->n / 2 / 24 < PYTHON_CAPTURE_ENTRIES ? m->n / 2 / 24 : PYTHON_CAPTURE_ENTRIES;
    memset(&ask, 0, sizeof(ask));
    ask.code_type = 0x20000;
    ask.text_type = 0x20008;
    ask.bytes_type = 0x20010;
    ask.version = version;
    ask.n = (uint16_t)n;
    for (size_t i = 0; i < n; i++) {
        memcpy(&ask.calls[i].code, m->at + 24 * i, 8);
        memcpy(&ask.calls[i].at, m->at + 24 * i + 8, 8);
        memcpy(&ask.calls[i].captured, m->at + 24 * i + 16, 8);
    }
    m->pieces_left = n * PYTHON_CALL_PIECES;
    m->bytes_left = n * PYTHON_CALL_BYTES;
    if (python_objects_names(&ask, memory_read, m, &told) < 0)
        return;
    for (size_t i = 0; i < n; i++) {
        const struct python_call_told *t = &told.calls[i];
        text_check(t->script.function, sizeof(t->script.function));
        text_check(t->script.file, sizeof(t->script.file));
        if (t->n_witnesses > PYTHON_WITNESSES || (t->named && !t->check))
            abort();
        for (uint32_t w = 0; w < t->n_witnesses; w++)
            if (t->witnesses[w].bytes > PYTHON_LINES_MAX)
                abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t layouts = 0;
    if (size < 2)
        return 0;
    while (python_layouts[layouts].version)
        layouts++;
    uint16_t version = python_layouts[data[1] % layouts].version;
    struct memory m = {.n = size - 2};
    uint8_t *copy = malloc(m.n ? m.n : 1);
    if (!copy)
        return 0;
    memcpy(copy, data + 2, m.n);
    m.at = copy;
    if (data[0] % 2 == 0)
        key_try(&m, version);
    else
        names_try(&m, version);
    free(copy);
    return 0;
}
