/* What memoird answers over HTTP: the table of routes and of the schemas that their answers have. */
#pragma once

#include <stddef.h>

struct http_route;
struct http_schema;

/* Handlers get the struct daemon as their context. On the loop they may use everything of it; on the worker
 * nothing that the loop owns. */
const struct http_route *api_routes(size_t *ret_n);
const struct http_schema *api_schemas(size_t *ret_n);
