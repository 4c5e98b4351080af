/* Who owns the device memory that the driver counts for a traced process (nvml/owners.h), all devices together. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <memoir/memoir.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "daemon/api_trace_json.h"
#include "nvml/owners.h"

enum { BATCH = 128, BLOCKS_MAX = 1 << 20 };

/* Live blocks of one site, memory and size. */
struct owned {
    uint32_t site;
    enum owners_memory memory;
    uint64_t size, count;
};

static enum owners_memory memory_of(const struct trace_block *b)
{
    if (b->space == MEMOIR_SPACE_MANAGED)
        return OWNERS_MANAGED;
    if (b->class == TRACE_CLASS_GRAPH)
        return OWNERS_RECORDED;
    if (b->flags & TRACE_FLAG_POOL)
        return OWNERS_POOL;
    return b->flags & TRACE_FLAG_HANDLE ? OWNERS_VIRTUAL : OWNERS_DEVICE;
}

static int by_place(const void *a, const void *b)
{
    const struct owned *x = a, *y = b;
    if (x->site != y->site)
        return x->site < y->site ? -1 : 1;
    if (x->memory != y->memory)
        return x->memory < y->memory ? -1 : 1;
    return (x->size > y->size) - (x->size < y->size);
}

/* Equal ones become one with their number. */
static size_t merge(struct owned *owned, size_t n)
{
    size_t kept = 0;
    if (n)
        qsort(owned, n, sizeof(*owned), by_place);
    for (size_t i = 0; i < n; i++)
        if (kept && by_place(&owned[kept - 1], &owned[i]) == 0)
            owned[kept - 1].count += owned[i].count;
        else
            owned[kept++] = owned[i];
    return kept;
}

static int owned_read(struct trace_history *history, struct owned **ret_owned, size_t *ret_n)
{
    struct trace_filter filter = {
        .active = true, .device = -1, .classes = 1u << TRACE_CLASS_OWN | 1u << TRACE_CLASS_GRAPH};
    MEMOIR_CLEANUP(freep)
    struct trace_block *batch = calloc(BATCH, sizeof(*batch));
    MEMOIR_CLEANUP(freep)
    struct owned *owned = NULL;
    size_t n = 0, cap = 0, got;
    uint64_t cursor = 0;
    if (!batch)
        return -ENOMEM;
    while ((got = trace_history_blocks(history, &filter, &cursor, batch, BATCH)) > 0)
        for (size_t i = 0; i < got; i++) {
            if (batch[i].space < MEMOIR_SPACE_DRAM && batch[i].space != MEMOIR_SPACE_MANAGED)
                continue;
            if (n == cap) {
                size_t merged = merge(owned, n);
                if (!cap || merged > n / 2) {
                    cap = cap ? cap * 2 : 256;
                    struct owned *more =
                        cap > BLOCKS_MAX ? NULL : reallocarray(owned, cap, sizeof(*owned));
                    if (!more)
                        return -ENOMEM;
                    owned = more;
                }
                n = merged;
            }
            owned[n++] = (struct owned){batch[i].site, memory_of(&batch[i]), batch[i].size, 1};
        }
    *ret_n = merge(owned, n);
    *ret_owned = MEMOIR_TAKE(owned);
    return 0;
}

/* ---- names ---- */

/* A site with what its blocks hold, then its text. */
struct place {
    uint32_t site;
    uint64_t bytes;
    const char *module;
    char *text; /* NULL: not among the k largest */
};

