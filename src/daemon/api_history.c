/* Ranges of the history over HTTP. The file is read by the worker, as any reader would. */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/api_history.h"
#include "daemon/api_internal.h"
#include "daemon/api_process_rows.h"
#include "daemon/clustering.h"
#include "daemon/daemon.h"
#include "daemon/users.h"
#include "history/document.h"
#include "history/read.h"
#include "history/table.h"
#include "ledger/host.h"
#include "ledger/ledger.h"
#include "query/query.h"
#include "query/view.h"

enum { POINTS_USUAL = 300, PATH_MAX_BYTES = 4096 + 64 };

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
        if (!unit)
            return -EINVAL;
        sum += n * unit;
    }
    *ret_s = !before ? sum : now_s > sum ? now_s - sum : 0;
    return 0;
}

/* ---- on the worker ---- */

struct wish {
    struct query *question; /* to the table `history` */
    struct asking_viewer viewer;
    bool arrays;
    struct past_window window;
    int64_t pid; /* of what=process; else 0 */
    uint64_t start_s;
    char node[HOST_NAME_MAX + 1]; /* its name in the cluster; "": that of the machine */
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

static struct history_world history_of(const struct wish *wish)
{
    return (struct history_world){.path = wish->path,
                                  .since_s = wish->window.since_s,
                                  .until_s = wish->window.until_s,
                                  .step_s = wish->window.step_s,
                                  .pid = wish->pid,
                                  .one_process = wish->pid != 0,
                                  .start_s = wish->start_s};
}

static const char *user_name(uint32_t uid, void *context)
{
    return context ? users_name(context, uid) : NULL;
}

static void users_freep(struct users **users)
{
    users_free(*users);
}

/* `users` are of this thread alone; NULL: there are none, and users are numbers. */
static struct query_world world_of(const struct wish *wish, struct history_world *history,
                                   struct users *users)
{
    if (users)
        users_refresh(users);
    return (struct query_world){.history = history,
                                .sees_all = wish->viewer.sees_all,
                                .viewer_uid = wish->viewer.uid,
                                .node = wish->node[0] ? wish->node : NULL,
                                .user_name = user_name,
                                .context = users};
}

static void failed(struct http_call *call, int r)
{
    if (r == -E2BIG)
        http_problem(call, 400, "too-many-points",
                     "that would be too many points: ask for fewer, or for a shorter time");
    else if (r == -EBADMSG)
        http_problem(call, 500, "damaged", "the history is damaged; memoird sets it aside");
    else
        api_failed(call, "the history could not be read", r);
}

static void run_view(struct job *job)
{
    const struct wish *wish = job->more;
    struct history_world history = history_of(wish);
    MEMOIR_CLEANUP(users_freep)
    struct users *users = NULL;
    if (wish->pid) /* other views have no user in them */
        (void)users_new(&users);
    struct query_world world = world_of(wish, &history, users);
    MEMOIR_CLEANUP(history_document_release)
    struct history_document document;
    history_document_init(&document, HTTP_ANSWER_MAX);
    int r = history_document_fill(&document, wish->question, &world);
    if (r < 0) {
        failed(job->call, r);
    } else if (wish->pid && !history.pid_known && api_pid_gone((pid_t)wish->pid)) {
        /* One that is too young or too small to be recorded is known nevertheless. */
        http_problem(job->call, 404, "no-process",
                     "no process with this PID runs or is in the history");
    } else {
        struct json *json = http_json(job->call);
        api_json_begin(json, HISTORY_DOCUMENT);
        history_document_json(&document, &world, json);
        json_object_end(json);
    }
}

static void run_question(struct job *job)
{
    const struct wish *wish = job->more;
    struct history_world history = history_of(wish);
    MEMOIR_CLEANUP(users_freep)
    struct users *users = NULL;
    (void)users_new(&users);
    struct query_world world = world_of(wish, &history, users);
    MEMOIR_CLEANUP(query_result_freep)
    struct query_result *result = NULL;
    int r = query_result_new(wish->question, ASKING_GROUPS_MAX, &result);
    if (r >= 0)
        r = query_run(wish->question, &world, result);
    if (r >= 0)
        r = query_result_finish(result);
    if (r < 0) {
        failed(job->call, r);
        return;
    }
    struct json *json = http_json(job->call);
    api_json_begin(json, "memoir.query/1");
    json_field_u64(json, "step", history.read_step_s);
    if (wish->arrays)
        query_result_arrays(result, json);
    else
        query_result_json(result, json);
    json_object_end(json);
}

/* ---- on the loop ---- */

/* What the call says for a parameter that its route may call so. */
static const char *word_of(const struct http_call *call, const char *name)
{
    return api_takes(call, name) ? http_argument(call, name) : NULL;
}

static bool bad_time(struct http_call *call, const char *why)
{
    http_problem(call, 400, "bad-argument", "%s", why);
    return false;
}

bool api_history_window(struct http_call *call, struct past_window *q)
{
    uint64_t now_s = clock_real_ns() / NS_PER_S, points = POINTS_USUAL;
    const char *from = word_of(call, api_takes(call, "since") ? "since" : "from");
    const char *to = word_of(call, api_takes(call, "until") ? "until" : "to");
    const char *at = word_of(call, "at");
    uint64_t at_s = 0;
    int r = at ? history_moment(at, now_s, &at_s)
               : history_moment(from ? from : "-1h", now_s, &q->since_s);
    if (r >= 0 && at) {
        *q = past_at(at_s);
        return true;
    }
    if (r >= 0)
        r = history_moment(to ? to : "now", now_s, &q->until_s);
    if (r < 0)
        return bad_time(call, "invalid time: expected seconds since 1970, or a time before now: "
                              "-1h, -30m");
    if (q->since_s >= q->until_s)
        return bad_time(call, "the time must begin before it ends");
    (void)http_number(call, "points", &points);
    q->until_s += to == NULL; /* this second is part of it */
    q->step_s = read_step(q->until_s - q->since_s, points);
    return true;
}

bool api_history_spec(struct http_call *call, struct query_spec *spec, struct buffer *texts)
{
    struct past_window window;
    struct query_error error = {0};
    bool at = word_of(call, "at"), since = word_of(call, "since"), until = word_of(call, "until");
    const struct query_table *table = query_table_find(spec->table ? spec->table : "");
    if (!at && !since && until && !(table && table->needs & QUERY_NEEDS_HISTORY))
        return bad_time(call, "until goes with since");
    if (at && (since || until))
        return bad_time(call, "at goes with neither since nor until");
    if (!at && !since)
        return true;
    if (!api_history_window(call, &window))
        return false;
    int r = past_spec(spec, &window, texts, &error);
    if (r == -EINVAL) {
        api_bad_query(call, &error);
        return false;
    }
    if (r < 0) {
        api_failed(call, "the query failed", r);
        return false;
    }
    return true;
}

/* What the route asks the table; false: the call has its problem. */
static bool view_where(struct http_call *call, struct wish *wish, struct buffer *where)
{
    const char *what = http_argument(call, "what"), *device = http_argument(call, "device");
    uint64_t pid = 0;
    if (strcmp(what, "process") == 0 && !http_number(call, "pid", &pid)) {
        http_problem(call, 400, "bad-argument", "what=process takes a pid");
        return false;
    }
    if (pid) {
        wish->pid = (int64_t)pid;
        (void)http_number(call, "start", &wish->start_s);
        buffer_printf(where, "of=process and pid=%llu", (unsigned long long)pid);
    } else {
        buffer_printf(where, "of=%s", strcmp(what, "space") == 0 ? "host" : what);
    }
    if (strcmp(what, "device") == 0 && device)
        query_where_text(where, "device_id", "=", device);
    buffer_append_str(where, " and measure!=blocks");
    return true;
}

static struct wish *wish_new(const struct daemon *daemon)
{
    struct wish *wish = calloc(1, sizeof(*wish));
    const char *node = clustering_node_name(daemon->clustering);
    if (!wish)
        return NULL;
    snprintf(wish->node, sizeof(wish->node), "%s", node ? node : "");
    snprintf(wish->path, sizeof(wish->path), "%s/%s", daemon->state_path, HISTORY_FILE);
    return wish;
}

/* Make the question, which is valid, and give it to the worker. `wish` is taken. */
static void begin(struct http_call *call, struct daemon *daemon, const struct query_spec *spec,
                  struct wish *wish, void (*work)(struct job *job))
{
    struct query_error error = {0};
    int r = query_new(spec, &wish->question, &error);
    if (r < 0) {
        api_failed(call, "the query failed", r);
        wish_free(wish);
        return;
    }
    if (!api_history_window(call, &wish->window)) {
        wish_free(wish);
        return;
    }
    wish->viewer = api_viewer(call);
    api_job(call, daemon->api, NULL, work, wish_release, wish);
}

void api_history_query(struct http_call *call, struct daemon *daemon, const struct query_spec *spec)
{
    const char *shape = http_argument(call, "shape");
    struct wish *wish = wish_new(daemon);
    if (!wish) {
        api_failed(call, "the query failed", -ENOMEM);
        return;
    }
    wish->arrays = shape && strcmp(shape, "arrays") == 0;
    begin(call, daemon, spec, wish, run_question);
}

void api_answer_history(struct http_call *call, void *context)
{
    struct daemon *daemon = context;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer where = BUFFER_INIT(QUERY_TEXT_MAX);
    struct wish *wish = wish_new(daemon);
    if (!wish) {
        api_failed(call, "the query failed", -ENOMEM);
        return;
    }
    if (!view_where(call, wish, &where)) {
        wish_free(wish);
        return;
    }
    begin(call, daemon,
          &(struct query_spec){.table = history_table.name,
                               .where = buffer_string(&where),
                               .show = history_document_show},
          wish, run_view);
}
