/* Partial results as bytes. See wire.h.
 *
 *     "MP" version table keys outputs NAME... pruned left_out flags rows CELL...
 *
 * Numbers are varints, texts have their length in front. A cell begins with one byte: state (3 bits),
 * marks (2), whether `per` follows, and what the value is (2 bits: nothing, a number, a text, the text of
 * the same column one row above). */
#include "query/wire.h"

#include <errno.h>
#include <string.h>

#include "base/buffer.h"
#include "base/sum.h"
#include "base/utf8.h"
#include "base/varint.h"
#include "query/result.h"

enum {
    STATE_MASK = 7,
    MARKS_SHIFT = 3,
    MARKS_MASK = 3,
    HAS_PER = 1 << 5,
    VALUE_SHIFT = 6,
    FLAG_INCOMPLETE = 1,
    TEXT_MAX = 1 << 20, /* bytes of one cell */
};

enum value { VALUE_NONE, VALUE_NUMBER, VALUE_TEXT, VALUE_ABOVE };

/* ---- writing ---- */

static void put_text(struct buffer *out, const char *text, size_t len)
{
    varint_put(out, len);
    buffer_append(out, text, len);
}

static bool same_text(const struct cell *a, const struct cell *b)
{
    return a && (a->state & QUERY_KNOWN) && a->len == b->len &&
           (a->len == 0 || memcmp(a->text, b->text, a->len) == 0);
}

static void put_cell(struct buffer *out, const struct output *output, const struct cell *cell,
                     const struct cell *above)
{
    enum value value = VALUE_NONE;
    if (cell->state & QUERY_KNOWN)
        value = !cell_is_text(output)    ? VALUE_NUMBER
                : same_text(above, cell) ? VALUE_ABOVE
                                         : VALUE_TEXT;
    buffer_append_char(out, (char)(cell->state | cell->marks << MARKS_SHIFT |
                                   (cell->per ? HAS_PER : 0) | (int)value << VALUE_SHIFT));
    if (value == VALUE_NUMBER)
        varint_put(out, cell->number);
    else if (value == VALUE_TEXT)
        put_text(out, cell->text, cell->len);
    if (cell->per)
        varint_put(out, cell->per);
}

/* Groups travel as a whole, since any of them may be among the first once all nodes are added up. */
static size_t rows_sent(const struct query_result *result)
{
    return result->query->grouped ? result->n_rows : result->n_order;
}

static const struct cell *row_sent(const struct query_result *result, size_t i)
{
    size_t row = result->query->grouped ? i : result->order[i];
    return &result->cells[row * result->query->n_outputs];
}

int query_wire_write(const struct query_result *result, struct buffer *out)
{
    const struct query *q = result->query;
    size_t n = rows_sent(result);
    const struct cell *above = NULL;
    buffer_append(out, "MP", 2);
    varint_put(out, QUERY_WIRE_VERSION);
    put_text(out, q->table->name, strlen(q->table->name));
    varint_put(out, q->n_by);
    varint_put(out, q->n_outputs);
    for (size_t o = 0; o < q->n_outputs; o++)
        put_text(out, q->outputs[o].o.name, strlen(q->outputs[o].o.name));
    varint_put(out, result->pruned + (result->n_rows - n));
    varint_put(out, result->left_out);
    varint_put(out, result->incomplete ? FLAG_INCOMPLETE : 0);
    varint_put(out, n);
    for (size_t i = 0; i < n; i++) {
        const struct cell *row = row_sent(result, i);
        for (size_t o = 0; o < q->n_outputs; o++)
            put_cell(out, &q->outputs[o], &row[o], above ? &above[o] : NULL);
        above = row;
    }
    return out->error;
}

/* ---- reading ---- */

struct reading {
    struct varint_reader in;
    const struct query *q;
    const struct query_wire_from *from;
    size_t n_columns;
    int8_t to[QUERY_OUTPUTS_MAX]; /* our output of each column; -1: not asked for */
    uint64_t lacks;
    uint64_t pruned, left_out, flags, rows;
    struct { /* the last text of each column, in the bytes */
        const char *text;
        uint32_t len;
        bool known;
    } above[QUERY_OUTPUTS_MAX];
};
static_assert(QUERY_OUTPUTS_MAX <= INT8_MAX, "indices of outputs fit");
static_assert(QUERY_OUTPUTS_MAX <= 64, "a bit for each output");

