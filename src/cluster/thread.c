/* The cluster's thread: the connection, questions that are out and questions that came. Heartbeats: presence.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "cluster/internal.h"
#include "query/query.h"

enum {
    INBOX_MAX = 65536, /* messages that wait for the thread; further ones are dropped and counted */
    INBOX_BYTES = 64 << 20, /* the same, in bytes */
    PART_OVERHEAD = 128,
    GOODBYE_MS = 500,
    DROPPED_LOOK_MS = 2000,
};

/* ---- what libnats's threads call ---- */

void cluster_heard(void *context, const char *subject, const char *reply, const void *data,
                   size_t len)
{
    struct cluster *c = context;
    if (len > MESSAGE_MAX + PART_OVERHEAD || strlen(subject) >= SUBJECT_MAX ||
        (reply && strlen(reply) >= SUBJECT_MAX)) {
        worker_lock(&c->worker);
        c->figures.rejected++;
        worker_unlock(&c->worker);
        return;
    }
    struct letter *letter = malloc(sizeof(*letter) + len);
    if (letter) {
        snprintf(letter->subject, sizeof(letter->subject), "%s", subject);
        snprintf(letter->reply, sizeof(letter->reply), "%s", reply ? reply : "");
        letter->len = len;
        if (len)
            memcpy(letter->data, data, len);
    }
    worker_lock(&c->worker);
    c->figures.messages++;
    if (!letter || c->inbox_n >= INBOX_MAX || c->inbox_bytes + len > INBOX_BYTES) {
        c->inbox_dropped++;
        c->figures.dropped++;
        free(letter);
    } else {
        STAILQ_INSERT_TAIL(&c->inbox, letter, link);
        c->inbox_bytes += len;
        if (c->inbox_n++ == 0)
            worker_wake(&c->worker);
    }
    worker_unlock(&c->worker);
}

void cluster_changed(void *context)
{
    struct cluster *c = context;
    worker_lock(&c->worker);
    worker_wake(&c->worker);
    worker_unlock(&c->worker);
}

/* ---- sending ---- */

int cluster_send(struct cluster *c, const char *word, const char *target,
                 const struct buffer *message)
{
    char subject[SUBJECT_MAX];
    if (message->error || !c->bus)
        return -ENOTCONN;
    if (target)
        snprintf(subject, sizeof(subject), SUBJECT_PREFIX "%s.%s.%s", word, target, c->id);
    else
        snprintf(subject, sizeof(subject), SUBJECT_PREFIX "%s.%s", word, c->id);
    return bus_publish(c->bus, subject, message->data, message->len);
}

struct buffer *cluster_scratch(struct cluster *c)
{
    buffer_reset(&c->scratch);
    return &c->scratch;
}

/* ---- questions of others ---- */

void question_box_free(struct question_box *box)
{
    buffer_release(&box->out);
    free(box->letter);
    free(box);
}

static void send_refuse(struct cluster *c, const char *target, const struct message_nonce *nonce,
                        const char *reason)
{
    struct buffer *out = cluster_scratch(c);
    message_write_refuse(&(struct message_refuse){*nonce, reason}, out);
    (void)cluster_send(c, "re", target, out);
}

static size_t waiting_of(const struct cluster *c, const char *asker)
{
    const struct question_box *box;
    size_t n = 0;
    LIST_FOREACH(box, &c->open, open_link)
    n += strcmp(box->question.asker, asker) == 0;
    return n;
}

static void rejected(struct cluster *c)
{
    worker_lock(&c->worker);
    c->figures.rejected++;
    worker_unlock(&c->worker);
}

