/* trace_names.h: call sites of histories as people know them.
 *
 * trace/own_line.h has the rule by which a stack is known by one line. */
#ifndef MEMOIR_CLI_TRACE_NAMES_H
#define MEMOIR_CLI_TRACE_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "trace/own_line.h"
#include "trace/sites.h"

struct buffer;
struct json;
struct trace_names;

/* Starts the worker that reads debug information: call it early. Without one, sites have modules
 * and offsets. NULL: no memory. */
struct trace_names *trace_names_new(void);
void trace_names_free(struct trace_names *names); /* NULL is fine */

/* From now on about these sites, of a process that was traced since `since_real_ns`. `pid` is
 * its PID if it runs on this machine now, else 0. Files without a build-id are trusted only
 * where `here` (the history is of this machine) and if they are older. */
void trace_names_set(struct trace_names *names, struct trace_sites *sites, pid_t pid, bool here,
                     uint64_t since_real_ns);

/* Resolve what the label of a site needs, or all frames of all sites, into the table of sites. */
void trace_names_all(struct trace_names *names);

/* "train.py:41 in load", "cache.c:80 load", "libfoo.so+0x12ab", "unknown": the line that the
 * site is known by. Where several sites have this line, its caller follows: "pool.c:12 take <
 * cache.c:80 load". */
enum { TRACE_LABEL_MAX = 512 };
const char *trace_names_label(struct trace_names *names, uint32_t site,
                              char text[static TRACE_LABEL_MAX]);

/* The stack as an array of objects "function", "source_file", "line", "module", "offset" under the key
 * "frames", innermost first. */
void trace_names_json(struct trace_names *names, uint32_t site, const char *key, struct json *json);
/* The stack as text, a line for each frame, after `indent` spaces. */
struct term;
void trace_names_stack(struct trace_names *names, uint32_t site, unsigned indent,
                       const struct term *term, struct buffer *out);

#endif
