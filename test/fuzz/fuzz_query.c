/* Questions and partial answers come from sockets. The first line of the input is the question, its parts
 * separated by '|': table, by, where, show, sort, limit; the rest is a partial answer to it. What is read
 * must be written again and read back to the same. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/json.h"
#include "ledger/ledger.h"
#include "query/query.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)  \
    do {                  \
        if (!(condition)) \
            abort();      \
    } while (0)

/* A row of everything, so that filters have something to look at. */
static const struct query_exited dead[] = {
    {.program = "train.py",
     .command = "python3 train.py",
     .cause = "killed by SIGKILL",
     .pid = 7,
     .start_ns = 1000,
     .end_ns = 5000000000,
     .has_signal = true,
     .signal = 9,
     .blocks = 3,
     .bytes = {[MEMOIR_SPACE_DRAM] = 1u << 30},
     .spaces = 1u << MEMOIR_SPACE_DRAM},
    {.program = "infer", .pid = 8, .uid = 1000, .figures_incomplete = true},
    {.program = "infer", .exe = "/usr/bin/\xff", .pid = 9, .uid = 1000},
};
static const struct query_world world = {
    .exited = dead, .n_exited = 3, .node = "here", .now_real_ns = 9000000000, .viewer_uid = 1000};

static char *next_part(char **rest)
{
    char *part = strsep(rest, "|");
    return part ? part : NULL;
}

/* The finished answer in both shapes, for buffer_release(). */
static void answer(struct query_result *result, struct buffer *out)
{
    struct json json;
    CHECK(query_result_finish(result) == 0);
    json_init(&json, out);
    json_array_begin(&json);
    json_object_begin(&json);
    query_result_json(result, &json);
    json_object_end(&json);
    json_object_begin(&json);
    query_result_arrays(result, &json);
    json_object_end(&json);
    json_array_end(&json);
    CHECK(json_finish(&json) == 0);
}

static void partial(const struct query *query, struct query_result *result, const char *text,
                    size_t len)
{
    uint64_t before = query_result_matched(result);
    int r = query_partial_read(result, text, len);
    CHECK(r == 0 || r == -EINVAL);
    CHECK(r == 0 || query_result_matched(result) == before);
    struct buffer whole = BUFFER_INIT(64 << 20), sent = BUFFER_INIT(64 << 20),
                  again = BUFFER_INIT(64 << 20);
    struct query_result *copy = NULL;
    answer(result, &whole);
    CHECK(query_partial_write(result, &sent) == 0);
    CHECK(query_result_new(query, 0, &copy) == 0);
    CHECK(query_partial_read(copy, sent.data, sent.len) == 0);
    answer(copy, &again);
    CHECK(strcmp(buffer_string(&whole), buffer_string(&again)) == 0);
    CHECK(query_result_merge(copy, result) == 0);
    query_result_free(copy);
    buffer_release(&whole);
    buffer_release(&sent);
    buffer_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    char *line = text, *rest = memchr(text, '\n', size);
    if (rest)
        *rest++ = '\0';
    struct query_spec spec = {
        .table = next_part(&line),
        .by = next_part(&line),
        .where = next_part(&line),
        .show = next_part(&line),
        .sort = next_part(&line),
        .limit = line ? strtoull(line, NULL, 10) : 0,
    };
    struct query *query = NULL;
    struct query_error error;
    int r = query_new(&spec, &query, &error);
    if (r < 0) {
        struct buffer out = BUFFER_INIT(1 << 20);
        CHECK(r == -EINVAL && *error.text);
        CHECK(query_error_print(&error, &spec, &out) == 0);
        buffer_release(&out);
        free(text);
        return 0;
    }
    struct query_result *result = NULL;
    CHECK(query_result_new(query, 0, &result) == 0);
    CHECK(query_run(query, &world, result) == 0);
    partial(query, result, rest ? rest : "", rest ? size - (size_t)(rest - text) : 0);
    query_result_free(result);
    query_free(query);
    free(text);
    return 0;
}