/* Takes the letter. */
static void take_question(struct cluster *c, struct letter *letter, const char *sender,
                          const struct message *message)
{
    const char *why =
        message->ask.what != MESSAGE_QUERY && message->ask.what != MESSAGE_CALL
            ? "another version of Memoir is needed for this question"
        : c->open_n >= CLUSTER_QUESTIONS_MAX || waiting_of(c, sender) >= CLUSTER_SPEAKER_WAITING
            ? "busy: too many questions wait"
            : NULL;
    struct question_box *box = why ? NULL : calloc(1, sizeof(*box));
    worker_lock(&c->worker);
    c->figures.questions++;
    c->figures.refused += !box;
    const struct member *m = members_find(c->members, sender);
    if (box && m)
        member_label(m, box->question.asker_label);
    worker_unlock(&c->worker);
    if (!box) {
        send_refuse(c, sender, &message->ask.nonce, why ? why : "out of memory");
        free(letter);
        return;
    }
    box->letter = letter;
    (void)message_read(letter->data, letter->len, &box->message); /* borrows from the letter */
    struct cluster_question *q = &box->question;
    memcpy(q->asker, sender, sizeof(q->asker));
    if (!q->asker_label[0])
        snprintf(q->asker_label, sizeof(q->asker_label), "%.8s", sender);
    q->to_all = subject_starts(letter->subject, "ask");
    q->ask = box->message.ask;
    q->came_ns = clock_monotonic_ns();
    q->deadline_ns = q->came_ns + q->ask.deadline_ms * NS_PER_MS;
    box->ack_ns = q->came_ns + CLUSTER_ACK_MS * NS_PER_MS;
    buffer_init(&box->out, GATHER_REPLY_MAX);
    LIST_INSERT_HEAD(&c->open, box, open_link);
    c->open_n++;
    worker_lock(&c->worker);
    STAILQ_INSERT_TAIL(&c->questions_ready, box, link);
    worker_unlock(&c->worker);
    c->options.wake(c->options.context);
}

static void send_acks(struct cluster *c, uint64_t now)
{
    struct question_box *box;
    LIST_FOREACH(box, &c->open, open_link)
    {
        if (box->acked || box->ack_ns > now)
            continue;
        struct buffer *out = cluster_scratch(c);
        message_write_ack(&box->question.ask.nonce, out);
        (void)cluster_send(c, "re", box->question.asker, out);
        box->acked = true;
    }
}

static int send_parts(struct cluster *c, const struct question_box *box)
{
    size_t room = MESSAGE_MAX - PART_OVERHEAD, len = box->out.len;
    uint32_t parts = len ? (uint32_t)((len + room - 1) / room) : 1;
    int r = parts > MESSAGE_PARTS_MAX ? -EMSGSIZE : 0;
    for (uint32_t part = 0; part < parts && r == 0; part++) {
        size_t at = part * room, n = len - at < room ? len - at : room;
        struct buffer *out = cluster_scratch(c);
        message_write_reply(
            &(struct message_reply){
                .nonce = box->question.ask.nonce,
                .part = part,
                .parts = parts,
                .body = (const uint8_t *)buffer_string(&box->out) + at,
                .body_len = n,
            },
            out);
        r = cluster_send(c, "re", box->question.asker, out);
    }
    return r;
}

static void send_answer(struct cluster *c, struct question_box *box)
{
    const struct cluster_question *q = &box->question;
    int r = box->refused[0] ? 0 : send_parts(c, box);
    if (r == -EMSGSIZE)
        snprintf(box->refused, sizeof(box->refused),
                 "the answer is too large: group with 'by', or set 'limit'");
    if (box->refused[0])
        send_refuse(c, q->asker, &q->ask.nonce, box->refused);
    c->busy_ns += clock_monotonic_ns() - q->came_ns;
    worker_lock(&c->worker);
    c->figures.refused += box->refused[0] != '\0';
    c->figures.answers += !box->refused[0];
    worker_unlock(&c->worker);
    LIST_REMOVE(box, open_link);
    c->open_n--;
    question_box_free(box);
}

/* ---- our own questions ---- */

