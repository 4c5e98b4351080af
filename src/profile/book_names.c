/* Words of a book. See book_names.h. */
#include "profile/book_names.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "ledger/ledger.h"
#include "profile/headline.h"
#include "profile/names.h"
#include "profile/site_names.h"
#include "profile/words.h"

enum { TEXT_MAX = 1 << 16 };

int book_names_load(const struct ledger_book *book, struct book_names *ret_names)
{
    MEMOIR_CLEANUP(closep)
    int fd = ledger_book_open(book);
    if (fd < 0)
        return fd;
    struct book_names names = {.book = book};
    int r = book_reader_sites(book->reader, fd, &names.copy);
    if (r < 0)
        return r;
    names.sites = calloc(names.copy.n_sites + 1, sizeof(*names.sites));
    if (!names.sites) {
        book_sites_release(&names.copy);
        return -ENOMEM;
    }
    *ret_names = names;
    return 0;
}

static void name_release(struct book_site_name *name)
{
    free(name->text);
    free(name->via);
    free(name->frame);
    free(name->function);
    free(name->file);
}

void book_stack_release(struct book_stack *stack)
{
    name_release(&stack->name);
    *stack = (struct book_stack){0};
}

void book_names_release(struct book_names *names)
{
    for (size_t i = 0; names->sites && i < names->copy.n_sites; i++)
        name_release(&names->sites[i]);
    free(names->sites);
    book_frames_release(&names->frames);
    profile_free(names->profile);
    if (names->book)
        book_sites_release(&names->copy);
    *names = (struct book_names){0};
}

const char *book_names_tag(const struct book_names *names, uint32_t tag)
{
    if (tag == 0 || tag >= names->copy.n_tags || !names->copy.tags[tag].name[0])
        return NULL;
    return names->copy.tags[tag].name;
}

/* ---- words ---- */

static char *copy(const char *text)
{
    return text && *text ? strdup(text) : NULL;
}

static void name_fill(const struct profile *p, const struct book_stack *s,
                      struct book_site_name *to)
{
    uint32_t number = s->frames[s->headline];
    const struct profile_frame *f = &p->frames[number];
    const struct profile_module *m = &p->modules[f->module];
    size_t at = headline_line(p, number);
    const struct profile_line *line = f->n_lines ? &p->lines[f->first_line + at] : NULL;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(TEXT_MAX);
    words_frame(p, number, at, &text);
    to->text = copy(buffer_string(&text));
    buffer_reset(&text);
    headline_via(p, s->frames, s->headline + 1, &text);
    to->via = copy(buffer_string(&text));
    buffer_reset(&text);
    if (m->kind == PROFILE_MODULE_SCRIPT && line)
        buffer_printf(&text, "%s:%u", profile_text(p, line->file), line->line);
    else if (m->kind == PROFILE_MODULE_FILE)
        buffer_printf(&text, "%s+0x%" PRIx64, profile_text(p, m->path), f->offset);
    to->frame = copy(buffer_string(&text));
    to->function = line ? copy(profile_text(p, line->function)) : NULL;
    to->file = line ? copy(profile_text(p, line->file)) : NULL;
    to->line = line ? line->line : 0;
}

/* ---- stacks ---- */

static int profile_make(struct book_names *names)
{
    if (names->profile)
        return profile_error(names->profile);
    names->profile = profile_new();
    if (!names->profile)
        return -ENOMEM;
    return book_frames_init(&names->frames, names->profile, names->book, &names->copy);
}

bool book_names_is_stack_of(const struct book_names *names, size_t stack, uint32_t caller)
{
    const uint64_t *frames = names->copy.frames;
    const struct book_site *s = &names->copy.sites[stack], *c = &names->copy.sites[caller];
    if (!(s->flags & BOOK_SITE_SAMPLED) || s->frames == 0 || c->frames == 0 ||
        s->account != c->account)
        return false;
    uint64_t one = frames[s->first_frame], other = frames[c->first_frame];
    return one == other || (BOOK_FRAME_MODULE(one) == BOOK_MODULE_NONE &&
                            BOOK_FRAME_MODULE(other) == BOOK_MODULE_NONE);
}

/* A sampled stack through a caller. */
struct way {
    uint32_t site;
    uint32_t headline; /* a frame of the profile */
    uint64_t live;
    uint64_t key; /* the same for the same stack: one that was sampled at two rates has two sites */
    uint32_t k;   /* live samples */
};

struct ways {
    struct way *list;
    struct headline_stack *stacks;
    uint32_t *frames;
    size_t n, n_frames;
};

static void ways_release(struct ways *w)
{
    free(w->list);
    free(w->stacks);
    free(w->frames);
}

static uint64_t live_of(const struct book_names *names, size_t site)
{
    const struct book_site_counters *c = &names->copy.counters[site];
    return c->alloc_bytes > c->freed_bytes ? c->alloc_bytes - c->freed_bytes : 0;
}

static int ways_count(const struct book_names *names, uint32_t caller, struct ways *w)
{
    for (size_t i = 1; i < names->copy.n_sites; i++)
        if (book_names_is_stack_of(names, i, caller)) {
            w->n++;
            w->n_frames += names->copy.sites[i].frames;
        }
    w->list = calloc(w->n + 1, sizeof(*w->list));
    w->stacks = calloc(w->n + 1, sizeof(*w->stacks));
    w->frames = calloc(w->n_frames + 1, sizeof(*w->frames));
    return w->list && w->stacks && w->frames ? 0 : -ENOMEM;
}

