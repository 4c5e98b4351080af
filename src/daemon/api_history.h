/* The history as the HTTP API has it, apart from how it is asked for. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "history/past.h"

/* "now", seconds since 1970, or "-1h30m" before now. -EINVAL, -ERANGE. */
int history_moment(const char *text, uint64_t now_s, uint64_t *ret_s);

struct daemon;
struct http_call;
struct query_spec;

/* The time that a call names: `since`, `until` and `points`, or `at`; the route /history says `from` and `to`. The last hour where it names
 * none. False: it is invalid, and the call has its problem. */
bool api_history_window(struct http_call *call, struct past_window *ret_window);

/* Make the question one about the past where the call names a time: see past_spec(). False: the call has its problem. */
bool api_history_spec(struct http_call *call, struct query_spec *spec, struct buffer *texts);

/* A question to a table of the history, over the time that the call names, on the worker. `spec` is that of a question
 * that asking_prepare() has taken, so it is valid and has a limit. */
void api_history_query(struct http_call *call, struct daemon *daemon,
                       const struct query_spec *spec);
