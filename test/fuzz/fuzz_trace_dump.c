/* Any bytes as a dump of a history: packed, unpacked, JSON. What loads is consistent in itself, answers every question, and
 * written again in either format comes back the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "trace/diff.h"
#include "trace/dump.h"

enum { LIMIT = 256 << 20, K = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int yes)
{
    if (!yes)
        abort();
}

static void questions(struct trace_history *h)
{
    static struct trace_block blocks[K];
    static struct trace_moment moments[64];
    static struct trace_failure failures[4];
    struct trace_gap gaps[4];
    struct trace_timeline timeline;
    uint64_t cursor = 0;
    for (size_t n; (n = trace_history_blocks(h, NULL, &cursor, blocks, K)) > 0;)
        for (size_t i = 0; i < n; i++) {
            struct trace_block found;
            must(trace_history_moments(h, blocks[i].id, moments, 64) >= 1);
            must(!blocks[i].active || trace_history_find(h, blocks[i].address, &found) == 0);
            must(trace_history_at(h, blocks[i].address, &found, 1) >= 1);
        }
    for (unsigned by = 0; by < 2; by++) {
        ptrdiff_t n = trace_history_hot(h, by, NULL, blocks, K);
        for (ptrdiff_t i = 1; i < n; i++)
            must(trace_block_value(&blocks[i - 1], by) >= trace_block_value(&blocks[i], by));
        must(trace_history_cold(h, by, NULL, blocks, K) == n);
    }
    trace_history_failures(h, failures, 4);
    trace_history_gaps(h, gaps, 4);
    must(trace_history_timeline(h, &timeline) == 0);
    trace_timeline_release(&timeline);
}

static void same_again(struct trace_history *h, enum trace_dump_format format,
                       const struct buffer *plain)
{
    struct buffer out = BUFFER_INIT(LIMIT), again = BUFFER_INIT(LIMIT);
    struct trace_history *back = NULL;
    must(trace_dump_encode(h, format, &out) == 0);
    must(trace_dump_decode(out.data, out.len, &back) == 0);
    must(trace_dump_encode_plain(back, &again) == 0);
    /* JSON has no bytes that are not UTF-8: texts may differ. */
    must(format == TRACE_DUMP_JSON ||
         (again.len == plain->len && memcmp(again.data, plain->data, plain->len) == 0));
    trace_history_free(back);
    buffer_release(&out);
    buffer_release(&again);
}

static void check(struct trace_history *h)
{
    struct buffer plain = BUFFER_INIT(LIMIT);
    struct trace_diff *diff = NULL;
    questions(h);
    must(trace_dump_encode_plain(h, &plain) == 0);
    same_again(h, TRACE_DUMP_BINARY, &plain);
    same_again(h, TRACE_DUMP_JSON, &plain);
    must(trace_diff_new(h, h, &diff) == 0);
    trace_diff_free(diff);
    buffer_release(&plain);
    trace_history_free(h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trace_history *h = NULL;
    if (trace_dump_decode(data, size, &h) == 0)
        check(h);
    h = NULL;
    if (trace_dump_decode_plain(data, size, &h) == 0)
        check(h);
    return 0;
}
