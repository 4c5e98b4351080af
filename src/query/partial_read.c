/* Reading partial results, which come from other machines. See partial.h for the bytes. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "query/partial.h"

enum { KINDS = QUERY_FRAMES + 1 };
static_assert(QUERY_OUTPUTS_MAX < 64, "a bit for each");

struct text {
    const char *at; /* in the message; not ended by NUL */
    size_t len;
};

static struct text get_text(struct varint_reader *in)
{
    uint64_t len = varint_take(in);
    const uint8_t *at = varint_bytes(in, (size_t)len);
    return at ? (struct text){(const char *)at, (size_t)len} : (struct text){"", 0};
}

static bool text_is(struct text text, const char *word)
{
    return text.len == strlen(word) && memcmp(text.at, word, text.len) == 0;
}

/* ---- the head ---- */

struct head {
    struct text table, by, where, show, sort, node;
    uint64_t limit, others, viewer, time_ns, keys;
    size_t n; /* columns */
    struct {
        struct text name;
        uint64_t kind;
    } columns[QUERY_OUTPUTS_MAX];
};

static int get_head(struct varint_reader *in, struct head *h)
{
    const uint8_t *magic = varint_bytes(in, strlen(PARTIAL_MAGIC) + 1);
    if (!magic || memcmp(magic, PARTIAL_MAGIC, strlen(PARTIAL_MAGIC)) != 0 ||
        magic[strlen(PARTIAL_MAGIC)] != PARTIAL_VERSION)
        return -EINVAL;
    h->table = get_text(in);
    h->by = get_text(in);
    h->where = get_text(in);
    h->show = get_text(in);
    h->sort = get_text(in);
    h->limit = varint_take(in);
    h->others = varint_take(in);
    h->node = get_text(in);
    h->viewer = varint_take(in);
    h->time_ns = varint_take(in);
    h->keys = varint_take(in);
    uint64_t n = varint_take(in);
    if (n == 0 || n > QUERY_OUTPUTS_MAX || h->keys > n || h->others > 1 ||
        h->viewer > (uint64_t)UINT32_MAX + 1)
        return -EINVAL; /* also where there were too few bytes: all is 0 then */
    h->n = (size_t)n;
    for (size_t i = 0; i < h->n; i++) {
        h->columns[i].name = get_text(in);
        h->columns[i].kind = varint_take(in);
    }
    return in->bad ? -EINVAL : 0;
}

/* Which of its columns is which of ours. */
struct shape {
    size_t n;                     /* of its columns */
    size_t to[QUERY_OUTPUTS_MAX]; /* our output for each of them; SIZE_MAX: we have none */
    enum query_kind kind[QUERY_OUTPUTS_MAX]; /* how its cells are written */
    uint64_t missing;                        /* bits of ours that it lacks */
    const char *node; /* goes into the column of this name; NULL: as it says */
};

/* The same question: only then may its rows be added to ours. It may lack columns that are shown, if it is another
 * version, and have others. */
static int get_shape(const struct query *q, const struct head *h, struct shape *shape)
{
    if (!text_is(h->table, q->table->name) || h->keys != q->n_by ||
        !text_is(h->where, q->spec.where) || (h->others && !q->spec.others))
        return -EINVAL;
    shape->n = h->n;
    shape->missing = (UINT64_C(1) << q->n_outputs) - 1;
    for (size_t i = 0; i < h->n; i++) {
        shape->to[i] = SIZE_MAX;
        if (h->columns[i].kind >= KINDS)
            return -EINVAL;
        shape->kind[i] = (enum query_kind)h->columns[i].kind;
        for (size_t o = 0; o < q->n_outputs; o++)
            if (text_is(h->columns[i].name, q->outputs[o].o.name) &&
                q->outputs[o].o.kind == shape->kind[i] && shape->missing >> o & 1) {
                shape->to[i] = o;
                shape->missing &= ~(UINT64_C(1) << o);
            }
        if (i < h->keys && shape->to[i] != i)
            return -EINVAL; /* another group than ours */
    }
    return 0;
}

/* ---- cells ---- */

static bool is_utf8(struct text text)
{
    size_t i = 0, n;
    while (i < text.len && (n = utf8_sequence(text.at + i, text.len - i)) > 0)
        i += n;
    return i == text.len;
}

/* Into memory of `arena`, as cells have them. */
static int get_points(struct varint_reader *in, struct arena *arena, struct cell *cell)
{
    uint64_t n = varint_take(in), time_ns = 0;
    if (n > QUERY_POINTS_MAX)
        return -EINVAL;
    char *bytes = arena_take(arena, (size_t)n * sizeof(struct query_point) + 1);
    if (!bytes)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        uint64_t step = varint_take(in);
        struct query_point point = {.time_ns = time_ns + step, .value = varint_take(in)};
        if (point.time_ns < time_ns || (i && step == 0))
            return -EINVAL;
        memcpy(bytes + i * sizeof(point), &point, sizeof(point));
        time_ns = point.time_ns;
    }
    cell->text = bytes;
    cell->len = (uint32_t)(n * sizeof(struct query_point));
    return 0;
}

