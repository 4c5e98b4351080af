/* The OpenAPI 3.1 description, written from the table of routes and the table of schemas. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buffer.h"
#include "base/json.h"
#include "http/builtin.h"
#include "http/http.h"

/* What login and problems look like is the server's own affair. */
static const struct http_schema own_schemas[] = {
    {"Problem",
     "{\"type\":\"object\",\"description\":\"RFC 9457. Queries that make no sense add part, at and len: "
     "which argument, and which bytes of it.\","
     "\"required\":[\"type\",\"title\",\"status\",\"detail\"],"
     "\"properties\":{\"type\":{\"type\":\"string\"},\"title\":{\"type\":\"string\"},"
     "\"status\":{\"type\":\"integer\"},\"detail\":{\"type\":\"string\"},"
     "\"instance\":{\"type\":\"string\"}},\"additionalProperties\":true}"},
    {"LoginRequest",
     "{\"type\":\"object\",\"required\":[\"code\"],"
     "\"properties\":{\"code\":{\"type\":\"string\"}},\"additionalProperties\":false}"},
    {"Login", "{\"type\":\"object\",\"required\":[\"user\",\"role\"],"
              "\"properties\":{\"user\":{\"type\":\"string\"},"
              "\"role\":{\"enum\":[\"read\",\"control\"]}},\"additionalProperties\":false}"},
    {"Logout", "{\"type\":\"object\",\"required\":[\"logged_out\"],"
               "\"properties\":{\"logged_out\":{\"const\":true}},\"additionalProperties\":false}"},
};
enum { N_OWN = sizeof(own_schemas) / sizeof(*own_schemas) };

static void reference(struct json *json, const char *schema)
{
    char text[128];
    snprintf(text, sizeof(text), "#/components/schemas/%s", schema);
    json_object_begin(json);
    json_field_string(json, "$ref", text);
    json_object_end(json);
}

static void words(struct json *json, const char *list)
{
    json_key(json, "enum");
    json_array_begin(json);
    for (const char *at = list; *at; at += *at == '|') {
        size_t len = strcspn(at, "|");
        json_string_n(json, at, len);
        at += len;
    }
    json_array_end(json);
}

static void param_schema(struct json *json, const struct http_param *param)
{
    json_object_begin(json);
    switch (param->kind) {
    case HTTP_NUMBER:
        json_field_string(json, "type", "integer");
        json_field_u64(json, "minimum", param->min);
        if (param->max)
            json_field_u64(json, "maximum", param->max);
        break;
    case HTTP_YES:
        json_field_string(json, "type", "string");
        words(json, "yes|no|true|false|1|0");
        break;
    case HTTP_WORD:
        json_field_string(json, "type", "string");
        words(json, param->words);
        break;
    case HTTP_TEXT:
        json_field_string(json, "type", "string");
        if (param->max)
            json_field_u64(json, "maxLength", param->max);
        break;
    }
    json_object_end(json);
}

static void params(struct json *json, const struct http_param *list)
{
    if (!list || !list->name)
        return;
    json_key(json, "parameters");
    json_array_begin(json);
    for (const struct http_param *param = list; param->name; param++) {
        bool path = param->in == HTTP_IN_PATH;
        json_object_begin(json);
        json_field_string(json, "name", param->name);
        json_field_string(json, "in", path ? "path" : "query");
        json_field_bool(json, "required", path || param->required);
        if (param->help)
            json_field_string(json, "description", param->help);
        json_key(json, "schema");
        param_schema(json, param);
        json_object_end(json);
    }
    json_array_end(json);
}

/* "application/json": {"schema": {"$ref": ...}} */
static void content(struct json *json, const char *type, const char *schema)
{
    json_key(json, "content");
    json_object_begin(json);
    json_key(json, type);
    json_object_begin(json);
    if (schema) {
        json_key(json, "schema");
        reference(json, schema);
    }
    json_object_end(json);
    json_object_end(json);
}

/* What a route may answer instead; each is described once, among the components. */
static const struct {
    const char *status, *name, *help;
} refusals[] = {
    {"400", "Invalid", "An argument or the body is invalid"},
    {"401", "Unauthorized", "No session, no token, or one that is not valid"},
    {"403", "Forbidden", "The session or token may not do this"},
    {"404", "NotFound", "There is no such thing, or not any more"},
    {"429", "TooMany", "Too many requests: try again after Retry-After"},
};
enum { REFUSALS = sizeof(refusals) / sizeof(*refusals) };

static bool may_refuse(const struct http_route *route, int status)
{
    switch (status) {
    case 400:
        return (route->params && route->params->name) || route->body_schema;
    case 403:
        return route->role == HTTP_CONTROL;
    case 404:
        return route->may_miss || strchr(route->path, '{');
    default:
        return route->role != HTTP_NONE;
    }
}

