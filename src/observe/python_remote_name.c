/* Names of Python calls of another process: those that are kept, and questions about the others. See python_remote.h. */
#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "base/utf8.h"
#include "observe/elf_parser_internal.h"
#include "observe/python_remote.h"

enum { CALLS_MAX = PYTHON_CAPTURE_ENTRIES };

/* ---- names that are kept ---- */

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

/* Does the kernel's check value vouch for the name? */
static bool is_vouched(const struct python_remote *r, uint32_t call,
                       const struct python_remote_name *name)
{
    return name && r->checks[call] != 0 && r->checks[call] == name->captured;
}

static void name_give(struct python_remote *r, uint32_t call, const struct python_remote_name *name)
{
    r->scripts[call] = name->script;
    r->lines[call] = name->line <= BOOK_SCRIPT_LINE_MAX ? name->line : 0;
}

/* ---- answers ---- */

/* A text of an answer: whole, UTF-8, and nothing behind its end. */
static bool text_fits(const char *text, size_t size)
{
    size_t len = strnlen(text, size), n;
    for (size_t i = 0; i < len; i += n)
        if ((n = utf8_sequence(text + i, len - i)) == 0)
            return false;
    for (size_t i = len; i < size; i++)
        if (text[i] != '\0')
            return false;
    return len < size;
}

static bool told_fits(const struct python_call_told *t)
{
    const struct book_script *s = &t->script;
    return t->check != 0 && t->lines_used <= PYTHON_LINES_MAX && s->spare == 0 &&
           (s->flags & ~(uint32_t)(BOOK_SCRIPT_FUNCTION_CUT | BOOK_SCRIPT_FILE_CUT)) == 0 &&
           text_fits(s->function, sizeof(s->function)) && text_fits(s->file, sizeof(s->file));
}

/* The answer is in r->told for each call of r->ask. */
static bool ask(struct python_remote *r)
{
    struct elf_question q = {
        .ask = {.kind = ELF_ASK_PYTHON_NAMES, .payload_bytes = sizeof(r->ask)},
        .payload = &r->ask,
        .memory = r->read,
        .memory_context = r->context,
        .memory_left = (uint64_t)r->ask.n * PYTHON_CALL_BYTES,
        .pieces_left = r->ask.n * PYTHON_CALL_PIECES,
        .told = r->told.calls,
        .told_bytes = r->ask.n * sizeof(r->told.calls[0]),
    };
    if (r->ask.n == 0)
        return false;
    return r->parser ? elf_parser_ask_process(r->parser, &q, r->deaths) == 0
                     : python_objects_names(&r->ask, r->read, r->context, &r->told) == 0;
}

static void name_keep(struct python_remote *r, uint32_t call, const struct python_call_told *t)
{
    const struct python_frame *f = &r->stack.frames[call];
    struct python_remote_name *name = name_place(r, f);
    r->names_read++;
    *name = (struct python_remote_name){
        .code = f->code,
        .at = f->at,
        .check = t->check,
        .captured = t->numbered ? r->checks[call] : 0,
        .lines_used = t->lines_used,
        .line = t->line,
        .script = t->script,
    };
    name_give(r, call, name);
}

/* A new name may take the place of one that is kept: those that hold are given first. */
static uint32_t told_take(struct python_remote *r, const uint32_t *calls)
{
    uint32_t named = 0;
    for (uint32_t i = 0; i < r->ask.n; i++) {
        if (r->told.calls[i].state != PYTHON_CALL_HOLDS || r->ask.calls[i].kept == 0)
            continue;
        name_give(r, calls[i], name_find(r, &r->stack.frames[calls[i]]));
        named++;
    }
    for (uint32_t i = 0; i < r->ask.n; i++) {
        if (r->told.calls[i].state != PYTHON_CALL_NAMED || !told_fits(&r->told.calls[i]))
            continue;
        name_keep(r, calls[i], &r->told.calls[i]);
        named++;
    }
    return named;
}

uint32_t python_remote_names(struct python_remote *r, uint32_t n)
{
    const struct python_facts *facts = &r->py.facts;
    uint32_t calls[CALLS_MAX], named = 0;
    memset(&r->ask, 0, sizeof(r->ask));
    r->ask.code_type = facts->code_type;
    r->ask.text_type = facts->text_type;
    r->ask.bytes_type = facts->bytes_type;
    r->ask.version = facts->layout.version;
    n = n < CALLS_MAX ? n : CALLS_MAX;
    for (uint32_t i = 0; i < n; i++) {
        const struct python_frame *f = &r->stack.frames[i];
        const struct python_remote_name *name = name_find(r, f);
        if (is_vouched(r, i, name)) {
            name_give(r, i, name);
            named++;
            continue;
        }
        memset(&r->scripts[i], 0, sizeof(r->scripts[i]));
        r->lines[i] = 0;
        calls[r->ask.n] = i;
        r->ask.calls[r->ask.n++] = (struct python_call_ask){
            .code = f->code,
            .at = f->at,
            .captured = r->checks[i],
            .kept = name ? name->check : 0,
            .lines_used = name ? name->lines_used : 0,
        };
    }
    return ask(r) ? named + told_take(r, calls) : named;
}