static int get_value(struct varint_reader *in, enum query_kind kind, struct arena *arena,
                     struct cell *cell)
{
    if (kind == QUERY_POINTS)
        return get_points(in, arena, cell);
    if (!kind_is_text(kind)) {
        uint64_t n = varint_take(in);
        cell->number = kind == QUERY_RATE ? partial_unzigzag(n) : n;
        return kind == QUERY_YES && n > 1 ? -EINVAL : 0;
    }
    struct text text = get_text(in);
    if (!is_utf8(text))
        return -EINVAL;
    cell->text = text.at;
    cell->len = (uint32_t)text.len;
    return 0;
}

static int get_cell(struct varint_reader *in, enum query_kind kind, struct arena *arena,
                    struct cell *ret)
{
    const uint8_t *byte = varint_bytes(in, 1);
    *ret = (struct cell){0};
    if (!byte || *byte & 0x80)
        return -EINVAL;
    ret->state = *byte & (QUERY_KNOWN | QUERY_UNKNOWN | QUERY_MIXED);
    ret->marks = *byte >> PARTIAL_MARKS_SHIFT & (QUERY_ESTIMATE | QUERY_AT_LEAST);
    int r = ret->state & QUERY_KNOWN ? get_value(in, kind, arena, ret) : 0;
    if (*byte & PARTIAL_PER)
        ret->per = varint_take(in);
    else if (*byte & PARTIAL_PER_ONE)
        ret->per = 1;
    return r < 0 ? r : in->bad ? -EINVAL : 0;
}

/* Only what a result of ours can hold may enter one: the arithmetic relies on it. */
static bool cell_fits(const struct query *q, const struct output *output, const struct cell *cell)
{
    bool known = cell->state & QUERY_KNOWN;
    bool average = output->aggregate == QUERY_AVG && q->grouped;
    bool fraction = query_kind_is_part(output->o.kind) || average;
    if (output->o.key && ((cell->state & ~QUERY_KNOWN) || cell->marks))
        return false;
    if (cell->state & QUERY_MIXED)
        return q->grouped && output->aggregate == QUERY_SAME && !known && !cell->marks;
    if (output->aggregate == QUERY_COUNT && !known)
        return false;
    return known && fraction ? cell->per > 0 && cell->per <= INT64_MAX : cell->per == 0;
}

/* What dropped rows add up to may be mixed, or a share of nothing, where a row may not. */
static bool other_fits(const struct output *output, const struct cell *cell)
{
    bool known = cell->state & QUERY_KNOWN;
    bool fraction = query_kind_is_part(output->o.kind) || output->aggregate == QUERY_AVG;
    if (known && cell->state & QUERY_MIXED)
        return false;
    return known && fraction ? cell->per > 0 && cell->per <= INT64_MAX : cell->per == 0;
}

/* A column that it lacks: there is something that is not known. */
static void put_missing(const struct query *q, uint64_t missing, struct cell *cells)
{
    for (size_t o = 0; o < q->n_outputs; o++)
        if (missing >> o & 1)
            cells[o] = (struct cell){.state = QUERY_UNKNOWN};
}

/* The reader knows the node: the sender of the bytes. */
static void put_node(const struct output *output, const char *node, struct cell *cell)
{
    if (!node || !output->o.column || strcmp(output->o.column->name, "node") != 0)
        return;
    cell->text = node;
    cell->len = (uint32_t)strlen(node);
}

static int get_row(struct varint_reader *in, const struct query *q, const struct shape *shape,
                   bool others, struct arena *arena, struct cell *ret_cells)
{
    put_missing(q, shape->missing, ret_cells);
    for (size_t i = 0; i < shape->n; i++) {
        struct cell cell;
        int r = get_cell(in, shape->kind[i], arena, &cell);
        if (r < 0)
            return r;
        size_t o = shape->to[i];
        if (o == SIZE_MAX)
            continue;
        if (others ? !other_fits(&q->outputs[o], &cell) : !cell_fits(q, &q->outputs[o], &cell))
            return -EINVAL;
        put_node(&q->outputs[o], shape->node, &cell);
        ret_cells[o] = cell;
    }
    return 0;
}

/* ---- a document ---- */

