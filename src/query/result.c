/* Rows and groups of a result: adding, merging, sorting, cutting. See query.h. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "query/result.h"
#include "query/value.h"

enum {
    ROWS_MIN = 64,
};

int query_result_new(const struct query *query, size_t rows_max, struct query_result **ret_result)
{
    struct query_result *result = calloc(1, sizeof(*result));
    if (!result)
        return -ENOMEM;
    result->query = query;
    result->rows_max = rows_max && rows_max < UINT32_MAX - 1 ? rows_max : QUERY_ROWS_MAX;
    /* Names come from strangers, who should not be able to choose ones that fall together. */
    if (query->grouped &&
        getrandom(&result->seed, sizeof(result->seed), GRND_NONBLOCK) != sizeof(result->seed))
        result->seed = clock_monotonic_ns();
    *ret_result = result;
    return 0;
}

void query_result_free(struct query_result *result)
{
    if (!result)
        return;
    free(result->cells);
    free(result->hashes);
    free(result->slots);
    free(result->order);
    arena_release(&result->texts);
    result_release_others(result);
    free(result);
}

void query_result_freep(struct query_result **result)
{
    query_result_free(*result);
}

void query_result_reset(struct query_result *result)
{
    result->n_rows = 0;
    result->n_order = 0;
    result->pruned = 0;
    result->left_out = 0;
    result->has_bar = false;
    result->incomplete = false;
    result->missing = 0;
    result->has_origin = false;
    result->origin = (struct query_origin){0};
    result_release_others(result);
    if (result->n_slots)
        memset(result->slots, 0, result->n_slots * sizeof(*result->slots));
    arena_reset(&result->texts);
}

static const struct cell *row_cells(const struct query_result *result, size_t row)
{
    return result->cells + row * result->query->n_outputs;
}

int query_result_finish(struct query_result *result)
{
    MEMOIR_CLEANUP(freep)
    void *memory = NULL;
    const struct ranked *ranked = result_rank(result, &memory);
    uint32_t *order = malloc((result->n_rows + 1) * sizeof(*order));
    if (!ranked || !order) {
        free(order);
        return -ENOMEM;
    }
    size_t n = result->n_rows;
    if (result->query->limit && result->query->limit < n)
        n = (size_t)result->query->limit;
    for (size_t i = 0; i < result->n_rows; i++)
        order[i] = ranked[i].row;
    free(result->order);
    result->order = order;
    result->n_order = n;
    return result_finish_others(result, order + n, result->n_rows - n);
}

/* ---- adding ---- */

static int grow_rows(struct query_result *result)
{
    if (result->n_rows < result->cap_rows)
        return 0;
    size_t cap = result->cap_rows ? result->cap_rows * 2 : ROWS_MIN;
    struct cell *cells =
        reallocarray(result->cells, cap * result->query->n_outputs, sizeof(*cells));
    if (!cells)
        return -ENOMEM;
    result->cells = cells;
    if (result->query->grouped) {
        uint64_t *hashes = reallocarray(result->hashes, cap, sizeof(*hashes));
        if (!hashes)
            return -ENOMEM;
        result->hashes = hashes;
    }
    result->cap_rows = cap;
    return 0;
}

/* Where the cells of the next row go: 1. 0: there is no room for it. */
static int row_begin(struct query_result *result, struct cell **ret_row)
{
    if (result->n_rows >= result->rows_max) {
        result->left_out++;
        return 0;
    }
    int r = grow_rows(result);
    if (r < 0)
        return r;
    *ret_row = result->cells + result->n_rows * result->query->n_outputs;
    return 1;
}

/* They are there, and their texts are ours. */
static int row_end(struct query_result *result)
{
    const struct query *q = result->query;
    result->n_rows++;
    bool cut = q->limit && q->limit < result->rows_max / 4 &&
               result->n_rows >= 2 * q->limit + RESULT_PRUNE_SLACK;
    return cut ? result_prune(result) : 0;
}

static int add_row(struct query_result *result, const struct cell *cells)
{
    struct cell *row;
    if (result->has_bar && result_drop_late(result, &cells[result->query->sorts[0].output]))
        return 0;
    int r = row_begin(result, &row);
    if (r <= 0)
        return r;
    memcpy(row, cells, result->query->n_outputs * sizeof(*row));
    r = result_copy_texts(result->query, row, &result->texts);
    return r < 0 ? r : row_end(result);
}

/* ---- groups ---- */

static void slot_put(struct query_result *result, size_t row)
{
    size_t mask = result->n_slots - 1;
    size_t at = result->hashes[row] & mask;
    while (result->slots[at])
        at = (at + 1) & mask;
    result->slots[at] = (uint32_t)row + 1;
}

