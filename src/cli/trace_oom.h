/* trace_oom.h: an allocation that failed for lack of memory, in words. */
#ifndef MEMOIR_CLI_TRACE_OOM_H
#define MEMOIR_CLI_TRACE_OOM_H

#include <stdbool.h>
#include <stddef.h>

#include "trace/history.h"

struct buffer;
struct trace_source;

/* The last failure for lack of memory. -ENOENT: there was none; -ENOMEM. */
int trace_oom_last(struct trace_history *history, struct trace_failure *ret_failure);

/* "python3 (PID 7) asked for 20.0 GB on device 0 at train.py:41 and failed: 61.0 of 80.0 GB were held by train.py:20 (40.0 GB), ..." */
void trace_oom_sentence(struct trace_source *source, const struct trace_failure *failure,
                        struct buffer *out);

#endif
