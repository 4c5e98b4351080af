/* Partial results of simulated nodes. See partials.h. */
#include "partials.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/json.h"
#include "query/query.h"

struct item {
    char program[32];
    const char *node;
    uint64_t rss;
};

static struct item *items;
static size_t n_items;
static struct query *query;
static struct query_result *result;
static struct buffer bytes = {.limit = 4 << 20};

static void get_program(const struct query_world *world, const struct query_row *row,
                        const struct query_field *field, struct query_value *ret)
{
    query_set_text(ret, ((const struct item *)row->custom)->program);
}
static void get_node(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    query_set_text(ret, ((const struct item *)row->custom)->node);
}
static void get_rss(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, ((const struct item *)row->custom)->rss);
}

static const struct query_column columns[] = {
    {"program", "program", QUERY_TEXT, .get = get_program},
    {"node", "node", QUERY_TEXT, .get = get_node},
    {"rss", "bytes", QUERY_BYTES, .get = get_rss},
    {0},
};
static const struct query_table table = {
    .name = "processes", .columns = columns, .show = "program,rss"};

void partials_make(size_t groups)
{
    struct query_error error;
    items = calloc(groups, sizeof(*items));
    n_items = groups;
    for (size_t i = 0; i < groups; i++) {
        snprintf(items[i].program, sizeof(items[i].program), "program-%03zu", i);
        items[i].rss = (i + 1) * 1234567;
    }
    if (query_new_over(&table, &(struct query_spec){.by = "program", .show = "rss,count"}, &query,
                       &error) < 0 ||
        query_result_new(query, 0, &result) < 0) {
        fprintf(stderr, "%s\n", error.text);
        exit(1);
    }
}

static void fill(const char *node)
{
    struct query_world world = {.sees_all = true, .node = node, .now_real_ns = 1};
    query_result_reset(result);
    for (size_t i = 0; i < n_items; i++) {
        items[i].node = node;
        (void)query_result_add(result, &world, &(struct query_row){.custom = &items[i]});
    }
    (void)query_result_finish(result);
}

struct buffer *partials_write(const char *node)
{
    fill(node);
    buffer_reset(&bytes);
    (void)query_partial_write(result, &bytes);
    return &bytes;
}

size_t partials_read(const struct buffer *from, size_t n)
{
    struct query_result *into;
    if (query_result_new(query, 0, &into) < 0)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (query_partial_read(into, from->data, from->len) < 0)
            abort();
    (void)query_result_finish(into);
    size_t rows = query_result_rows(into);
    query_result_free(into);
    return rows;
}

char *partials_json(void)
{
    struct buffer out = BUFFER_INIT(4 << 20);
    struct json json;
    fill("sim0");
    json_init(&json, &out);
    json_object_begin(&json);
    query_result_json(result, &json);
    json_object_end(&json);
    (void)json_finish(&json);
    return buffer_take(&out);
}
