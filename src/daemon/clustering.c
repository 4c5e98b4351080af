/* memoird in a cluster. See clustering.h. */
#include "daemon/clustering.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/accountable.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/varint.h"
#include "base/version.h"
#include "cluster/bus.h"
#include "daemon/clustering_internal.h"
#include "daemon/clustering_server.h"
#include "daemon/daemon.h"
#include "daemon/loop.h"
#include "daemon/token.h"
#include "daemon/users.h"

enum { PROOF_VALID_S = 30 };

/* ---- what the cluster calls ---- */

static void on_question(void *context, struct cluster_question *question)
{
    struct clustering *c = context;
    struct clustering_rights rights;
    const char *why;
    if (!clustering_rights(c, question, &rights, &why))
        cluster_refuse(c->cluster, question, why);
    else if (question->ask.what == MESSAGE_QUERY)
        clustering_take_query(c, question, &rights);
    else
        clustering_take_call(c, question, &rights);
}

static void ask_forget(struct clustering_ask *ask)
{
    struct clustering *c = ask->clustering;
    struct clustering_work *work, *after;
    for (work = TAILQ_FIRST(&c->works); work; work = after) {
        after = TAILQ_NEXT(work, link);
        if (work->ask == ask)
            clustering_work_free(c, work);
    }
    clustering_past_forget(c, ask);
    cluster_ask_free(ask->out);
    LIST_REMOVE(ask, link);
    if (ask->token)
        explicit_bzero(ask->token, strlen(ask->token));
    free(ask->token);
    free(ask);
}

static void on_done(void *context, struct cluster_ask *out, void *of)
{
    struct clustering_ask *ask = of;
    (void)context;
    ask->done(ask->context, cluster_ask_gather(out));
    ask_forget(ask);
}

/* Any thread. */
static void on_ready(void *context)
{
    struct clustering *c = context;
    loop_wake(c->wake);
}

static void on_wake(void *context)
{
    struct clustering *c = context;
    if (c->cluster)
        cluster_turn(c->cluster);
    clustering_work(c);
}

static void on_timer(void *context)
{
    clustering_work(context);
}

/* ---- asking ---- */

/* See MESSAGE_QUERY. */
static int body_write(const struct query_spec *spec, const struct past_window *window,
                      struct buffer *out)
{
    const char *const words[CLUSTERING_WORDS] = {spec->table, spec->by, spec->where, spec->show,
                                                 spec->sort};
    for (size_t i = 0; i < CLUSTERING_WORDS; i++)
        buffer_append(out, words[i] ? words[i] : "", words[i] ? strlen(words[i]) + 1 : 1);
    varint_put(out, spec->limit);
    varint_put(out, spec->others);
    if (window) {
        varint_put(out, window->since_s);
        varint_put(out, window->until_s);
        varint_put(out, window->step_s);
    }
    return out->error;
}

static int local_work(struct clustering *c, struct clustering_ask *ask, const struct buffer *words,
                      const struct query_spec *spec, const struct past_window *window,
                      const struct asking_viewer *viewer)
{
    struct clustering_work *work = calloc(1, sizeof(*work));
    const char *at = words->data;
    if (!work)
        return -ENOMEM;
    work->ask = ask;
    work->limit = spec->limit;
    work->others = spec->others;
    if (window)
        work->window = *window;
    work->viewer = *viewer;
    work->viewer.hasty = true;
    work->who = viewer->uid;
    TAILQ_INSERT_TAIL(&c->works, work, link);
    for (size_t i = 0; i < CLUSTERING_WORDS; i++) {
        work->words[i] = strdup(at);
        at += strlen(at) + 1;
        if (!work->words[i]) {
            clustering_work_free(c, work);
            return -ENOMEM;
        }
    }
    return 0;
}

int clustering_ask_begin(struct clustering *c, struct cluster_wish *wish,
                         const struct clustering_viewer *viewer, clustering_done *done,
                         void *context, struct clustering_ask **ret_ask)
{
    struct clustering_ask *ask = calloc(1, sizeof(*ask));
    if (!ask || (viewer->token && !(ask->token = strdup(viewer->token)))) {
        query_free(wish->query);
        free(ask);
        return -ENOMEM;
    }
    ask->clustering = c;
    ask->done = done;
    ask->context = context;
    wish->rights = (struct message_rights){
        .user = viewer->user, .expires_ns = clock_real_ns() + PROOF_VALID_S * NS_PER_S};
    wish->sign = clustering_sign;
    wish->sign_context = ask;
    wish->of = ask;
    wish->who = accountable_uid(viewer->local.uid);
    int r = cluster_ask(c->cluster, wish, &ask->out);
    if (r < 0) {
        free(ask->token);
        free(ask);
        return r;
    }
    LIST_INSERT_HEAD(&c->asks, ask, link);
    *ret_ask = ask;
    return 0;
}

