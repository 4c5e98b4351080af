/* Ranges of the history over HTTP. The file is read by the worker, as any reader would. */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/api_history.h"
#include "daemon/api_internal.h"
#include "daemon/clustering.h"
#include "daemon/daemon.h"
#include "history/read.h"
#include "history/table.h"
#include "ledger/host.h"
#include "ledger/ledger.h"
#include "query/query.h"

enum { POINTS_USUAL = 300, PATH_MAX_BYTES = 4096 + 64, NAME_MAX_BYTES = 96 };

/* ---- moments ---- */

int history_moment(const char *text, uint64_t now_s, uint64_t *ret_s)
{
    static const struct {
        char unit;
        uint64_t seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 604800}};
    bool before = *text == '-';
    const char *p = text + before;
    uint64_t sum = 0;
    if (strcmp(text, "now") == 0) {
        *ret_s = now_s;
        return 0;
    }
    if (!isdigit((unsigned char)*p))
        return -EINVAL;
    while (*p) {
        uint64_t n = 0, unit = 1;
        if (!isdigit((unsigned char)*p))
            return -EINVAL;
        for (; isdigit((unsigned char)*p); p++) {
            n = n * 10 + (uint64_t)(*p - '0');
            if (n > UINT32_MAX * UINT64_C(16))
                return -ERANGE;
        }
        if (!before && *p == '.') { /* of a second: not kept */
            for (p++; isdigit((unsigned char)*p); p++)
                ;
        }
        if (*p && before) {
            unit = 0;
            for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
                if (units[i].unit == *p)
                    unit = units[i].seconds;
            p++;
        }
        if (!unit || (*p && !before))
            return -EINVAL;
        sum += n * unit;
    }
    *ret_s = !before ? sum : now_s > sum ? now_s - sum : 0;
    return 0;
}

/* ---- the answer ---- */

static void line_name(const struct read_line *line, char name[static NAME_MAX_BYTES])
{
    const char *word = read_line_word(line, false);
    if (line->on_device)
        snprintf(name, NAME_MAX_BYTES, "device.%d.%s", line->ordinal, word);
    else
        snprintf(name, NAME_MAX_BYTES, "%s", word);
}

/* A percentage is a number with two decimals, as in queries. */
static void points_json(const struct read_line *line, size_t n, bool most, struct json *json)
{
    json_key(json, most ? "max" : "last");
    json_array_begin(json);
    for (size_t i = 0; i < n; i++) {
        uint64_t value = most ? line->points[i].max : line->points[i].last;
        if (!line->points[i].present)
            json_null(json);
        else if (line->what == READ_PRESSURE)
            json_double(json, (double)value / 100);
        else
            json_u64(json, value);
    }
    json_array_end(json);
}

static void line_json(const struct read_result *result, const struct read_line *line,
                      const char *node, struct json *json)
{
    char name[NAME_MAX_BYTES], id[LEDGER_DEVICE_ID_MAX];
    line_name(line, name);
    json_object_begin(json);
    json_field_string(json, "name", name);
    json_field_string(json, "kind", line->what == READ_PRESSURE ? "percent" : "bytes");
    if (line->on_device) {
        json_field_i64(json, "ordinal", line->ordinal);
        json_field_string(json, "device", line->device);
        json_field_string(json, "device_id", read_line_device_id(line, node, id));
        json_field_string(json, "space", ledger_space_name(line->space));
    }
    if (line->has_capacity)
        json_field_u64(json, "capacity", line->capacity);
    points_json(line, result->n_steps, false, json);
    points_json(line, result->n_steps, true, json);
    json_object_end(json);
}