static void send_ask(struct cluster *c, struct cluster_ask *ask)
{
    char why[BUS_WHY_MAX] = "no connection to the cluster's server", last[BUS_WHY_MAX];
    struct buffer *out = cluster_scratch(c);
    message_write_ask(&ask->ask, out);
    int r =
        cluster_send(c, ask->target[0] ? "to" : "ask", ask->target[0] ? ask->target : NULL, out);
    if (r == 0)
        return;
    if (r == -EMSGSIZE || out->error == -ENOBUFS)
        snprintf(why, sizeof(why), "the question is too large");
    else if (c->bus && bus_why(c->bus, last)[0])
        snprintf(why, sizeof(why), "no connection to the cluster's server: %.200s", last);
    gather_unsent(ask->gather, c->id, why);
}

static struct cluster_ask *ask_find(struct cluster *c, const struct message_nonce *nonce)
{
    struct cluster_ask *ask;
    TAILQ_FOREACH(ask, &c->out, link)
    if (message_nonce_equal(gather_nonce(ask->gather), nonce))
        return ask;
    return NULL;
}

/* Locked: what the members did this time. */
static void members_learn(struct cluster *c, const struct gather *gather, uint64_t now)
{
    size_t n;
    const struct gather_node *nodes = gather_nodes(gather, &n);
    for (size_t i = 0; i < n; i++) {
        struct member *m = members_find(c->members, nodes[i].id);
        if (!m)
            continue;
        m->rejected += nodes[i].rejected;
        if (nodes[i].state == GATHER_ANSWERED) {
            m->answers++;
            m->answered_ns = now;
            m->answer_took_ns = nodes[i].took_ns;
        } else if (nodes[i].state == GATHER_MISSING) {
            m->missed++;
        }
    }
}

static void ask_done(struct cluster *c, struct cluster_ask *ask, uint64_t now)
{
    (void)gather_finish(ask->gather);
    TAILQ_REMOVE(&c->out, ask, link);
    worker_lock(&c->worker);
    members_learn(c, ask->gather, now);
    bool dropped = ask->dropped;
    if (dropped) {
        asks_give_back(c, ask);
    } else {
        ask->done = true;
        STAILQ_INSERT_TAIL(&c->asks_done, ask, way_link);
    }
    worker_unlock(&c->worker);
    if (dropped)
        ask_free(ask);
    else
        c->options.wake(c->options.context);
}

/* The own part, once the owner has given it. */
static void take_self(struct cluster *c, struct cluster_ask *ask, uint64_t now)
{
    worker_lock(&c->worker);
    bool ready = ask->has_self && !ask->self_taken;
    ask->self_taken |= ready;
    worker_unlock(&c->worker);
    if (!ready)
        return;
    if (ask->own_why[0])
        (void)gather_refuse(ask->gather, c->id, ask->own_why);
    else
        (void)gather_reply(ask->gather, c->id,
                           &(struct message_reply){
                               .parts = 1,
                               .body = (const uint8_t *)buffer_string(&ask->own),
                               .body_len = ask->own.len,
                           },
                           now);
}

/* When the next of them has to be looked at. */
static uint64_t asks_tick(struct cluster *c, bool self_came, uint64_t now)
{
    uint64_t next = UINT64_MAX, due;
    struct cluster_ask *ask, *after;
    for (ask = TAILQ_FIRST(&c->out); ask; ask = after) {
        after = TAILQ_NEXT(ask, link);
        if (self_came)
            take_self(c, ask, now);
        if (gather_tick(ask->gather, now, &due))
            ask_done(c, ask, now);
        else if (due < next)
            next = due;
    }
    return next;
}

/* ---- what came ---- */

static void take_return(struct cluster *c, const char *sender, const struct message *message,
                        uint64_t now)
{
    const struct message_nonce *nonce = message->kind == MESSAGE_ACK     ? &message->ack
                                        : message->kind == MESSAGE_REPLY ? &message->reply.nonce
                                                                         : &message->refuse.nonce;
    struct cluster_ask *ask = ask_find(c, nonce);
    bool used = false;
    if (ask && message->kind == MESSAGE_ACK)
        used = gather_ack(ask->gather, sender);
    else if (ask && message->kind == MESSAGE_REPLY)
        used = gather_reply(ask->gather, sender, &message->reply, now);
    else if (ask)
        used = gather_refuse(ask->gather, sender, message->refuse.reason);
    if (used || (ask && message->kind == MESSAGE_ACK))
        return;
    worker_lock(&c->worker);
    c->figures.late++;
    worker_unlock(&c->worker);
}

