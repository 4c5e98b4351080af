/* Any bytes as a chunk of history, and as a row of chunks that one flush brought. What decodes is within its
 * limits, and packed again it decodes to the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "history/pack.h"
#include "history/recent.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct pack_points *points)
{
    struct pack_points back;
    uint8_t bytes[PACK_BYTES_MAX];
    if (points->n == 0 || points->n > PACK_SLOTS_MAX)
        abort();
    for (unsigned i = 0; i < points->n; i++)
        if (points->slot[i] >= PACK_SLOTS_MAX || points->max[i] < points->last[i] ||
            (i && points->slot[i] <= points->slot[i - 1]))
            abort();
    size_t len = pack_encode(points, bytes);
    if (len > PACK_BYTES_MAX || pack_decode(bytes, len, &back) < 0 || back.n != points->n ||
        memcmp(back.slot, points->slot, points->n) != 0 ||
        memcmp(back.last, points->last, points->n * sizeof(*points->last)) != 0 ||
        memcmp(back.max, points->max, points->n * sizeof(*points->max)) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pack_points points;
    if (pack_decode(data, size, &points) == 0)
        check(&points);
    struct recent_cursor cursor = {.data = data, .len = size};
    uint64_t before = 0;
    while (recent_next(&cursor) > 0) {
        if (cursor.series <= before || cursor.chunk + cursor.chunk_len > data + size)
            abort();
        before = cursor.series;
        if (pack_decode(cursor.chunk, cursor.chunk_len, &points) == 0)
            check(&points);
    }
    return 0;
}
