/* trace_names.h: call sites of a loaded trace as people know them.
 *
 * A site is a stack. People know it by one line, their own: the innermost line of a script outside installed packages; else the
 * innermost line of any script; else the innermost native frame outside the CUDA runtime and known libraries (torch, cuBLAS,
 * NCCL ...); else the innermost one outside the CUDA runtime and driver. `memoir trace` chooses by the same rule. */
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
        void *context); /* false: nobody waits, so nothing more is looked up; NULL: always */
    void *context;
};

/* Index of the frame that the site is known by; -1: it has no frames. */
int trace_names_choose(const struct trace_site *site);

/* "train.py:41 in load", "cache.c:80 load", "libfoo.so+0x12ab", "unknown". Looks names up: may take long. Returns `text`. */
enum { TRACE_NAMES_TEXT_MAX = 512 };
const char *trace_names_label(const struct trace_names *names, uint32_t site,
                              char text[static TRACE_NAMES_TEXT_MAX]);

/* An object: site, text, function, file, line, module, and the whole stack, a text for each frame, innermost first. */
void trace_names_json(const struct trace_names *names, uint32_t site, struct json *json);
