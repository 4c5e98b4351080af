/* Charts of one line. See spark.h. */
#include "cli/spark.h"

#include "base/buffer.h"

static const char *const blocks[] = {
    "\xe2\x96\x81", "\xe2\x96\x82", "\xe2\x96\x83", "\xe2\x96\x84",
    "\xe2\x96\x85", "\xe2\x96\x86", "\xe2\x96\x87", "\xe2\x96\x88",
};
static const char *const ascii[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
enum { LEVELS = sizeof(blocks) / sizeof(*blocks) };

/* The lowest is for 0 alone, the highest for the top alone. */
static unsigned level(uint64_t value, uint64_t top)
{
    if (value == 0 || top == 0)
        return 0;
    if (value >= top)
        return LEVELS - 1;
    return 1 + (unsigned)((unsigned __int128)value * (LEVELS - 2) / top);
}

void spark_append(struct buffer *out, bool utf8, const struct spark_point *points, size_t n,
                  uint64_t top)
{
    const char *const *levels = utf8 ? blocks : ascii;
    for (size_t i = 0; i < n; i++) {
        buffer_append_str(out, points[i].present ? levels[level(points[i].value, top)] : " ");
    }
}
