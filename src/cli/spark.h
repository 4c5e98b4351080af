/*
 * spark.h: many values in one line, a character each: "▁▂▃▅▇█".
 *
 * What is absent is blank, so a gap is not taken for nothing; what is not 0 is higher than what is.
 */
#ifndef MEMOIR_CLI_SPARK_H
#define MEMOIR_CLI_SPARK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buffer;

struct spark_point {
    bool present;
    uint64_t value;
};

/* Append one character a point, the full height being `top` (at least the largest value; 0 when all are). Without
 * `utf8`, of ASCII. Trailing blanks are kept. */
void spark_append(struct buffer *out, bool utf8, const struct spark_point *points, size_t n,
                  uint64_t top);

#endif
