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

/* Calls whose names are kept, and the pieces of memory that tell whether they hold. */
struct keeping {
    uint32_t n, n_pieces;
    size_t used; /* of r->bytes */
    uint32_t calls[CALLS_MAX], first[CALLS_MAX];
    struct remote_piece pieces[CALLS_MAX * PYTHON_WITNESSES];
};

/* False: there is no room for all of its bytes. */
static bool keeping_add(struct python_remote *r, struct keeping *k, uint32_t call,
                        const struct python_remote_name *name)
{
    size_t used = k->used;
    for (uint32_t i = 0; i < name->n_witnesses; i++) {
        const struct python_witness *w = &name->witnesses[i];
        if (w->bytes > sizeof(r->bytes) - used)
            return false;
        k->pieces[k->n_pieces + i] =
            (struct remote_piece){w->address, r->bytes + used, w->bytes, false};
        used += w->bytes;
    }
    k->first[k->n] = k->n_pieces;
    k->calls[k->n++] = call;
    k->n_pieces += name->n_witnesses;
    k->used = used;
    return true;
}

/* Does the name of one hold, and is it the code object that the kernel saw? */
static bool holds(const struct python_remote *r, const struct keeping *k, uint32_t i,
                  const struct python_remote_name *name)
{
    const struct remote_piece *p = &k->pieces[k->first[i]];
    uint64_t words[PYTHON_CODE_CHECK_WORDS], check = 0, captured = r->checks[k->calls[i]];
    for (uint32_t w = 0; w < name->n_witnesses; w++) {
        if (!p[w].done && p[w].bytes > 0)
            return false;
        check = python_witness_add(check, p[w].to, p[w].bytes);
    }
    memcpy(words, p[0].to, sizeof(words));
    return check == name->check && (captured == 0 || captured == python_code_check(words));
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

/* The first witness is the part of the code object of which the kernel takes its check value. */
static bool witnesses_fit(const struct python_call_told *t, const struct python_call_ask *ask)
{
    if (t->check == 0 || t->n_witnesses == 0 || t->n_witnesses > PYTHON_WITNESSES ||
        t->witnesses[0].address != ask->code + PYTHON_CODE_CHECK_AT ||
        t->witnesses[0].bytes != PYTHON_CODE_CHECK_WORDS * sizeof(uint64_t))
        return false;
    for (uint32_t i = 0; i < t->n_witnesses; i++)
        if (t->witnesses[i].bytes > PYTHON_LINES_MAX)
            return false;
    return true;
}

static bool told_fits(const struct python_call_told *t, const struct python_call_ask *ask)
{
    const struct book_script *s = &t->script;
    return t->named == 1 && s->spare == 0 && witnesses_fit(t, ask) &&
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
    return python_remote_is_here(r)
               ? python_objects_names(&r->ask, r->read, r->context, &r->told) == 0
               : python_remote_ask(r, &q) == 0;
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
        .line = t->line,
        .n_witnesses = t->n_witnesses,
        .script = t->script,
    };
    memcpy(name->witnesses, t->witnesses, sizeof(name->witnesses));
    name_give(r, call, name);
}

static void ask_add(struct python_remote *r, uint32_t call, uint32_t *calls)
{
    const struct python_frame *f = &r->stack.frames[call];
    calls[r->ask.n] = call;
    r->ask.calls[r->ask.n++] =
        (struct python_call_ask){.code = f->code, .at = f->at, .captured = r->checks[call]};
}

/* Names that are kept: those that the kernel vouches for or that still hold. All other calls go into r->ask. A new name may take the place
 * of one that is kept, so that these come first. */
static uint32_t kept_give(struct python_remote *r, uint32_t n, uint32_t *calls)
{
    struct keeping k = {.n = 0};
    uint32_t named = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct python_remote_name *name = name_find(r, &r->stack.frames[i]);
        memset(&r->scripts[i], 0, sizeof(r->scripts[i]));
        r->lines[i] = 0;
        if (is_vouched(r, i, name)) {
            name_give(r, i, name);
            named++;
        } else if (!name || !keeping_add(r, &k, i, name)) {
            ask_add(r, i, calls);
        }
    }
    if (k.n_pieces > 0)
        r->read(r->context, k.pieces, k.n_pieces);
    for (uint32_t i = 0; i < k.n; i++) {
        const struct python_remote_name *name = name_find(r, &r->stack.frames[k.calls[i]]);
        if (holds(r, &k, i, name)) {
            name_give(r, k.calls[i], name);
            named++;
        } else {
            ask_add(r, k.calls[i], calls);
        }
    }
    return named;
}

uint32_t python_remote_names(struct python_remote *r, uint32_t n)
{
    const struct python_facts *facts = &r->py.facts;
    uint32_t calls[CALLS_MAX];
    memset(&r->ask, 0, sizeof(r->ask));
    r->ask.code_type = facts->code_type;
    r->ask.text_type = facts->text_type;
    r->ask.bytes_type = facts->bytes_type;
    r->ask.version = facts->layout.version;
    uint32_t named = kept_give(r, n < CALLS_MAX ? n : CALLS_MAX, calls);
    if (!ask(r))
        return named;
    for (uint32_t i = 0; i < r->ask.n; i++) {
        if (!told_fits(&r->told.calls[i], &r->ask.calls[i]))
            continue;
        name_keep(r, calls[i], &r->told.calls[i]);
        named++;
    }
    return named;
}