int clustering_query(struct clustering *c, const struct query_spec *spec,
                     const struct past_window *window, const char *node,
                     const struct clustering_viewer *viewer, clustering_done *done, void *context,
                     struct clustering_ask **ret_ask, struct query_error *ret_error)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer body = BUFFER_INIT(8 * QUERY_TEXT_MAX);
    struct query *query = NULL;
    struct query_spec limited = *spec;
    if (!c || !c->cluster)
        return -ENOTCONN;
    limited.limit = asking_limit(limited.limit);
    int r = query_new(&limited, &query, ret_error);
    if (r < 0)
        return r;
    r = body_write(&limited, window, &body);
    if (r < 0) {
        query_free(query);
        return r;
    }
    struct clustering_ask *ask;
    struct cluster_wish wish = {.node = node,
                                .what = MESSAGE_QUERY,
                                .query = query,
                                .body = body.data,
                                .body_len = body.len};
    r = clustering_ask_begin(c, &wish, viewer, done, context, &ask);
    if (r < 0)
        return r;
    if (cluster_ask_wants_self(ask->out)) {
        r = local_work(c, ask, &body, &limited, window, &viewer->local);
        if (r < 0)
            cluster_ask_self(ask->out, NULL, 0, "out of memory");
        else
            loop_timer_set(c->timer, 1, 0); /* not now: done() comes later, whatever happens */
    }
    *ret_ask = ask;
    return 0;
}

void clustering_drop(struct clustering_ask *ask)
{
    if (ask)
        ask_forget(ask);
}

const char *clustering_error(int error)
{
    switch (error) {
    case -ENOTCONN:
        return "this memoird is in no cluster: start one by 'memoir cluster init', or join one by "
               "'memoir cluster join'";
    case -ENOENT:
        return "there is no such node: 'memoir cluster status' lists them";
    case -ENOTUNIQ:
        return "several nodes have this name: use the one that 'memoir cluster status' shows";
    case -ELOOP:
        return "that is this node: ask it directly";
    case -EUSERS:
        return "you have too many questions to the cluster open: wait for their answers";
    case -EBUSY:
        return "too many questions to the cluster are open: try again";
    default:
        return strerror(-error);
    }
}

/* ---- looking ---- */

struct cluster *clustering_cluster(const struct clustering *c)
{
    return c ? c->cluster : NULL;
}

const char *clustering_node_name(const struct clustering *c)
{
    return c && c->settings.name && c->settings.name[0] ? c->settings.name : NULL;
}

static void member_json(const struct member *m, uint64_t now, struct json *json)
{
    char label[MEMBER_LABEL_MAX], time[QUERY_TIME_TEXT_MAX];
    json_object_begin(json);
    json_field_string(json, "node", member_label(m, label));
    json_field_string(json, "name", m->name);
    json_field_string(json, "id", m->id);
    json_field_bool(json, "self", m->self);
    json_field_string(json, "state", member_state_word(m->state));
    json_field_double(json, "state_age", (double)((now - m->since_ns) / NS_PER_MS) / 1000);
    json_field_string(json, "version", m->version);
    json_field_string(json, "started", query_time_text(time, m->started_ns));
    if (m->self)
        json_field_double(json, "heard_age", 0);
    else
        json_field_double(json, "heard_age", (double)((now - m->heard_ns) / NS_PER_MS) / 1000);
    json_key(json, "answered_age");
    if (m->answered_ns)
        json_double(json, (double)((now - m->answered_ns) / NS_PER_MS) / 1000);
    else
        json_null(json);
    json_key(json, "answer_took");
    if (m->answered_ns)
        json_double(json, (double)(m->answer_took_ns / 1000) / 1e6);
    else
        json_null(json);
    json_field_u64(json, "answers", m->answers);
    json_field_u64(json, "unanswered", m->missed);
    json_field_u64(json, "rejected", m->rejected);
    json_field_double(json, "clock_offset",
                      (double)(m->clock_offset_ns / (int64_t)NS_PER_MS) / 1000);
    json_object_end(json);
}

static void figures_json(const struct cluster_figures *f, struct json *json)
{
    json_key(json, "figures");
    json_object_begin(json);
    json_field_u64(json, "asked", f->asked);
    json_field_u64(json, "questions", f->questions);
    json_field_u64(json, "answers", f->answers);
    json_field_u64(json, "refused", f->refused);
    json_field_u64(json, "messages", f->messages);
    json_field_u64(json, "rejected", f->rejected);
    json_field_u64(json, "late", f->late);
    json_field_u64(json, "dropped", f->dropped);
    json_object_end(json);
}

void clustering_json(struct clustering *c, struct json *json)
{
    static const char *const states[] = {"connecting", "connected", "closed"};
    char why[BUS_WHY_MAX], server[CLUSTER_URL_MAX], key[SIGN_KEY_CHARS + 1];
    struct member *members = NULL;
    size_t n = 0;
    uint64_t now = clock_monotonic_ns();
    if (!c || !c->cluster) {
        json_field_string(json, "state", "none");
        json_field_string(json, "problem", clustering_error(-ENOTCONN));
        json_key(json, "members");
        json_array_begin(json);
        json_array_end(json);
        return;
    }
    enum bus_state state = cluster_state(c->cluster, why, server);
    json_field_string(json, "state", states[state]);
    json_field_string(json, "problem", state == BUS_UP || !why[0] ? NULL : why);
    json_field_string(json, "server", server[0] ? server : NULL);
    json_field_string(json, "self", c->settings.id);
    json_field_string(json, "name", c->settings.name);
    if (c->has_key)
        sign_key_text(c->key.public, key);
    json_field_string(json, "key", c->has_key ? key : NULL);
    json_key(json, "members");
    json_array_begin(json);
    if (cluster_members(c->cluster, &members, &n) == 0)
        for (size_t i = 0; i < n; i++)
            member_json(&members[i], now, json);
    json_array_end(json);
    free(members);
    struct cluster_figures figures = cluster_figures(c->cluster);
    figures_json(&figures, json);
}

