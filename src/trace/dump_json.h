/* dump_json.h: dumps as JSON; see dump.h and doc/trace-dump.md. */
#pragma once

#include <stddef.h>

struct buffer;
struct trace_history;

/* The history must be frozen. */
int dump_json_encode(struct trace_history *history, struct buffer *out);
int dump_json_decode(const char *text, size_t len, struct trace_history **ret_history);