static bool take_text(struct reading *r, size_t max, const char **ret_text, uint32_t *ret_len)
{
    uint64_t len = varint_take(&r->in);
    if (len > max)
        r->in.bad = true;
    *ret_text = (const char *)varint_bytes(&r->in, r->in.bad ? 0 : (size_t)len);
    *ret_len = (uint32_t)len;
    return !r->in.bad;
}

static bool is_name(const char *text, uint32_t len, const char *name)
{
    return strlen(name) == len && memcmp(text, name, len) == 0;
}

static bool take_columns(struct reading *r)
{
    const struct query *q = r->q;
    uint64_t found = 0;
    r->n_columns = (size_t)varint_take(&r->in);
    if (r->in.bad || r->n_columns == 0 || r->n_columns > QUERY_OUTPUTS_MAX)
        return false;
    for (size_t c = 0; c < r->n_columns; c++) {
        const char *name;
        uint32_t len;
        if (!take_text(r, QUERY_NAME_MAX, &name, &len))
            return false;
        r->to[c] = -1;
        for (size_t o = 0; o < q->n_outputs && r->to[c] < 0; o++)
            if (!(found >> o & 1) && is_name(name, len, q->outputs[o].o.name))
                r->to[c] = (int8_t)o;
        if (c < q->n_by && r->to[c] != (int8_t)c)
            return false; /* other keys make other groups */
        if (r->to[c] >= 0)
            found |= UINT64_C(1) << r->to[c];
    }
    r->lacks = ~found & (q->n_outputs < 64 ? (UINT64_C(1) << q->n_outputs) - 1 : UINT64_MAX);
    return true;
}

static bool take_head(struct reading *r)
{
    const uint8_t *magic = varint_bytes(&r->in, 2);
    const char *table;
    uint32_t len;
    if (!magic || memcmp(magic, "MP", 2) != 0 || varint_take(&r->in) != QUERY_WIRE_VERSION)
        return false;
    if (!take_text(r, QUERY_NAME_MAX, &table, &len) || !is_name(table, len, r->q->table->name) ||
        varint_take(&r->in) != r->q->n_by || !take_columns(r))
        return false;
    r->pruned = varint_take(&r->in);
    r->left_out = varint_take(&r->in);
    r->flags = varint_take(&r->in);
    r->rows = varint_take(&r->in);
    return !r->in.bad && r->rows <= QUERY_WIRE_ROWS_MAX &&
           r->rows * r->n_columns <= varint_left(&r->in); /* a byte a cell at least */
}

static bool is_utf8(const char *text, size_t len)
{
    for (size_t i = 0, n; i < len; i += n)
        if ((n = utf8_sequence(text + i, len - i)) == 0)
            return false;
    return true;
}

static bool take_value(struct reading *r, size_t c, enum value value, struct cell *cell)
{
    switch (value) {
    case VALUE_NONE:
        return true;
    case VALUE_NUMBER:
        cell->number = varint_take(&r->in);
        return !r->in.bad;
    case VALUE_TEXT:
        if (!take_text(r, TEXT_MAX, &cell->text, &cell->len) || !is_utf8(cell->text, cell->len))
            return false;
        r->above[c].text = cell->text;
        r->above[c].len = cell->len;
        r->above[c].known = true;
        return true;
    case VALUE_ABOVE:
        cell->text = r->above[c].text;
        cell->len = r->above[c].len;
        return r->above[c].known;
    }
    return false;
}

