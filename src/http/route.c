/* From a path to its route, and from arguments to checked values. See target.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "http/target.h"

struct router {
    const struct http_route *const *routes;
    size_t n;
};

static size_t params_count(const struct http_route *route)
{
    size_t n = 0;
    while (route->params && route->params[n].name)
        n++;
    return n;
}

/* The number of the parameter with this name, or -1. */
static int param_find(const struct http_param *params, const char *name, size_t len)
{
    for (int i = 0; params && params[i].name; i++)
        if (strlen(params[i].name) == len && memcmp(params[i].name, name, len) == 0)
            return i;
    return -1;
}

static bool route_is_sound(const struct http_route *route)
{
    if (params_count(route) > HTTP_PARAMS_MAX || route->path[0] != '/')
        return false;
    for (const char *at = strchr(route->path, '{'); at; at = strchr(at + 1, '{')) {
        size_t len = strcspn(at + 1, "}");
        int i = param_find(route->params, at + 1, len);
        if (i < 0 || route->params[i].in != HTTP_IN_PATH)
            return false;
    }
    return true;
}

int router_new(const struct http_route *const *routes, size_t n, struct router **ret_router)
{
    for (size_t i = 0; i < n; i++)
        if (!route_is_sound(routes[i]))
            return -EINVAL;
    struct router *router = calloc(1, sizeof(*router));
    if (!router)
        return -ENOMEM;
    *router = (struct router){.routes = routes, .n = n};
    *ret_router = router;
    return 0;
}

void router_free(struct router *router)
{
    free(router);
}

/* Does the path have the route's shape? Then the values of its parameters, too. */
static bool path_matches(const struct http_route *route, const char *path,
                         struct route_match *match)
{
    const char *shape = route->path;
    while (*shape && *path) {
        if (*shape != '{') {
            if (*shape++ != *path++)
                return false;
            continue;
        }
        size_t name_len = strcspn(shape + 1, "}"), len = strcspn(path, "/");
        int i = param_find(route->params, shape + 1, name_len);
        if (len == 0 || i < 0)
            return false;
        match->values[i] = path;
        match->lens[i] = len;
        shape += name_len + 2;
        path += len;
    }
    return !*shape && !*path;
}

static void allow_add(struct route_match *match, const char *method)
{
    size_t len = strlen(match->allow);
    snprintf(match->allow + len, sizeof(match->allow) - len, "%s%s", len ? ", " : "", method);
}

void router_match(const struct router *router, const char *method, const char *path,
                  struct route_match *ret_match)
{
    const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
    *ret_match = (struct route_match){0};
    for (size_t i = 0; i < router->n; i++) {
        const struct http_route *route = router->routes[i];
        struct route_match match = {.route = route};
        if (!path_matches(route, path, &match))
            continue;
        if (strcmp(route->method, wanted) == 0) {
            *ret_match = match;
            return;
        }
        allow_add(ret_match, route->method);
        if (strcmp(route->method, "GET") == 0)
            allow_add(ret_match, "HEAD");
    }
}

/* ---- arguments ---- */

static bool word_is(const char *words, const char *value)
{
    size_t len = strlen(value);
    for (const char *at = words; at; at = strchr(at, '|')) {
        at += *at == '|';
        size_t n = strcspn(at, "|");
        if (n == len && memcmp(at, value, n) == 0)
            return true;
        if (n == 0 && !*at)
            break;
    }
    return false;
}

static int number_read(const struct http_param *param, const char *value, uint64_t *ret_number,
                       char *error)
{
    uint64_t number = 0;
    bool fits = true;
    const char *at = value;
    for (; *at >= '0' && *at <= '9'; at++)
        fits = fits && !__builtin_mul_overflow(number, UINT64_C(10), &number) &&
               !__builtin_add_overflow(number, (uint64_t)(*at - '0'), &number);
    if (at == value || *at) {
        snprintf(error, ARGUMENT_ERROR_MAX, "%s must be a whole number", param->name);
        return -EINVAL;
    }
    if (!fits || number < param->min || (param->max && number > param->max)) {
        if (param->max)
            snprintf(error, ARGUMENT_ERROR_MAX, "%s must be from %llu to %llu", param->name,
                     (unsigned long long)param->min, (unsigned long long)param->max);
        else
            snprintf(error, ARGUMENT_ERROR_MAX, "%s must be %llu or more, and fit in 64 bits",
                     param->name, (unsigned long long)param->min);
        return -EINVAL;
    }
    *ret_number = number;
    return 0;
}

static int yes_read(const struct http_param *param, const char *value, uint64_t *ret_number,
                    char *error)
{
    if (word_is("yes|true|1|", value))
        *ret_number = 1;
    else if (word_is("no|false|0", value))
        *ret_number = 0;
    else {
        snprintf(error, ARGUMENT_ERROR_MAX, "%s must be yes or no", param->name);
        return -EINVAL;
    }
    return 0;
}

