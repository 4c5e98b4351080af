/* The answer about a trace as JSON. On the thread of traces.h. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "daemon/trace_names.h"
#include "trace/history.h"

struct json;

enum {
    TRACE_JSON_K = 20, /* default */
    TRACE_JSON_K_MAX = 200,
    TRACE_JSON_FAILURES = 16,    /* the last ones */
    TRACE_JSON_DEVICE_LINES = 8, /* of the timeline; what is beyond is summed up */
    TRACE_JSON_HOST_LINES = 4,
};

struct trace_view {
    struct trace_history *history;
    struct trace_identity identity;
    struct trace_names names;
    enum trace_by by;
    size_t k;
    uint64_t now_ns; /* CLOCK_MONOTONIC at the dump */
    bool has_driver; /* the driver counts the process: */
    uint64_t driver_bytes;
    bool has_context, has_before, context_estimate; /* what the observer knows of the rest */
    uint64_t context_bytes, before_bytes;
    const char *program; /* path of its file, or "" */
    uint8_t *used;       /* sites that the answer names: a bit for each number */
    uint32_t last_site;
};

/* The field "owners". */
int trace_owners_json(const struct trace_view *view, struct json *json);

/* All fields of the answer into an open object. 0, -ENOMEM. */
int trace_view_json(struct trace_view *view, struct json *json);
