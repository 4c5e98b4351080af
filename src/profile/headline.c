/* See headline.h. */
#include "profile/headline.h"

#include <errno.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "profile/names.h"
#include "profile/profile.h"
#include "site/short_name.h"

/* ---- one frame ---- */

static enum own_kind line_kind(const struct profile *p, const struct profile_frame *f, size_t line)
{
    const struct profile_module *m = &p->modules[f->module];
    const struct profile_line *l = line < f->n_lines ? &p->lines[f->first_line + line] : NULL;
    struct own_line own = {
        .module = profile_text(p, m->path),
        .function = l ? profile_text(p, l->function) : NULL,
        .file = l ? profile_text(p, l->file) : NULL,
        .script = m->kind == PROFILE_MODULE_SCRIPT,
        .code = m->kind == PROFILE_MODULE_ADDRESS,
    };
    return own_kind(&own);
}

static enum own_kind best(const struct profile *p, uint32_t frame, size_t *ret_line)
{
    const struct profile_frame *f = &p->frames[frame];
    enum own_kind kinds[PROFILE_LINES_MAX];
    size_t n = 0;
    do { /* a frame without a name has a kind, too */
        kinds[n] = line_kind(p, f, n);
    } while (kinds[n++] != OWN_CODE && n < f->n_lines);
    *ret_line = own_choose(kinds, n);
    enum own_kind kind = kinds[*ret_line];
    return kind == OWN_CODE && f->forwards ? OWN_WRAPPER : kind;
}

size_t headline_line(const struct profile *p, uint32_t frame)
{
    size_t line;
    (void)best(p, frame, &line);
    return line;
}

enum own_kind headline_kind(const struct profile *p, uint32_t frame)
{
    size_t line;
    return best(p, frame, &line);
}

static bool is_script(const struct profile *p, uint32_t frame)
{
    return p->modules[p->frames[frame].module].kind == PROFILE_MODULE_SCRIPT;
}

/* ---- a stack ---- */

size_t headline_frame(const struct profile *p, const uint32_t *frames, size_t n)
{
    size_t chosen = 0;
    bool chosen_script = false;
    enum own_kind kind = OWN_ALLOCATOR + 1;
    for (size_t i = 0; i < n && (kind != OWN_CODE || !chosen_script); i++) {
        bool script = is_script(p, frames[i]);
        if (kind == OWN_CODE && !script)
            continue; /* its names need not be looked at */
        enum own_kind other = headline_kind(p, frames[i]);
        if (own_is_better(kind, chosen_script, other, script)) {
            kind = other;
            chosen = i;
            chosen_script = script;
        }
    }
    return chosen;
}

void headline_via(const struct profile *p, const uint32_t *frames, size_t n, struct buffer *out)
{
    char label[PROFILE_LABEL_MAX], name[SHORT_NAME_MAX];
    if (n == 0)
        return;
    size_t line = headline_line(p, frames[n - 1]);
    uint32_t frame = frames[n - 1];
    if (line == 0 && n == 1)
        return;
    if (line == 0) {
        size_t lines = p->frames[frames[n - 2]].n_lines;
        frame = frames[n - 2];
        line = lines ? lines : 1;
    }
    if (is_script(p, frames[n - 1]) && line_kind(p, &p->frames[frame], line - 1) >= OWN_STANDARD)
        return;
    buffer_append_str(out, short_name(profile_function(p, frame, line - 1, label), name));
}

/* ---- functions that forward ---- */

struct seen {
    uint32_t frame, caller;
    uint64_t size; /* of a block, on average */
};

static int by_frame(const void *a, const void *b)
{
    const struct seen *x = a, *y = b;
    if (x->frame != y->frame)
        return x->frame < y->frame ? -1 : 1;
    return (x->caller > y->caller) - (x->caller < y->caller);
}

