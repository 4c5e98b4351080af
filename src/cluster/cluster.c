/* The owner's side of the cluster. See cluster.h. */
#include "cluster/cluster.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "cluster/internal.h"
#include "query/query.h"

enum { ANSWER_MAX = GATHER_REPLY_MAX, BODY_MAX = 256 << 10 };

/* ---- life ---- */

static int texts_copy(struct cluster *c)
{
    struct bus_options *b = &c->options.bus;
    const char **texts[] = {&b->urls,       &b->name,   &b->user,     &b->password, &b->nkey_file,
                            &b->creds_file, &b->tls_ca, &b->tls_cert, &b->tls_key};
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        c->texts[i] = strdup(*texts[i] ? *texts[i] : "");
        if (!c->texts[i])
            return -ENOMEM;
        *texts[i] = c->texts[i];
    }
    return 0;
}

static void lists_init(struct cluster *c)
{
    STAILQ_INIT(&c->inbox);
    STAILQ_INIT(&c->asks_new);
    STAILQ_INIT(&c->asks_done);
    STAILQ_INIT(&c->questions_ready);
    STAILQ_INIT(&c->questions_answered);
    TAILQ_INIT(&c->out);
    LIST_INIT(&c->open);
    buffer_init(&c->scratch, MESSAGE_MAX + 4096);
}

int cluster_new(const struct cluster_options *options, struct cluster **ret_cluster)
{
    struct cluster *c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->options = *options;
    lists_init(c);
    snprintf(c->id, sizeof(c->id), "%s", options->id);
    snprintf(c->name, sizeof(c->name), "%s", options->name);
    snprintf(c->version, sizeof(c->version), "%s", options->version);
    c->options.bus.heard = cluster_heard;
    c->options.bus.changed = cluster_changed;
    c->options.bus.context = c;
    int r = texts_copy(c);
    if (r >= 0)
        r = members_new(&c->members);
    if (r >= 0)
        r = members_add_self(c->members, c->id, c->name, c->version, options->started_ns,
                             clock_monotonic_ns());
    if (r >= 0)
        r = worker_start(&c->worker, "memoird-cluster", 0, cluster_thread_run, c);
    if (r < 0) {
        cluster_free(c);
        return r;
    }
    *ret_cluster = c;
    return 0;
}

void cluster_free(struct cluster *c)
{
    if (!c)
        return;
    worker_stop(&c->worker);
    struct letter *letter;
    while ((letter = STAILQ_FIRST(&c->inbox)) != NULL) {
        STAILQ_REMOVE_HEAD(&c->inbox, link);
        free(letter);
    }
    struct question_box *box;
    while ((box = LIST_FIRST(&c->open)) != NULL) {
        LIST_REMOVE(box, open_link);
        question_box_free(box);
    }
    struct cluster_ask *ask;
    while ((ask = TAILQ_FIRST(&c->out)) != NULL) {
        TAILQ_REMOVE(&c->out, ask, link);
        ask_free(ask);
    }
    while ((ask = STAILQ_FIRST(&c->asks_new)) != NULL) {
        STAILQ_REMOVE_HEAD(&c->asks_new, way_link);
        ask_free(ask);
    }
    while ((ask = STAILQ_FIRST(&c->asks_done)) != NULL) {
        STAILQ_REMOVE_HEAD(&c->asks_done, way_link);
        ask_free(ask);
    }
    members_free(c->members);
    for (size_t i = 0; i < sizeof(c->texts) / sizeof(*c->texts); i++) {
        if (c->texts[i])
            explicit_bzero(c->texts[i], strlen(c->texts[i])); /* one is a password */
        free(c->texts[i]);
    }
    buffer_release(&c->scratch);
    free(c);
}

/* ---- asking ---- */

void ask_free(struct cluster_ask *ask)
{
    gather_free(ask->gather);
    buffer_release(&ask->body);
    buffer_release(&ask->own);
    free(ask);
}

/* Locked: adds the nodes whose answers are expected. */
static int expect(struct cluster *c, struct cluster_ask *ask, const struct cluster_wish *wish)
{
    uint64_t now = clock_monotonic_ns();
    size_t n;
    const struct member *list = members_list(c->members, &n);
    for (size_t i = 0; i < n; i++) {
        const struct member *m = &list[i];
        if (ask->target[0] ? strcmp(m->id, ask->target) != 0 : m->state == MEMBER_LEFT)
            continue;
        if (m->self && wish->others_only)
            continue;
        ask->wants_self |= m->self;
        ask->others |= !m->self;
        int r = gather_expect(ask->gather, m, now);
        if (r < 0)
            return r;
    }
    if (ask->wants_self)
        (void)gather_ack(ask->gather, c->id);
    return 0;
}

