/* The history as the HTTP API has it, apart from how it is asked for. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct json;
struct read_result;

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

/* Fields of an open object: "from", "to", "step", "t" and "series". `node` is the name of this machine. */
void history_json(const struct read_result *result, const char *node, struct json *json);
