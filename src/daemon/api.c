/* The table of routes. */
#include "daemon/api.h"

#include "base/json.h"
#include "base/version.h"
#include "daemon/daemon.h"
#include "http/http.h"

static void answer_self(struct http_call *call, void *context)
{
    struct json *json = http_json(call);
    (void)context;
    json_object_begin(json);
    json_field_string(json, "version", MEMOIR_VERSION);
    json_object_end(json);
}

static const struct http_route routes[] = {
    {.method = "GET",
     .path = "/api/v1/self",
     .name = "self",
     .summary = "What memoird itself uses",
     .answer_schema = "Self",
     .role = HTTP_READ,
     .where = HTTP_ON_LOOP,
     .fresh_ms = 1000,
     .answer = answer_self},
};

const struct http_route *api_routes(size_t *ret_n)
{
    *ret_n = sizeof(routes) / sizeof(*routes);
    return routes;
}

static const struct http_schema schemas[] = {
    {"Self", "{\"type\":\"object\",\"required\":[\"version\"],"
             "\"properties\":{\"version\":{\"type\":\"string\"}}}"},
};

const struct http_schema *api_schemas(size_t *ret_n)
{
    *ret_n = sizeof(schemas) / sizeof(*schemas);
    return schemas;
}
