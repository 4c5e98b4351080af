/* memoird's verdicts. See leaks_ask.h. */
#include "cli/leaks_ask.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/ask.h"
#include "cli/suspects.h"
#include "ledger/ledger.h"

enum { ANSWER_MAX = 16 << 20 };

static void decrefp(json_t **json)
{
    json_decref(*json);
}

/* ---- values ---- */

static char *text_of(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    return text ? strdup(text) : NULL;
}

static uint64_t number_of(const json_t *row, const char *key, uint64_t absent)
{
    const json_t *value = json_object_get(row, key);
    return json_is_integer(value) && json_integer_value(value) >= 0
               ? (uint64_t)json_integer_value(value)
               : absent;
}

static double real_of(const json_t *row, const char *key, double absent)
{
    const json_t *value = json_object_get(row, key);
    return json_is_number(value) ? json_number_value(value) : absent;
}

static uint64_t ns_of(const json_t *row, const char *key, uint64_t absent)
{
    double seconds = real_of(row, key, -1);
    return seconds >= 0 && seconds < 1e9 ? (uint64_t)(seconds * (double)NS_PER_S) : absent;
}

static uint64_t key_of(const json_t *row)
{
    const char *text = json_string_value(json_object_get(row, "key"));
    return text ? strtoull(text, NULL, 16) : 0;
}

/* Pairs of time and bytes. */
static void trend_read(struct suspect *s, const json_t *points)
{
    size_t n = json_array_size(points);
    for (size_t i = n > LEAK_SPARK ? n - LEAK_SPARK : 0; i < n; i++) {
        const json_t *value = json_array_get(json_array_get(points, i), 1);
        if (json_is_integer(value) && json_integer_value(value) >= 0)
            s->spark[s->n_spark++] = (uint64_t)json_integer_value(value);
    }
}

/* Of a process that keeps no book. */
static bool is_resident(const json_t *row)
{
    const char *space = json_string_value(json_object_get(row, "space"));
    return space && strcmp(space, "resident") == 0;
}

static void fill(struct suspect *s, const json_t *row)
{
    uint64_t level = number_of(row, "level", 0);
    *s = (struct suspect){
        .pid = number_of(row, "pid", 0),
        .uid = (uint32_t)number_of(row, "uid", UINT32_MAX),
        .key = key_of(row),
        .program = text_of(row, "program"),
        .user = text_of(row, "user"),
        .device = text_of(row, "device"),
        .device_name = text_of(row, "device_name"),
        .device_uid = text_of(row, "device_uid"),
        .ordinal = -1,
        .space = text_of(row, "space"),
        .verdict = level < DETECT_VERDICTS ? (enum detect_verdict)level : DETECT_UNKNOWN,
        .reason = text_of(row, "reason"),
        .why = text_of(row, "why"),
        .confidence = real_of(row, "confidence", 0),
        .bytes_per_s = real_of(row, "growth", 0),
        .blocks_per_s = real_of(row, "growth_blocks", 0),
        .ever_freed = real_of(row, "freed_share", -1),
        .live_bytes = number_of(row, "bytes", 0),
        .live_blocks = number_of(row, "blocks", 0),
        .span_ns = ns_of(row, "watched", 0),
        .growing_ns = ns_of(row, "growing", 0),
        .left_ns = ns_of(row, "limit_in", UINT64_MAX),
        .limit_bytes = number_of(row, "limit", 0),
        .limit = text_of(row, "limit_kind"),
        .book_ino = number_of(row, "book_inode", 0),
        .site_number = (uint32_t)number_of(row, "site_number", 0),
        .frame = text_of(row, "frame"),
    };
    if (json_is_integer(json_object_get(row, "ordinal")))
        s->ordinal = (int32_t)number_of(row, "ordinal", 0);
    s->resident = s->outside = s->space && strcmp(s->space, "outside malloc") == 0;
    if (is_resident(row)) {
        s->resident = true;
        s->site = text_of(row, "site");
    }
    trend_read(s, json_object_get(row, "trend"));
}

/* ---- questions ---- */