static void take_service(struct cluster *c, const struct letter *letter, uint64_t now)
{
    char id[SUBJECT_ID_CHARS + 1];
    if (strncmp(letter->subject, "$SYS.", 5) == 0) {
        if (service_disconnected(letter->data, letter->len, id))
            presence_bye(c, id, true, now);
        return;
    }
    struct buffer *out = cluster_scratch(c);
    if (strncmp(letter->reply, SUBJECT_PREFIX, strlen(SUBJECT_PREFIX)) == 0)
        rejected(c); /* we would speak there as ourselves, in words of another's choice */
    else if (service_answer(c, letter->subject, out) && out->len && letter->reply[0] && c->bus)
        (void)bus_publish(c->bus, letter->reply, out->data, out->len);
}

/* Which kinds of messages a subject carries. */
static bool belongs(const char *subject, enum message_kind kind)
{
    if (subject_starts(subject, "beat"))
        return kind == MESSAGE_HELLO || kind == MESSAGE_BYE || kind == MESSAGE_LOST;
    if (subject_starts(subject, "ask"))
        return kind == MESSAGE_ASK;
    if (subject_starts(subject, "to"))
        return kind == MESSAGE_ASK || kind == MESSAGE_HELLO;
    return subject_starts(subject, "re") &&
           (kind == MESSAGE_ACK || kind == MESSAGE_REPLY || kind == MESSAGE_REFUSE);
}

static void take_letter(struct cluster *c, struct letter *letter, uint64_t now)
{
    char sender[SUBJECT_ID_CHARS + 1];
    struct message message;
    if (letter->subject[0] == '$') {
        take_service(c, letter, now);
        free(letter);
        return;
    }
    int r = subject_sender(letter->subject, sender)
                ? message_read(letter->data, letter->len, &message)
                : -EBADMSG;
    if (r < 0 || !belongs(letter->subject, message.kind) || strcmp(sender, c->id) == 0) {
        rejected(c);
        free(letter);
        return;
    }
    switch (message.kind) {
    case MESSAGE_HELLO:
        presence_hello(c, sender, &message.hello, now);
        break;
    case MESSAGE_BYE:
        presence_bye(c, sender, false, now);
        break;
    case MESSAGE_LOST:
        presence_lost(c, message.lost, now);
        break;
    case MESSAGE_ASK:
        take_question(c, letter, sender, &message);
        return;
    case MESSAGE_ACK:
    case MESSAGE_REPLY:
    case MESSAGE_REFUSE:
        take_return(c, sender, &message, now);
        break;
    }
    free(letter);
}

/* ---- the connection ---- */

static int subscribe(struct cluster *c, struct bus *bus)
{
    char own_to[SUBJECT_MAX], own_re[SUBJECT_MAX], own_service[SUBJECT_MAX];
    snprintf(own_to, sizeof(own_to), SUBJECT_PREFIX "to.%s.*", c->id);
    snprintf(own_re, sizeof(own_re), SUBJECT_PREFIX "re.%s.*", c->id);
    snprintf(own_service, sizeof(own_service), "$SRV.*.memoir.%s", c->id);
    const char *const subjects[] = {
        SUBJECT_PREFIX "beat.*",
        SUBJECT_PREFIX "ask.*",
        own_to,
        own_re,
        "$SRV.*",
        "$SRV.*.memoir",
        own_service,
        "$SYS.ACCOUNT.*.DISCONNECT",
    };
    for (size_t i = 0; i < sizeof(subjects) / sizeof(*subjects); i++) {
        int r = bus_subscribe(bus, subjects[i]);
        if (r < 0)
            return r;
    }
    return 0;
}

