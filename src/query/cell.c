/* Values that combine. See result.h. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "base/utf8.h"
#include "query/result.h"

/* Field by field: a struct put together on the stack and copied makes the processor wait for each. */
void cell_of_value(const struct output *output, const struct query_value *value, bool grouped,
                   struct cell *ret)
{
    uint8_t state = value->state, marks = value->marks;
    uint64_t number = 0, per = 0;
    const char *text = NULL;
    uint32_t len = 0;
    if (output->aggregate == QUERY_COUNT && grouped) {
        number = (state & QUERY_KNOWN) || !output->o.column;
        state = QUERY_KNOWN | (state & QUERY_UNKNOWN);
        marks = 0;
    } else if ((state & QUERY_KNOWN) && cell_is_apart(output)) {
        text = value->text;
        len = value->len;
    } else if (state & QUERY_KNOWN) {
        number = value->number;
        per = query_kind_is_part(output->o.kind)          ? value->per
              : output->aggregate == QUERY_AVG && grouped ? 1
                                                          : 0;
        if (query_kind_is_part(output->o.kind) && per == 0) { /* a share of nothing */
            number = 0;
            state &= (uint8_t)~QUERY_KNOWN;
        }
    }
    if (output->o.key) { /* one group for all that is absent */
        state &= QUERY_KNOWN;
        marks = 0;
    }
    if (text)
        ret->text = text;
    else
        ret->number = number;
    ret->per = per;
    ret->len = len;
    ret->state = state;
    ret->marks = marks;
}

/* ---- order ---- */

static bool is_fraction(const struct output *output)
{
    return query_kind_is_part(output->o.kind) || output->aggregate == QUERY_AVG;
}