static int value_check(const struct http_param *param, const char *value, uint64_t *ret_number,
                       char *error)
{
    switch (param->kind) {
    case HTTP_NUMBER:
        return number_read(param, value, ret_number, error);
    case HTTP_YES:
        return yes_read(param, value, ret_number, error);
    case HTTP_WORD:
        if (word_is(param->words, value))
            return 0;
        snprintf(error, ARGUMENT_ERROR_MAX, "%s must be one of %s", param->name, param->words);
        return -EINVAL;
    case HTTP_TEXT:
        if (!param->max || strlen(value) <= param->max)
            return 0;
        snprintf(error, ARGUMENT_ERROR_MAX, "%s must have at most %llu bytes", param->name,
                 (unsigned long long)param->max);
        return -EINVAL;
    }
    return -EINVAL;
}

/* The names of what a client sent are his bytes: told of only as far as they are plain. */
static int unknown_argument(const char *name, char *error)
{
    bool plain = strlen(name) < 40;
    for (const char *at = name; *at; at++)
        plain = plain && *at > 0x20 && *at < 0x7f;
    snprintf(error, ARGUMENT_ERROR_MAX, "there is no argument %s here",
             plain && *name ? name : "of that name");
    return -EINVAL;
}

/* Pairs into slots: each once, none that the table does not have. */
static int pairs_sort(const struct route_match *match, const struct target *target,
                      const char *values[static HTTP_PARAMS_MAX], char *error)
{
    const struct http_param *params = match->route->params;
    for (size_t i = 0; i < target->n_pairs; i++) {
        const struct target_pair *pair = &target->pairs[i];
        int at = param_find(params, pair->name, strlen(pair->name));
        if (at < 0 || params[at].in != HTTP_IN_QUERY)
            return unknown_argument(pair->name, error);
        if (values[at]) {
            snprintf(error, ARGUMENT_ERROR_MAX, "%s is given twice", params[at].name);
            return -EINVAL;
        }
        if (!pair->value && params[at].kind != HTTP_YES) {
            snprintf(error, ARGUMENT_ERROR_MAX, "%s has no value", params[at].name);
            return -EINVAL;
        }
        values[at] = pair->value ? pair->value : "";
    }
    return 0;
}

/* Copy value number i into the arguments' own text, at *at. */
static void value_keep(struct arguments *arguments, size_t i, const char *value, size_t len,
                       char **at)
{
    memcpy(*at, value, len);
    (*at)[len] = '\0';
    arguments->values[i] = *at;
    *at += len + 1;
}

int arguments_read(const struct route_match *match, const struct target *target,
                   struct arguments *ret_arguments, char error[static ARGUMENT_ERROR_MAX])
{
    const char *values[HTTP_PARAMS_MAX] = {NULL};
    struct arguments arguments = {.params = match->route->params, .n = params_count(match->route)};
    int r = pairs_sort(match, target, values, error);
    size_t len[HTTP_PARAMS_MAX];
    for (size_t i = 0; r >= 0 && i < arguments.n; i++) {
        if (arguments.params[i].in == HTTP_IN_PATH)
            values[i] = match->values[i];
        if (!values[i] && arguments.params[i].required) {
            snprintf(error, ARGUMENT_ERROR_MAX, "missing parameter '%s'", arguments.params[i].name);
            return -EINVAL;
        }
        len[i] = arguments.params[i].in == HTTP_IN_PATH ? match->lens[i]
                 : values[i]                            ? strlen(values[i])
                                                        : 0;
        arguments.text_len += values[i] ? len[i] + 1 : 0;
    }
    if (r < 0 || arguments.n == 0) {
        if (r >= 0)
            *ret_arguments = arguments;
        return r;
    }
    char *at = arguments.text = malloc(arguments.text_len + 1);
    if (!at)
        return -ENOMEM;
    for (size_t i = 0; r >= 0 && i < arguments.n; i++) {
        if (!values[i])
            continue;
        value_keep(&arguments, i, values[i], len[i], &at);
        r = value_check(&arguments.params[i], arguments.values[i], &arguments.numbers[i], error);
    }
    if (r < 0) {
        free(arguments.text);
        return r;
    }
    *ret_arguments = arguments;
    return 0;
}

int arguments_copy(const struct arguments *from, struct arguments *ret_arguments)
{
    struct arguments copy = *from;
    if (from->text) {
        copy.text = malloc(from->text_len + 1);
        if (!copy.text)
            return -ENOMEM;
        memcpy(copy.text, from->text, from->text_len);
        for (size_t i = 0; i < from->n; i++)
            if (from->values[i])
                copy.values[i] = copy.text + (from->values[i] - from->text);
    }
    *ret_arguments = copy;
    return 0;
}

void arguments_release(struct arguments *arguments)
{
    free(arguments->text);
    *arguments = (struct arguments){0};
}

int arguments_key(const struct arguments *arguments, char **ret_key, size_t *ret_len)
{
    /* Per parameter: a byte that says whether it was given, and its value with the terminator. */
    char *key = malloc(arguments->n + arguments->text_len + 1), *at = key;
    if (!key)
        return -ENOMEM;
    for (size_t i = 0; i < arguments->n; i++) {
        *at++ = arguments->values[i] ? '=' : '-';
        if (!arguments->values[i])
            continue;
        size_t len = strlen(arguments->values[i]) + 1;
        memcpy(at, arguments->values[i], len);
        at += len;
    }
    *ret_key = key;
    *ret_len = (size_t)(at - key);
    return 0;
}
