/* See outside.h. */
#include "explain/outside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/units.h"
#include "ledger/proc.h"
#include "profile/suspects.h"

/* Runtimes whose own tools tell more. */
static const struct {
    const char *name, *advice;
} advices[] = {
    {"CPython arenas",
     "start it with 'memoir run' (without --keep-pymalloc) to see which lines hold it"},
    {"Java heap", "see jcmd PID GC.class_histogram"},
    {"JVM", "see jcmd PID VM.native_memory"},
    {"V8 heap", "take a heap snapshot (node --heapsnapshot-signal=SIGUSR2)"},
    {"Go heap", "see its pprof heap profile"},
    {"PHP", "see memory_get_usage() and its extensions"},
    {"thread stacks", "count its threads: they may be started and never end"},
    {"malloc heap", "attach to it ('memoir attach', or the button on its page) or start it with "
                    "'memoir run' to see which lines hold it"},
};

void outside_init(struct outside *g, pid_t pid, uint64_t now_ns)
{
    *g = (struct outside){
        .pid = pid, .begin_ns = now_ns, .next_ns = now_ns, .interval_ns = OUTSIDE_INTERVAL_NS};
    g->explain_ns = now_ns + NS_PER_S; /* what ends before needs none */
}

void outside_release(struct outside *g)
{
    free(g->first);
    free(g->last);
    g->first = g->last = NULL;
}

static void point_add(struct outside *g, uint64_t now_ns, uint64_t rss)
{
    if (g->n == OUTSIDE_POINTS) {
        for (size_t i = 0; i < OUTSIDE_POINTS / 2; i++)
            g->points[i] = g->points[2 * i + 1];
        g->n = OUTSIDE_POINTS / 2;
        g->interval_ns *= 2;
    }
    g->points[g->n++] = (struct detect_point){.time_ns = now_ns, .alloc_bytes = rss};
}

void outside_explained(struct outside *g, struct explain *e, uint64_t begin_ns, uint64_t cost_ns)
{
    g->explain_ns = begin_ns + cost_ns * OUTSIDE_SHARE + NS_PER_S;
    if (!e)
        return;
    if (!g->first) {
        g->first = e;
        g->first_ns = begin_ns - g->begin_ns;
        g->last = malloc(sizeof(*e));
        if (g->last)
            *g->last = *e;
    } else {
        free(g->last);
        g->last = e;
    }
    g->last_ns = begin_ns - g->begin_ns;
}

static void explanation_take(struct outside *g, uint64_t now_ns)
{
    struct explain *e = calloc(1, sizeof(*e));
    int r = e ? explain_take_apart(g->pid, getuid(), OUTSIDE_EXPLAIN_MS, e) : -ENOMEM;
    uint64_t cost_ns = clock_monotonic_ns() - now_ns;
    if (r < 0) {
        free(e);
        e = NULL;
    }
    outside_explained(g, e, now_ns, cost_ns);
}

int outside_note(struct outside *g, uint64_t now_ns)
{
    struct proc_memory memory;
    if (now_ns < g->next_ns)
        return 0;
    g->next_ns = now_ns + g->interval_ns;
    if (proc_memory_read(g->pid, &memory) < 0 || memory.rss_bytes == 0)
        return -ESRCH;
    uint64_t rss = memory.rss_bytes;
    point_add(g, now_ns, rss);
    return 0;
}

bool outside_due(const struct outside *g, uint64_t now_ns)
{
    uint64_t rss = g->n ? g->points[g->n - 1].alloc_bytes : 0;
    return g->n && now_ns >= g->explain_ns &&
           (!g->last || rss > g->last->rss_bytes + g->last->rss_bytes / 10);
}

int outside_look(struct outside *g, uint64_t now_ns)
{
    int r = outside_note(g, now_ns);
    if (r == 0 && outside_due(g, now_ns))
        explanation_take(g, now_ns);
    return r;
}

void outside_ended(struct outside *g)
{
    size_t peak = 0;
    for (size_t i = 1; i < g->n; i++)
        if (g->points[i].alloc_bytes >= g->points[peak].alloc_bytes)
            peak = i;
    if (g->n && g->n - 1 - peak <= g->n / OUTSIDE_EXIT_SHARE)
        g->n = peak + 1;
}

static uint64_t bytes_of(const struct explain *e, const struct explain_part *like)
{
    for (uint32_t i = 0; i < e->n_parts; i++)
        if (e->parts[i].kind == like->kind && strcmp(e->parts[i].name, like->name) == 0)
            return e->parts[i].bytes;
    return 0;
}

static void name_part(const struct explain_part *part, char name[static EXPLAIN_NAME_MAX])
{
    static const char *const before[EXPLAIN_KINDS] = {
        [EXPLAIN_STACK] = "thread stacks: ",
        [EXPLAIN_FILE] = "mapped file ",
        [EXPLAIN_SHARED] = "shared memory ",
        [EXPLAIN_DEVICE] = "device memory ",
    };
    if (part->kind == EXPLAIN_REST) { /* its mappings change when it grows */
        snprintf(name, EXPLAIN_NAME_MAX, "anonymous memory of an unknown owner");
        return;
    }
    const char *words = part->kind < EXPLAIN_KINDS ? before[part->kind] : NULL;
    /* The beginning of a long path says the least. */
    size_t room = EXPLAIN_NAME_MAX - 1 - (words ? strlen(words) : 0), len = strlen(part->name);
    snprintf(name, EXPLAIN_NAME_MAX, "%s%s", words ? words : "",
             part->name + (len > room ? len - room : 0));
}