static int by_key(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int mark_same(struct profile *to, const struct profile *from)
{
    MEMOIR_CLEANUP(freep)
    uint64_t *keys = malloc((from->n_frames + 1) * sizeof(*keys));
    size_t n = 0;
    if (!keys)
        return -ENOMEM;
    for (size_t i = 0; i < from->n_frames; i++)
        if (from->frames[i].forwards)
            keys[n++] = from->frames[i].key;
    if (n == 0)
        return 0;
    qsort(keys, n, sizeof(*keys), by_key);
    for (size_t i = 0; i < to->n_frames; i++)
        to->frames[i].forwards |=
            bsearch(&to->frames[i].key, keys, n, sizeof(*keys), by_key) != NULL;
    return 0;
}

int headlines_agree(struct profile *one, struct profile *other)
{
    int r = mark_same(one, other);
    return r < 0 ? r : mark_same(other, one);
}

static bool is_small(const struct profile_frame *f)
{
    return f->function_bytes && f->function_bytes <= HEADLINE_FORWARDS_BYTES;
}

/* Mark what the stacks as far as they are looked at show to forward: how many frames are new. */
static size_t mark(struct profile *p, struct seen *seen, size_t n)
{
    size_t marked = 0;
    if (n)
        qsort(seen, n, sizeof(*seen), by_frame);
    for (size_t i = 0, end; i < n; i = end) {
        size_t callers = 0;
        uint64_t least = UINT64_MAX, most = 0; /* estimates, so about the same is the same */
        for (end = i; end < n && seen[end].frame == seen[i].frame; end++) {
            callers += end == i || seen[end].caller != seen[end - 1].caller;
            least = seen[end].size < least ? seen[end].size : least;
            most = seen[end].size > most ? seen[end].size : most;
        }
        struct profile_frame *f = &p->frames[seen[i].frame];
        if (callers > HEADLINE_FORWARDS_CALLERS && most / 2 > least && is_small(f) &&
            !f->forwards) {
            f->forwards = true;
            marked++;
        }
    }
    return marked;
}

static size_t forwards_find(struct profile *p, const struct headline_stack *stacks, size_t n,
                            struct seen *seen)
{
    size_t filled = 0;
    for (size_t i = 0; i < n; i++) {
        const struct headline_stack *s = &stacks[i];
        if (s->at + 1 < s->n_frames && s->blocks && !is_script(p, s->frames[s->at]) &&
            headline_kind(p, s->frames[s->at]) == OWN_CODE)
            seen[filled++] =
                (struct seen){s->frames[s->at], s->frames[s->at + 1], s->bytes / s->blocks};
    }
    return mark(p, seen, filled);
}

/* ---- names ---- */

/* Names change nothing about a module that is not the program's. */
static bool needs_name(const struct profile *p, uint32_t frame)
{
    const struct profile_frame *f = &p->frames[frame];
    const struct profile_module *m = &p->modules[f->module];
    return !f->looked_up &&
           (m->kind == PROFILE_MODULE_ADDRESS ||
            (m->kind == PROFILE_MODULE_FILE && own_module(profile_text(p, m->path))));
}

/* One frame further where the one that was looked at is not the program's own: how many stacks went on. */
static size_t advance(const struct profile *p, struct headline_stack *stacks, size_t n)
{
    size_t moved = 0;
    for (size_t i = 0; i < n; i++) {
        struct headline_stack *s = &stacks[i];
        while (s->at < s->n_frames && headline_kind(p, s->frames[s->at]) != OWN_CODE &&
               !needs_name(p, s->frames[s->at])) {
            s->at++;
            moved++;
        }
    }
    return moved;
}

/* -errno, or how many frames were named. */
static int name_at(struct profile *p, struct symbolizer *symbolizer,
                   const struct headline_stack *stacks, size_t n,
                   bool (*progress)(size_t, size_t, void *), void *context)
{
    MEMOIR_CLEANUP(freep)
    bool *wanted = calloc(p->n_frames + 1, sizeof(*wanted));
    int any = 0;
    if (!wanted)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (stacks[i].at < stacks[i].n_frames && needs_name(p, stacks[i].frames[stacks[i].at]))
            any = wanted[stacks[i].frames[stacks[i].at]] = true;
    int r = any ? profile_name_some(p, symbolizer, wanted, progress, context) : 0;
    return r < 0 ? r : any;
}

/* Where nothing is the program's own, names tell what allocates in a library from what asks there. */
static int name_strange(struct profile *p, struct symbolizer *symbolizer,
                        const struct headline_stack *stacks, size_t n,
                        bool (*progress)(size_t, size_t, void *), void *context)
{
    MEMOIR_CLEANUP(freep)
    bool *wanted = calloc(p->n_frames + 1, sizeof(*wanted));
    if (!wanted)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; stacks[i].at == stacks[i].n_frames && k < stacks[i].n_frames &&
                           k < HEADLINE_STRANGE_NAMED;
             k++)
            wanted[stacks[i].frames[k]] = true;
    return profile_name_some(p, symbolizer, wanted, progress, context);
}

int headlines_find(struct profile *p, struct symbolizer *symbolizer, struct headline_stack *stacks,
                   size_t n, bool (*progress)(size_t, size_t, void *), void *context)
{
    MEMOIR_CLEANUP(freep)
    struct seen *seen = calloc(n + 1, sizeof(*seen));
    if (!seen)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        stacks[i].at = 0;
    for (unsigned nested = 0; nested <= HEADLINE_FORWARDS_NESTED; nested++) {
        int named;
        do {
            (void)advance(p, stacks, n);
            named = symbolizer ? name_at(p, symbolizer, stacks, n, progress, context) : 0;
            if (named < 0)
                return named;
        } while (named);
        if (nested == HEADLINE_FORWARDS_NESTED || !forwards_find(p, stacks, n, seen))
            break;
    }
    return symbolizer ? name_strange(p, symbolizer, stacks, n, progress, context) : 0;
}

int headlines_find_all(struct profile *p, struct symbolizer *symbolizer,
                       bool (*progress)(size_t, size_t, void *), void *context)
{
    MEMOIR_CLEANUP(freep)
    struct headline_stack *stacks = calloc(p->n_sites + 1, sizeof(*stacks));
    size_t n = 0;
    if (!stacks)
        return -ENOMEM;
    for (size_t i = 0; i < p->n_sites; i++) {
        const struct profile_site *s = &p->sites[i];
        if (s->n_frames > 1)
            stacks[n++] = (struct headline_stack){
                .frames = profile_stack(p, s),
                .n_frames = s->n_frames,
                .bytes = s->figures.alloc_bytes,
                .blocks = s->figures.alloc_blocks,
            };
    }
    return headlines_find(p, symbolizer, stacks, n, progress, context);
}