/* ---- life ---- */

static int cluster_start(struct clustering *c)
{
    const struct clustering_settings *s = &c->settings;
    char name[128];
    snprintf(name, sizeof(name), "memoird %s", s->name);
    return cluster_new(
        &(struct cluster_options){
            .bus = {.urls = s->urls,
                    .name = name,
                    .user = s->user,
                    .password = s->password,
                    .nkey_file = s->nkey,
                    .creds_file = s->creds,
                    .tls_ca = s->tls_ca,
                    .tls_cert = s->tls_cert,
                    .tls_key = s->tls_key},
            .id = s->id,
            .name = s->name,
            .version = MEMOIR_VERSION,
            .started_ns = clock_real_ns(),
            .wake = on_ready,
            .question = on_question,
            .done = on_done,
            .context = c,
        },
        &c->cluster);
}

/* Without tokens all that ask get totals only. */
static void tokens_open(struct clustering *c)
{
    const struct daemon *daemon = c->daemon;
    MEMOIR_CLEANUP(freep)
    char *path = NULL;
    if (asprintf(&path, "%s/tokens", daemon->state_path) < 0)
        path = NULL;
    if (path)
        (void)tokens_watch(daemon->config.token_file[0] ? daemon->config.token_file : path,
                           &c->tokens);
}

/* What the settings say: the server that we run, and the cluster. */
static int settings_apply(struct clustering *c)
{
    bool some = false;
    int r = clustering_settings_read(c->daemon, &c->settings, &some);
    if (r >= 0 && some && c->settings.server[0])
        r = clustering_server_new(c->daemon, &c->server);
    if (r < 0 || !some)
        return r;
    if (!c->has_key)
        c->has_key = clustering_key_load(c->daemon->state_path, &c->key) >= 0;
    return cluster_start(c);
}

int clustering_reload(struct clustering *c)
{
    struct clustering_settings before = c->settings, now;
    bool some = false;
    int r = clustering_settings_read(c->daemon, &now, &some);
    if (r < 0)
        return r;
    bool same = c->cluster && some && clustering_settings_same(&before, &now);
    if (same) { /* another account or another list of trusted nodes, perhaps */
        c->settings.trust = now.trust;
        now.trust = before.trust;
        clustering_server_reload(c->server);
    }
    clustering_settings_release(&now);
    if (same)
        return 0;
    clustering_stop(c);
    clustering_settings_release(&c->settings);
    return settings_apply(c);
}

int clustering_new(struct daemon *daemon, struct clustering **ret_clustering)
{
    struct clustering *c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->daemon = daemon;
    c->begun_ns = clock_real_ns();
    TAILQ_INIT(&c->works);
    LIST_INIT(&c->asks);
    LIST_INIT(&c->visits);
    LIST_INIT(&c->pasts);
    pthread_mutex_init(&c->visits_lock, NULL);
    buffer_init(&c->scratch, GATHER_REPLY_MAX);
    int r = users_new(&c->users);
    if (r >= 0)
        r = loop_add_wake(daemon->loop, on_wake, c, &c->wake);
    if (r >= 0)
        r = loop_add_timer(daemon->loop, on_timer, c, &c->timer);
    if (r >= 0)
        tokens_open(c);
    if (r >= 0)
        r = settings_apply(c);
    if (r < 0) {
        clustering_free(c);
        return r;
    }
    *ret_clustering = c;
    return 0;
}

void clustering_stop(struct clustering *c)
{
    struct clustering_ask *ask;
    struct clustering_work *work;
    if (!c)
        return;
    while ((ask = LIST_FIRST(&c->asks)) != NULL) {
        ask->done(ask->context, NULL);
        ask_forget(ask);
    }
    while ((work = TAILQ_FIRST(&c->works)) != NULL) {
        if (work->question)
            cluster_refuse(c->cluster, work->question, "memoird exits");
        clustering_work_free(c, work);
    }
    clustering_calls_stop(c);
    clustering_past_stop(c);
    cluster_free(c->cluster);
    c->cluster = NULL;
    clustering_server_free(c->server);
    c->server = NULL;
}

void clustering_free(struct clustering *c)
{
    if (!c)
        return;
    clustering_stop(c);
    loop_source_free(c->wake);
    loop_source_free(c->timer);
    tokens_free(c->tokens);
    users_free(c->users);
    clustering_settings_release(&c->settings);
    buffer_release(&c->scratch);
    pthread_mutex_destroy(&c->visits_lock);
    free(c);
}