static const char *advice_for(const char *name)
{
    for (size_t i = 0; i < sizeof(advices) / sizeof(advices[0]); i++)
        if (strncmp(name, advices[i].name, strlen(advices[i].name)) == 0)
            return advices[i].advice;
    return NULL;
}

/* The kind outside malloc that grew most; EXPLAIN_KINDS: none did. */
static enum explain_kind kind_grown(const struct explain *a, const struct explain *b)
{
    enum explain_kind found = EXPLAIN_KINDS;
    uint64_t most = 0;
    for (enum explain_kind kind = 0; kind < EXPLAIN_KINDS; kind++) {
        uint64_t before = explain_sum(a, kind), now = explain_sum(b, kind);
        if (explain_is_malloc(kind) || now <= before || now - before <= most)
            continue;
        most = now - before;
        found = kind;
    }
    return found;
}

void outside_compare(const struct explain *a, const struct explain *b, uint64_t span_ns,
                     struct outside_verdict *ret)
{
    double seconds = span_ns ? (double)span_ns / (double)NS_PER_S : 1;
    uint64_t most = 0;
    *ret = (struct outside_verdict){
        .rss_per_s = ((double)b->rss_bytes - (double)a->rss_bytes) / seconds,
        .heap_per_s = ((double)explain_sum_malloc(b) - (double)explain_sum_malloc(a)) / seconds,
    };
    ret->kind = kind_grown(a, b);
    for (uint32_t i = 0; i < b->n_parts; i++) {
        const struct explain_part *part = &b->parts[i];
        uint64_t before = bytes_of(a, part), more = part->bytes > before ? part->bytes - before : 0;
        if (part->kind != ret->kind || more <= most)
            continue;
        most = more;
        name_part(part, ret->name);
    }
    ret->advice = advice_for(ret->name);
}

void outside_verdict_all(struct outside_verdict *v)
{
    if (v->heap_per_s * 2 <= v->rss_per_s)
        return;
    v->kind = EXPLAIN_HEAP;
    snprintf(v->name, sizeof(v->name), "malloc heap");
    v->advice = advice_for(v->name);
}

void outside_largest(const struct explain *e, struct outside_verdict *ret)
{
    uint64_t most = 0;
    *ret = (struct outside_verdict){0};
    for (uint32_t i = 0; i < e->n_parts; i++) {
        const struct explain_part *part = &e->parts[i];
        if (part->kind == EXPLAIN_HEAP || part->kind == EXPLAIN_OLDER ||
            part->kind == EXPLAIN_FILE || part->kind == EXPLAIN_MEMOIR || part->bytes <= most)
            continue;
        most = part->bytes;
        name_part(part, ret->name);
    }
    ret->advice = advice_for(ret->name);
}

void outside_name(const struct explain *e, struct suspect *s)
{
    struct outside_verdict largest;
    char *why = NULL;
    outside_largest(e, &largest);
    if (!largest.name[0])
        return;
    free(s->site);
    s->site = strdup(largest.name);
    if (asprintf(&why, "%s Most of what is there is %s%s%s.", s->why ? s->why : "", largest.name,
                 largest.advice ? "; " : "", largest.advice ? largest.advice : "") < 0)
        return;
    free(s->why);
    s->why = why;
}

/* With growth in malloc, too. */
static void judge(const struct outside *g, struct outside_verdict *ret)
{
    struct detect_result result;
    *ret = (struct outside_verdict){0};
    if (!g->first || !g->last || g->n == 0)
        return;
    detect_judge(g->points, g->n,
                 &(struct detect_options){.needs_ns = g->needs_ns, .level_only = true}, &result);
    outside_compare(g->first, g->last,
                    g->last_ns > g->first_ns ? g->last_ns - g->first_ns : NS_PER_S, ret);
    if (ret->rss_per_s <= 0)
        return;
    double share = ret->heap_per_s > 0 ? ret->heap_per_s / ret->rss_per_s : 0;
    ret->rss_per_s = result.bytes_per_s > 0 ? result.bytes_per_s : ret->rss_per_s;
    ret->heap_per_s = ret->rss_per_s * (share < 1 ? share : 1);
    ret->grows = result.verdict == DETECT_GROWING;
}

void outside_judge(const struct outside *g, struct outside_verdict *ret)
{
    judge(g, ret);
    ret->grows &= ret->heap_per_s * 2 < ret->rss_per_s;
}

void outside_judge_all(const struct outside *g, struct outside_verdict *ret)
{
    judge(g, ret);
    outside_verdict_all(ret);
}

void outside_tell(const struct outside_verdict *v, struct buffer *out)
{
    char rss[UNITS_TEXT_MAX], heap[UNITS_TEXT_MAX];
    buffer_printf(out, "RSS grows by %s/min, %s/min of it in the heap",
                  units_format_bytes(rss, detect_per_minute(v->rss_per_s), UNITS_DECIMAL),
                  units_format_bytes(heap, detect_per_minute(v->heap_per_s), UNITS_DECIMAL));
    if (v->name[0])
        buffer_printf(out, "; growing part: %s", v->name);
    if (v->advice)
        buffer_printf(out, "; %s", v->advice);
}