/* At most half of the slots are taken. */
static int grow_slots(struct query_result *result)
{
    if (2 * (result->n_rows + 1) <= result->n_slots)
        return 0;
    size_t n = result->n_slots ? result->n_slots * 2 : 2 * ROWS_MIN;
    uint32_t *slots = calloc(n, sizeof(*slots));
    if (!slots)
        return -ENOMEM;
    free(result->slots);
    result->slots = slots;
    result->n_slots = n;
    for (size_t row = 0; row < result->n_rows; row++)
        slot_put(result, row);
    return 0;
}

static bool same_keys(const struct query *q, const struct cell *a, const struct cell *b)
{
    for (size_t o = 0; o < q->n_by; o++)
        if (!cell_same(&q->outputs[o], &a[o], &b[o]))
            return false;
    return true;
}

static struct cell *find_group(struct query_result *result, const struct cell *cells, uint64_t hash)
{
    const struct query *q = result->query;
    size_t mask = result->n_slots - 1;
    for (size_t at = hash & mask; result->n_slots && result->slots[at]; at = (at + 1) & mask) {
        size_t row = result->slots[at] - 1;
        struct cell *group = result->cells + row * q->n_outputs;
        if (result->hashes[row] == hash && same_keys(q, group, cells))
            return group;
    }
    return NULL;
}

static int add_group(struct query_result *result, const struct cell *cells)
{
    const struct query *q = result->query;
    uint64_t hash = result->seed;
    for (size_t o = 0; o < q->n_by; o++)
        hash = cell_hash(&q->outputs[o], &cells[o], hash);
    hash = hash_mix(hash);
    struct cell *group = find_group(result, cells, hash);
    int r = 0;
    if (group) {
        for (size_t o = q->n_by; o < q->n_outputs && r == 0; o++)
            r = cell_fold(&q->outputs[o], &group[o], &cells[o], &result->texts);
        return r;
    }
    if (result->n_rows >= result->rows_max) {
        result->left_out++;
        return 0;
    }
    r = grow_rows(result);
    if (r == 0)
        r = grow_slots(result);
    if (r < 0)
        return r;
    group = result->cells + result->n_rows * q->n_outputs;
    memcpy(group, cells, q->n_outputs * sizeof(*group));
    r = result_copy_texts(q, group, &result->texts);
    if (r < 0)
        return r;
    result->hashes[result->n_rows] = hash;
    slot_put(result, result->n_rows++);
    return 0;
}

int result_add_cells(struct query_result *result, const struct cell *cells)
{
    return result->query->grouped ? add_group(result, cells) : add_row(result, cells);
}

/* ---- rows of a table ---- */

/* Text as it can travel: what is not UTF-8 becomes U+FFFD here, once, because it would on the way to
 * another machine, where it would then be another group. */
static int clean_text(struct query_result *result, struct query_value *value)
{
    size_t i = 0, n;
    if (utf8_is_ascii(value->text, value->len))
        return 0;
    for (n = 1; n > 0 && i < value->len; i += n)
        n = utf8_sequence(value->text + i, value->len - i);
    if (i == value->len)
        return 0;
    static const char replacement[] = "\xef\xbf\xbd";
    char *clean = arena_take(&result->texts, (size_t)value->len * 3 + 1);
    if (!clean)
        return -ENOMEM;
    size_t len = 0;
    for (i = 0; i < value->len; i += n ? n : 1) {
        n = utf8_sequence(value->text + i, value->len - i);
        memcpy(clean + len, n ? value->text + i : replacement, n ? n : 3);
        len += n ? n : 3;
    }
    value->text = clean;
    value->len = (uint32_t)len;
    return 0;
}

static int add_grouped(struct query_result *result, const struct query_world *world,
                       const struct query_row *row)
{
    const struct query *q = result->query;
    struct cell cells[QUERY_OUTPUTS_MAX];
    for (size_t o = 0; o < q->n_outputs; o++) {
        struct query_value value;
        value_of_output(q, &q->outputs[o], world, row, &value);
        if (cell_is_text(&q->outputs[o]) && (value.state & QUERY_KNOWN) &&
            clean_text(result, &value) < 0)
            return -ENOMEM;
        cell_of_value(&q->outputs[o], &value, true, &cells[o]);
    }
    return add_group(result, cells);
}

/* The same as cell_of_value(), for most cells there are, and with a copy of the text: that of the row before, if it has
 * the same. */