static uint64_t add_counter(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

struct counters {
    uint64_t pruned, left_out, flags;
};

/* All rows: checked only (`into` NULL), or added. Nothing is added before all of them were found to be right. */
static int get_rows(struct varint_reader in, const struct query *q, const struct shape *shape,
                    struct query_result *into)
{
    struct cell cells[QUERY_OUTPUTS_MAX];
    struct arena arena = {0};
    uint64_t has_others = varint_take(&in);
    int r = has_others > (q->spec.others ? 1 : 0) ? -EINVAL : 0;
    if (r == 0 && has_others) {
        r = get_row(&in, q, shape, true, &arena, cells);
        if (r == 0 && into)
            r = result_add_others(into, cells);
    }
    uint64_t n = varint_take(&in); /* no more than there are bytes: a row has a byte at least */
    for (uint64_t i = 0; i < n && r == 0; i++) {
        arena_reset(&arena);
        r = get_row(&in, q, shape, false, &arena, cells);
        if (r == 0 && into)
            r = result_add_cells(into, cells);
    }
    if (r == 0 && (in.bad || varint_left(&in)))
        r = -EINVAL;
    arena_release(&arena);
    return r;
}

static int read_all(struct query_result *into, struct varint_reader *in,
                    const struct query_partial_from *from, struct head *h)
{
    const struct query *q = into->query;
    struct shape shape = {.node = from->node};
    int r = get_head(in, h);
    if (r == 0)
        r = get_shape(q, h, &shape);
    if (r < 0)
        return r;
    struct counters c = {.pruned = varint_take(in), .left_out = varint_take(in)};
    c.flags = varint_take(in);
    uint64_t lacked = varint_take(in);
    if (c.flags > PARTIAL_INCOMPLETE)
        return -EINVAL;
    r = get_rows(*in, q, &shape, NULL);
    if (r == 0)
        r = get_rows(*in, q, &shape, into);
    if (r < 0)
        return r;
    into->missing |= shape.missing;
    if (from->ret_missing)
        *from->ret_missing |= shape.missing;
    /* What parts that were merged into it lacked. */
    for (size_t i = 0; i < h->n; i++)
        if (lacked >> i & 1 && shape.to[i] != SIZE_MAX)
            into->missing |= UINT64_C(1) << shape.to[i];
    into->pruned = add_counter(into->pruned, c.pruned);
    into->left_out = add_counter(into->left_out, c.left_out);
    /* It dropped rows that we would have kept. */
    bool cut = c.pruned && (!q->limit || h->limit < q->limit);
    into->incomplete |= (c.flags & PARTIAL_INCOMPLETE) || cut;
    return 0;
}

static void origin_of(const struct head *h, struct query_origin *ret)
{
    *ret = (struct query_origin){.sees_all = h->viewer == 0, .time_ns = h->time_ns};
    if (h->viewer)
        ret->viewer_uid = (uint32_t)(h->viewer - 1);
    snprintf(ret->node, sizeof(ret->node), "%.*s", (int)h->node.len, h->node.at);
}

int query_partial_read(struct query_result *into, const void *bytes, size_t len)
{
    return query_partial_read_from(into, bytes, len, &(struct query_partial_from){0});
}

int query_partial_read_from(struct query_result *into, const void *bytes, size_t len,
                            const struct query_partial_from *from)
{
    struct varint_reader in = varint_reader(bytes, len);
    struct head head;
    struct query_origin origin;
    if (len > QUERY_PARTIAL_MAX)
        return -EINVAL;
    int r = read_all(into, &in, from, &head);
    if (r < 0)
        return r;
    origin_of(&head, &origin);
    if (from->node)
        snprintf(origin.node, sizeof(origin.node), "%s", from->node);
    result_add_origin(into, &origin);
    return 0;
}

int query_partial_head(const void *bytes, size_t len, struct query_partial_head **ret_head)
{
    struct varint_reader in = varint_reader(bytes, len);
    struct head h;
    int r = len > QUERY_PARTIAL_MAX ? -EINVAL : get_head(&in, &h);
    if (r < 0)
        return r;
    const struct text texts[] = {h.table, h.by, h.where, h.show, h.sort};
    const char *words[sizeof(texts) / sizeof(texts[0])];
    size_t size = sizeof(**ret_head);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (texts[i].len > QUERY_TEXT_MAX || memchr(texts[i].at, '\0', texts[i].len))
            return -EINVAL;
        size += texts[i].len + 1;
    }
    struct query_partial_head *head = calloc(1, size);
    if (!head)
        return -ENOMEM;
    char *to = (char *)(head + 1);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        memcpy(to, texts[i].at, texts[i].len);
        words[i] = to;
        to += texts[i].len + 1;
    }
    head->spec = (struct query_spec){.table = words[0],
                                     .by = words[1],
                                     .where = words[2],
                                     .show = words[3],
                                     .sort = words[4],
                                     .limit = h.limit,
                                     .others = h.others};
    origin_of(&h, &head->origin);
    *ret_head = head;
    return 0;
}
