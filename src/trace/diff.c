/* What changed from one history to another. See diff.h. */
#include "trace/diff.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 256 };

const char *trace_change_word(enum trace_change change)
{
    static const char *const words[TRACE_CHANGES] = {"same",   "new",    "gone",  "grown",
                                                     "shrunk", "busier", "calmer"};
    return (unsigned)change < TRACE_CHANGES ? words[change] : "?";
}

/* ---- holders ---- */

static int row_compare(const void *a, const void *b)
{
    const struct trace_diff_row *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    /* Numbers identify only sites without a key, but one order is needed for all. */
    uint32_t m = x->key ? 0 : x->before_site + x->after_site,
             n = y->key ? 0 : y->before_site + y->after_site;
    if (m != n)
        return m < n ? -1 : 1;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    if (x->space != y->space)
        return x->space < y->space ? -1 : 1;
    return x->class != y->class ? (x->class < y->class ? -1 : 1) : 0;
}

static void flow_sum(const struct trace_holder *h, int64_t *copies, int64_t *bytes)
{
    for (unsigned i = 0; i < TRACE_DIRECTIONS; i++) {
        *copies = (int64_t)((uint64_t)*copies + h->flow[i].copies);
        *bytes = (int64_t)((uint64_t)*bytes + h->flow[i].bytes);
    }
}

static void holder_add(struct trace_holder *to, const struct trace_holder *more)
{
    /* All sums lie between these two fields, each a uint64_t. */
    uint64_t *sum = &to->allocated_blocks;
    const uint64_t *add = &more->allocated_blocks;
    size_t n = (offsetof(struct trace_holder, folded_blocks) -
                offsetof(struct trace_holder, allocated_blocks)) /
                   sizeof(*sum) +
               1;
    for (size_t i = 0; i < n; i++)
        sum[i] += add[i];
}

/* All holders as rows, with sites of one key joined. */
static int rows_of(struct trace_history *h, bool after, struct trace_diff_row **ret_rows,
                   size_t *ret_n)
{
    struct trace_holder page[PAGE];
    struct trace_diff_row *rows = NULL;
    size_t n = 0, cap = 0, got;
    uint64_t cursor = 0;
    while ((got = trace_history_holders(h, &cursor, page, PAGE)) > 0) {
        if (n + got > cap) {
            cap = 2 * cap + PAGE;
            struct trace_diff_row *grown = realloc(rows, cap * sizeof(*rows));
            if (!grown) {
                free(rows);
                return -ENOMEM;
            }
            rows = grown;
        }
        for (size_t i = 0; i < got; i++) {
            const struct trace_site *site = trace_sites_get(trace_history_sites(h), page[i].site);
            struct trace_diff_row *row = &rows[n++];
            *row = (struct trace_diff_row){.key = site ? site->key : 0,
                                           .device = page[i].device,
                                           .space = page[i].space,
                                           .class = page[i].class};
            *(after ? &row->after_site : &row->before_site) = page[i].site;
            *(after ? &row->after : &row->before) = page[i];
        }
    }
    if (n > 0)
        qsort(rows, n, sizeof(*rows), row_compare);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (kept > 0 && row_compare(&rows[kept - 1], &rows[i]) == 0)
            holder_add(after ? &rows[kept - 1].after : &rows[kept - 1].before,
                       after ? &rows[i].after : &rows[i].before);
        else
            rows[kept++] = rows[i];
    }
    *ret_rows = rows;
    *ret_n = kept;
    return 0;
}

static bool empty(const struct trace_holder *h)
{
    return h->allocated_blocks == 0 && h->failures == 0;
}

static void row_judge(struct trace_diff_row *row)
{
    int64_t copies[2] = {0}, bytes[2] = {0};
    flow_sum(&row->before, &copies[0], &bytes[0]);
    flow_sum(&row->after, &copies[1], &bytes[1]);
    row->live_bytes = (int64_t)(row->after.live_bytes - row->before.live_bytes);
    row->copies = (int64_t)((uint64_t)copies[1] - (uint64_t)copies[0]);
    row->copied_bytes = (int64_t)((uint64_t)bytes[1] - (uint64_t)bytes[0]);
    row->change = empty(&row->before) && !empty(&row->after)   ? TRACE_CHANGE_NEW
                  : !empty(&row->before) && empty(&row->after) ? TRACE_CHANGE_GONE
                  : row->live_bytes > 0                        ? TRACE_CHANGE_GROWN
                  : row->live_bytes < 0                        ? TRACE_CHANGE_SHRUNK
                  : row->copies > 0                            ? TRACE_CHANGE_BUSIER
                  : row->copies < 0                            ? TRACE_CHANGE_CALMER
                                                               : TRACE_CHANGE_SAME;
}

static uint64_t size_of(int64_t v)
{
    return v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
}

static int largest_first(const void *a, const void *b)
{
    const struct trace_diff_row *x = a, *y = b;
    uint64_t m = size_of(x->live_bytes), n = size_of(y->live_bytes);
    if (m != n)
        return m < n ? 1 : -1;
    m = size_of(x->copied_bytes);
    n = size_of(y->copied_bytes);
    return m != n ? (m < n ? 1 : -1) : row_compare(a, b);
}

