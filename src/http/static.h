/* Files of the dashboard, embedded in the program.
 *
 * The build of web/ makes one C file with this table; without it there is a page that says how to build it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct answer;

struct http_static {
    const char *path; /* "/app.js"; "/" is also every path without a dot that has no other page */
    const char *type; /* "text/javascript; charset=utf-8" */
    const unsigned char *gzip; /* the bytes, compressed */
    size_t len;                /* of these */
    const char *etag;          /* without quotes: 16 hexadecimal digits of a hash of the content */
    bool immutable; /* its name changes with its content: browsers may keep it for good */
};

/* Ended by one without a path. */
extern const struct http_static web_files[];

/* The page at that path, or a 404. */
struct answer *static_answer(const char *path, bool gzip);