/* All ways through the caller, with their headlines. */
static int ways_take(struct book_names *names, uint32_t caller, struct symbolizer *symbolizer,
                     struct ways *w)
{
    uint32_t frames[PROFILE_STACK_MAX];
    size_t n = 0, at = 0;
    int r = ways_count(names, caller, w);
    for (size_t i = 1; r == 0 && i < names->copy.n_sites && n < w->n; i++) {
        if (!book_names_is_stack_of(names, i, caller))
            continue;
        size_t depth = book_frames_stack(&names->frames, &names->copy.sites[i], frames);
        memcpy(w->frames + at, frames, depth * sizeof(*frames));
        w->list[n] = (struct way){(uint32_t)i, 0, live_of(names, i), names->copy.sites[i].key, 0};
        w->stacks[n++] = (struct headline_stack){
            .frames = w->frames + at,
            .n_frames = (uint16_t)depth,
            .bytes = names->copy.counters[i].alloc_bytes,
            .blocks = names->copy.counters[i].alloc_blocks,
        };
        at += depth;
    }
    if (r == 0)
        r = headlines_find(names->profile, symbolizer, w->stacks, n, NULL, NULL);
    for (size_t i = 0; r == 0 && i < n; i++)
        if (w->stacks[i].n_frames)
            w->list[i].headline = w->stacks[i].frames[headline_frame(
                names->profile, w->stacks[i].frames, w->stacks[i].n_frames)];
    return r;
}

struct agreed {
    uint64_t live, all;
    uint32_t k, of;
    uint32_t site; /* the largest stack; 0: none */
};

static int by_headline(const void *a, const void *b)
{
    const struct way *x = a, *y = b;
    if (x->headline != y->headline)
        return x->headline < y->headline ? -1 : 1;
    return (x->live < y->live) - (x->live > y->live);
}

static int by_key(const void *a, const void *b)
{
    const struct way *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->site > y->site) - (x->site < y->site);
}

/* One way for each stack. */
static void ways_merge(struct ways *w, const uint32_t *samples)
{
    size_t kept = 0;
    if (w->n)
        qsort(w->list, w->n, sizeof(*w->list), by_key);
    for (size_t i = 0; i < w->n; i++) {
        struct way way = w->list[i];
        way.k = samples ? samples[way.site] : 0;
        if (kept && w->list[kept - 1].key == way.key) {
            w->list[kept - 1].live += way.live;
            w->list[kept - 1].k += way.k;
        } else {
            w->list[kept++] = way;
        }
    }
    w->n = kept;
}

/* The headline that most of what is live has in common or, where the caller is the headline of all, the largest stack. */
static struct agreed ways_agree(struct ways *w, uint32_t caller_frame, const uint32_t *samples)
{
    struct agreed best = {0}, a = {0};
    uint64_t all = 0;
    uint32_t of = 0;
    ways_merge(w, samples);
    if (w->n)
        qsort(w->list, w->n, sizeof(*w->list), by_headline);
    for (size_t i = 0; i < w->n; i++) {
        const struct way *way = &w->list[i];
        uint32_t n = way->k;
        if (i == 0 || way->headline != way[-1].headline || way->headline == caller_frame)
            a = (struct agreed){.site = way->site}; /* the largest comes first */
        a.live += way->live;
        a.k += n;
        all += way->live;
        of += n;
        if (a.live > best.live)
            best = a;
    }
    best.all = all;
    best.of = of;
    return best;
}

static void stack_set(struct book_names *names, uint32_t site, struct book_stack *s)
{
    s->n = book_frames_stack(&names->frames, &names->copy.sites[site], s->frames);
    s->headline = headline_frame(names->profile, s->frames, s->n);
}

bool book_names_stack(struct book_names *names, uint32_t site, struct site_names *symbols,
                      const uint32_t *samples, uint32_t samples_min, struct book_stack *ret_stack)
{
    struct symbolizer *symbolizer = site_names_symbolizer(symbols);
    struct ways ways __attribute__((cleanup(ways_release))) = {0};
    if (site == 0 || site >= names->copy.n_sites || names->copy.sites[site].frames == 0 ||
        profile_make(names) < 0)
        return false;
    *ret_stack = (struct book_stack){0};
    stack_set(names, site, ret_stack);
    struct headline_stack whole = {.frames = ret_stack->frames, .n_frames = (uint16_t)ret_stack->n};
    if (ret_stack->n == 0 || headlines_find(names->profile, symbolizer, &whole, 1, NULL, NULL) < 0)
        return false;
    stack_set(names, site, ret_stack);
    bool own = headline_kind(names->profile, ret_stack->frames[0]) == OWN_CODE;
    if (ret_stack->n == 1 && (samples || !own) && ways_take(names, site, symbolizer, &ways) == 0) {
        struct agreed best = ways_agree(&ways, ret_stack->frames[0], samples);
        ret_stack->k = best.k;
        ret_stack->of = best.of;
        bool enough = samples ? best.k >= samples_min : best.live > best.all / 2;
        if (best.site && enough) {
            stack_set(names, best.site, ret_stack);
            ret_stack->sampled = true;
        }
    }
    profile_name(names->profile, symbolizer, ret_stack->frames[ret_stack->headline]);
    if (ret_stack->headline)
        profile_name(names->profile, symbolizer, ret_stack->frames[ret_stack->headline - 1]);
    name_fill(names->profile, ret_stack, &ret_stack->name);
    return ret_stack->name.text != NULL;
}

const struct book_site_name *book_names_site(struct book_names *names, uint32_t site,
                                             struct site_names *symbols)
{
    if (site == 0 || site >= names->copy.n_sites)
        return NULL;
    struct book_stack stack;
    if (!names->sites[site].text && book_names_stack(names, site, symbols, NULL, 0, &stack))
        names->sites[site] = stack.name;
    return names->sites[site].text ? &names->sites[site] : NULL;
}