static int by_bytes(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static int by_site(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return (x->site > y->site) - (x->site < y->site);
}

static const char *module_of(const struct trace_site *site)
{
    const char *modules[TRACE_FRAMES_MAX];
    size_t n = 0;
    for (unsigned i = 0; site && i < site->n_frames && n < TRACE_FRAMES_MAX; i++)
        modules[n++] = site->frames[i].module ? site->frames[i].module->path : NULL;
    return owners_caller(modules, n);
}

static void places_free(struct place *places, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(places[i].text);
    free(places);
}

/* Lines that several of them share are told with their callers: a helper that allocates for all
 * of a program says little. */
static void places_tell_apart(const struct trace_view *v, struct place *places, size_t n)
{
    char text[TRACE_NAMES_TEXT_MAX];
    MEMOIR_CLEANUP(freep)
    bool *shared = calloc(n + 1, sizeof(*shared));
    for (size_t i = 0; shared && i < n; i++)
        for (size_t k = i + 1; places[i].text && k < n; k++)
            if (places[k].text && strcmp(places[i].text, places[k].text) == 0)
                shared[i] = shared[k] = true;
    for (size_t i = 0; shared && i < n; i++) {
        char *more =
            shared[i] && trace_names_outer(&v->names, places[i].site, text) ? strdup(text) : NULL;
        if (more) {
            free(places[i].text);
            places[i].text = more;
        }
    }
}

/* Ordered by site, as `owned` is. */
static int places_make(const struct trace_view *v, const struct owned *owned, size_t n,
                       struct place **ret_places, size_t *ret_n)
{
    char text[TRACE_NAMES_TEXT_MAX];
    size_t n_places = 0;
    struct place *places = calloc(n + 1, sizeof(*places));
    if (!places)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        if (n_places == 0 || places[n_places - 1].site != owned[i].site)
            places[n_places++].site = owned[i].site;
        places[n_places - 1].bytes += owned[i].size * owned[i].count;
    }
    qsort(places, n_places, sizeof(*places), by_bytes);
    for (size_t i = 0; i < n_places && i < v->k; i++)
        places[i].text = strdup(trace_names_label(&v->names, places[i].site, text));
    places_tell_apart(v, places, n_places < v->k ? n_places : v->k);
    qsort(places, n_places, sizeof(*places), by_site);
    for (size_t i = 0; i < n_places; i++)
        places[i].module = module_of(trace_sites_get(v->names.sites, places[i].site));
    *ret_places = places;
    *ret_n = n_places;
    return 0;
}

/* ---- the answer ---- */

static void row_json(const struct owners_row *row, struct json *json)
{
    static const char *const memories[] = {"device", "pool", "virtual", "managed"};
    bool line = row->kind == OWNERS_LINE;
    json_object_begin(json);
    json_field_string(json, "kind", owners_kind_name(row->kind));
    json_field_i64(json, "bytes", row->bytes);
    json_field_string(json, "library", line ? row->library : NULL);
    json_field_string(json, "site", line && *row->site ? row->site : NULL);
    json_field_string(json, "memory", line ? memories[row->memory] : NULL);
    json_key(json, "blocks");
    if (line)
        json_u64(json, row->blocks);
    else
        json_null(json);
    json_field_bool(json, "estimated", row->estimate);
    json_object_end(json);
}

static int rows_json(const struct trace_view *v, const struct owned *owned, size_t n,
                     const struct place *places, struct json *json)
{
    MEMOIR_CLEANUP(freep)
    struct owners_row *rows = NULL;
    MEMOIR_CLEANUP(freep)
    struct owners_block *blocks = calloc(n + 1, sizeof(*blocks));
    size_t n_rows = 0;
    if (!blocks)
        return -ENOMEM;
    for (size_t i = 0, at = 0; i < n; i++) {
        while (places[at].site != owned[i].site)
            at++;
        blocks[i] = (struct owners_block){.module = places[at].module,
                                          .site = places[at].text ? places[at].text : "other lines",
                                          .memory = owned[i].memory,
                                          .size = owned[i].size,
                                          .count = owned[i].count};
    }
    struct owners_process process = {.driver_bytes = v->driver_bytes,
                                     .program = v->program,
                                     .has_context = v->has_context,
                                     .has_before = v->has_before,
                                     .context_estimate = v->context_estimate,
                                     .context_bytes = v->context_bytes,
                                     .before_bytes = v->before_bytes,
                                     .graph_peak_bytes = trace_history_graph_peak(v->history, -1)};
    int r = owners_compute(&process, blocks, n, &rows, &n_rows);
    if (r < 0)
        return r;
    json_object_begin(json);
    json_field_u64(json, "driver", v->driver_bytes);
    json_key(json, "rows");
    json_array_begin(json);
    for (size_t i = 0; i < n_rows; i++)
        row_json(&rows[i], json);
    json_array_end(json);
    json_object_end(json);
    return 0;
}

int trace_owners_json(const struct trace_view *v, struct json *json)
{
    MEMOIR_CLEANUP(freep)
    struct owned *owned = NULL;
    struct place *places = NULL;
    size_t n = 0, n_places = 0;
    json_key(json, "owners");
    if (!v->has_driver) {
        json_null(json);
        return 0;
    }
    int r = owned_read(v->history, &owned, &n);
    if (r == 0)
        r = places_make(v, owned, n, &places, &n_places);
    if (r == 0)
        r = rows_json(v, owned, n, places, json);
    if (r < 0)
        json_null(json); /* the call gets its problem */
    places_free(places, n_places);
    return r;
}