static void bus_drop(struct cluster *c, const char *why)
{
    struct bus *bus = c->bus;
    worker_lock(&c->worker);
    c->bus = NULL;
    c->server[0] = '\0';
    snprintf(c->why, sizeof(c->why), "%s", why);
    worker_unlock(&c->worker);
    bus_free(bus);
    c->reopen_wait_ns = c->reopen_wait_ns ? 2 * c->reopen_wait_ns : BUS_REOPEN_MIN_MS * NS_PER_MS;
    if (c->reopen_wait_ns > BUS_REOPEN_MAX_MS * NS_PER_MS)
        c->reopen_wait_ns = BUS_REOPEN_MAX_MS * NS_PER_MS;
    c->reopen_ns = clock_monotonic_ns() + c->reopen_wait_ns;
    log_warn("cannot join the cluster: %s; trying again in %llu s", why,
             (unsigned long long)(c->reopen_wait_ns / NS_PER_S));
}

static void bus_try(struct cluster *c)
{
    char why[BUS_WHY_MAX];
    struct bus *bus = NULL;
    int r = bus_open(&c->options.bus, &bus, why);
    if (r >= 0)
        r = subscribe(c, bus);
    if (r < 0) {
        if (!why[0])
            snprintf(why, sizeof(why), "%s", strerror(-r));
        bus_free(bus);
        bus = NULL;
        bus_drop(c, why);
        return;
    }
    c->generation = 0;
    c->silence_ns = clock_monotonic_ns() + BUS_SILENCE_MS * NS_PER_MS;
    worker_lock(&c->worker);
    c->bus = bus;
    c->why[0] = '\0';
    worker_unlock(&c->worker);
}

/* Connected, perhaps again. */
static void bus_came_up(struct cluster *c, unsigned generation, uint64_t now)
{
    char server[CLUSTER_URL_MAX];
    c->generation = generation;
    c->came_up_ns = now;
    presence_begin(c, now);
    bus_server(c->bus, server, sizeof(server));
    worker_lock(&c->worker);
    memcpy(c->server, server, sizeof(c->server));
    worker_unlock(&c->worker);
    log_info("connected to the cluster at %s as %s", server, c->name);
}

/* Are connections lost as soon as they are made? */
static bool is_flapping(struct cluster *c, unsigned generation, uint64_t now)
{
    if (now - c->flap_ns > BUS_FLAP_MS * NS_PER_MS || generation < c->flap_generation) {
        c->flap_ns = now;
        c->flap_generation = generation;
    }
    return generation - c->flap_generation >= BUS_FLAPS_MAX;
}

/* libnats tries on by itself, and tells when it is connected. But a first connection that does not come should not be a secret. */
static uint64_t bus_wait(struct cluster *c, uint64_t now)
{
    char why[BUS_WHY_MAX];
    if (c->generation)
        return UINT64_MAX;
    if (now < c->silence_ns)
        return c->silence_ns;
    bus_why(c->bus, why);
    log_warn("cannot join the cluster: %s; trying again until it works", why);
    c->silence_ns = UINT64_MAX;
    return UINT64_MAX;
}

static uint64_t bus_tick(struct cluster *c, uint64_t now)
{
    char why[BUS_WHY_MAX];
    if (!c->bus && now >= c->reopen_ns)
        bus_try(c);
    if (!c->bus)
        return c->reopen_ns;
    enum bus_state state = bus_state(c->bus);
    unsigned generation = bus_generation(c->bus);
    if (state == BUS_CLOSED) {
        bus_why(c->bus, why);
        bus_drop(c, why[0] ? why : "the server closed the connection");
        return c->reopen_ns;
    }
    if (is_flapping(c, generation, now)) {
        bus_drop(c, "the server breaks each connection at once");
        return c->reopen_ns;
    }
    if (state != BUS_UP)
        return bus_wait(c, now);
    if (generation != c->generation)
        bus_came_up(c, generation, now);
    else if (now - c->came_up_ns > BUS_FLAP_MS * NS_PER_MS)
        c->reopen_wait_ns = 0;
    if (now >= c->dropped_ns) {
        uint64_t dropped = bus_dropped(c->bus);
        worker_lock(&c->worker);
        c->figures.dropped = dropped + c->inbox_dropped;
        worker_unlock(&c->worker);
        c->dropped_ns = now + DROPPED_LOOK_MS * NS_PER_MS;
    }
    return presence_beat(c, now);
}

