/* See buffers.h. */
#include "cli/buffers.h"

const char buffers_rows[] = "pid,user,program,device,space,bytes,age,tag,moves,id,site";
const char buffers_sort[] = "-bytes,-age,+pid,+id";
enum { COL_PID, COL_BYTES = 5, COL_AGE };

static const struct query_hint hints[] = {
    {"pid"},
    {"user", .rank = 60},
    {"program", .flags = COLUMN_STRETCH},
    {"device", .flags = COLUMN_STRETCH, .rank = 30},
    {"space"},
    {"bytes", "size"},
    {"age"},
    {"tag", .flags = COLUMN_STRETCH | COLUMN_HIDE_EMPTY, .rank = 5},
    {"moves", .flags = COLUMN_HIDE_EMPTY, .rank = 50},
    {"id", .rank = 40},
    {"site", .flags = COLUMN_STRETCH | COLUMN_HIDE_EMPTY, .rank = 10},
    {0},
};

struct query_style buffers_layout(const struct query_style *style)
{
    struct query_style layout = *style;
    layout.hints = hints;
    return layout;
}

static void add_row(struct buffers_sum *sum, struct query_value bytes, struct query_value age)
{
    if (__builtin_add_overflow(sum->bytes, bytes.number, &sum->bytes))
        sum->bytes = UINT64_MAX;
    if (age.state & QUERY_KNOWN && age.number > sum->oldest_ns)
        sum->oldest_ns = age.number;
}

static bool is_first_of(const struct query_result *result, size_t row)
{
    uint64_t pid = query_result_value(result, row, COL_PID).number;
    for (size_t i = 0; i < row; i++)
        if (query_result_value(result, i, COL_PID).number == pid)
            return false;
    return true;
}

void buffers_sum(const struct query_result *result, struct buffers_sum *ret_sum)
{
    enum { COUNTED_MAX = 1000 }; /* rows whose processes are told apart */
    size_t n = query_result_rows(result);
    struct buffers_sum sum = {.blocks = query_result_matched(result), .shown = n};
    for (size_t row = 0; row < n; row++) {
        add_row(&sum, query_result_value(result, row, COL_BYTES),
                query_result_value(result, row, COL_AGE));
        if (!query_result_others(result) && n <= COUNTED_MAX)
            sum.processes += is_first_of(result, row);
    }
    if (query_result_others(result))
        add_row(&sum, query_result_other(result, COL_BYTES), query_result_other(result, COL_AGE));
    *ret_sum = sum;
}
