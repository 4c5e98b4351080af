/* Names of Python calls of another process: code objects, strings and line tables, read in a few system calls for a whole
 * stack. What site/python_name.c does in the process itself. */
#include <string.h>

#include "base/hash.h"
#include "observe/python_remote.h"
#include "site/python_lines.h"
#include "site/python_text.h"

enum {
    CALLS_MAX = PYTHON_CAPTURE_ENTRIES,
    CODE_WORDS = 18, /* of a code object: no field that is read lies further on */
    TEXT_WORDS = 5,
    BYTES_WORDS = 4,
    CHARS_MAX = PYTHON_FILE_MAX * 4,
};

/* What is read of a call. */
struct call {
    const struct python_frame *frame;
    struct python_remote_name *name; /* its place among those that are kept, or NULL */
    bool usable;                     /* the code object is one */
    bool heads;                      /* those of its strings and its line table were read */
    uint64_t code[CODE_WORDS];
    uint64_t function[TEXT_WORDS], file[TEXT_WORDS], lines[BYTES_WORDS]; /* heads of its objects */
};

static uint64_t word_of(const uint64_t *words, unsigned offset)
{
    return words[offset / 8];
}

static uint32_t half_of(const uint64_t *words, unsigned offset)
{
    return (uint32_t)(words[offset / 8] >> (offset % 8 * 8));
}

static struct python_remote_name *set_of(struct python_remote *r, const struct python_frame *f)
{
    uint64_t key = (f->code ^ (uint64_t)f->at << 24) * HASH_K0;
    return r->names[key >> (64 - PYTHON_REMOTE_SETS_BITS)];
}

/* The place of a call's name, if it has one. */
static struct python_remote_name *name_find(struct python_remote *r, const struct python_frame *f)
{
    struct python_remote_name *set = set_of(r, f);
    for (int i = 0; i < PYTHON_REMOTE_WAYS; i++)
        if (set[i].check != 0 && set[i].code == f->code && set[i].at == f->at)
            return &set[i];
    return NULL;
}

/* A place for it: its own, an unused one, or that of any other; the count of names is as good as a die. */
static struct python_remote_name *name_place(struct python_remote *r, const struct python_frame *f)
{
    struct python_remote_name *set = set_of(r, f), *own = name_find(r, f);
    if (own)
        return own;
    for (int i = 0; i < PYTHON_REMOTE_WAYS; i++)
        if (set[i].check == 0)
            return &set[i];
    return &set[r->names_read % PYTHON_REMOTE_WAYS];
}

/* A name that was found may have given way to that of another call since. */
static bool is_known(const struct call *c)
{
    return c->name && c->name->check != 0 && c->name->code == c->frame->code &&
           c->name->at == c->frame->at;
}

/* ---- reading for all calls at once ---- */

/* Is it the code object that the kernel saw? */
static bool is_same(const struct python_remote *r, const struct call *c)
{
    uint64_t check = r->checks[c->frame - r->stack.frames];
    return check == 0 || check == python_code_check(c->code + PYTHON_CODE_CHECK_AT / 8);
}

static void codes_read(struct python_remote *r, struct call *calls, uint32_t n)
{
    struct remote_piece pieces[CALLS_MAX];
    for (uint32_t i = 0; i < n; i++)
        pieces[i] = (struct remote_piece){calls[i].frame->code, calls[i].code,
                                          sizeof(calls[i].code), false};
    r->read(r->context, pieces, n);
    for (uint32_t i = 0; i < n; i++)
        calls[i].usable = pieces[i].done && calls[i].frame->code % 8 == 0 &&
                          calls[i].code[PYTHON_OBJECT_COUNT / 8] != 0 &&
                          calls[i].code[PYTHON_OBJECT_TYPE / 8] == r->py.facts.code_type &&
                          is_same(r, &calls[i]);
}

/* From 3.12 on a code object has a number of its own. */
static uint32_t version_of(const struct python_remote *r, const struct call *c)
{
    unsigned at = r->py.facts.layout.code_version;
    return at ? half_of(c->code, at) : 0;
}

/* The heads of the strings and of the line tables: of all calls, or of those that cannot do without. */
static void heads_read(struct python_remote *r, struct call *calls, uint32_t n, bool all)
{
    const struct python_layout *l = &r->py.facts.layout;
    struct remote_piece pieces[3 * CALLS_MAX];
    struct call *of[CALLS_MAX];
    uint32_t k = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct call *c = &calls[i];
        if (!c->usable || (!all && is_known(c) && version_of(r, c) != 0))
            continue;
        of[k] = c;
        pieces[3 * k] = (struct remote_piece){word_of(c->code, l->code_name), c->function,
                                              sizeof(c->function), false};
        pieces[3 * k + 1] =
            (struct remote_piece){word_of(c->code, l->code_file), c->file, sizeof(c->file), false};
        pieces[3 * k + 2] = (struct remote_piece){word_of(c->code, l->code_lines), c->lines,
                                                  sizeof(c->lines), false};
        k++;
    }
    r->read(r->context, pieces, 3 * (size_t)k);
    for (uint32_t i = 0; i < k; i++) {
        const struct python_facts *f = &r->py.facts;
        struct call *c = of[i];
        c->heads = c->usable = pieces[3 * i].done && pieces[3 * i + 1].done &&
                               pieces[3 * i + 2].done &&
                               c->function[PYTHON_OBJECT_TYPE / 8] == f->text_type &&
                               c->file[PYTHON_OBJECT_TYPE / 8] == f->text_type &&
                               c->lines[PYTHON_OBJECT_TYPE / 8] == f->bytes_type;
    }
}

/* ---- checks ---- */

