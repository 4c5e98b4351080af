/* Packed chunks. See pack.h for what, doc/history.md for the bytes.
 *
 * The code for one number `v` under parameter `k` is v >> k ones, a zero, and the low k bits of v. Where that
 * would be more than ESCAPE ones, it is ESCAPE ones, the number of bits of v, and these. The
 * parameter follows the bit lengths of what was coded before, as an average: one allocation of a
 * gigabyte between changes of a page moves it by a few bits only, where an average of the numbers
 * themselves would be spoilt for the rest of the chunk. */
#include "history/pack.h"

#include <errno.h>
#include <string.h>

#include "history/bits.h"

enum {
    VERSION = 1,      /* high half of the first byte */
    FLAG_MAX = 1,     /* a second list follows */
    FLAG_GAPS = 2,    /* slots are listed */
    ESCAPE = 20,      /* ones */
    LENGTH_BITS = 6,  /* of a bit length less one */
    SCALE = 16,       /* of the average bit length */
    INERTIA_BITS = 3, /* it moves by an eighth of what is new */
};

/* How a list of values is written: the cheapest of all combinations. */
struct way {
    bool second;     /* differences of differences */
    bool runs;       /* zeros are counted */
    unsigned k_bits; /* where the average starts */
};

static uint64_t zigzag(uint64_t difference)
{
    return difference << 1 ^ (uint64_t)((int64_t)difference >> 63);
}

static uint64_t unzigzag(uint64_t v)
{
    return v >> 1 ^ (0 - (v & 1));
}

static unsigned bit_length(uint64_t v)
{
    return v ? 64 - (unsigned)__builtin_clzll(v) : 0;
}

/* ---- the parameter ---- */

struct adapt {
    unsigned average; /* bit length times SCALE */
};

static struct adapt adapt_start(unsigned bits)
{
    return (struct adapt){bits * SCALE};
}

static unsigned adapt_k(const struct adapt *a)
{
    /* Half of the numbers with b bits fit under k = b - 1 with a quotient of 1. */
    return a->average > SCALE ? (a->average - SCALE / 2) / SCALE : 0;
}

static void adapt_update(struct adapt *a, uint64_t v)
{
    int step = ((int)(bit_length(v) * SCALE) - (int)a->average) / (1 << INERTIA_BITS);
    a->average = (unsigned)((int)a->average + step);
}

/* ---- one number ---- */

static unsigned number_bits(uint64_t v, unsigned k)
{
    uint64_t ones = v >> k;
    return ones < ESCAPE ? (unsigned)ones + 1 + k : ESCAPE + LENGTH_BITS + (v ? bit_length(v) : 1);
}

static void number_put(struct bit_writer *w, uint64_t v, unsigned k)
{
    uint64_t ones = v >> k;
    if (ones < ESCAPE) {
        bits_put_short(w, (UINT64_C(1) << ones) - 1, (unsigned)ones + 1);
        bits_put(w, k ? v & ((UINT64_C(1) << k) - 1) : 0, k);
        return;
    }
    unsigned length = bit_length(v);
    bits_put_short(w, (UINT64_C(1) << ESCAPE) - 1, ESCAPE);
    bits_put_short(w, length - 1, LENGTH_BITS);
    bits_put(w, v, length);
}

static uint64_t number_get(struct bit_reader *r, unsigned k)
{
    unsigned ones = bits_get_ones(r, ESCAPE);
    if (ones < ESCAPE)
        return (uint64_t)ones << k | bits_get(r, k);
    unsigned length = (unsigned)bits_get_short(r, LENGTH_BITS) + 1;
    return bits_get(r, length);
}

/* A number that nothing is known about. */
static void plain_put(struct bit_writer *w, uint64_t v)
{
    unsigned length = v ? bit_length(v) : 1;
    bits_put_short(w, length - 1, LENGTH_BITS);
    bits_put(w, v, length);
}

static uint64_t plain_get(struct bit_reader *r)
{
    unsigned length = (unsigned)bits_get_short(r, LENGTH_BITS) + 1;
    return bits_get(r, length);
}