static int cell_of_plain(struct query_result *result, struct query_value *value,
                         const struct output *output, const struct cell *before, struct cell *ret)
{
    bool known = value->state & QUERY_KNOWN;
    ret->per = 0;
    ret->len = 0;
    ret->state = value->state;
    ret->marks = value->marks;
    if (!known || !cell_is_apart(output)) {
        ret->number = known ? value->number : 0;
        return 0;
    }
    if (before && before->state & QUERY_KNOWN && before->len == value->len && value->len &&
        memcmp(before->text, value->text, value->len) == 0) {
        ret->len = value->len;
        ret->text = before->text;
        return 0;
    }
    if (cell_is_text(output) && clean_text(result, value) < 0)
        return -ENOMEM;
    ret->len = value->len;
    ret->text = arena_text(&result->texts, value->text, value->len);
    return ret->text ? 0 : -ENOMEM;
}

/* result_drop_late() before the other cells of the row are made. */
static bool drop_row(struct query_result *result, const struct query_world *world,
                     const struct query_row *row)
{
    const struct query *q = result->query;
    const struct output *output = &q->outputs[q->sorts[0].output];
    struct query_value value;
    struct cell cell;
    value_of_output(q, output, world, row, &value);
    cell_of_value(output, &value, false, &cell);
    return result_drop_late(result, &cell);
}

/* Each cell where it stays: a row that matches is kept, whatever it holds. */
static int add_single(struct query_result *result, const struct query_world *world,
                      const struct query_row *row)
{
    const struct query *q = result->query;
    struct cell *cells;
    if (result->has_bar && drop_row(result, world, row))
        return 0;
    int r = row_begin(result, &cells);
    if (r <= 0)
        return r;
    const struct cell *before = result->n_rows ? cells - q->n_outputs : NULL;
    for (size_t o = 0; o < q->n_outputs; o++) {
        const struct output *output = &q->outputs[o];
        struct query_value value;
        value_of_output(q, output, world, row, &value);
        if (!output->plain)
            cell_of_value(output, &value, false, &cells[o]);
        else if (cell_of_plain(result, &value, output, before ? &before[o] : NULL, &cells[o]) < 0)
            return -ENOMEM;
    }
    return row_end(result);
}

int query_result_add(struct query_result *result, const struct query_world *world,
                     const struct query_row *row)
{
    const struct query *q = result->query;
    if (!value_row_matches(q, world, row))
        return 0;
    int r = q->grouped ? add_grouped(result, world, row) : add_single(result, world, row);
    return r < 0 ? r : 1;
}

int query_result_merge(struct query_result *into, const struct query_result *from)
{
    if (into->query != from->query || into == from)
        return -EINVAL;
    for (size_t row = 0; row < from->n_rows; row++) {
        int r = result_add_cells(into, row_cells(from, row));
        if (r < 0)
            return r;
    }
    int r = from->others ? result_add_others(into, from->others) : 0;
    if (r < 0)
        return r;
    into->pruned += from->pruned;
    into->left_out += from->left_out;
    into->incomplete |= from->incomplete;
    into->missing |= from->missing;
    if (from->has_origin)
        result_add_origin(into, &from->origin);
    return 0;
}

/* Merged parts of several viewers have the rights that all of them share. */
void result_add_origin(struct query_result *result, const struct query_origin *origin)
{
    struct query_origin *own = &result->origin;
    if (!result->has_origin) {
        *own = *origin;
        result->has_origin = true;
        return;
    }
    if (strcmp(own->node, origin->node) != 0)
        own->node[0] = '\0';
    if (own->sees_all)
        own->viewer_uid = origin->viewer_uid;
    own->sees_all &= origin->sees_all;
    if (origin->time_ns < own->time_ns)
        own->time_ns = origin->time_ns;
}

const struct query_origin *query_result_origin(const struct query_result *result)
{
    return &result->origin;
}

/* ---- reading ---- */

size_t query_result_rows(const struct query_result *result)
{
    return result->n_order;
}

struct query_value query_result_value(const struct query_result *result, size_t row, size_t column)
{
    assert(row < result->n_order && column < result->query->n_outputs);
    struct query_value value;
    cell_value(&result->query->outputs[column], &row_cells(result, result->order[row])[column],
               &value);
    return value;
}

uint64_t query_result_matched(const struct query_result *result)
{
    return result->n_rows + result->pruned + result->left_out;
}

uint64_t query_result_left_out(const struct query_result *result)
{
    return result->left_out;
}

bool query_result_incomplete(const struct query_result *result)
{
    return result->incomplete;
}

bool query_result_missing(const struct query_result *result, size_t column)
{
    return result->missing >> column & 1;
}
