/* Any bytes as what a client sends: a target with its arguments, and headers. Whatever is taken keeps to the rules that
 * the code behind relies on. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "http/gzip.h"
#include "http/headers.h"
#include "http/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool fine)
{
    if (!fine)
        abort();
}

static const struct http_param params[] = {
    {.name = "pid", .in = HTTP_IN_PATH, .kind = HTTP_NUMBER, .min = 1, .max = 4194304},
    {.name = "limit", .in = HTTP_IN_QUERY, .kind = HTTP_NUMBER, .max = 100},
    {.name = "shape", .in = HTTP_IN_QUERY, .kind = HTTP_WORD, .words = "objects|arrays"},
    {.name = "all", .in = HTTP_IN_QUERY, .kind = HTTP_YES},
    {.name = "where", .in = HTTP_IN_QUERY, .kind = HTTP_TEXT, .max = 64},
    {0},
};
static const struct http_route route = {
    .method = "GET", .path = "/p/{pid}/sites", .params = params};

static void plain(const char *text)
{
    for (; *text; text++)
        check((unsigned char)*text >= 0x20 && *text != 0x7f);
}

static void try_arguments(const struct target *target)
{
    const struct http_route *routes[] = {&route};
    struct router *router = NULL;
    struct route_match match;
    struct arguments arguments;
    char error[ARGUMENT_ERROR_MAX], *key;
    size_t len;
    check(router_new(routes, 1, &router) == 0);
    router_match(router, "GET", target->path, &match);
    if (match.route) {
        if (arguments_read(&match, target, &arguments, error) == 0) {
            check(arguments.numbers[0] >= 1 && arguments.numbers[0] <= 4194304);
            check(!arguments.values[1] || arguments.numbers[1] <= 100);
            check(!arguments.values[4] || strlen(arguments.values[4]) <= 64);
            check(arguments_key(&arguments, &key, &len) == 0);
            free(key);
            arguments_release(&arguments);
        } else {
            check(strnlen(error, sizeof(error)) < sizeof(error));
            plain(error);
        }
    }
    router_free(router);
}

static void try_target(const char *text)
{
    struct target target;
    const char *error = NULL;
    if (target_parse(text, &target, &error) < 0) {
        check(error != NULL);
        return;
    }
    check(target.path[0] == '/' && !strstr(target.path, "/../") && !strchr(target.path, '\\'));
    plain(target.path);
    for (size_t i = 0; i < target.n_pairs; i++) {
        plain(target.pairs[i].name);
        if (target.pairs[i].value)
            plain(target.pairs[i].value);
    }
    try_arguments(&target);
    target_release(&target);
}

static void try_headers(const char *text)
{
    struct host host;
    size_t len = 0;
    (void)accept_gzip(text);
    (void)type_is_json(text);
    (void)etag_matches(text, "0123456789abcdef", 16);
    const char *cookie = cookie_find(text, "memoir-7070", &len);
    check(!cookie || (cookie >= text && cookie + len <= text + strlen(text)));
    const char *token = bearer_token(text);
    check(!token || *token);
    if (host_parse(text, &host) == 0) {
        check(strnlen(host.name, sizeof(host.name)) < sizeof(host.name) && host.name[0]);
        (void)host_is_ours(&host, text);
        check(host_is_ours(&host, host.name));
        (void)origin_is_host(text, &host, false);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* Every line is tried as everything. */
    char *text = malloc(size + 1);
    struct buffer out = BUFFER_INIT(1 << 20);
    memcpy(text, data, size);
    text[size] = '\0';
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
        try_target(line);
        try_headers(line);
    }
    (void)gzip_expand(data, size, &out);
    buffer_release(&out);
    free(text);
    return 0;
}
