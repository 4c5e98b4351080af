/* The order of rows: by the keys of the query, then by everything else, so that two rows are equal only if
 * no output could tell them apart. That makes a cut independent of the order in which rows came.
 *
 * Rows are sorted by one output after the other. Each row gets its cell as one number (cell_sort_key()), and
 * the numbers, which lie side by side, are sorted: cells lie far apart in memory, and to compare two of them
 * takes twenty times as long. Rows with the same number are sorted by the next bytes of the text, or by
 * the next output, which looks at each of them once. Only where neither helps (cells that differ in what is
 * not known of them) are rows compared cell by cell. */
#include <stdlib.h>
#include <string.h>

#include "query/result.h"

enum {
    FEW = 8,   /* so few rows are compared cell by cell */
    SOME = 64, /* so few keys are sorted by insertion */
    AHEAD = 8, /* rows between one whose cell is read and one whose cell is prefetched */
    SKIP_MAX = 8 * CELL_KEY_BYTES, /* bytes of a text that are sorted as numbers */
};

/* Rows are the same in all outputs before, and in the first `skip` bytes of this one. */
struct level {
    size_t at; /* below q->n_sorts one of these, then one of the outputs */
    size_t skip;
};

static const struct cell *row_cells(const struct query_result *result, size_t row)
{
    return result->cells + row * result->query->n_outputs;
}

static size_t levels(const struct query *q)
{
    return q->n_sorts + q->n_outputs;
}

static struct sort_key level_key(const struct query *q, size_t at)
{
    if (at < q->n_sorts)
        return q->sorts[at];
    return (struct sort_key){.output = at - q->n_sorts};
}

static int compare_rows(const struct query_result *result, size_t a, size_t b, size_t level)
{
    const struct query *q = result->query;
    const struct cell *x = row_cells(result, a), *y = row_cells(result, b);
    for (; level < levels(q); level++) {
        struct sort_key key = level_key(q, level);
        size_t o = key.output;
        int order = cell_compare(&q->outputs[o], &x[o], &y[o], key.descending);
        if (order)
            return order;
    }
    return 0;
}

/* ---- by numbers ---- */

/* Fill in the numbers of a level. Are they sorted as they stand? */
static bool rank_level(const struct query_result *result, struct ranked *rows, size_t n,
                       struct level level)
{
    struct sort_key key = level_key(result->query, level.at);
    const struct output *output = &result->query->outputs[key.output];
    const struct cell *cells = result->cells + key.output;
    size_t step = result->query->n_outputs;
    uint64_t last = 0;
    bool sorted = true;
    for (size_t i = 0; i < n; i++) {
        if (i + AHEAD < n)
            __builtin_prefetch(cells + rows[i + AHEAD].row * step);
        rows[i].key = cell_sort_key(output, cells + rows[i].row * step, level.skip, key.descending);
        sorted &= last <= rows[i].key;
        last = rows[i].key;
    }
    return sorted;
}

static void insert_keys(struct ranked *rows, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        struct ranked row = rows[i];
        size_t at = i;
        for (; at > 0 && row.key < rows[at - 1].key; at--)
            rows[at] = rows[at - 1];
        rows[at] = row;
    }
}

/* Rows into `to` by eight bits of their keys; those with the same bits stay in order. */
static void deal_keys(const struct ranked *rows, size_t n, unsigned shift, struct ranked *to)
{
    uint32_t places[256] = {0};
    for (size_t i = 0; i < n; i++)
        places[rows[i].key >> shift & 255]++;
    for (uint32_t digit = 0, place = 0; digit < 256; digit++) {
        uint32_t count = places[digit];
        places[digit] = place;
        place += count;
    }
    for (size_t i = 0; i < n; i++)
        to[places[rows[i].key >> shift & 255]++] = rows[i];
}

/* From the last digit to the first, without those that all keys share. */
static void sort_keys(struct ranked *rows, struct ranked *spare, size_t n)
{
    struct ranked *from = rows, *to = spare;
    uint64_t differ = 0;
    if (n <= SOME) {
        insert_keys(rows, n);
        return;
    }
    for (size_t i = 1; i < n; i++)
        differ |= rows[i].key ^ rows[0].key;
    for (unsigned shift = 0; shift < 64; shift += 8) {
        if (!(differ >> shift & 255))
            continue;
        deal_keys(from, n, shift, to);
        struct ranked *swap = from;
        from = to;
        to = swap;
    }
    if (from != rows)
        memcpy(rows, from, n * sizeof(*rows));
}

/* ---- by cells ---- */

/* Merge sort, since qsort() may take memory that is not there. */
static void sort_cells(const struct query_result *result, size_t level, struct ranked *rows,
                       struct ranked *spare, size_t n)
{
    if (n < 2)
        return;
    size_t middle = n / 2, left = 0, right = middle, at = 0;
    sort_cells(result, level, rows, spare, middle);
    sort_cells(result, level, rows + middle, spare, n - middle);
    memcpy(spare, rows, middle * sizeof(*rows));
    while (left < middle && right < n) {
        bool first = compare_rows(result, rows[right].row, spare[left].row, level) < 0;
        rows[at++] = first ? rows[right++] : spare[left++];
    }
    memcpy(rows + at, spare + left, (middle - left) * sizeof(*rows));
}

/* ---- level by level ---- */

/* What can tell apart rows that have the same number at this level: false where only a comparison can. */
static bool next_level(const struct query_result *result, const struct ranked *rows, size_t n,
                       struct level *level)
{
    size_t o = level_key(result->query, level->at).output;
    const struct output *output = &result->query->outputs[o];
    const struct cell *first = row_cells(result, rows[0].row) + o;
    bool same = true, longer = false;
    for (size_t i = 1; i < n; i++) {
        const struct cell *cell = row_cells(result, rows[i].row) + o;
        same = same && cell_compare(output, first, cell, false) == 0;
        longer |= cell->len > level->skip + CELL_KEY_BYTES;
    }
    if (same)
        *level = (struct level){level->at + 1, 0};
    else
        level->skip += CELL_KEY_BYTES;
    return same || (longer && level->skip < SKIP_MAX);
}

/* A call within a call is about a later level, or about more bytes of a text and a part of the rows. */
static void sort_level(const struct query_result *result, struct level level, struct ranked *rows,
                       struct ranked *spare, size_t n)
{
    if (level.at == levels(result->query) || n < 2)
        return;
    if (n <= FEW) {
        sort_cells(result, level.at, rows, spare, n);
        return;
    }
    if (!rank_level(result, rows, n, level))
        sort_keys(rows, spare, n);
    for (size_t begin = 0, end; begin < n; begin = end) {
        struct level next = level;
        for (end = begin + 1; end < n && rows[end].key == rows[begin].key; end++)
            ;
        if (end - begin == 1)
            continue;
        if (next_level(result, rows + begin, end - begin, &next))
            sort_level(result, next, rows + begin, spare, end - begin);
        else
            sort_cells(result, level.at, rows + begin, spare, end - begin);
    }
}

const struct ranked *result_rank(const struct query_result *result, void **ret_memory)
{
    struct ranked *rows = malloc((2 * result->n_rows + 1) * sizeof(*rows));
    if (!rows)
        return NULL;
    *ret_memory = rows;
    for (size_t i = 0; i < result->n_rows; i++)
        rows[i].row = (uint32_t)i;
    sort_level(result, (struct level){0}, rows, rows + result->n_rows, result->n_rows);
    return rows;
}
