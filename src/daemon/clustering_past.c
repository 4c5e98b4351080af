/* Questions whose answers are read on a thread beside the loop: about the past, from the node's own history; and about the
 * resident memory of processes, from their mappings (explaining.h).
 *
 * The asker picks one step for all, a multiple of the tiers' and aligned to 1970, so that points of different nodes fall into the
 * same buckets. A node that keeps the time in question in coarser steps only says so rather than mixing the two. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "daemon/api_internal.h"
#include "daemon/chores.h"
#include "daemon/clustering_internal.h"
#include "daemon/daemon.h"
#include "daemon/explaining.h"
#include "history/read.h"
#include "history/store.h"
#include "history/table.h"
#include "history/tier.h"
#include "query/query.h"

enum { PATH_BYTES = 4096 + 64 };
#define OTHER_NODES (UINT32_MAX - 1) /* in chores: viewers of other nodes, who are no user here */

/* The loop's until it is given to the thread, the thread's then; `question` and `ask` are under visits_lock. */
struct clustering_past {
    struct clustering *clustering;
    struct cluster_question *question; /* of another node, or */
    struct clustering_ask *ask; /* our own part of one of ours; both NULL: the answer is dropped */
    LIST_ENTRY(clustering_past) link;
    struct explaining *explaining; /* NULL: about the past, with the rest */
    struct query *query;
    struct past_window window;
    struct asking_viewer viewer;
    char node[MESSAGE_NAME_MAX + 1], path[PATH_BYTES];
};

void clustering_window_settle(struct past_window *window)
{
    static const uint64_t kept_s[HISTORY_TIERS] = {3600, 86400,
                                                   UINT64_MAX}; /* as nodes do by default */
    uint64_t now_s = clock_real_ns() / NS_PER_S;
    uint64_t age_s = now_s > window->since_s ? now_s - window->since_s : 0;
    unsigned tier = 0;
    while (tier + 1 < HISTORY_TIERS && age_s >= kept_s[tier] - kept_s[tier] / 10)
        tier++;
    uint64_t unit_s = history_step_s[tier];
    if (window->step_s < unit_s)
        window->step_s = unit_s;
    window->step_s = (window->step_s + unit_s - 1) / unit_s * unit_s;
}

/* Hand over the answer, or the reason why there is none. Any thread. */
static void deliver(struct clustering_past *past, const struct buffer *bytes, const char *why)
{
    struct clustering *c = past->clustering;
    pthread_mutex_lock(&c->visits_lock);
    if (past->question && why)
        cluster_refuse(c->cluster, past->question, why);
    else if (past->question)
        cluster_answer(c->cluster, past->question, bytes->data, bytes->len);
    else if (past->ask)
        cluster_ask_self(past->ask->out, why ? NULL : bytes->data, why ? 0 : bytes->len, why);
    LIST_REMOVE(past, link);
    pthread_mutex_unlock(&c->visits_lock);
    query_free(past->query);
    explaining_free(past->explaining);
    free(past);
}

static int result_write(struct query_result *result, struct buffer *out)
{
    int r = query_result_trim(result);
    return r < 0 ? r : query_partial_write(result, out);
}

static int look(const struct clustering_past *past, struct buffer *out, uint64_t *ret_step_s)
{
    struct history_world history = {.path = past->path,
                                    .since_s = past->window.since_s,
                                    .until_s = past->window.until_s,
                                    .step_s = past->window.step_s};
    struct query_world world = {.history = &history,
                                .sees_all = past->viewer.sees_all,
                                .viewer_uid = past->viewer.uid,
                                .node = past->node};
    struct query_result *result = NULL;
    int r = query_result_new(past->query, ASKING_GROUPS_MAX, &result);
    if (r >= 0)
        r = query_run(past->query, &world, result);
    if (r >= 0)
        r = query_result_finish(result);
    if (r >= 0)
        r = result_write(result, out);
    *ret_step_s = history.read_step_s;
    query_result_free(result);
    return r;
}