static int ask_make(struct cluster_wish *wish, struct cluster_ask **ret_ask)
{
    struct cluster_ask *ask = calloc(1, sizeof(*ask));
    struct query *query = wish->query;
    wish->query = NULL;
    if (!ask) {
        query_free(query);
        return -ENOMEM;
    }
    buffer_init(&ask->body, BODY_MAX);
    buffer_init(&ask->own, ANSWER_MAX);
    uint64_t deadline_ns = wish->deadline_ns ? wish->deadline_ns : GATHER_DEADLINE_MS * NS_PER_MS;
    struct gather_options options = {
        .query = query, .now_ns = clock_monotonic_ns(), .deadline_ns = deadline_ns};
    int r = getrandom(&options.nonce, sizeof(options.nonce), GRND_NONBLOCK) == sizeof(options.nonce)
                ? 0
                : -EAGAIN;
    if (r == 0)
        r = gather_new(&options, &ask->gather);
    else
        query_free(query);
    if (r == 0)
        r = buffer_append(&ask->body, wish->body, wish->body_len);
    if (r < 0) {
        ask_free(ask);
        return r;
    }
    snprintf(ask->user, sizeof(ask->user), "%s", wish->rights.user ? wish->rights.user : "");
    ask->of = wish->of;
    ask->ask = (struct message_ask){
        .nonce = options.nonce,
        .deadline_ms = (uint32_t)(deadline_ns / NS_PER_MS),
        .what = wish->what,
        .rights = {.user = ask->user, .expires_ns = wish->rights.expires_ns},
        .body = (const uint8_t *)buffer_string(&ask->body),
        .body_len = ask->body.len,
    };
    *ret_ask = ask;
    return 0;
}

int cluster_find(struct cluster *c, const char *word, char ret_id[static SUBJECT_ID_CHARS + 1],
                 bool *ret_self)
{
    bool several = false;
    worker_lock(&c->worker);
    const struct member *m = members_named(c->members, word, &several);
    if (m && !several) {
        memcpy(ret_id, m->id, SUBJECT_ID_CHARS + 1);
        *ret_self = m->self;
    }
    worker_unlock(&c->worker);
    return !m ? -ENOENT : several ? -ENOTUNIQ : 0;
}

/* ---- how many may be out; locked ---- */

/* Half of what others leave: one user cannot take all, and a user who is alone has enough. */
static int asks_take(struct cluster *c, uint32_t who)
{
    size_t at = 0, unused = CLUSTER_ASKS_MAX;
    while (at < CLUSTER_ASKS_MAX && !(c->askers[at].n && c->askers[at].who == who)) {
        if (!c->askers[at].n && unused == CLUSTER_ASKS_MAX)
            unused = at;
        at++;
    }
    size_t own = at < CLUSTER_ASKS_MAX ? c->askers[at].n : 0;
    if (c->asks_n >= CLUSTER_ASKS_MAX)
        return -EBUSY;
    if (own >= (CLUSTER_ASKS_MAX - (c->asks_n - own) + 1) / 2)
        return -EUSERS;
    if (at == CLUSTER_ASKS_MAX) { /* there is a place: each that is used has a question */
        at = unused;
        c->askers[at].who = who;
    }
    c->askers[at].n++;
    c->asks_n++;
    return 0;
}

void asks_give_back(struct cluster *c, const struct cluster_ask *ask)
{
    size_t at = 0;
    while (at < CLUSTER_ASKS_MAX && !(c->askers[at].n && c->askers[at].who == ask->who))
        at++;
    if (at < CLUSTER_ASKS_MAX)
        c->askers[at].n--;
    c->asks_n--;
}

int cluster_ask(struct cluster *c, struct cluster_wish *wish, struct cluster_ask **ret_ask)
{
    struct cluster_ask *ask = NULL;
    char target[SUBJECT_ID_CHARS + 1] = "";
    bool self = false;
    int r = wish->node ? cluster_find(c, wish->node, target, &self) : 0;
    if (r < 0) {
        query_free(wish->query);
        wish->query = NULL;
        return r;
    }
    r = ask_make(wish, &ask);
    if (r < 0)
        return r;
    ask->cluster = c;
    ask->who = wish->who;
    memcpy(ask->target, target, sizeof(target));
    if (wish->sign)
        wish->sign(wish->sign_context, &ask->ask, target, &ask->proof);
    ask->ask.rights.key = ask->proof.has_mac ? ask->proof.key : NULL;
    ask->ask.rights.mac = ask->proof.has_mac ? ask->proof.mac : NULL;
    ask->ask.rights.signature = ask->proof.has_signature ? ask->proof.signature : NULL;
    worker_lock(&c->worker);
    r = asks_take(c, ask->who);
    if (r == 0 && (r = expect(c, ask, wish)) < 0)
        asks_give_back(c, ask);
    if (r >= 0) {
        c->figures.asked++;
        STAILQ_INSERT_TAIL(&c->asks_new, ask, way_link);
        worker_wake(&c->worker);
    }
    worker_unlock(&c->worker);
    if (r < 0) {
        ask_free(ask);
        return r;
    }
    *ret_ask = ask;
    return 0;
}