/* The "result" of the answer, for json_decref(). */
static int result_of(int fd, const char *question, json_t **ret_result)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer answer = BUFFER_INIT(ANSWER_MAX);
    int r = ask_line(fd, question, &answer);
    if (r < 0)
        return r;
    MEMOIR_CLEANUP(decrefp)
    json_t *document = json_loadb(answer.data, answer.len, 0, NULL);
    json_t *result = json_object_get(document, "result");
    if (!json_is_object(result))
        return -EPROTO; /* an earlier version's, which has no such table */
    *ret_result = json_incref(result);
    return 0;
}

static bool is_wanted(const struct leaks_ask *ask, const json_t *row)
{
    uint64_t pid = number_of(row, "pid", 0);
    if (is_resident(row)) {
        const char *program = json_string_value(json_object_get(row, "program"));
        return ask->wanted_other(pid, program ? program : "", ask->context);
    }
    const struct ledger_process *p = ledger_process_find(ask->ledger, (pid_t)pid);
    return p && ask->wanted(p, ask->context);
}

/* How many sites of what is wanted have which verdict. */
static int counts_ask(const struct leaks_ask *ask, int fd, struct suspects *s)
{
    MEMOIR_CLEANUP(decrefp)
    json_t *result = NULL;
    int r = result_of(
        fd,
        "{\"query\":{\"table\":\"leaks\",\"by\":\"pid,program,space,level\",\"where\":\"level>=0\","
        "\"show\":\"count,max(watched)\"}}",
        &result);
    if (r < 0)
        return r;
    size_t i;
    const json_t *row;
    json_array_foreach(json_object_get(result, "rows"), i, row)
    {
        uint64_t level = number_of(row, "level", 0), count = number_of(row, "count", 0);
        uint64_t span_ns = ns_of(row, "max(watched)", 0);
        if (level >= DETECT_VERDICTS || !is_wanted(ask, row))
            continue;
        s->verdicts[level] += count;
        s->sites += count;
        s->span_ns = span_ns > s->span_ns ? span_ns : s->span_ns;
    }
    s->incomplete = json_is_true(json_object_get(result, "incomplete"));
    return s->sites > s->verdicts[DETECT_UNKNOWN] ? 0 : -ENODATA;
}

static int rows_ask(const struct leaks_ask *ask, int fd, struct suspects *s)
{
    char question[512];
    MEMOIR_CLEANUP(decrefp)
    json_t *result = NULL;
    snprintf(
        question, sizeof(question),
        "{\"query\":{\"table\":\"leaks\",%s\"show\":\"pid,program,user,device,device_name,"
        "device_uid,ordinal,space,level,reason,why,confidence,growth,growth_blocks,freed_share,"
        "bytes,blocks,watched,growing,limit_in,limit_kind,limit,frame,key,book_inode,"
        "site_number,uid,trend,site\"}}",
        ask->all ? "\"where\":\"level>=0\"," : "");
    int r = result_of(fd, question, &result);
    if (r < 0)
        return r;
    const json_t *rows = json_object_get(result, "rows");
    s->rows = calloc(json_array_size(rows) + 1, sizeof(*s->rows));
    if (!s->rows)
        return -ENOMEM;
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row)
    {
        if (is_wanted(ask, row))
            fill(&s->rows[s->n++], row);
    }
    s->incomplete |= json_is_true(json_object_get(result, "incomplete"));
    return 0;
}

int leaks_ask(const struct leaks_ask *ask, struct suspects *ret_suspects, uint64_t *ret_watched_ns)
{
    MEMOIR_CLEANUP(suspects_release)
    struct suspects s = {.daemon = true};
    MEMOIR_CLEANUP(closep)
    int fd = ask_connect(ask->socket);
    int r = fd < 0 ? fd : counts_ask(ask, fd, &s);
    if (r == -ENODATA)
        *ret_watched_ns = s.span_ns;
    if (r == -ENODATA && ask->soon)
        r = 0;
    if (r == 0)
        r = rows_ask(ask, fd, &s);
    if (r < 0)
        return r;
    *ret_suspects = s;
    s = (struct suspects){0};
    return 0;
}