/* ---- the thread ---- */

static uint64_t acks_due(const struct cluster *c)
{
    const struct question_box *box;
    uint64_t next = UINT64_MAX;
    LIST_FOREACH(box, &c->open, open_link)
    if (!box->acked && box->ack_ns < next)
        next = box->ack_ns;
    return next;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* All that waits, and all that is due. Returns when to come back. `heard_ns`: all that came before is in the inbox. Who was silent is
 * judged by that moment, not by the one when a large answer of another node has been read. */
static uint64_t turn(struct cluster *c, struct letters *inbox, struct question_boxes *answered,
                     struct asks_way *asks, bool self_came, uint64_t heard_ns)
{
    struct letter *letter;
    struct question_box *box;
    struct cluster_ask *ask;
    uint64_t now = clock_monotonic_ns();
    uint64_t next = bus_tick(c, now);
    while ((ask = STAILQ_FIRST(asks)) != NULL) {
        STAILQ_REMOVE_HEAD(asks, way_link);
        TAILQ_INSERT_TAIL(&c->out, ask, link);
        gather_sent(ask->gather, now);
        if (ask->others)
            send_ask(c, ask);
    }
    while ((box = STAILQ_FIRST(answered)) != NULL) {
        STAILQ_REMOVE_HEAD(answered, link);
        send_answer(c, box);
    }
    now = clock_monotonic_ns();
    while ((letter = STAILQ_FIRST(inbox)) != NULL) {
        STAILQ_REMOVE_HEAD(inbox, link);
        take_letter(c, letter, now);
    }
    now = clock_monotonic_ns();
    next = earlier(next, presence_greet(c, now));
    send_acks(c, now);
    next = earlier(next, acks_due(c));
    next = earlier(next, asks_tick(c, self_came, heard_ns));
    next = earlier(next, presence_tick(c, heard_ns));
    return next;
}

static bool is_idle(const struct cluster *c)
{
    return STAILQ_EMPTY(&c->inbox) && STAILQ_EMPTY(&c->questions_answered) &&
           STAILQ_EMPTY(&c->asks_new) && !c->self_came;
}

void cluster_thread_run(void *context)
{
    struct cluster *c = context;
    uint64_t next = 0;
    worker_lock(&c->worker);
    while (!c->worker.stop) {
        if (is_idle(c) && clock_monotonic_ns() < next)
            worker_wait(&c->worker, next);
        if (c->worker.stop)
            break;
        struct letters inbox = STAILQ_HEAD_INITIALIZER(inbox);
        struct question_boxes answered = STAILQ_HEAD_INITIALIZER(answered);
        struct asks_way asks = STAILQ_HEAD_INITIALIZER(asks);
        STAILQ_CONCAT(&inbox, &c->inbox);
        STAILQ_CONCAT(&answered, &c->questions_answered);
        STAILQ_CONCAT(&asks, &c->asks_new);
        bool self_came = c->self_came;
        c->self_came = false;
        c->inbox_n = c->inbox_bytes = 0;
        uint64_t heard_ns = clock_monotonic_ns();
        worker_unlock(&c->worker);
        next = turn(c, &inbox, &answered, &asks, self_came, heard_ns);
        worker_lock(&c->worker);
    }
    worker_unlock(&c->worker);
    struct buffer *out = cluster_scratch(c);
    message_write_bye(out);
    if (cluster_send(c, "beat", NULL, out) == 0)
        bus_flush(c->bus, GOODBYE_MS);
    bus_free(c->bus);
    c->bus = NULL;
}
