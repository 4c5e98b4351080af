/* The target of a request: its path and its arguments, taken apart and decoded by strict rules.
 *
 * A target is what a stranger sent. Percent escapes must be whole; NUL and control bytes, also escaped ones, are
 * refused; "." and ".." as parts of the path, escaped or not, are refused rather than resolved: no page of ours
 * has such a name, so who sends one wants something else. A backslash in the path goes the same way. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/http.h"

enum { TARGET_PAIRS_MAX = 32 };

struct target_pair {
    char *name, *value; /* value NULL: a bare name */
};

struct target {
    char *text; /* owns what all others point into */
    char *path; /* decoded, begins with "/" */
    struct target_pair pairs[TARGET_PAIRS_MAX];
    size_t n_pairs;
};

/* 0; -EINVAL: makes no sense, -E2BIG: too long or too many arguments, -ENOMEM. `error` says what is wrong. */
int target_parse(const char *raw, struct target *ret_target, const char **ret_error);
void target_release(struct target *target);

/* ---- routes ---- */

/* Arguments of one call, by the number of the parameter in its route. */
struct arguments {
    const struct http_param *params;
    size_t n;
    const char *values[HTTP_PARAMS_MAX]; /* NULL: not given; into `text` */
    uint64_t numbers[HTTP_PARAMS_MAX];
    char *text;
    size_t text_len;
};

struct router;

/* Borrows the list and its routes. -EINVAL when a path has a parameter that `params` does not have, or a route has
 * too many. */
int router_new(const struct http_route *const *routes, size_t n, struct router **ret_router);
void router_free(struct router *router); /* NULL is fine */

/* The route, or NULL; then `allow` says which methods there are for that path, "" for none at all. */
struct route_match {
    const struct http_route *route;
    const char *values[HTTP_PARAMS_MAX]; /* of the path, by number of the parameter; into it */
    size_t lens[HTTP_PARAMS_MAX];
    char allow[64];
};
void router_match(const struct router *router, const char *method, const char *path,
                  struct route_match *ret_match);

enum { ARGUMENT_ERROR_MAX = 256 };

/* Check all arguments against the table. 0 and the arguments, which own their text; -EINVAL and one line in
 * `error`; -ENOMEM. */
int arguments_read(const struct route_match *match, const struct target *target,
                   struct arguments *ret_arguments, char error[static ARGUMENT_ERROR_MAX]);
int arguments_copy(const struct arguments *from, struct arguments *ret_arguments);
void arguments_release(struct arguments *arguments);

/* One text for all that mean the same: values in the order of the table. */
int arguments_key(const struct arguments *arguments, char **ret_key, size_t *ret_len);