static int rows_join(struct trace_history *before, struct trace_history *after,
                     struct trace_diff *d)
{
    struct trace_diff_row *old = NULL, *new = NULL;
    size_t n_old = 0, n_new = 0;
    int r = rows_of(before, false, &old, &n_old);
    if (r == 0)
        r = rows_of(after, true, &new, &n_new);
    if (r == 0) {
        d->rows = calloc(n_old + n_new + 1, sizeof(*d->rows));
        r = d->rows ? 0 : -ENOMEM;
    }
    for (size_t i = 0, k = 0; r == 0 && (i < n_old || k < n_new);) {
        int order = i == n_old ? 1 : k == n_new ? -1 : row_compare(&old[i], &new[k]);
        struct trace_diff_row *row = &d->rows[d->n_rows++];
        *row = order <= 0 ? old[i] : new[k];
        if (order == 0) {
            row->after_site = new[k].after_site;
            row->after = new[k].after;
        }
        i += order <= 0;
        k += order >= 0;
        row_judge(row);
    }
    if (r == 0 && d->n_rows > 0)
        qsort(d->rows, d->n_rows, sizeof(*d->rows), largest_first);
    free(old);
    free(new);
    return r;
}

/* ---- blocks ---- */

struct block_key {
    uint64_t address, call, start_ns;
    uint64_t copies;
};

static int key_compare(const void *a, const void *b)
{
    const struct block_key *x = a, *y = b;
    if (x->address != y->address)
        return x->address < y->address ? -1 : 1;
    if (x->call != y->call)
        return x->call < y->call ? -1 : 1;
    return x->start_ns != y->start_ns ? (x->start_ns < y->start_ns ? -1 : 1) : 0;
}

static int active_keys(struct trace_history *h, struct block_key **ret_keys, size_t *ret_n)
{
    struct trace_filter active = {.active = true};
    struct trace_block *page = malloc(PAGE * sizeof(*page));
    struct block_key *keys = NULL;
    size_t n = 0, cap = 0, got;
    uint64_t cursor = 0;
    int r = page ? 0 : -ENOMEM;
    while (r == 0 && (got = trace_history_blocks(h, &active, &cursor, page, PAGE)) > 0) {
        if (n + got > cap) {
            cap = 2 * cap + PAGE;
            struct block_key *grown = realloc(keys, cap * sizeof(*keys));
            if (!grown) {
                r = -ENOMEM;
                break;
            }
            keys = grown;
        }
        for (size_t i = 0; i < got; i++) {
            uint64_t copies = 0;
            for (unsigned k = 0; k < TRACE_DIRECTIONS; k++)
                copies += page[i].flow[k].copies;
            keys[n++] = (struct block_key){page[i].address, page[i].call, page[i].start_ns, copies};
        }
    }
    free(page);
    if (r < 0) {
        free(keys);
        return r;
    }
    if (n > 0)
        qsort(keys, n, sizeof(*keys), key_compare);
    *ret_keys = keys;
    *ret_n = n;
    return 0;
}

static int blocks_join(struct trace_history *before, struct trace_history *after,
                       struct trace_diff *d)
{
    struct block_key *old = NULL, *new = NULL;
    size_t n_old = 0, n_new = 0;
    int r = active_keys(before, &old, &n_old);
    if (r == 0)
        r = active_keys(after, &new, &n_new);
    for (size_t i = 0, k = 0; r == 0 && (i < n_old || k < n_new);) {
        int order = i == n_old ? 1 : k == n_new ? -1 : key_compare(&old[i], &new[k]);
        enum trace_change change = order < 0                       ? TRACE_CHANGE_GONE
                                   : order > 0                     ? TRACE_CHANGE_NEW
                                   : new[k].copies > old[i].copies ? TRACE_CHANGE_BUSIER
                                                                   : TRACE_CHANGE_SAME;
        d->blocks[change]++;
        i += order <= 0;
        k += order >= 0;
    }
    free(old);
    free(new);
    return r;
}

/* ---- the whole ---- */

static uint64_t copied(const struct trace_totals *t)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < TRACE_DIRECTIONS; i++)
        sum += t->flow[i].bytes;
    return sum;
}

int trace_diff_new(struct trace_history *before, struct trace_history *after,
                   struct trace_diff **ret_diff)
{
    struct trace_diff *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    struct trace_totals old = trace_history_totals(before), new = trace_history_totals(after);
    struct trace_identity a = trace_history_identity(before), b = trace_history_identity(after);
    d->same_process =
        a.pid == b.pid && a.start_ticks == b.start_ticks && strcmp(a.host, b.host) == 0;
    d->live_bytes = (int64_t)(new.live_bytes - old.live_bytes);
    d->copied_bytes = (int64_t)(copied(&new) - copied(&old));
    d->failures = (int64_t)(new.failures - old.failures);
    int r = rows_join(before, after, d);
    if (r == 0 && d->same_process)
        r = blocks_join(before, after, d);
    if (r < 0) {
        trace_diff_free(d);
        return r;
    }
    *ret_diff = d;
    return 0;
}

void trace_diff_free(struct trace_diff *d)
{
    if (!d)
        return;
    free(d->rows);
    free(d);
}
