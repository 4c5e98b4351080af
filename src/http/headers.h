/* Headers of requests, as far as we look at them: bytes of strangers, taken apart by strict rules. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* May the answer be compressed by gzip? Accept-Encoding with its weights; NULL: no. */
bool accept_gzip(const char *accept);

/* Does If-None-Match name this tag (weak comparison; `*` names all)? */
bool etag_matches(const char *header, const char *tag, size_t len);

/* The value of a cookie: the one of that name, or NULL where there is none, or more than one. */
const char *cookie_find(const char *header, const char *name, size_t *ret_len);

/* "Bearer TOKEN": the token, or NULL. */
const char *bearer_token(const char *authorization);

enum { HOST_MAX = 255 };

struct host {
    char name[HOST_MAX +
              1];  /* in small letters, an IPv6 address without brackets, no dot at the end */
    uint16_t port; /* 0: not given */
};

/* "localhost:7070", "[::1]", "127.0.0.1". -EINVAL for what is no host. */
int host_parse(const char *text, struct host *ret_host);

/* Is it one that a request may be for: localhost (also what ends in .localhost), a loopback address, or a word of
 * `hosts` (separated by spaces or commas)? */
bool host_is_ours(const struct host *host, const char *hosts);

/* Is the Origin (scheme://host[:port]) the server that Host names, by this scheme? */
bool origin_is_host(const char *origin, const struct host *host, bool tls);

/* Is this content type JSON? Parameters (charset) are not looked at. */
bool type_is_json(const char *type);
