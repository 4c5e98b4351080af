/* Names of Python calls of another process: code objects, strings and line tables, read in a few steps for a whole stack. What
 * site/python_name.c does in the process itself. See python_objects.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "observe/python_objects.h"
#include "site/python_layout.h"
#include "site/python_lines.h"
#include "site/python_text.h"

enum { CALLS_MAX = PYTHON_CAPTURE_ENTRIES };

/* A string: its head, then its characters. */
struct string {
    uint64_t head[PYTHON_TEXT_WORDS];
    struct python_text text;
    size_t n, skip; /* characters that are read, and those before them */
    uint64_t at;    /* where they are */
};

/* What is read of a call. */
struct call {
    const struct python_call_ask *ask;
    struct python_call_told *told;
    bool
        usable; /* the code object is one, and all that was read of it so far is what it should be */
    bool heads; /* those of its strings and its line table were read */
    uint64_t code[PYTHON_CODE_WORDS];
    struct string function, file;
    uint64_t lines[PYTHON_BYTES_WORDS];
    uint32_t table_bytes;
    uint8_t function_chars[PYTHON_FUNCTION_CHARS * 4];
    uint8_t file_chars[PYTHON_FILE_CHARS * 4];
    uint8_t table[PYTHON_LINES_MAX];
};

struct naming {
    const struct python_names_ask *ask;
    const struct python_layout *layout;
    remote_read_fn *read;
    void *context;
    uint32_t n_pieces;
    struct remote_piece pieces[3 * CALLS_MAX];
    struct call calls[CALLS_MAX];
};

static uint64_t word_of(const uint64_t *words, unsigned offset)
{
    return words[offset / 8];
}

static uint32_t half_of(const uint64_t *words, unsigned offset)
{
    return (uint32_t)(words[offset / 8] >> (offset % 8 * 8));
}

/* ---- reading for all calls at once ---- */

static void piece_add(struct naming *n, uint64_t address, void *to, uint32_t bytes)
{
    n->pieces[n->n_pieces++] = (struct remote_piece){address, to, bytes, false};
}

/* Empty pieces need no reading. */
static void pieces_read(struct naming *n)
{
    for (uint32_t i = 0; i < n->n_pieces; i++)
        n->pieces[i].done = false;
    if (n->n_pieces > 0)
        n->read(n->context, n->pieces, n->n_pieces);
    n->n_pieces = 0;
}

/* Is it the code object that the kernel saw? */
static bool is_same(const struct call *c)
{
    return c->ask->captured == 0 ||
           c->ask->captured == python_code_check(c->code + PYTHON_CODE_CHECK_AT / 8);
}

static void codes_read(struct naming *n)
{
    for (uint32_t i = 0; i < n->ask->n; i++)
        piece_add(n, n->calls[i].ask->code, n->calls[i].code, sizeof(n->calls[i].code));
    pieces_read(n);
    for (uint32_t i = 0; i < n->ask->n; i++) {
        struct call *c = &n->calls[i];
        c->usable = n->pieces[i].done && c->ask->code % 8 == 0 &&
                    c->code[PYTHON_OBJECT_COUNT / 8] != 0 &&
                    c->code[PYTHON_OBJECT_TYPE / 8] == n->ask->code_type && is_same(c);
    }
}

/* From 3.12 on a code object has a number of its own. */
static uint32_t version_of(const struct naming *n, const struct call *c)
{
    unsigned at = n->layout->code_version;
    return at ? half_of(c->code, at) : 0;
}

/* The heads of the strings and of the line tables. */
static void heads_read(struct naming *n)
{
    const struct python_layout *l = n->layout;
    struct call *of[CALLS_MAX];
    uint32_t k = 0;
    for (uint32_t i = 0; i < n->ask->n; i++) {
        struct call *c = &n->calls[i];
        if (!c->usable)
            continue;
        of[k++] = c;
        piece_add(n, word_of(c->code, l->code_name), c->function.head, sizeof(c->function.head));
        piece_add(n, word_of(c->code, l->code_file), c->file.head, sizeof(c->file.head));
        piece_add(n, word_of(c->code, l->code_lines), c->lines, sizeof(c->lines));
    }
    pieces_read(n);
    for (uint32_t i = 0; i < k; i++) {
        struct call *c = of[i];
        const struct remote_piece *p = &n->pieces[3 * i];
        c->usable = p[0].done && p[1].done && p[2].done &&
                    word_of(c->function.head, PYTHON_OBJECT_TYPE) == n->ask->text_type &&
                    word_of(c->file.head, PYTHON_OBJECT_TYPE) == n->ask->text_type &&
                    word_of(c->lines, PYTHON_OBJECT_TYPE) == n->ask->bytes_type;
    }
}

/* ---- names ---- */

/* Which characters of a string are read: of a long one the front or the end. */
static bool string_shape(const struct naming *n, struct string *s, uint64_t object, size_t most,
                         bool from_end)
{
    size_t start;
    if (!python_text_shape(n->layout, half_of(s->head, PYTHON_TEXT_STATE),
                           word_of(s->head, PYTHON_TEXT_LENGTH), &s->text, &start))
        return false;
    s->n = s->text.length < most ? s->text.length : most;
    s->skip = from_end ? s->text.length - s->n : 0;
    s->at = object + start + s->skip * s->text.width;
    return true;
}

