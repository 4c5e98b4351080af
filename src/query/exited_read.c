/* The dead from STATE/retired.jsonl, one JSON object a line. See query.h.
 *
 * The file is a daemon's, which may be a newer one or have been killed in the middle of a line. So
 * every field may be missing, and a line that makes no sense is counted and left out. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/sum.h"
#include "query/arena.h"
#include "query/table_process.h"

enum {
    LINES_MAX = 100000, /* read at most; the daemon keeps far fewer */
    LINE_BYTES_MAX = 8 << 20,
};

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

static uint64_t number_of(const json_t *object, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(object, key));
    return n > 0 ? (uint64_t)n : 0;
}

/* Seconds since 1970 as nanoseconds; 0 when missing or absurd. */
static uint64_t time_of(const json_t *object, const char *key)
{
    double s = json_number_value(json_object_get(object, key));
    return s > 0 && s < 1e10 ? (uint64_t)(s * 1e6) * 1000 : 0;
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
        query_exited_add_account(e, space, number_of(account, "live_bytes"),
                                 number_of(account, "live_blocks"),
                                 number_of(account, "peak_bytes"));
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

static int add_line(struct reading *reading, const json_t *line)
{
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
        .pid = number_of(line, "pid"),
        .uid = (uint32_t)number_of(line, "uid"),
        .start_ns = time_of(line, "start"),
        .end_ns = time_of(line, "end"),
        .figures_incomplete = json_is_false(json_object_get(line, "figures_complete")),
    };
    e->has_exit_code = small_of(line, "exit_code", &e->exit_code);
    e->has_signal = small_of(line, "signal", &e->signal);
    read_accounts(line, e);
    if (reading->error < 0)
        return reading->error;
    list->n++;
    return 0;
}

static int read_file(struct reading *reading, const char *state, const char *name)
{
    char path[4096];
    if (snprintf(path, sizeof(path), "%s/%s", state, name) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe there would hold us up */
    MEMOIR_CLEANUP(fclosep)
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    struct stat info;
    if (!file)
        return -errno;
    if (fstat(fd, &info) < 0 || !S_ISREG(info.st_mode))
        return -EINVAL;
    MEMOIR_CLEANUP(freep)
    char *text = NULL;
    size_t room = 0;
    ssize_t len;
    while (reading->list.n < LINES_MAX && (len = getline(&text, &room, file)) > 0) {
        if (text[len - 1] != '\n')
            break; /* being written */
        json_t *line = len <= LINE_BYTES_MAX ? json_loadb(text, (size_t)len, 0, NULL) : NULL;
        int r = 0;
        if (json_is_object(line))
            r = add_line(reading, line);
        else
            reading->list.skipped++;
        json_decref(line);
        if (r < 0)
            return r;
    }
    return 0;
}

int query_exited_read(const char *state, struct query_exited_list *ret_list)
{
    struct reading reading = {0};
    int older = read_file(&reading, state, "retired.jsonl.1");
    int r = read_file(&reading, state, "retired.jsonl");
    if (r == -ENOENT && older == 0)
        r = 0;
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
