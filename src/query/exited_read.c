/* The dead as rows, from the daemon's list. See query.h. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/sum.h"
#include "query/arena.h"
#include "query/exit_file.h"
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

static const char *kind_of(const struct query_exited *e)
{
    if (e->has_exit_code)
        return "code";
    if (e->has_signal)
        return e->oom ? "oom" : "signal";
    return e->cause && strcmp(e->cause, "replaced by exec") == 0 ? "exec" : "unknown";
}

/* What the kernel told of its end, where it did: only then there is a parent. */
static void read_exit(struct reading *reading, const json_t *line, struct query_exited *e)
{
    e->has_exit = json_is_integer(json_object_get(line, "parent"));
    e->core = json_is_true(json_object_get(line, "core"));
    e->oom = json_is_true(json_object_get(line, "oom"));
    e->kind = kind_of(e);
    e->parent = retired_line_number(line, "parent");
    e->peak_rss = retired_line_number(line, "peak_rss_bytes");
    e->cpu_ns = retired_line_ns(line, "cpu_s");
    e->cgroup = text_of(reading, line, "cgroup");
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
        .has_book = true,
        .figures_incomplete = json_is_false(json_object_get(line, "figures_complete")),
    };
    e->has_exit_code = small_of(line, "exit_code", &e->exit_code);
    e->has_signal = small_of(line, "signal", &e->signal);
    read_exit(reading, line, e);
    read_accounts(line, e);
    if (reading->error < 0)
        return reading->error;
    list->n++;
    return 1;
}

static int lines_read(const char *state, struct query_exited_list *ret_list)
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

int query_exited_read(const char *state, struct query_exited_list *ret_list)
{
    struct query_exited_list books = {0};
    struct exit_file *file = NULL;
    int r = lines_read(state, &books);
    int exits = exit_file_read(state, &file);
    if (exits == -EINVAL) {
        books.skipped++;
        exits = 0;
    }
    if (r == -ENOENT && exits == 0)
        r = 0;
    if (r == 0 && exits < 0 && exits != -ENOENT)
        r = exits;
    if (r == 0 && file) {
        struct query_exited_list joined;
        r = query_exited_join(books.rows, books.n, file, &joined);
        if (r == 0) {
            /* Texts of the lines and of the records stay where they are. */
            struct arena *texts = joined.texts;
            free(books.rows);
            if (books.texts)
                arena_join(texts, books.texts);
            free(books.texts);
            joined.skipped = books.skipped;
            joined.file = file;
            *ret_list = joined;
            return 0;
        }
    }
    if (r == 0) {
        *ret_list = books;
        return 0;
    }
    query_exited_release(&books);
    free(file);
    return r;
}

void query_exited_release(struct query_exited_list *list)
{
    free(list->file);
    if (list->texts)
        arena_release(list->texts);
    free(list->texts);
    free(list->rows);
    *list = (struct query_exited_list){0};
}