/* One cell of column `c`; its kind is checked where it is one that was asked for. */
static bool take_cell(struct reading *r, size_t c, struct cell *ret)
{
    const uint8_t *head = varint_bytes(&r->in, 1);
    if (!head)
        return false;
    enum value value = (enum value)(*head >> VALUE_SHIFT);
    *ret = (struct cell){.state = *head & STATE_MASK,
                         .marks = (uint8_t)(*head >> MARKS_SHIFT & MARKS_MASK)};
    if ((value != VALUE_NONE) != !!(ret->state & QUERY_KNOWN) || !take_value(r, c, value, ret))
        return false;
    /* A text that is not in the row above ends the run. */
    if (value == VALUE_NONE)
        r->above[c].known = false;
    if (*head & HAS_PER)
        ret->per = varint_take(&r->in);
    if (r->in.bad || ((*head & HAS_PER) && ret->per == 0))
        return false;
    if (r->to[c] < 0)
        return true;
    const struct output *output = &r->q->outputs[r->to[c]];
    bool text = value == VALUE_TEXT || value == VALUE_ABOVE;
    return (value == VALUE_NONE || text == cell_is_text(output)) && cell_fits(r->q, output, ret);
}

/* Which node it is, the asker knows: by whom the bytes came. */
static void set_node(const struct reading *r, size_t o, struct cell *cell)
{
    const struct query_column *column = r->q->outputs[o].o.column;
    if (!r->from->node || !column || !cell_is_text(&r->q->outputs[o]) ||
        strcmp(column->name, "node") != 0 || !(cell->state & QUERY_KNOWN))
        return;
    cell->text = r->from->node;
    cell->len = (uint32_t)strlen(r->from->node);
}

/* What stands for a column that the sender lacks: not known, and of counts at least 0. */
static struct cell lacking_cell(const struct query *q, const struct output *output)
{
    if (q->grouped && output->aggregate == QUERY_COUNT)
        return (struct cell){.state = QUERY_KNOWN, .marks = QUERY_AT_LEAST};
    return (struct cell){.state = QUERY_UNKNOWN};
}

static bool take_row(struct reading *r, struct cell *cells)
{
    for (size_t o = 0; r->lacks && o < r->q->n_outputs; o++)
        if (r->lacks >> o & 1)
            cells[o] = lacking_cell(r->q, &r->q->outputs[o]);
    for (size_t c = 0; c < r->n_columns; c++) {
        struct cell cell;
        if (!take_cell(r, c, &cell))
            return false;
        if (r->to[c] < 0)
            continue;
        set_node(r, (size_t)r->to[c], &cell);
        cells[r->to[c]] = cell;
    }
    return true;
}

int query_wire_read(struct query_result *into, const void *bytes, size_t len,
                    const struct query_wire_from *from)
{
    struct reading r = {.in = varint_reader(bytes, len), .q = into->query, .from = from};
    struct cell cells[QUERY_OUTPUTS_MAX];
    if (!take_head(&r))
        return -EBADMSG;
    struct reading rows = r;
    for (uint64_t i = 0; i < r.rows; i++)
        if (!take_row(&rows, cells))
            return -EBADMSG;
    if (varint_left(&rows.in) > 0)
        return -EBADMSG;
    for (uint64_t i = 0; i < r.rows; i++) {
        (void)take_row(&r, cells);
        int result = result_add_cells(into, cells);
        if (result < 0)
            return result;
    }
    sum_add(&into->pruned, r.pruned);
    sum_add(&into->left_out, r.left_out);
    into->incomplete |= r.flags & FLAG_INCOMPLETE;
    if (from->ret_lacks)
        *from->ret_lacks |= r.lacks;
    return 0;
}

/* ---- the question ---- */

static void put_names(const struct query *q, size_t first, size_t end, struct buffer *out)
{
    for (size_t o = first; o < end; o++) {
        if (o > first)
            buffer_append_char(out, ',');
        buffer_append_str(out, q->outputs[o].o.name);
    }
    buffer_append_char(out, '\0');
}

int query_wire_spec(const struct query *query, const struct query_spec *spec, struct buffer *out)
{
    buffer_append(out, query->table->name, strlen(query->table->name) + 1);
    put_names(query, 0, query->n_by, out);
    const char *where = spec->where ? spec->where : "";
    buffer_append(out, where, strlen(where) + 1);
    put_names(query, query->n_by, query->n_outputs, out);
    for (size_t i = 0; i < query->n_sorts; i++)
        buffer_printf(out, "%s%c%s", i ? "," : "", query->sorts[i].descending ? '-' : '+',
                      query->outputs[query->sorts[i].output].o.name);
    buffer_append_char(out, '\0');
    return out->error;
}
