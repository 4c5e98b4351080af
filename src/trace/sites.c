/* The call sites of a history. See sites.h.
 *
 * Strings, modules, frames and lines lie in an arena that only grows; equal strings and modules are stored once. */
#include "trace/sites.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/hash.h"

enum {
    PAGE_SITES = 1024,
    PAGES = TRACE_SITES_MAX / PAGE_SITES + 1,
    ARENA_BYTES = 16 << 10,
    INDEX_MIN = 64
};

struct arena_chunk {
    struct arena_chunk *next;
    size_t used, size;
    max_align_t data[];
};

/* Pointers by the hash of what they point to. */
struct intern {
    const void **entries;
    uint64_t *hashes;
    uint32_t n, cap;
};

struct trace_sites {
    pthread_mutex_t lock;             /* for all changes */
    struct trace_site **pages[PAGES]; /* pages and sites are published by release */
    uint32_t last, count;             /* stored relaxed under the lock, loaded by anybody */
    struct arena_chunk *arena;
    size_t bytes;
    struct intern strings, modules;
};

int trace_sites_new(struct trace_sites **ret_sites)
{
    struct trace_sites *t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    pthread_mutex_init(&t->lock, NULL);
    *ret_sites = t;
    return 0;
}

void trace_sites_free(struct trace_sites *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < PAGES; i++)
        free(t->pages[i]);
    for (struct arena_chunk *c = t->arena, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(t->strings.entries);
    free(t->strings.hashes);
    free(t->modules.entries);
    free(t->modules.hashes);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* ---- memory ---- */

/* NULL: no memory or past the limit; *error says which. */
static void *arena_take(struct trace_sites *t, size_t bytes, int *error)
{
    struct arena_chunk *c = t->arena;
    bytes = (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (!c || bytes > c->size - c->used) {
        size_t size = bytes > ARENA_BYTES ? bytes : ARENA_BYTES;
        if (t->bytes + size > TRACE_SITES_BYTES) {
            *error = -ENOSPC;
            return NULL;
        }
        c = malloc(sizeof(*c) + size);
        if (!c) {
            *error = -ENOMEM;
            return NULL;
        }
        *c = (struct arena_chunk){.next = t->arena, .size = size};
        t->arena = c;
        t->bytes += size;
    }
    void *at = (char *)c->data + c->used;
    c->used += bytes;
    return at;
}

static bool intern_grow(struct intern *x)
{
    uint32_t cap = x->cap ? 2 * x->cap : INDEX_MIN;
    const void **entries = calloc(cap, sizeof(*entries));
    uint64_t *hashes = calloc(cap, sizeof(*hashes));
    if (!entries || !hashes) {
        free(entries);
        free(hashes);
        return false;
    }
    for (uint32_t i = 0; i < x->cap; i++) {
        if (!x->entries[i])
            continue;
        uint32_t at = (uint32_t)x->hashes[i] & (cap - 1);
        while (entries[at])
            at = (at + 1) & (cap - 1);
        entries[at] = x->entries[i];
        hashes[at] = x->hashes[i];
    }
    free(x->entries);
    free(x->hashes);
    *x = (struct intern){entries, hashes, x->n, cap};
    return true;
}

static int intern_add(struct intern *x, uint64_t hash, const void *entry)
{
    if (2 * (x->n + 1) > x->cap && !intern_grow(x))
        return -ENOMEM;
    uint32_t at = (uint32_t)hash & (x->cap - 1);
    while (x->entries[at])
        at = (at + 1) & (x->cap - 1);
    x->entries[at] = entry;
    x->hashes[at] = hash;
    x->n++;
    return 0;
}

static const char *string_keep(struct trace_sites *t, const char *s, int *error)
{
    size_t len = s ? strnlen(s, TRACE_STRING_MAX) : 0;
    if (len == 0)
        return "";
    uint64_t hash = hash_bytes(s, len, 0);
    const struct intern *x = &t->strings;
    for (uint32_t at = x->cap ? (uint32_t)hash & (x->cap - 1) : 0; x->cap && x->entries[at];
         at = (at + 1) & (x->cap - 1)) {
        const char *have = x->entries[at];
        if (x->hashes[at] == hash && strncmp(have, s, len) == 0 && have[len] == '\0')
            return have;
    }
    char *copy = arena_take(t, len + 1, error);
    if (!copy)
        return NULL;
    memcpy(copy, s, len);
    copy[len] = '\0';
    if (intern_add(&t->strings, hash, copy) < 0) {
        *error = -ENOMEM;
        return NULL;
    }
    return copy;
}

static const struct trace_module *module_keep(struct trace_sites *t, const struct trace_module *m,
                                              int *error)
{
    const char *path = string_keep(t, m->path, error);
    if (!path)
        return NULL;
    uint64_t hash = hash_combine(hash_bytes(m->build_id, m->build_id_len, 1), (uintptr_t)path);
    const struct intern *x = &t->modules;
    for (uint32_t at = x->cap ? (uint32_t)hash & (x->cap - 1) : 0; x->cap && x->entries[at];
         at = (at + 1) & (x->cap - 1)) {
        const struct trace_module *have = x->entries[at];
        if (have->path == path && have->build_id_len == m->build_id_len &&
            memcmp(have->build_id, m->build_id, m->build_id_len) == 0)
            return have;
    }
    if (t->modules.n >= TRACE_MODULES_MAX) {
        *error = -ENOSPC;
        return NULL;
    }
    struct trace_module *copy = arena_take(t, sizeof(*copy), error);
    if (!copy)
        return NULL;
    *copy = (struct trace_module){.path = path, .build_id_len = m->build_id_len};
    memcpy(copy->build_id, m->build_id, m->build_id_len);
    if (intern_add(&t->modules, hash, copy) < 0) {
        *error = -ENOMEM;
        return NULL;
    }
    return copy;
}

static const struct trace_line *lines_keep(struct trace_sites *t, const struct trace_line *lines,
                                           size_t n, int *error)
{
    struct trace_line *copy = arena_take(t, n * sizeof(*copy), error);
    for (size_t i = 0; copy && i < n; i++) {
        copy[i] = (struct trace_line){string_keep(t, lines[i].function, error),
                                      string_keep(t, lines[i].file, error), lines[i].line};
        if (!copy[i].function || !copy[i].file)
            return NULL;
    }
    return copy;
}

/* ---- sites ---- */

static bool valid(const struct trace_site *site)
{
    if (site->number == 0 || site->number > TRACE_SITES_MAX)
        return false;
    for (unsigned i = 0; i < site->n_frames && i < TRACE_FRAMES_MAX; i++) {
        const struct trace_frame *f = &site->frames[i];
        if (f->n_lines > TRACE_LINES_MAX ||
            (f->module && f->module->build_id_len > TRACE_BUILD_ID_MAX))
            return false;
    }
    return true;
}

static struct trace_site *site_keep(struct trace_sites *t, const struct trace_site *site,
                                    int *error)
{
    uint16_t n = site->n_frames > TRACE_FRAMES_MAX ? TRACE_FRAMES_MAX : site->n_frames;
    struct trace_site *copy = arena_take(t, sizeof(*copy), error);
    struct trace_frame *frames = copy ? arena_take(t, (n + 1u) * sizeof(*frames), error) : NULL;
    if (!frames)
        return NULL;
    for (unsigned i = 0; i < n; i++) {
        const struct trace_frame *from = &site->frames[i];
        frames[i] = (struct trace_frame){.offset = from->offset, .n_lines = from->n_lines};
        if (from->module && !(frames[i].module = module_keep(t, from->module, error)))
            return NULL;
        if (from->n_lines && !(frames[i].lines = lines_keep(t, from->lines, from->n_lines, error)))
            return NULL;
    }
    unsigned cut = site->cut + (unsigned)(site->n_frames - n);
    *copy = (struct trace_site){site->number, n, (uint16_t)(cut > UINT16_MAX ? UINT16_MAX : cut),
                                site->key, frames};
    return copy;
}

int trace_sites_define(struct trace_sites *t, const struct trace_site *site)
{
    int error = 0;
    if (!valid(site))
        return -EINVAL;
    pthread_mutex_lock(&t->lock);
    struct trace_site ***page = &t->pages[site->number / PAGE_SITES];
    if (!*page) {
        struct trace_site **fresh = calloc(PAGE_SITES, sizeof(*fresh));
        if (fresh)
            store_release(page, fresh);
        else
            error = -ENOMEM;
    }
    if (error == 0 && !(*page)[site->number % PAGE_SITES]) {
        struct trace_site *copy = site_keep(t, site, &error);
        if (copy) {
            store_release(&(*page)[site->number % PAGE_SITES], copy);
            store_relaxed(&t->count, t->count + 1);
            if (site->number > t->last)
                store_relaxed(&t->last, site->number);
        }
    }
    pthread_mutex_unlock(&t->lock);
    return error;
}

const struct trace_site *trace_sites_get(const struct trace_sites *t, uint32_t number)
{
    if (number > TRACE_SITES_MAX)
        return NULL;
    struct trace_site **page = load_acquire(&t->pages[number / PAGE_SITES]);
    return page ? load_acquire(&page[number % PAGE_SITES]) : NULL;
}

uint32_t trace_sites_last(const struct trace_sites *t)
{
    return load_relaxed(&t->last);
}

uint32_t trace_sites_count(const struct trace_sites *t)
{
    return load_relaxed(&t->count);
}

int trace_sites_name(struct trace_sites *t, uint32_t number, unsigned frame,
                     const struct trace_line *lines, size_t n_lines)
{
    int error = 0;
    if (n_lines == 0 || n_lines > TRACE_LINES_MAX)
        return -EINVAL;
    const struct trace_site *site = trace_sites_get(t, number);
    if (!site || frame >= site->n_frames)
        return -ENOENT;
    struct trace_frame *f =
        (struct trace_frame *)&site->frames[frame]; /* ours, and only const for others */
    pthread_mutex_lock(&t->lock);
    if (f->n_lines > 0) {
        error = -EEXIST;
    } else {
        const struct trace_line *copy = lines_keep(t, lines, n_lines, &error);
        if (copy) {
            f->lines = copy;
            store_release(&f->n_lines, (uint32_t)n_lines);
        }
    }
    pthread_mutex_unlock(&t->lock);
    return error;
}

size_t trace_frame_lines(const struct trace_frame *frame, const struct trace_line **ret_lines)
{
    uint32_t n = load_acquire(&frame->n_lines);
    *ret_lines = n ? frame->lines : NULL;
    return n;
}
