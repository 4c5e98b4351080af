/* The dead as rows, from the daemon's list. See query.h. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "base/sum.h"
#include "query/arena.h"
#include "query/retired_lines.h"
#include "query/table_process.h"

struct reading {
    struct query_exited_list list;
    size_t cap;
    struct arena texts;
    int error;
};

static const char *text_of(struct reading *reading, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value))
        return NULL;
    const char *text =
        arena_text(&reading->texts, json_string_value(value), json_string_length(value));
    if (!text)
        reading->error = -ENOMEM;
    return text;
}

static bool small_of(const json_t *object, const char *key, int32_t *ret)
{
    const json_t *value = json_object_get(object, key);
    *ret = json_is_integer(value) ? (int32_t)json_integer_value(value) : 0;
    return json_is_integer(value) && json_integer_value(value) >= 0 &&
           json_integer_value(value) <= INT32_MAX;
}

static void read_accounts(const json_t *line, struct query_exited *e)
{
    size_t i;
    json_t *account;
    json_array_foreach(json_object_get(line, "accounts"), i, account)
    {
        const json_t *name = json_object_get(account, "space");
        if (!json_is_string(name))
            continue;
        uint32_t space = space_find(json_string_value(name), json_string_length(name));
        query_exited_add_account(e, space, retired_line_number(account, "live_bytes"),
                                 retired_line_number(account, "live_blocks"),
                                 retired_line_number(account, "peak_bytes"));
        query_exited_mark_account(e, space, json_is_true(json_object_get(account, "sampled")),
                                  json_is_true(json_object_get(account, "partial")));
    }
    json_t *loss;
    json_array_foreach(json_object_get(line, "losses"), i, loss)
    {
        if (json_integer_value(loss) > 0)
            sum_add(&e->losses, (uint64_t)json_integer_value(loss));
    }
}

static int add_line(json_t *line, void *context)
{
    struct reading *reading = context;
    struct query_exited_list *list = &reading->list;
    if (list->n == reading->cap) {
        size_t cap = reading->cap ? reading->cap * 2 : 64;
        struct query_exited *rows = reallocarray(list->rows, cap, sizeof(*rows));
        if (!rows)
            return -ENOMEM;
        list->rows = rows;
        reading->cap = cap;
    }
    struct query_exited *e = &list->rows[list->n];
    *e = (struct query_exited){
        .program = text_of(reading, line, "name"),
        .command = text_of(reading, line, "command"),
        .exe = text_of(reading, line, "exe"),
        .node = text_of(reading, line, "host"),
        .cause = text_of(reading, line, "cause"),
        .pid = retired_line_number(line, "pid"),
        .uid = (uint32_t)retired_line_number(line, "uid"),
        .start_ns = retired_line_ns(line, "start"),
        .end_ns = retired_line_ns(line, "end"),
        .figures_incomplete = json_is_false(json_object_get(line, "figures_complete")),
    };
    e->has_exit_code = small_of(line, "exit_code", &e->exit_code);
    e->has_signal = small_of(line, "signal", &e->signal);
    read_accounts(line, e);
    if (reading->error < 0)
        return reading->error;
    list->n++;
    return 1;
}

int query_exited_read(const char *state, struct query_exited_list *ret_list)
{
    struct reading reading = {0};
    int r = retired_lines_read(state, add_line, &reading, &reading.list.skipped);
    struct arena *texts = r == 0 ? malloc(sizeof(*texts)) : NULL;
    if (r == 0 && !texts)
        r = -ENOMEM;
    if (r < 0) {
        arena_release(&reading.texts);
        free(reading.list.rows);
        return r;
    }
    *texts = reading.texts;
    *ret_list = reading.list;
    ret_list->texts = texts;
    for (size_t i = 0, j = ret_list->n; i + 1 < j; i++) { /* the latest first */
        struct query_exited swap = ret_list->rows[i];
        ret_list->rows[i] = ret_list->rows[--j];
        ret_list->rows[j] = swap;
    }
    return 0;
}

void query_exited_release(struct query_exited_list *list)
{
    if (list->texts)
        arena_release(list->texts);
    free(list->texts);
    free(list->rows);
    *list = (struct query_exited_list){0};
}