/* ---- a list of numbers, most of them small ---- */

/* Codes `n` numbers; without a writer it only counts the bits. */
static unsigned list_code(const uint64_t *numbers, unsigned n, struct way way, struct bit_writer *w)
{
    struct adapt value = adapt_start(way.k_bits), run = adapt_start(0);
    unsigned bits = 0;
    for (unsigned i = 0; i < n; i++) {
        if (way.runs) {
            unsigned zeros = 0;
            while (i + zeros < n && !numbers[i + zeros])
                zeros++;
            unsigned k = adapt_k(&run);
            if (w)
                number_put(w, zeros, k);
            bits += number_bits(zeros, k);
            adapt_update(&run, zeros);
            i += zeros;
            if (i == n)
                break;
        }
        uint64_t v = numbers[i] - way.runs; /* it is not 0 after a run */
        unsigned k = adapt_k(&value);
        if (w)
            number_put(w, v, k);
        bits += number_bits(v, k);
        adapt_update(&value, v);
    }
    return bits;
}

static int list_decode(struct bit_reader *r, struct way way, uint64_t *ret_numbers, unsigned n)
{
    struct adapt value = adapt_start(way.k_bits), run = adapt_start(0);
    for (unsigned i = 0; i < n; i++) {
        if (way.runs) {
            uint64_t zeros = number_get(r, adapt_k(&run));
            if (zeros > n - i)
                return -EBADMSG;
            adapt_update(&run, zeros);
            memset(ret_numbers + i, 0, zeros * sizeof(*ret_numbers));
            i += (unsigned)zeros;
            if (i == n)
                break;
        }
        uint64_t v = number_get(r, adapt_k(&value));
        adapt_update(&value, v);
        ret_numbers[i] = v + way.runs;
        if (r->past_end)
            return -EBADMSG;
    }
    return r->past_end ? -EBADMSG : 0;
}

/* ---- a list of values ---- */

/* Where the average is best started: that of all. */
static unsigned first_k_bits(const uint64_t *numbers, unsigned n, bool runs)
{
    unsigned sum = 0, count = 0;
    for (unsigned i = 0; i < n; i++) {
        if (runs && !numbers[i])
            continue;
        sum += bit_length(numbers[i] - runs);
        count++;
    }
    return count ? (sum + count / 2) / count : 0;
}

static void differences(const uint64_t *values, unsigned n, unsigned shift, bool second,
                        uint64_t *ret)
{
    uint64_t before = 0;
    for (unsigned i = 1; i < n; i++) {
        uint64_t difference = (values[i] >> shift) - (values[i - 1] >> shift);
        ret[i - 1] = zigzag(second ? difference - before : difference);
        before = difference;
    }
}

static void values_encode(struct bit_writer *w, const uint64_t *values, unsigned n)
{
    uint64_t all = 0, numbers[2][PACK_SLOTS_MAX];
    for (unsigned i = 0; i < n; i++)
        all |= values[i];
    unsigned shift = all ? (unsigned)__builtin_ctzll(all) : 0;
    struct way best = {0};
    unsigned least = UINT32_MAX;
    for (unsigned try = 0; try < 4; try++) {
        struct way way = {.second = try & 1, .runs = try >> 1};
        if (!way.runs)
            differences(values, n, shift, way.second, numbers[way.second]);
        way.k_bits = first_k_bits(numbers[way.second], n - 1, way.runs);
        unsigned bits = list_code(numbers[way.second], n - 1, way, NULL);
        if (bits < least) {
            least = bits;
            best = way;
        }
    }
    bits_put_short(w, best.second | best.runs << 1, 2);
    bits_put_short(w, shift, LENGTH_BITS);
    bits_put_short(w, best.k_bits, LENGTH_BITS + 1);
    plain_put(w, values[0] >> shift);
    list_code(numbers[best.second], n - 1, best, w);
}