static void on_thread(void *context)
{
    struct clustering_past *past = context;
    struct buffer out = BUFFER_INIT(GATHER_REPLY_MAX);
    char why[MESSAGE_REASON_MAX + 1] = "";
    uint64_t step_s = 0;
    int r = look(past, &out, &step_s);
    if (r < 0)
        snprintf(why, sizeof(why), "its history could not be read: %s", strerror(-r));
    else if (step_s > past->window.step_s)
        snprintf(why, sizeof(why),
                 "it keeps that time in steps of %llu s only: ask for fewer points",
                 (unsigned long long)step_s);
    deliver(past, &out, why[0] ? why : NULL);
    buffer_release(&out);
}

static void explain_on_thread(void *context)
{
    struct clustering_past *past = context;
    struct buffer out = BUFFER_INIT(GATHER_REPLY_MAX);
    struct query_result *result = NULL;
    char why[MESSAGE_REASON_MAX + 1] = "";
    int r = explaining_run(past->explaining, &result);
    if (r >= 0)
        r = result_write(result, &out);
    query_result_free(result);
    if (r < 0)
        snprintf(why, sizeof(why), "the mappings could not be read: %s", strerror(-r));
    api_rest(past->clustering->daemon->api);
    deliver(past, &out, why[0] ? why : NULL);
    buffer_release(&out);
}

static void on_drop(void *context)
{
    deliver(context, NULL, "memoird exits");
}

/* Give it to the thread. */
static void begin(struct clustering *c, const struct clustering_work *work,
                  struct clustering_past *past, chore_fn *run)
{
    struct api *api = c->daemon->api;
    past->clustering = c;
    past->question = work->question;
    past->ask = work->ask;
    pthread_mutex_lock(&c->visits_lock);
    LIST_INSERT_HEAD(&c->pasts, past, link);
    pthread_mutex_unlock(&c->visits_lock);
    uint32_t user = asking_user(&work->viewer);
    if (!work->ask && user == UINT32_MAX)
        user = OTHER_NODES;
    if (!api || !api->chores || chores_add(api->chores, user, run, on_drop, past) < 0)
        deliver(past, NULL, "busy: too many questions wait");
}

const char *clustering_explain_begin(struct clustering *c, const struct clustering_work *work,
                                     bool *ret_again)
{
    struct query_error error = {0};
    struct clustering_past *past = calloc(1, sizeof(*past));
    struct query_spec spec = clustering_work_spec(work);
    int r =
        past ? explaining_new(c->daemon, &spec, &work->viewer, &past->explaining, &error) : -ENOMEM;
    *ret_again = r == -EAGAIN;
    if (r < 0) {
        free(past);
        return r == -ENODEV ? "/proc cannot be read" : "out of memory";
    }
    begin(c, work, past, explain_on_thread);
    return NULL;
}

const char *clustering_past_begin(struct clustering *c, const struct clustering_work *work)
{
    struct query_error error = {0};
    struct daemon *daemon = c->daemon;
    if (!work->window.until_s)
        return "a question about the past needs a time";
    if (!daemon->history)
        return "it keeps no history";
    struct clustering_past *past = calloc(1, sizeof(*past));
    struct query_spec spec = clustering_work_spec(work);
    if (!past || query_new(&spec, &past->query, &error) < 0) {
        free(past);
        return "out of memory";
    }
    past->window = work->window;
    past->viewer = work->viewer;
    snprintf(past->node, sizeof(past->node), "%s", c->settings.name);
    snprintf(past->path, sizeof(past->path), "%s/%s", daemon->state_path, HISTORY_FILE);
    begin(c, work, past, on_thread);
    return NULL;
}

void clustering_past_forget(struct clustering *c, const struct clustering_ask *ask)
{
    struct clustering_past *past;
    pthread_mutex_lock(&c->visits_lock);
    LIST_FOREACH(past, &c->pasts, link)
    {
        if (past->ask == ask)
            past->ask = NULL;
    }
    pthread_mutex_unlock(&c->visits_lock);
}

void clustering_past_stop(struct clustering *c)
{
    struct clustering_past *past;
    pthread_mutex_lock(&c->visits_lock);
    LIST_FOREACH(past, &c->pasts, link)
    {
        if (past->question)
            cluster_refuse(c->cluster, past->question, "memoird exits");
        past->question = NULL;
        past->ask = NULL;
    }
    pthread_mutex_unlock(&c->visits_lock);
}
