/* See climb.h. */
#include "explain/climb.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "explain/outside.h"
#include "ledger/headroom.h"
#include "profile/suspects.h"

enum { TEXT_MAX = 4096 };

void climb_row(struct suspect *s, pid_t pid, const struct detect_point *points, size_t n,
               const struct detect_result *r)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer why = BUFFER_INIT(TEXT_MAX);
    detect_explain(r, &why);
    *s = (struct suspect){
        .pid = (uint64_t)pid,
        .uid = UINT32_MAX,
        .ordinal = -1,
        .device = strdup("host"),
        .space = strdup("resident"),
        .verdict = r->verdict,
        .reason = strdup(detect_reason_word(r->reason)),
        .why = buffer_take(&why),
        .confidence = r->confidence,
        .bytes_per_s = r->bytes_per_s,
        .ever_freed = -1,
        .live_bytes = points[n - 1].alloc_bytes,
        .span_ns = r->span_ns,
        .growing_ns = r->since_ns ? points[n - 1].time_ns - r->since_ns : 0,
        .left_ns = UINT64_MAX,
        .n_spark = LEAK_SPARK,
        .resident = true,
    };
    for (unsigned i = 0; i < LEAK_SPARK; i++)
        s->spark[i] = points[(n - 1) * (i + 1) / LEAK_SPARK].alloc_bytes;
    if (r->verdict != DETECT_GROWING || r->bytes_per_s <= 0)
        return;
    struct headroom headroom = headroom_of(pid);
    if (headroom.kind == HEADROOM_UNKNOWN)
        return;
    double left_ns = (double)headroom.bytes / r->bytes_per_s * (double)NS_PER_S;
    s->limit = strdup(headroom_word(headroom.kind));
    s->limit_bytes = headroom.limit_bytes;
    s->left_ns = left_ns < (double)UINT64_MAX / 2 ? (uint64_t)left_ns : UINT64_MAX;
}

void climb_name(struct suspect *s, const struct outside_verdict *v)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer why = BUFFER_INIT(TEXT_MAX);
    if (!v->name[0])
        return;
    if (s->why)
        buffer_printf(&why, "%s ", s->why);
    outside_tell(v, &why);
    buffer_append_char(&why, '.');
    char *site = strdup(v->name), *reason = NULL, *text = why.error ? NULL : buffer_take(&why);
    if (!explain_is_malloc(v->kind))
        reason = strdup("outside malloc");
    if (site) {
        free(s->site);
        s->site = site;
    }
    if (reason) {
        free(s->reason);
        s->reason = reason;
    }
    if (text) {
        free(s->why);
        s->why = text;
    }
}