/* A number that is the same while the name is, as python_frame_check(): not the same number as that one's. */
static uint64_t check_of(struct python_remote *r, const struct call *c, const uint8_t *table,
                         size_t lines_used)
{
    const struct python_layout *l = &r->py.facts.layout;
    uint64_t version = version_of(r, c);
    uint64_t check = hash_combine(word_of(c->code, l->code_file), word_of(c->code, l->code_name));
    check = hash_combine(check, version << 32 | half_of(c->code, l->code_first_line));
    if (version != 0)
        return check | 1;
    check = hash_combine(check, c->function[PYTHON_TEXT_HASH / 8]);
    check = hash_combine(check, c->file[PYTHON_TEXT_HASH / 8]);
    check = hash_combine(check, word_of(c->code, l->code_lines));
    check = hash_combine(check, c->lines[PYTHON_BYTES_LENGTH / 8]);
    return hash_bytes(table, lines_used, check) | 1;
}

/* Does the name that is kept still hold? */
static bool holds(struct python_remote *r, const struct call *c)
{
    if (!is_known(c))
        return false;
    size_t used = c->name->lines_used;
    if (version_of(r, c) != 0)
        return c->name->check == check_of(r, c, NULL, 0);
    uint64_t table = word_of(c->code, r->py.facts.layout.code_lines) + PYTHON_BYTES_START;
    if (used > PYTHON_REMOTE_LINES_MAX || used > c->lines[PYTHON_BYTES_LENGTH / 8] ||
        (used > 0 && !remote_read_one(r->read, r->context, table, r->table, (uint32_t)used)))
        return false;
    return c->name->check == check_of(r, c, r->table, used);
}

/* ---- names ---- */

/* A string; of a long one the front or the end. False if it cannot be read. */
static bool text_read(struct python_remote *r, uint64_t object, const uint64_t *head, char *out,
                      size_t size, bool from_end, bool *ret_cut)
{
    uint8_t chars[CHARS_MAX];
    struct python_text text;
    size_t start;
    if (!python_text_shape(&r->py.facts.layout, half_of(head, PYTHON_TEXT_STATE),
                           word_of(head, PYTHON_TEXT_LENGTH), &text, &start))
        return false;
    size_t n = text.length < size ? text.length : size, skip = from_end ? text.length - n : 0;
    if (n > 0 && !remote_read_one(r->read, r->context, object + start + skip * text.width, chars,
                                  (uint32_t)(n * text.width)))
        return false;
    bool cut = n < text.length;
    text.chars = (uintptr_t)chars;
    text.length = n;
    cut = python_text_copy(&text, out, size, from_end) || cut;
    *ret_cut = cut;
    return true;
}

static bool learn(struct python_remote *r, struct call *c)
{
    if (!c->heads)
        heads_read(r, c, 1, true);
    if (!c->usable)
        return false;
    const struct python_layout *l = &r->py.facts.layout;
    struct python_remote_name name = {.code = c->frame->code, .at = c->frame->at};
    bool function_cut, file_cut;
    size_t len = c->lines[PYTHON_BYTES_LENGTH / 8], used = 0;
    len = len < PYTHON_REMOTE_LINES_MAX ? len : PYTHON_REMOTE_LINES_MAX;
    r->names_read++;
    if (!text_read(r, word_of(c->code, l->code_name), c->function, name.script.function,
                   sizeof(name.script.function), false, &function_cut) ||
        !text_read(r, word_of(c->code, l->code_file), c->file, name.script.file,
                   sizeof(name.script.file), true, &file_cut) ||
        (len > 0 &&
         !remote_read_one(r->read, r->context, word_of(c->code, l->code_lines) + PYTHON_BYTES_START,
                          r->table, (uint32_t)len)))
        return false;
    name.script.first_line = half_of(c->code, l->code_first_line);
    name.script.flags =
        (function_cut ? BOOK_SCRIPT_FUNCTION_CUT : 0) | (file_cut ? BOOK_SCRIPT_FILE_CUT : 0);
    name.line = python_line(l->lines, r->table, len, c->frame->at, name.script.first_line, &used);
    name.lines_used = (uint32_t)used;
    name.check = check_of(r, c, r->table, used);
    if (version_of(r, c) != 0)
        name.captured = r->checks[c->frame - r->stack.frames];
    c->name = name_place(r, c->frame);
    *c->name = name;
    return true;
}

/* The name that the kernel's check value vouches for. */
static bool is_vouched(const struct python_remote *r, const struct call *c)
{
    uint64_t check = r->checks[c->frame - r->stack.frames];
    return is_known(c) && check != 0 && check == c->name->captured;
}

static void name_give(struct python_remote *r, const struct call *c)
{
    size_t i = (size_t)(c->frame - r->stack.frames);
    r->scripts[i] = c->name->script;
    r->lines[i] = c->name->line <= BOOK_SCRIPT_LINE_MAX ? c->name->line : 0;
}

uint32_t python_remote_names(struct python_remote *r, uint32_t n)
{
    struct call calls[CALLS_MAX];
    uint32_t named = 0, left = 0;
    n = n < CALLS_MAX ? n : CALLS_MAX;
    for (uint32_t i = 0; i < n; i++) {
        struct call *c = &calls[left];
        c->frame = &r->stack.frames[i];
        c->name = name_find(r, c->frame);
        c->heads = false;
        if (is_vouched(r, c)) {
            name_give(r, c);
            named++;
            continue;
        }
        memset(&r->scripts[i], 0, sizeof(r->scripts[i]));
        r->lines[i] = 0;
        left++;
    }
    codes_read(r, calls, left);
    heads_read(r, calls, left, false);
    for (uint32_t i = 0; i < left; i++) {
        struct call *c = &calls[i];
        if (!c->usable || (!holds(r, c) && !learn(r, c)))
            continue;
        name_give(r, c);
        named++;
    }
    return named;
}