static bool string_copy(const struct string *s, const uint8_t *chars, char *out, size_t size,
                        bool from_end)
{
    struct python_text text = s->text;
    text.chars = (uintptr_t)chars;
    text.length = s->n;
    bool cut = python_text_copy(&text, out, size, from_end);
    return cut || s->n < s->text.length;
}

static void witness_add(struct python_call_told *told, uint64_t address, const void *bytes,
                        size_t n)
{
    told->witnesses[told->n_witnesses++] =
        (struct python_witness){.address = address, .bytes = (uint32_t)n};
    told->check = python_witness_add(told->check, bytes, n);
}

/* From the word at `first` on. */
static void words_add(struct python_call_told *told, uint64_t object, const uint64_t *words,
                      unsigned first, unsigned bytes)
{
    witness_add(told, object + first, words + first / 8, bytes);
}

/* All that the name was made from: addresses, lengths and hashes of the strings, the first line, and those bytes of the line table
 * that decide. No count of references. */
static void witnesses_make(const struct naming *n, const struct call *c, size_t lines_used)
{
    const struct python_layout *l = n->layout;
    struct python_call_told *told = c->told;
    uint64_t code = c->ask->code, table = word_of(c->code, l->code_lines);
    unsigned type = PYTHON_OBJECT_TYPE;
    words_add(told, code, c->code, PYTHON_CODE_CHECK_AT, PYTHON_CODE_CHECK_WORDS * 8);
    words_add(told, code, c->code, type, 8);
    words_add(told, code, c->code, l->code_first_line & ~7u, 8);
    words_add(told, code, c->code, l->code_name & ~7u, 8);
    words_add(told, code, c->code, l->code_lines & ~7u, 8);
    words_add(told, word_of(c->code, l->code_name), c->function.head, type,
              sizeof(c->function.head) - type);
    words_add(told, word_of(c->code, l->code_file), c->file.head, type,
              sizeof(c->file.head) - type);
    words_add(told, table, c->lines, type, PYTHON_BYTES_LENGTH + 8 - type);
    witness_add(told, table + PYTHON_BYTES_START, c->table, lines_used);
}

static void name_make(const struct naming *n, const struct call *c)
{
    struct python_call_told *told = c->told;
    size_t used = 0;
    bool function_cut = string_copy(&c->function, c->function_chars, told->script.function,
                                    sizeof(told->script.function), false);
    bool file_cut =
        string_copy(&c->file, c->file_chars, told->script.file, sizeof(told->script.file), true);
    told->script.first_line = half_of(c->code, n->layout->code_first_line);
    told->script.flags =
        (function_cut ? BOOK_SCRIPT_FUNCTION_CUT : 0) | (file_cut ? BOOK_SCRIPT_FILE_CUT : 0);
    told->line = python_line(n->layout->lines, c->table, c->table_bytes, c->ask->at,
                             told->script.first_line, &used);
    witnesses_make(n, c, used);
    told->numbered = version_of(n, c) != 0;
    told->named = 1;
}

static void names_read(struct naming *n)
{
    const struct python_layout *l = n->layout;
    struct call *of[CALLS_MAX];
    uint32_t k = 0;
    for (uint32_t i = 0; i < n->ask->n; i++) {
        struct call *c = &n->calls[i];
        if (!c->usable ||
            !string_shape(n, &c->function, word_of(c->code, l->code_name), PYTHON_FUNCTION_CHARS,
                          false) ||
            !string_shape(n, &c->file, word_of(c->code, l->code_file), PYTHON_FILE_CHARS, true))
            continue;
        uint64_t len = word_of(c->lines, PYTHON_BYTES_LENGTH);
        c->table_bytes = len < PYTHON_LINES_MAX ? (uint32_t)len : PYTHON_LINES_MAX;
        of[k++] = c;
        piece_add(n, c->function.at, c->function_chars,
                  (uint32_t)(c->function.n * c->function.text.width));
        piece_add(n, c->file.at, c->file_chars, (uint32_t)(c->file.n * c->file.text.width));
        piece_add(n, word_of(c->code, l->code_lines) + PYTHON_BYTES_START, c->table,
                  c->table_bytes);
    }
    pieces_read(n);
    for (uint32_t i = 0; i < k; i++) {
        bool done = true;
        for (uint32_t p = 3 * i; p < 3 * i + 3; p++)
            done = done && (n->pieces[p].done || n->pieces[p].bytes == 0);
        if (done)
            name_make(n, of[i]);
    }
}

int python_objects_names(const struct python_names_ask *ask, remote_read_fn *read, void *context,
                         struct python_names_told *told)
{
    const struct python_layout *layout = python_layout_of((uint64_t)ask->version << 16);
    if (ask->n > CALLS_MAX)
        return -EINVAL;
    if (!layout)
        return -ENOENT;
    /* Most of it is never touched: tables are short. */
    struct naming *n = malloc(sizeof(*n));
    if (!n)
        return -ENOMEM;
    n->ask = ask;
    n->layout = layout;
    n->read = read;
    n->context = context;
    n->n_pieces = 0;
    memset(told->calls, 0, ask->n * sizeof(told->calls[0]));
    for (uint32_t i = 0; i < ask->n; i++) {
        n->calls[i].ask = &ask->calls[i];
        n->calls[i].told = &told->calls[i];
    }
    codes_read(n);
    heads_read(n);
    names_read(n);
    free(n);
    return 0;
}
