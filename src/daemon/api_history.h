/* The history as the HTTP API has it, apart from how it is asked for. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

struct json;

/* "now", seconds since 1970, or "-1h30m" before now. -EINVAL, -ERANGE. */
int history_moment(const char *text, uint64_t now_s, uint64_t *ret_s);

struct http_call;

/* The time that `from`, `to` and `points` of a call tell; false: it makes no sense, and the call has its problem. */
struct clustering_window;
bool api_history_window(struct http_call *call, struct clustering_window *ret_window);

/* A question to the table `history`, over the time that `from`, `to` and `points` of the call tell, on the worker. */
struct daemon;
struct query_spec;
void api_history_query(struct http_call *call, struct daemon *daemon,
                       const struct query_spec *spec);

/* The layout of the route /history: rows of the table `history`, with the columns of history_layout_show, as arrays over one list of times.
 * Zeroed but for the limit of `text`. */
extern const char history_layout_show[];
struct history_world;
struct query_value;
struct history_series;
struct history_layout {
    struct buffer text; /* JSON of the series, one after the other */
    struct history_series *series;
    size_t n;
};

/* One row; `time` as its scan has set it. -ENOMEM, or the buffer's error. */
int history_layout_add(struct history_layout *layout, const struct query_value *values,
                       const struct history_world *time);

/* Fields of an open object: "from", "to", "step", "t", "series" ... With `of_process`, of several processes with one PID only the one
 * that began nearest to `start_s`, or the last where that is 0. */
void history_layout_json(const struct history_layout *layout, const struct history_world *time,
                         bool of_process, uint64_t start_s, struct json *json);
void history_layout_release(struct history_layout *layout);
