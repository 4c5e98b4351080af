/* The observer's list of traced processes as rows. See traces.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/json_read.h"
#include "daemon/asking.h"
#include "daemon/traces.h"

enum { ROWS_MAX = 65536 };

const char *const traces_directions[TRACE_DIRECTIONS] = {"unknown", "to_device", "from_device",
                                                         "on_device", "on_host"};

static void read_figure(struct json_read *read, uint64_t *to)
{
    (void)json_read_u64(read, to);
}

static void read_space(struct json_read *read, const struct json_text *name, struct traces_row *row)
{
    struct json_text key;
    if (row->n_spaces == TRACES_SPACES ||
        json_text_copy(name, row->spaces[row->n_spaces].name, sizeof(row->spaces->name)) < 0) {
        json_read_skip(read);
        return;
    }
    size_t i = row->n_spaces++;
    json_read_object(read);
    while (json_read_key(read, &key))
        if (json_text_is(&key, "bytes"))
            read_figure(read, &row->spaces[i].live_bytes);
        else if (json_text_is(&key, "blocks"))
            read_figure(read, &row->spaces[i].live_blocks);
        else if (json_text_is(&key, "allocated"))
            read_figure(read, &row->spaces[i].allocated_bytes);
        else if (json_text_is(&key, "allocated_blocks"))
            read_figure(read, &row->spaces[i].allocated_blocks);
        else
            json_read_skip(read);
}

static void read_flow(struct json_read *read, struct trace_flow *flow)
{
    struct json_text key;
    json_read_object(read);
    while (json_read_key(read, &key))
        if (json_text_is(&key, "copies"))
            read_figure(read, &flow->copies);
        else if (json_text_is(&key, "bytes"))
            read_figure(read, &flow->bytes);
        else
            json_read_skip(read);
}

static void read_copies(struct json_read *read, struct traces_row *row)
{
    struct json_text key;
    json_read_object(read);
    while (json_read_key(read, &key)) {
        size_t i = 0;
        while (i < TRACE_DIRECTIONS && !json_text_is(&key, traces_directions[i]))
            i++;
        if (i < TRACE_DIRECTIONS)
            read_flow(read, &row->copies[i]);
        else
            json_read_skip(read);
    }
}

static void read_lost(struct json_read *read, struct traces_row *row)
{
    struct json_text key;
    json_read_object(read);
    while (json_read_key(read, &key))
        if (row->n_lost < TRACES_LOSSES &&
            json_text_copy(&key, row->lost[row->n_lost].name, sizeof(row->lost->name)) > 0)
            read_figure(read, &row->lost[row->n_lost++].n);
        else
            json_read_skip(read);
}

static void read_device(struct json_read *read, struct traces_row *row)
{
    struct json_text key;
    uint64_t n;
    bool estimate;
    json_read_object(read);
    while (json_read_key(read, &key))
        if (json_text_is(&key, "context") && json_read_u64(read, &n)) {
            row->has_context = true;
            row->context_bytes += n;
        } else if (json_text_is(&key, "before") && json_read_u64(read, &n)) {
            row->has_before = true;
            row->before_bytes += n;
        } else if (json_text_is(&key, "estimated") && json_read_bool(read, &estimate)) {
            row->estimate |= estimate;
        } else {
            json_read_skip(read);
        }
}

static void read_devices(struct json_read *read, struct traces_row *row)
{
    json_read_array(read);
    while (json_read_item(read))
        read_device(read, row);
}

static void read_row(struct json_read *read, struct traces_row *row)
{
    struct json_text key, text;
    uint64_t n = 0;
    json_read_object(read);
    while (json_read_key(read, &key))
        if (json_text_is(&key, "pid") && json_read_u64(read, &n)) {
            row->pid = (pid_t)n;
        } else if (json_text_is(&key, "uid") && json_read_u64(read, &n)) {
            row->uid = (uint32_t)n;
        } else if (json_text_is(&key, "program") && json_read_string(read, &text)) {
            if (json_text_copy(&text, row->program, sizeof(row->program)) < 0)
                row->program[0] = '\0';
        } else if (json_text_is(&key, "calls")) {
            read_figure(read, &row->calls);
        } else if (json_text_is(&key, "off")) {
            (void)json_read_bool(read, &row->off);
        } else if (json_text_is(&key, "devices")) {
            read_devices(read, row);
        } else if (json_text_is(&key, "blocks")) {
            read_figure(read, &row->live_blocks);
        } else if (json_text_is(&key, "spaces")) {
            json_read_object(read);
            while (json_read_key(read, &key))
                read_space(read, &key, row);
        } else if (json_text_is(&key, "copies")) {
            read_copies(read, row);
        } else if (json_text_is(&key, "lost")) {
            read_lost(read, row);
        } else {
            json_read_skip(read);
        }
}

static int by_pid(const void *a, const void *b)
{
    const struct traces_row *x = a, *y = b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

int traces_rows(const struct buffer *json, const struct asking_viewer *viewer,
                struct traces_row **ret_rows, size_t *ret_n)
{
    MEMOIR_CLEANUP(freep)
    struct traces_row *rows = NULL;
    size_t n = 0, cap = 0;
    struct json_read read;
    struct json_text key;
    json_read_init(&read, json->data ? json->data : "", json->len);
    json_read_object(&read);
    while (json_read_key(&read, &key)) {
        if (!json_text_is(&key, "processes")) {
            json_read_skip(&read);
            continue;
        }
        json_read_array(&read);
        while (json_read_item(&read)) {
            struct traces_row row = {.uid = UINT32_MAX};
            read_row(&read, &row);
            if (read.error || !asking_may_see(viewer, row.uid) || n == ROWS_MAX)
                continue;
            if (n == cap) {
                cap = cap ? cap * 2 : 16;
                struct traces_row *more = reallocarray(rows, cap, sizeof(*rows));
                if (!more)
                    return -ENOMEM;
                rows = more;
            }
            rows[n++] = row;
        }
    }
    if (json_read_finish(&read) < 0)
        return -EBADMSG;
    if (n)
        qsort(rows, n, sizeof(*rows), by_pid);
    *ret_rows = MEMOIR_TAKE(rows);
    *ret_n = n;
    return 0;
}

void traces_row_json(const struct traces_row *row, struct json *json)
{
    json_field_bool(json, "off", row->off);
    json_field_u64(json, "calls", row->calls);
    json_field_u64(json, "blocks", row->live_blocks);
    json_key(json, "spaces");
    json_object_begin(json);
    for (size_t i = 0; i < row->n_spaces; i++) {
        json_key(json, row->spaces[i].name);
        json_object_begin(json);
        json_field_u64(json, "bytes", row->spaces[i].live_bytes);
        json_field_u64(json, "blocks", row->spaces[i].live_blocks);
        json_field_u64(json, "allocated", row->spaces[i].allocated_bytes);
        json_field_u64(json, "allocated_blocks", row->spaces[i].allocated_blocks);
        json_object_end(json);
    }
    json_object_end(json);
    json_key(json, "copies");
    json_object_begin(json);
    for (size_t i = 0; i < TRACE_DIRECTIONS; i++) {
        json_key(json, traces_directions[i]);
        json_object_begin(json);
        json_field_u64(json, "copies", row->copies[i].copies);
        json_field_u64(json, "bytes", row->copies[i].bytes);
        json_object_end(json);
    }
    json_object_end(json);
    json_key(json, "lost");
    json_object_begin(json);
    for (size_t i = 0; i < row->n_lost; i++)
        json_field_u64(json, row->lost[i].name, row->lost[i].n);
    json_object_end(json);
}
