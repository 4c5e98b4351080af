/* Any bytes as a stream of the observer, in pieces of any size, into a history. The first byte says how large the pieces are. */
#include <stdint.h>
#include <stdlib.h>

#include "trace/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int on_site(void *user, int32_t pid, const struct trace_site *site)
{
    (void)pid;
    for (unsigned i = 0; i < site->n_frames; i++)
        if (site->frames[i].module && site->frames[i].module->path[0] == '\1')
            return -1;
    trace_sites_define(trace_history_sites(user), site);
    return 0;
}

static int on_events(void *user, const struct trace_event *events, size_t n)
{
    trace_history_events(user, events, n);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct trace_stream_calls calls = {.site = on_site, .events = on_events};
    struct trace_identity identity = {.pid = 1};
    struct trace_limits limits = {
        .blocks = 64, .ended = 16, .implicit = 8, .moments = 4, .moments_all = 64, .holders = 16};
    struct trace_history *h = NULL;
    struct trace_stream_reader r;
    if (size == 0 || trace_history_new(&identity, &limits, &h) < 0)
        return 0;
    size_t piece = data[0] + 1u;
    trace_stream_reader_init(&r, &calls, h);
    for (size_t at = 1; at < size; at += piece)
        trace_stream_feed(&r, data + at, size - at < piece ? size - at : piece);
    trace_stream_reader_release(&r);
    if (trace_history_check(h) != 0)
        abort();
    trace_history_free(h);
    return 0;
}
