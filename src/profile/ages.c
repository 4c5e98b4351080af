/* See ages.h. */
#include "profile/ages.h"

#include <stddef.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/sum.h"

const uint64_t ages_begin_s[AGES_ROWS] = {0,   1,    5,     15,    60,    300,
                                          900, 3600, 14400, 43200, 86400, 604800};
const uint64_t ages_begin_bytes[AGES_COLUMNS] = {
    0,     32,     64,      128,     256,      1024,     4096,      16384,
    65536, 262144, 1048576, 4194304, 16777216, 67108864, 268435456, 1073741824,
};

/* The last that begins at or below. */
static size_t place(const uint64_t *begins, size_t n, uint64_t value)
{
    size_t at = 0;
    while (at + 1 < n && begins[at + 1] <= value)
        at++;
    return at;
}

void ages_add(struct ages *ages, uint64_t age_ns, uint64_t bytes)
{
    size_t row = place(ages_begin_s, AGES_ROWS, age_ns / NS_PER_S);
    size_t column = place(ages_begin_bytes, AGES_COLUMNS, bytes);
    ages->blocks[row][column]++;
    ages->all_blocks++;
    sum_add(&ages->bytes[row][column], bytes);
    sum_add(&ages->all_bytes, bytes);
}

static void list(struct json *json, const uint64_t *values, size_t n)
{
    json_array_begin(json);
    for (size_t i = 0; i < n; i++)
        json_u64(json, values[i]);
    json_array_end(json);
}

static void table(struct json *json, const char *key, const uint64_t (*rows)[AGES_COLUMNS])
{
    json_key(json, key);
    json_array_begin(json);
    for (size_t i = 0; i < AGES_ROWS; i++)
        list(json, rows[i], AGES_COLUMNS);
    json_array_end(json);
}

void ages_json(const struct ages *ages, struct json *json)
{
    json_key(json, "ages");
    list(json, ages_begin_s, AGES_ROWS);
    json_key(json, "sizes");
    list(json, ages_begin_bytes, AGES_COLUMNS);
    table(json, "blocks", ages->blocks);
    table(json, "bytes", ages->bytes);
    json_field_u64(json, "live_blocks", ages->all_blocks);
    json_field_u64(json, "live", ages->all_bytes);
}
