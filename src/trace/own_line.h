/* own_line.h: by which line people know a call site. Pure.
 *
 * A site is a stack. People know it by one line, their own, which site/own.h tells as it does for allocations of the heap. Here
 * the CUDA runtime and driver count as the allocator, and libraries that use them (torch, cuBLAS, NCCL ...) as
 * libraries wherever they are installed. Commands and page choose by this one rule. */
#pragma once

#include <stdbool.h>

#include "trace/sites.h"

/* Index of the frame that the site is known by; -1: it has no frames. Names of native frames
 * help to skip a runtime that is linked statically. */
int trace_frame_choose(const struct trace_site *site);

/* The line that speaks for a frame, of those compiled into each other there; NULL: none is known. */
const struct trace_line *trace_frame_line(const struct trace_frame *frame);

/* The next frame outwards that is of the program's own, of a script if `frame` is; -1: none. */
int trace_frame_caller(const struct trace_site *site, int frame);

/* The module that asked for the memory: the innermost frame's that is not the CUDA runtime or
 * driver; "" if there is none. */
const char *trace_site_module(const struct trace_site *site);

/* Is it a line of an interpreted program? */
bool trace_frame_is_script(const struct trace_frame *frame);

/* The last part of a path. */
const char *trace_base_name(const char *path);
