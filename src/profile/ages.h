/* Live blocks by age and size: how many, and how many bytes. */
#pragma once

#include <stdint.h>

struct json;

enum { AGES_ROWS = 12, AGES_COLUMNS = 16 };

/* Zeroed it is empty. */
struct ages {
    uint64_t blocks[AGES_ROWS][AGES_COLUMNS], bytes[AGES_ROWS][AGES_COLUMNS];
    uint64_t all_blocks, all_bytes;
};

/* Where each row (of ages, in seconds) and each column (of sizes, in bytes) begins; the first begin with 0, the last
 * have no end. */
extern const uint64_t ages_begin_s[AGES_ROWS];
extern const uint64_t ages_begin_bytes[AGES_COLUMNS];

void ages_add(struct ages *ages, uint64_t age_ns, uint64_t bytes);

/* Fields of an open object: "ages" and "sizes" (where each begins), "blocks" and "bytes" (by age, then by size),
 * "live_blocks" and "live". */
void ages_json(const struct ages *ages, struct json *json);