void history_json(const struct read_result *result, const char *node, struct json *json)
{
    json_field_u64(json, "from", result->since_s);
    json_field_u64(json, "to", result->until_s);
    json_field_u64(json, "step", result->step_s);
    json_key(json, "t");
    json_array_begin(json);
    for (size_t i = 0; i < result->n_steps; i++)
        json_u64(json, result->since_s + i * result->step_s);
    json_array_end(json);
    json_key(json, "series");
    json_array_begin(json);
    for (size_t i = 0; i < result->n_lines; i++)
        line_json(result, &result->lines[i], node, json);
    json_array_end(json);
    json_key(json, "oldest");
    if (result->oldest_s)
        json_u64(json, result->oldest_s);
    else
        json_null(json);
    json_field_u64(json, "damaged", result->damaged);
}

/* ---- on the worker ---- */

struct wish {
    struct query *question; /* to the table `history`; NULL: the route's own answer */
    struct asking_viewer viewer;
    bool arrays;
    struct read_query query;
    bool of_process;
    uint64_t start_s;
    char device[LEDGER_DEVICE_ID_MAX], node[HOST_NAME_MAX + 1];
    char path[PATH_MAX_BYTES];
};

static void wish_free(struct wish *wish)
{
    query_free(wish->question);
    free(wish);
}

static void wish_release(struct job *job)
{
    wish_free(job->more);
}

/* One that is too young or too small to be recorded is known nevertheless. */
static bool is_alive(pid_t pid)
{
    return kill(pid, 0) == 0 || errno == EPERM;
}

static void run(struct job *job)
{
    const struct wish *wish = job->more;
    MEMOIR_CLEANUP(read_release)
    struct read_result result = {0};
    int r = read_history(wish->path, &wish->query, &result);
    if (r == -E2BIG) {
        http_problem(job->call, 400, "too-many-points",
                     "that would be too many points: ask for fewer, or for a shorter time");
        return;
    }
    if (r == -EBADMSG) {
        http_problem(job->call, 500, "damaged", "the history is damaged; memoird sets it aside");
        return;
    }
    if (r < 0 && r != -ENOENT) {
        api_failed(job->call, "the history could not be read", r);
        return;
    }
    if (r == -ENOENT) /* nothing was written yet: an answer without series */
        result = (struct read_result){.since_s = wish->query.since_s,
                                      .until_s = wish->query.until_s,
                                      .step_s = wish->query.step_s};
    if (wish->of_process && !result.pid_known && !is_alive((pid_t)wish->query.pid)) {
        http_problem(job->call, 404, "no-process",
                     "no process with this PID runs or is in the history");
        return;
    }
    if (wish->of_process)
        read_choose_process(&result, wish->start_s);
    struct json *json = http_json(job->call);
    api_json_begin(json, "memoir.history/2");
    history_json(&result, wish->node, json);
    json_object_end(json);
}

/* ---- on the loop ---- */

static bool times_read(struct http_call *call, struct wish *wish)
{
    struct clustering_window window;
    if (!api_history_window(call, &window))
        return false;
    wish->query.since_s = window.since_s;
    wish->query.until_s = window.until_s;
    wish->query.step_s = window.step_s;
    return true;
}

bool api_history_window(struct http_call *call, struct clustering_window *q)
{
    uint64_t now_s = clock_real_ns() / NS_PER_S, points = POINTS_USUAL;
    const char *at = http_argument(call, "at");
    const char *from = http_argument(call, "from"), *to = http_argument(call, "to");
    int r = history_moment(at ? at : from ? from : "-1h", now_s, &q->since_s);
    if (r >= 0 && at) { /* the step that it lies in, as fine as is kept */
        q->until_s = q->since_s + 1;
        q->step_s = 1;
        return true;
    }
    if (r >= 0)
        r = history_moment(to ? to : "now", now_s, &q->until_s);
    if (r < 0 || q->since_s >= q->until_s) {
        http_problem(call, 400, "bad-argument",
                     r < 0
                         ? "from, to and at are seconds since 1970, or a time before now: -1h, -30m"
                         : "from must be before to");
        return false;
    }
    (void)http_number(call, "points", &points);
    q->until_s += to == NULL; /* this second is part of it */
    q->step_s = read_step(q->until_s - q->since_s, points);
    return true;
}