static int compare_u64(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int compare_signed(const struct output *output, const struct cell *a, const struct cell *b)
{
    bool average = is_fraction(output) && a->per && b->per;
    __int128 x = (__int128)(int64_t)a->number * (average ? b->per : 1);
    __int128 y = (__int128)(int64_t)b->number * (average ? a->per : 1);
    return x != y ? (x < y ? -1 : 1) : compare_u64(a->per, b->per);
}

static int compare_known(const struct output *output, const struct cell *a, const struct cell *b)
{
    if (cell_is_apart(output)) {
        size_t len = a->len < b->len ? a->len : b->len;
        int order = len && a->text != b->text ? memcmp(a->text, b->text, len) : 0;
        return order ? order : compare_u64(a->len, b->len);
    }
    if (cell_is_signed(output))
        return compare_signed(output, a, b);
    if (is_fraction(output) && a->per != b->per) {
        unsigned __int128 x = (unsigned __int128)a->number * b->per;
        unsigned __int128 y = (unsigned __int128)b->number * a->per;
        if (x != y)
            return x < y ? -1 : 1;
        return compare_u64(a->per, b->per);
    }
    return compare_u64(a->number, b->number);
}

int cell_compare(const struct output *output, const struct cell *a, const struct cell *b,
                 bool descending)
{
    bool known_a = a->state & QUERY_KNOWN, known_b = b->state & QUERY_KNOWN;
    if (known_a != known_b)
        return known_a ? -1 : 1;
    int order = known_a ? compare_known(output, a, b) : 0;
    if (order)
        return descending ? -order : order;
    if (a->state != b->state)
        return compare_u64(a->state, b->state);
    return compare_u64(a->marks, b->marks);
}

/* So many that no text has the key of what is absent. */
static uint64_t text_key(const char *text, size_t len)
{
    uint64_t key = 0;
    if (len >= sizeof(key)) {
        memcpy(&key, text, sizeof(key));
        return be64toh(key) >> 8;
    }
    for (size_t i = 0; i < CELL_KEY_BYTES; i++)
        key = key << 8 | (i < len ? (unsigned char)text[i] : 0);
    return key;
}

uint64_t cell_sort_key(const struct output *output, const struct cell *cell, size_t skip,
                       bool descending)
{
    uint64_t key = 0;
    if (!(cell->state & QUERY_KNOWN))
        return UINT64_MAX;
    if (cell_is_apart(output)) {
        key = cell->len > skip ? text_key(cell->text + skip, cell->len - skip) : 0;
    } else if (cell_is_signed(output)) {
        int64_t n = (int64_t)cell->number;
        if (is_fraction(output) && cell->per)
            n = (int64_t)((double)n / (double)cell->per);
        key = (uint64_t)n ^ UINT64_C(1) << 63;
    } else if (is_fraction(output)) {
        /* The bits of doubles that are not negative have the order of their values. */
        double fraction = cell->per ? (double)cell->number / (double)cell->per : 0;
        memcpy(&key, &fraction, sizeof(key));
    } else {
        key = cell->number;
    }
    if (key == UINT64_MAX)
        key--;
    return descending ? UINT64_MAX - 1 - key : key;
}

bool cell_same(const struct output *output, const struct cell *a, const struct cell *b)
{
    if (a->state != b->state)
        return false;
    if (!(a->state & QUERY_KNOWN))
        return true;
    if (cell_is_apart(output))
        return a->len == b->len && (a->len == 0 || memcmp(a->text, b->text, a->len) == 0);
    return a->number == b->number && a->per == b->per;
}

uint64_t cell_hash(const struct output *output, const struct cell *cell, uint64_t hash)
{
    if (!(cell->state & QUERY_KNOWN))
        return hash_combine(hash, 1);
    if (cell_is_apart(output))
        return hash_bytes(cell->text, cell->len, hash);
    return hash_combine(hash, cell->number ^ (cell->per << 32));
}

/* ---- combining ---- */

static int take(const struct output *output, struct cell *cell, const struct cell *in,
                struct arena *texts)
{
    if (cell_is_apart(output)) {
        const char *text = arena_text(texts, in->text, in->len);
        if (!text)
            return -ENOMEM;
        cell->text = text;
        cell->len = in->len;
    } else {
        cell->number = in->number;
    }
    cell->per = in->per;
    return 0;
}

static uint64_t add(uint64_t a, uint64_t b, uint8_t *marks)
{
    uint64_t sum;
    if (!__builtin_add_overflow(a, b, &sum))
        return sum;
    *marks |= QUERY_AT_LEAST;
    return UINT64_MAX;
}

/* Sums of both signs do not depend on their order as long as none is beyond 2^63. */
static uint64_t add_signed(uint64_t a, uint64_t b, uint8_t *marks)
{
    int64_t sum;
    if (!__builtin_add_overflow((int64_t)a, (int64_t)b, &sum))
        return (uint64_t)sum;
    *marks |= QUERY_ESTIMATE;
    return (uint64_t)((int64_t)a < 0 ? INT64_MIN : INT64_MAX);
}

static int fold_same(const struct output *output, struct cell *cell, const struct cell *in,
                     struct arena *texts)
{
    uint8_t unknown = (cell->state | in->state) & QUERY_UNKNOWN;
    bool mixed = (cell->state | in->state) & QUERY_MIXED;
    bool both = cell->state & in->state & QUERY_KNOWN;
    if (both && compare_known(output, cell, in) != 0)
        mixed = true;
    if (mixed) {
        *cell = (struct cell){.state = QUERY_MIXED | unknown};
        return 0;
    }
    if (!(cell->state & QUERY_KNOWN) && (in->state & QUERY_KNOWN)) {
        int r = take(output, cell, in, texts);
        if (r < 0)
            return r;
    }
    cell->state |= in->state;
    cell->marks |= in->marks;
    return 0;
}

int cell_fold(const struct output *output, struct cell *cell, const struct cell *in,
              struct arena *texts)
{
    if (output->aggregate == QUERY_SAME || output->aggregate == QUERY_DEFAULT)
        return fold_same(output, cell, in, texts);
    int r = 0;
    bool in_known = in->state & QUERY_KNOWN, known = cell->state & QUERY_KNOWN;
    if (in_known && !known) {
        r = take(output, cell, in, texts);
    } else if (in_known && cell_is_points(output) && output->aggregate != QUERY_ANY) {
        r = points_fold(output->aggregate, cell, in, texts);
    } else if (in_known && (output->aggregate == QUERY_MAX || output->aggregate == QUERY_MIN ||
                            output->aggregate == QUERY_ANY)) {
        int order = compare_known(output, in, cell);
        if (output->aggregate == QUERY_MAX ? order > 0 : order < 0)
            r = take(output, cell, in, texts);
    } else if (in_known) {
        cell->number = cell_is_signed(output) ? add_signed(cell->number, in->number, &cell->marks)
                                              : add(cell->number, in->number, &cell->marks);
        cell->per = add(cell->per, in->per, &cell->marks);
    }
    cell->state |= in->state;
    cell->marks |= in->marks;
    return r;
}

/* ---- out ---- */

void cell_value(const struct output *output, const struct cell *cell, struct query_value *ret)
{
    uint8_t marks = cell->marks;
    ret->text = NULL;
    ret->number = ret->per = 0;
    ret->len = 0;
    ret->state = cell->state;
    if (!(cell->state & QUERY_KNOWN)) {
        ret->marks = marks;
        return;
    }
    if (cell_is_apart(output)) {
        ret->text = cell->text;
        ret->len = cell->len;
        ret->marks = cell_is_text(output) ? 0 : marks;
        return;
    }
    if (cell->state & QUERY_UNKNOWN &&
        output->aggregate != QUERY_ANY) /* a part of it is not known */
        marks |= output->aggregate == QUERY_AVG || output->aggregate == QUERY_MIN ? QUERY_ESTIMATE
                                                                                  : QUERY_AT_LEAST;
    ret->marks = marks;
    ret->number = cell->number;
    if (query_kind_is_part(output->o.kind))
        ret->per = cell->per;
    else if (output->aggregate == QUERY_AVG && cell->per > 1 && cell_is_signed(output))
        ret->number = (uint64_t)((int64_t)cell->number / (int64_t)cell->per);
    else if (output->aggregate == QUERY_AVG && cell->per > 1)
        ret->number = (uint64_t)(((unsigned __int128)cell->number + cell->per / 2) / cell->per);
}

void query_set_text(struct query_value *value, const char *text)
{
    value->text = text;
    value->len = (uint32_t)strlen(text);
    value->state = QUERY_KNOWN;
}

void query_set_frames(struct query_value *value, const char *text)
{
    query_set_text(value, text);
}
