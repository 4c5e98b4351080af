/* Rows of a profile in words and as JSON: what `memoir sites --json` and memoird's HTTP API both give. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profile/rows.h"

struct buffer;
struct json;

/* As everywhere: "cache.c:80 load", and of scripts "train.py:41 in load". `line` as of profile_function(). Names of functions
 * are shortened (short_name.h). */
void words_frame(const struct profile *profile, uint32_t frame, size_t line, struct buffer *out);

/* Calls compiled into each other that a frame stands for; at least 1. */
size_t words_lines(const struct profile *profile, uint32_t frame);

/* What a row is called: by stack "util.c:12 wrapper < cache.c:80 load < main", by device "0 H200" ... */
void words_site(const struct row *row, enum rows_by by, bool utf8, struct buffer *out);
/* What stands between the line that asked and the allocator (headline_via()); nothing where there is nothing, or by stack, where
 * all is shown. */
void words_via(const struct row *row, enum rows_by by, struct buffer *out);
void words_device(const struct profile *profile, const struct profile_account *account,
                  struct buffer *out);

/* The functions from the outermost to the innermost, separated by semicolons. */
void words_folded(const struct row *row, struct buffer *out);

/* ---- JSON ---- */

struct words_json {
    enum rows_by by;
    enum rows_measure measure; /* what `percent` is of */
    size_t top;                /* rows at most */
    bool stacks;               /* whole stacks, also where rows are not by stack */
    bool filtered;    /* some sites were left out: what the process holds in all is not told */
    bool diff;        /* rows are of two moments, which are far apart */
    uint64_t rate_ns; /* of two moments so far apart: what happens each second; 0: of one */
};

/* The fields of an open object up to "sites": "pid", "program" ... "seconds". */
void words_json_head(const struct profile *profile, const struct rows *rows,
                     const struct words_json *options, struct json *json);

/* The fields of a row of one moment, in an open object. */
void words_json_row(const struct profile *profile, const struct rows *rows, const struct row *row,
                    const struct words_json *options, struct json *json);

/* Its stack as the array "frames". */
void words_json_frames(const struct row *row, struct json *json);

/* All of it: head and "sites". */
void words_json_rows(const struct profile *profile, const struct rows *rows,
                     const struct words_json *options, struct json *json);
