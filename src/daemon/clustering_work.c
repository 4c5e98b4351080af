/* Questions that this node's query core answers for the cluster. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/varint.h"
#include "daemon/clustering_internal.h"
#include "daemon/daemon.h"
#include "daemon/loop.h"
#include "daemon/server.h"

enum { AGAIN_MS = 2 };

void clustering_work_free(struct clustering *c, struct clustering_work *work)
{
    asking_leave(c->daemon->asking, &work->turn);
    TAILQ_REMOVE(&c->works, work, link);
    for (size_t i = 0; i < CLUSTERING_WORDS; i++)
        free(work->words[i]);
    free(work);
}

/* ---- one question ---- */

static void finish(struct clustering *c, struct clustering_work *work, const char *why)
{
    if (work->ask && why)
        cluster_ask_self(work->ask->out, NULL, 0, why);
    else if (work->ask)
        cluster_ask_self(work->ask->out, buffer_string(&c->scratch), c->scratch.len, NULL);
    else if (why)
        cluster_refuse(c->cluster, work->question, why);
    else
        cluster_answer(c->cluster, work->question, buffer_string(&c->scratch), c->scratch.len);
    clustering_work_free(c, work);
}

struct query_spec clustering_work_spec(const struct clustering_work *work)
{
    return (struct query_spec){
        .table = work->words[0],
        .by = work->words[1],
        .where = work->words[2],
        .show = work->words[3],
        .sort = work->words[4],
        .limit = work->limit,
        .others = work->others,
        .lenient = work->question != NULL,
    };
}

static int prepare(struct clustering *c, struct clustering_work *work, struct asked **ret_asked,
                   struct query_error *wrong)
{
    *wrong = (struct query_error){0};
    struct query_spec spec = clustering_work_spec(work);
    return asking_prepare(c->daemon->asking, &spec, ret_asked, wrong);
}

/* Give a question whose answer takes long to a thread. As work_do(). */
static uint64_t work_hand_over(struct clustering *c, struct clustering_work *work, unsigned needs)
{
    bool again = false;
    const char *cannot = needs & QUERY_NEEDS_HISTORY ? clustering_past_begin(c, work)
                                                     : clustering_explain_begin(c, work, &again);
    if (again)
        return AGAIN_MS * NS_PER_MS;
    if (cannot)
        finish(c, work, cannot);
    else
        clustering_work_free(c, work);
    return 0;
}

/* How long it has to wait; 0: it is done, and freed. */
static uint64_t work_do(struct clustering *c, struct clustering_work *work)
{
    struct asking *asking = c->daemon->asking;
    struct query_error wrong;
    struct asked *asked = NULL;
    char why[MESSAGE_REASON_MAX + 1];
    if (work->question && clock_monotonic_ns() > work->question->deadline_ns) {
        finish(c, work, "too late");
        return 0;
    }
    int r = prepare(c, work, &asked, &wrong);
    unsigned needs = r == 0 ? query_needs(asked->query) : 0;
    if (needs & (QUERY_NEEDS_HISTORY | QUERY_NEEDS_MAPPINGS))
        return work_hand_over(c, work, needs);
    if (r == 0) {
        const struct query_table *table = query_table_of(asked->query);
        uint64_t wait_ns = asking_wait(asking, table, &work->turn, work->who);
        if (wait_ns > 0)
            return wait_ns;
        r = asking_run(asking, asked, &work->viewer);
        if (r == -EAGAIN)
            return AGAIN_MS * NS_PER_MS;
    }
    if (r == 0) {
        buffer_reset(&c->scratch);
        r = query_result_trim(asked->result);
        if (r == 0)
            r = query_partial_write(asked->result, &c->scratch);
        asking_done(asked);
        c->daemon->server->figures.queries++;
    }
    if (r < 0)
        snprintf(why, sizeof(why), "%.*s", MESSAGE_REASON_MAX,
                 r == -EINVAL && wrong.text[0] ? wrong.text : strerror(-r));
    finish(c, work, r < 0 ? why : NULL);
    return 0;
}

void clustering_work(struct clustering *c)
{
    uint64_t next = UINT64_MAX;
    struct clustering_work *work, *after;
    for (work = TAILQ_FIRST(&c->works); work; work = after) {
        after = TAILQ_NEXT(work, link);
        uint64_t wait_ns = work_do(c, work);
        if (wait_ns > 0 && wait_ns < next)
            next = wait_ns;
    }
    if (next != UINT64_MAX)
        loop_timer_set(c->timer, next, 0);
}

/* ---- a question of another node ---- */

/* See MESSAGE_QUERY. */
static int body_read(const struct message_ask *ask, struct clustering_work *work)
{
    struct varint_reader in = varint_reader(ask->body, ask->body_len);
    for (size_t i = 0; i < CLUSTERING_WORDS; i++) {
        const uint8_t *end = memchr(in.at, '\0', varint_left(&in));
        if (!end || end - in.at > QUERY_TEXT_MAX)
            return -EBADMSG;
        work->words[i] = strdup((const char *)in.at);
        if (!work->words[i])
            return -ENOMEM;
        in.at = end + 1;
    }
    work->limit = varint_take(&in);
    work->others = varint_take(&in) != 0;
    if (varint_left(&in)) { /* an older version asks about the present only */
        work->window.since_s = varint_take(&in);
        work->window.until_s = varint_take(&in);
        work->window.step_s = varint_take(&in);
    }
    return in.bad ? -EBADMSG : 0;
}

/* Tables whose rows are private as a whole need a right on this node. */
static const char *refusal(const struct clustering_work *work)
{
    const struct query_table *table = query_table_find(work->words[0]);
    bool anonymous = !work->viewer.sees_all && work->viewer.uid == UINT32_MAX;
    if (table && table->private_rows && anonymous)
        return "details of processes need a token of this node, or a node that it trusts";
    return NULL;
}

void clustering_take_query(struct clustering *c, struct cluster_question *question,
                           const struct clustering_rights *rights)
{
    struct clustering_work *work = calloc(1, sizeof(*work));
    int r = work ? 0 : -ENOMEM;
    if (r == 0) {
        TAILQ_INSERT_TAIL(&c->works, work, link);
        work->question = question;
        work->viewer = rights->viewer;
        work->viewer.hasty = true;
        work->who = rights->viewer.uid != UINT32_MAX ? rights->viewer.uid
                                                     : (uint32_t)hash_string(question->asker, 1);
        r = body_read(&question->ask, work);
    }
    const char *why = r == -ENOMEM ? "out of memory" : r < 0 ? "invalid question" : refusal(work);
    if (!why)
        return;
    cluster_refuse(c->cluster, question, why);
    if (work)
        clustering_work_free(c, work);
}