static int values_decode(struct bit_reader *r, uint64_t *ret_values, unsigned n)
{
    unsigned flags = (unsigned)bits_get_short(r, 2);
    unsigned shift = (unsigned)bits_get_short(r, LENGTH_BITS);
    struct way way = {.second = flags & 1, .runs = flags >> 1};
    way.k_bits = (unsigned)bits_get_short(r, LENGTH_BITS + 1);
    if (way.k_bits > 64)
        return -EBADMSG;
    uint64_t value = plain_get(r), before = 0, numbers[PACK_SLOTS_MAX];
    int status = list_decode(r, way, numbers, n - 1);
    if (status < 0)
        return status;
    ret_values[0] = value << shift;
    for (unsigned i = 1; i < n; i++) {
        uint64_t difference = unzigzag(numbers[i - 1]);
        if (way.second)
            difference += before;
        before = difference;
        value += difference;
        ret_values[i] = value << shift;
    }
    return 0;
}

/* ---- a chunk ---- */

size_t pack_encode(const struct pack_points *points, uint8_t to[static PACK_BYTES_MAX])
{
    struct bit_writer w = {.to = to};
    uint64_t list[PACK_SLOTS_MAX], any = 0;
    unsigned n = points->n;
    bool gaps = points->slot[n - 1] - points->slot[0] != (int)n - 1;
    for (unsigned i = 0; points->has_max && i < n; i++)
        any |= points->max[i] - points->last[i];
    unsigned flags = (gaps ? FLAG_GAPS : 0) | (any ? FLAG_MAX : 0);
    bits_put_short(&w, VERSION << 4 | flags, 8);
    bits_put_short(&w, n, 8);
    if (gaps) {
        for (unsigned i = 0; i < n; i++)
            list[i] = points->slot[i];
        values_encode(&w, list, n);
    } else {
        bits_put_short(&w, points->slot[0], 8);
    }
    values_encode(&w, points->last, n);
    if (any) {
        for (unsigned i = 0; i < n; i++)
            list[i] = points->max[i] - points->last[i];
        values_encode(&w, list, n);
    }
    return bits_finish(&w);
}

static int slots_decode(struct bit_reader *r, bool gaps, struct pack_points *points)
{
    uint64_t list[PACK_SLOTS_MAX];
    if (gaps) {
        int status = values_decode(r, list, points->n);
        if (status < 0)
            return status;
    } else {
        list[0] = bits_get_short(r, 8);
        for (unsigned i = 1; i < points->n; i++)
            list[i] = list[0] + i;
    }
    for (unsigned i = 0; i < points->n; i++) {
        if (list[i] >= PACK_SLOTS_MAX || (i > 0 && list[i] <= list[i - 1]))
            return -EBADMSG;
        points->slot[i] = (uint8_t)list[i];
    }
    return 0;
}

int pack_decode(const uint8_t *data, size_t len, struct pack_points *ret_points)
{
    struct bit_reader r = {.from = data, .len = len};
    unsigned head = (unsigned)bits_get_short(&r, 8);
    unsigned n = (unsigned)bits_get_short(&r, 8);
    if (head >> 4 != VERSION || (head & 0xf) > (FLAG_MAX | FLAG_GAPS) || n == 0 ||
        n > PACK_SLOTS_MAX)
        return -EBADMSG;
    struct pack_points points;
    points.n = n;
    points.has_max = true;
    int status = slots_decode(&r, head & FLAG_GAPS, &points);
    if (status == 0)
        status = values_decode(&r, points.last, n);
    if (status == 0 && head & FLAG_MAX)
        status = values_decode(&r, points.max, n);
    if (status < 0 || r.past_end)
        return -EBADMSG;
    for (unsigned i = 0; i < n; i++) {
        uint64_t more = head & FLAG_MAX ? points.max[i] : 0;
        if (__builtin_add_overflow(points.last[i], more, &points.max[i]))
            return -EBADMSG;
    }
    memcpy(ret_points->slot, points.slot, n);
    memcpy(ret_points->last, points.last, n * sizeof(*points.last));
    memcpy(ret_points->max, points.max, n * sizeof(*points.max));
    ret_points->n = n;
    ret_points->has_max = true;
    return 0;
}
