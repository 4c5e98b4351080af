/* trace_names.h: call sites of a loaded trace as people know them: trace/own_line.h has the
 * rule. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "trace/sites.h"

struct json;
struct symbolizer;

struct trace_names {
    struct symbolizer *symbols; /* borrowed; NULL: native frames stay without names */
    struct trace_sites *sites;  /* borrowed */
    pid_t pid;                  /* of the process while it runs; else 0 */
    bool (*goes_on)(
        void *
            context); /* false: the answer is not waited for any more, so nothing more is looked up; NULL: always */
    void *context;
};

/* "train.py:41 in load", "cache.c:80 load", "libfoo.so+0x12ab", "unknown". Looks names up: may
 * take long. Returns `text`. */
enum { TRACE_NAMES_TEXT_MAX = 512 };
const char *trace_names_label(const struct trace_names *names, uint32_t site,
                              char text[static TRACE_NAMES_TEXT_MAX]);

/* "train.c:86 in load_weights → device_alloc": the line of the program's own that called the one
 * of the label, for sites that share that. False: there is none. */
bool trace_names_outer(const struct trace_names *names, uint32_t site,
                       char text[static TRACE_NAMES_TEXT_MAX]);

/* An object: site, text, function, file, line, module, and the whole stack, a text for each
 * frame, innermost first. */
void trace_names_json(const struct trace_names *names, uint32_t site, struct json *json);
