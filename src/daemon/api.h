/* What memoird answers over HTTP: the table of routes, the schemas of their answers, and what stands behind them.
 *
 * A route's handler runs on the loop, where it may use all tables and must not block. What reads whole books, symbols,
 * the memory of a process or the history is prepared there and then done by a worker thread (chores.h). */
#pragma once

#include <stddef.h>

struct api;
struct daemon;
struct http;
struct buffer;
struct http_route;
struct http_schema;

/* Handlers get the struct daemon as their context. */
const struct http_route *api_routes(size_t *ret_n);
const struct http_schema *api_schemas(size_t *ret_n);

/* Before the server is there. Starts the worker. */
int api_new(struct daemon *daemon, struct api **ret_api);

/* The server runs: from now on there are ticks and events in its streams. */
int api_start(struct api *api, struct http *http);

/* The server has stopped: end the worker, and give up what it has not begun. Before http_free(). NULL is fine. */
void api_stop(struct api *api);
void api_free(struct api *api); /* NULL is fine */

/* The OpenAPI description of all that, as memoird serves it. Needs no daemon. */
void api_description(struct buffer *out);
