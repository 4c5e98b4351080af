/* Series as cells: points in the order of time. See column.h. */
#include <errno.h>
#include <string.h>

#include "query/result.h"

void query_set_points(struct query_value *value, const struct query_point *points, size_t n)
{
    size_t skip = n > QUERY_POINTS_MAX ? n - QUERY_POINTS_MAX : 0;
    value->text = (const char *)(points + skip);
    value->len = (uint32_t)((n - skip) * sizeof(*points));
    value->state = QUERY_KNOWN;
}

/* Cells lie in an arena, which aligns nothing. */
static struct query_point point_at(const char *bytes, size_t i)
{
    struct query_point point;
    memcpy(&point, bytes + i * sizeof(point), sizeof(point));
    return point;
}

struct query_point query_point(const struct query_value *value, size_t i)
{
    return point_at(value->text, i);
}

bool points_valid(const char *bytes, size_t len)
{
    size_t n = len / sizeof(struct query_point);
    if (len % sizeof(struct query_point) || n > QUERY_POINTS_MAX)
        return false;
    for (size_t i = 1; i < n; i++)
        if (point_at(bytes, i).time_ns <= point_at(bytes, i - 1).time_ns)
            return false;
    return true;
}

static uint64_t combine(enum query_aggregate aggregate, uint64_t a, uint64_t b)
{
    uint64_t sum;
    if (aggregate == QUERY_MAX)
        return a > b ? a : b;
    if (aggregate == QUERY_MIN)
        return a < b ? a : b;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static bool same_times(const struct cell *a, const struct cell *b)
{
    size_t n = a->len / sizeof(struct query_point), i = 0;
    if (a->len != b->len)
        return false;
    while (i < n && point_at(a->text, i).time_ns == point_at(b->text, i).time_ns)
        i++;
    return i == n;
}

int points_fold(enum query_aggregate aggregate, struct cell *cell, const struct cell *in,
                struct arena *arena)
{
    if (same_times(cell, in)) { /* most often: no memory is needed */
        for (size_t i = 0; i < cell->len / sizeof(struct query_point); i++) {
            struct query_point point = point_at(cell->text, i);
            point.value = combine(aggregate, point.value, point_at(in->text, i).value);
            memcpy((char *)cell->text + i * sizeof(point), &point, sizeof(point));
        }
        return 0;
    }
    size_t n_a = cell->len / sizeof(struct query_point), n_b = in->len / sizeof(struct query_point);
    const char *a = cell->text, *b = in->text;
    char *to = arena_take(arena, (n_a + n_b) * sizeof(struct query_point) + 1);
    if (!to)
        return -ENOMEM;
    size_t n = 0;
    for (size_t i = 0, k = 0; i < n_a || k < n_b; n++) {
        struct query_point x = i < n_a ? point_at(a, i) : (struct query_point){UINT64_MAX, 0};
        struct query_point y = k < n_b ? point_at(b, k) : (struct query_point){UINT64_MAX, 0};
        bool first = i < n_a && (k >= n_b || x.time_ns <= y.time_ns);
        bool second = k < n_b && (i >= n_a || y.time_ns <= x.time_ns);
        struct query_point point = first ? x : y;
        if (first && second)
            point.value = combine(aggregate, x.value, y.value);
        memcpy(to + n * sizeof(point), &point, sizeof(point));
        i += first;
        k += second;
    }
    /* The latest ones stay, so that which ones does not depend on the order of merges. */
    size_t skip = n > QUERY_POINTS_MAX ? n - QUERY_POINTS_MAX : 0;
    if (skip)
        cell->marks |= QUERY_AT_LEAST;
    cell->text = to + skip * sizeof(struct query_point);
    cell->len = (uint32_t)((n - skip) * sizeof(struct query_point));
    return 0;
}