static bool what_read(struct http_call *call, struct wish *wish)
{
    const char *what = http_argument(call, "what");
    struct read_query *q = &wish->query;
    const char *device = http_argument(call, "device");
    uint64_t pid = 0;
    q->system = strcmp(what, "system") == 0;
    if (strcmp(what, "process") == 0) {
        if (!http_number(call, "pid", &pid)) {
            http_problem(call, 400, "bad-argument", "what=process takes a pid");
            return false;
        }
        q->by = READ_BY_PROCESS;
        q->pid = (int64_t)pid;
        wish->of_process = true;
        (void)http_number(call, "start", &wish->start_s);
    } else if (strcmp(what, "space") == 0) {
        q->device = "host"; /* what all processes together report of the host's memory */
    } else if (strcmp(what, "device") == 0 && device) {
        snprintf(wish->device, sizeof(wish->device), "%s", device);
        q->device_id = wish->device;
    }
    return true;
}

static struct wish *wish_new(const struct daemon *daemon)
{
    struct wish *wish = calloc(1, sizeof(*wish));
    if (!wish)
        return NULL;
    gethostname(wish->node, sizeof(wish->node) - 1);
    wish->query.node = wish->node;
    snprintf(wish->path, sizeof(wish->path), "%s/%s", daemon->state_path, HISTORY_FILE);
    return wish;
}

static void run_question(struct job *job)
{
    const struct wish *wish = job->more;
    struct history_world history = {.path = wish->path,
                                    .since_s = wish->query.since_s,
                                    .until_s = wish->query.until_s,
                                    .step_s = wish->query.step_s};
    struct query_world world = {.history = &history,
                                .sees_all = wish->viewer.sees_all,
                                .viewer_uid = wish->viewer.uid,
                                .node = wish->node};
    struct query_result *result = NULL;
    int r = query_result_new(wish->question, ASKING_GROUPS_MAX, &result);
    if (r >= 0)
        r = query_run(wish->question, &world, result);
    if (r >= 0)
        r = query_result_finish(result);
    if (r == -E2BIG) {
        http_problem(job->call, 400, "too-many-points",
                     "that would be too many points: ask for fewer, or for a shorter time");
    } else if (r < 0) {
        api_failed(job->call, "the history could not be read", r);
    } else {
        struct json *json = http_json(job->call);
        api_json_begin(json, "memoir.query/1");
        json_field_u64(json, "step", history.read_step_s);
        if (wish->arrays)
            query_result_arrays(result, json);
        else
            query_result_json(result, json);
        json_object_end(json);
    }
    query_result_free(result);
}

void api_history_query(struct http_call *call, struct daemon *daemon,
                       const struct query_spec *asked)
{
    struct query_error error = {0};
    struct query_spec spec = *asked;
    if (!spec.limit || spec.limit > ASKING_ROWS_MAX)
        spec.limit = ASKING_ROWS_MAX;
    struct wish *wish = wish_new(daemon);
    int r = wish ? query_new(&spec, &wish->question, &error) : -ENOMEM;
    if (r < 0 && error.text[0])
        api_bad_query(call, &error);
    else if (r < 0)
        api_failed(call, "the query failed", r);
    if (r < 0 || !times_read(call, wish)) {
        if (wish)
            wish_free(wish);
        return;
    }
    const char *shape = http_argument(call, "shape");
    wish->arrays = shape && strcmp(shape, "arrays") == 0;
    wish->viewer = api_viewer(call);
    api_job(call, daemon->api, NULL, run_question, wish_release, wish);
}

void api_answer_history(struct http_call *call, void *context)
{
    struct daemon *daemon = context;
    struct wish *wish = wish_new(daemon);
    if (!wish) {
        api_failed(call, "there is no room for the question", -ENOMEM);
        return;
    }
    if (!what_read(call, wish) || !times_read(call, wish)) {
        wish_free(wish);
        return;
    }
    api_job(call, daemon->api, NULL, run, wish_release, wish);
}
