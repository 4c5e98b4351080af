/* Routes that the server has by itself: logging in and out, and the description of the API. */
#pragma once

#include <stddef.h>

#include "http/http.h"

const struct http_route *builtin_routes(size_t *ret_n);

/* The OpenAPI 3.1 description of all routes, in the order of the tables. 0 or the buffer's error. */
struct openapi_source {
    const char *title, *version;
    const struct http_route *const *routes;
    size_t n_routes;
    const struct http_schema *schemas;
    size_t n_schemas;
};
int openapi_write(const struct openapi_source *source, struct buffer *out);