static void refusal_references(struct json *json, const struct http_route *route)
{
    for (size_t i = 0; i < REFUSALS; i++) {
        char text[64];
        if (!may_refuse(route, atoi(refusals[i].status)))
            continue;
        snprintf(text, sizeof(text), "#/components/responses/%s", refusals[i].name);
        json_key(json, refusals[i].status);
        json_object_begin(json);
        json_field_string(json, "$ref", text);
        json_object_end(json);
    }
}

static void refusal_components(struct json *json)
{
    json_key(json, "responses");
    json_object_begin(json);
    for (size_t i = 0; i < REFUSALS; i++) {
        json_key(json, refusals[i].name);
        json_object_begin(json);
        json_field_string(json, "description", refusals[i].help);
        content(json, "application/problem+json", "Problem");
        json_object_end(json);
    }
    json_object_end(json);
}

static void responses(struct json *json, const struct http_route *route)
{
    bool redirect = strcmp(route->path, "/login") == 0;
    json_key(json, "responses");
    json_object_begin(json);
    json_key(json, redirect ? "303" : "200");
    json_object_begin(json);
    json_field_string(json, "description", route->summary);
    content(json, route->answer_type ? route->answer_type : "application/json",
            route->answer_schema);
    json_object_end(json);
    refusal_references(json, route);
    json_key(json, "default");
    json_object_begin(json);
    json_field_string(json, "description", "What went wrong, and what to do about it");
    content(json, "application/problem+json", "Problem");
    json_object_end(json);
    json_object_end(json);
}

static void operation(struct json *json, const struct http_route *route)
{
    char method[16];
    size_t i = 0;
    for (; route->method[i] && i < sizeof(method) - 1; i++)
        method[i] = (char)(route->method[i] | 0x20);
    method[i] = '\0';
    json_key(json, method);
    json_object_begin(json);
    json_field_string(json, "operationId", route->name);
    json_field_string(json, "summary", route->summary);
    if (route->help)
        json_field_string(json, "description", route->help);
    json_field_string(json, "x-role",
                      route->role == HTTP_CONTROL ? "control"
                      : route->role == HTTP_READ  ? "read"
                                                  : "none");
    if (route->role == HTTP_NONE) {
        json_key(json, "security");
        json_array_begin(json);
        json_array_end(json);
    }
    params(json, route->params);
    if (route->body_schema) {
        json_key(json, "requestBody");
        json_object_begin(json);
        json_field_bool(json, "required", true);
        content(json, "application/json", route->body_schema);
        json_object_end(json);
    }
    responses(json, route);
    json_object_end(json);
}

/* Routes with one path are one item, wherever they stand in the table. */
static bool path_seen(const struct openapi_source *source, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (strcmp(source->routes[k]->path, source->routes[i]->path) == 0)
            return true;
    return false;
}

static void paths(struct json *json, const struct openapi_source *source)
{
    json_key(json, "paths");
    json_object_begin(json);
    for (size_t i = 0; i < source->n_routes; i++) {
        const char *path = source->routes[i]->path;
        if (path_seen(source, i))
            continue;
        json_key(json, path);
        json_object_begin(json);
        for (size_t k = i; k < source->n_routes; k++)
            if (strcmp(source->routes[k]->path, path) == 0)
                operation(json, source->routes[k]);
        json_object_end(json);
    }
    json_object_end(json);
}

static void schemas(struct json *json, const struct http_schema *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        json_key(json, list[i].name);
        json_raw(json, list[i].json, strlen(list[i].json));
    }
}

static void components(struct json *json, const struct openapi_source *source)
{
    static const char security[] =
        "{\"session\":{\"type\":\"apiKey\",\"in\":\"cookie\",\"name\":\"memoir-PORT\","
        "\"description\":\"What a browser gets by the link of `memoir open`. PORT is that of the "
        "address.\"},"
        "\"token\":{\"type\":\"http\",\"scheme\":\"bearer\","
        "\"description\":\"Made by `memoir token add NAME`.\"}}";
    json_key(json, "components");
    json_object_begin(json);
    json_key(json, "securitySchemes");
    json_raw(json, security, sizeof(security) - 1);
    refusal_components(json);
    json_key(json, "schemas");
    json_object_begin(json);
    schemas(json, own_schemas, N_OWN);
    schemas(json, source->schemas, source->n_schemas);
    json_object_end(json);
    json_object_end(json);
}

int openapi_write(const struct openapi_source *source, struct buffer *out)
{
    static const char security[] = "[{\"session\":[]},{\"token\":[]}]";
    static const char servers[] =
        "[{\"url\":\"/\",\"description\":\"the memoird that serves this description\"}]";
    struct json json;
    json_init(&json, out);
    json_object_begin(&json);
    json_field_string(&json, "openapi", "3.1.0");
    json_key(&json, "info");
    json_object_begin(&json);
    json_field_string(&json, "title", source->title);
    json_field_string(&json, "version", source->version);
    json_object_end(&json);
    json_key(&json, "servers");
    json_raw(&json, servers, sizeof(servers) - 1);
    json_key(&json, "security");
    json_raw(&json, security, sizeof(security) - 1);
    paths(&json, source);
    components(&json, source);
    json_object_end(&json);
    return json_finish(&json);
}
