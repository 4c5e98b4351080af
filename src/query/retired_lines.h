/* The daemon's list of processes that ended, STATE/retired.jsonl and the one before it: one JSON object a line.
 *
 * The file may come from a newer daemon, or from one that was killed in the middle of a line. So every
 * field may be missing, and an invalid line is counted and left out. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "query/retired_source.h"

/* One line, without or with its end; NULL when it is no object or absurdly long. For json_decref(). */
json_t *retired_line_parse(const char *text, size_t len);

/* A field of a line, or of an object in it: a number above 0, else 0. */
uint64_t retired_line_number(const json_t *object, const char *key);

/* Seconds, since 1970 or of an age, as nanoseconds; 0 when missing or absurd. */
uint64_t retired_line_ns(const json_t *object, const char *key);

/* Give every whole line of both files to `each`, the oldest first; it borrows `line` (json_incref() keeps
 * it) and answers 1 when it keeps something of it, 0 when not, or -errno, which ends the reading. After
 * 100,000 kept ones it ends too. *ret_skipped counts invalid lines. -ENOENT: there is no list. */
int retired_lines_read(const char *state, int (*each)(json_t *line, void *context), void *context,
                       size_t *ret_skipped);