bool cluster_ask_wants_self(const struct cluster_ask *ask)
{
    return ask->wants_self;
}

void cluster_ask_self(struct cluster_ask *ask, const void *bytes, size_t len, const char *why)
{
    struct cluster *c = ask->cluster;
    worker_lock(&c->worker);
    if (!bytes || buffer_append(&ask->own, bytes, len) < 0)
        snprintf(ask->own_why, sizeof(ask->own_why), "%s", bytes ? "no memory" : why);
    ask->has_self = true;
    c->self_came = true;
    worker_wake(&c->worker);
    worker_unlock(&c->worker);
}

struct gather *cluster_ask_gather(struct cluster_ask *ask)
{
    return ask->gather;
}

void cluster_ask_free(struct cluster_ask *ask)
{
    if (!ask)
        return;
    struct cluster *c = ask->cluster;
    worker_lock(&c->worker);
    bool done = ask->done;
    struct cluster_ask *ready;
    /* One that is done may still wait for cluster_turn(). */
    STAILQ_FOREACH(ready, &c->asks_done, way_link)
    {
        if (ready == ask) {
            STAILQ_REMOVE(&c->asks_done, ask, cluster_ask, way_link);
            break;
        }
    }
    ask->dropped = true;
    if (done)
        asks_give_back(c, ask);
    worker_wake(&c->worker);
    worker_unlock(&c->worker);
    if (done)
        ask_free(ask);
}

/* ---- answering ---- */

static void hand_over(struct cluster *c, struct question_box *box)
{
    worker_lock(&c->worker);
    STAILQ_INSERT_TAIL(&c->questions_answered, box, link);
    worker_wake(&c->worker);
    worker_unlock(&c->worker);
}

void cluster_answer(struct cluster *c, struct cluster_question *question, const void *bytes,
                    size_t len)
{
    struct question_box *box = (struct question_box *)question;
    int r = buffer_append(&box->out, bytes, len);
    if (r < 0)
        snprintf(box->refused, sizeof(box->refused), "%s",
                 r == -ENOBUFS ? "the answer is too large: group with 'by', or set 'limit'"
                               : "out of memory");
    hand_over(c, box);
}

void cluster_refuse(struct cluster *c, struct cluster_question *question, const char *reason)
{
    struct question_box *box = (struct question_box *)question;
    snprintf(box->refused, sizeof(box->refused), "%s", reason);
    hand_over(c, box);
}

void cluster_turn(struct cluster *c)
{
    struct question_boxes questions;
    STAILQ_INIT(&questions);
    worker_lock(&c->worker);
    STAILQ_CONCAT(&questions, &c->questions_ready);
    worker_unlock(&c->worker);
    struct question_box *box;
    while ((box = STAILQ_FIRST(&questions)) != NULL) {
        STAILQ_REMOVE_HEAD(&questions, link);
        c->options.question(c->options.context, &box->question);
    }
    /* One at a time: done() may free others. */
    for (;;) {
        worker_lock(&c->worker);
        struct cluster_ask *ask = STAILQ_FIRST(&c->asks_done);
        if (ask)
            STAILQ_REMOVE_HEAD(&c->asks_done, way_link);
        worker_unlock(&c->worker);
        if (!ask)
            return;
        c->options.done(c->options.context, ask, ask->of);
    }
}

/* ---- looking ---- */

int cluster_members(struct cluster *c, struct member **ret_members, size_t *ret_n)
{
    size_t n;
    worker_lock(&c->worker);
    const struct member *list = members_list(c->members, &n);
    struct member *copy = malloc((n ? n : 1) * sizeof(*copy));
    if (copy)
        memcpy(copy, list, n * sizeof(*copy));
    worker_unlock(&c->worker);
    if (!copy)
        return -ENOMEM;
    *ret_members = copy;
    *ret_n = n;
    return 0;
}

struct cluster_figures cluster_figures(struct cluster *c)
{
    worker_lock(&c->worker);
    struct cluster_figures figures = c->figures;
    worker_unlock(&c->worker);
    return figures;
}

enum bus_state cluster_state(struct cluster *c, char ret_why[static BUS_WHY_MAX],
                             char ret_server[static CLUSTER_URL_MAX])
{
    enum bus_state state = BUS_CONNECTING;
    worker_lock(&c->worker);
    memcpy(ret_server, c->server, CLUSTER_URL_MAX);
    if (c->bus) {
        state = bus_state(c->bus);
        bus_why(c->bus, ret_why);
    } else {
        memcpy(ret_why, c->why, BUS_WHY_MAX);
    }
    worker_unlock(&c->worker);
    return state;
}

const char *cluster_id(const struct cluster *c)
{
    return c->id;
}

const char *cluster_name(const struct cluster *c)
{
    return c->name;
}
