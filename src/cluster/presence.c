/* Heartbeats of this node and of other nodes, and reports of lost nodes. See member.h for the rules. All of it runs on the
 * cluster's thread. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "cluster/internal.h"

enum {
    REFUTE_MS = 1000, /* a heartbeat to all that is younger than this refutes a report by itself */
    SPREAD_FROM = 20, /* with fewer members a newcomer is greeted by all at once */
    TOLD_MAX = 20,    /* lines about one member in the log, in */
    TOLD_S = 60,
};

/* ---- sending ---- */

static void send_hello(struct cluster *c, const char *target, bool first, uint32_t watch_ms)
{
    struct buffer *out = cluster_scratch(c);
    worker_lock(&c->worker);
    c->interval_ms = members_interval_ms(c->members);
    worker_unlock(&c->worker);
    message_write_hello(
        &(struct message_hello){
            .name = c->name,
            .version = c->version,
            .started_ns = c->options.started_ns,
            .now_ns = clock_real_ns(),
            .interval_ms = c->interval_ms,
            .first = first,
            .watch_ms = watch_ms,
        },
        out);
    (void)cluster_send(c, target ? "to" : "beat", target, out);
    if (!target)
        c->beat_sent_ns = clock_monotonic_ns();
}

void presence_begin(struct cluster *c, uint64_t now)
{
    worker_lock(&c->worker);
    members_unwatch(c->members);
    worker_unlock(&c->worker);
    c->n_watchers = 0;
    send_hello(c, NULL, true, 0);
    /* The number of members is not known yet, so the next heartbeat comes after the least interval. */
    c->beat_ns = c->watch_ns = now + MEMBER_INTERVAL_MS * NS_PER_MS;
}

/* ---- watchers of this node ---- */

static bool is_among(const char *id, char ids[][SUBJECT_ID_CHARS + 1], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(ids[i], id) == 0)
            return true;
    return false;
}

static void watchers_tell(struct cluster *c)
{
    char ids[MEMBER_WATCHERS][SUBJECT_ID_CHARS + 1];
    size_t n = 0;
    worker_lock(&c->worker);
    if (members_interval_ms(c->members) > MEMBER_WATCH_MS)
        n = members_watchers(c->members, ids);
    worker_unlock(&c->worker);
    for (size_t i = 0; i < c->n_watchers; i++)
        if (!is_among(c->watchers[i], ids, n))
            send_hello(c, c->watchers[i], false, MESSAGE_WATCH_END);
    for (size_t i = 0; i < n; i++)
        send_hello(c, ids[i], false, MEMBER_WATCH_MS);
    memcpy(c->watchers, ids, n * sizeof(*ids));
    c->n_watchers = n;
}

/* The next moment of a series after `now`. */
static uint64_t next_of(uint64_t due, uint64_t interval, uint64_t now)
{
    return due + interval > now ? due + interval : now + interval;
}

uint64_t presence_beat(struct cluster *c, uint64_t now)
{
    if (now >= c->beat_ns) {
        send_hello(c, NULL, false, 0);
        c->beat_ns = next_of(c->beat_ns, c->interval_ms * NS_PER_MS, now);
    }
    if (now >= c->watch_ns) {
        watchers_tell(c);
        c->watch_ns = next_of(c->watch_ns, MEMBER_WATCH_MS * NS_PER_MS, now);
    }
    return c->beat_ns < c->watch_ns ? c->beat_ns : c->watch_ns;
}

/* ---- newcomers ---- */

static void greet_later(struct cluster *c, const char *id, uint64_t now)
{
    for (size_t i = 0; i < c->n_greetings; i++)
        if (strcmp(c->greetings[i].id, id) == 0)
            return;
    if (c->n_greetings == GREETINGS_MAX)
        return; /* it hears the next heartbeat */
    struct greeting *greeting = &c->greetings[c->n_greetings++];
    memcpy(greeting->id, id, sizeof(greeting->id));
    /* All members greet a newcomer. Many of them spread their greetings over CLUSTER_HI_MS. */
    size_t n;
    worker_lock(&c->worker);
    (void)members_list(c->members, &n);
    worker_unlock(&c->worker);
    uint64_t spread = n < SPREAD_FROM ? 1 : CLUSTER_HI_MS * NS_PER_MS;
    greeting->due_ns = now + hash_combine(hash_string(c->id, 0), now) % spread;
}

uint64_t presence_greet(struct cluster *c, uint64_t now)
{
    uint64_t next = UINT64_MAX;
    for (size_t i = 0; i < c->n_greetings;) {
        if (c->greetings[i].due_ns <= now) {
            send_hello(c, c->greetings[i].id, false, 0);
            c->greetings[i] = c->greetings[--c->n_greetings];
            continue;
        }
        if (c->greetings[i].due_ns < next)
            next = c->greetings[i].due_ns;
        i++;
    }
    return next;
}

/* ---- what other nodes say ---- */

/* Locked. */
static void due_at_latest(struct cluster *c, uint64_t due)
{
    if (due < c->members_due_ns)
        c->members_due_ns = due;
}

/* Locked. A member that comes and goes all the time does not fill the log. */
static bool is_worth_a_line(struct member *m, uint64_t now)
{
    if (!m)
        return false;
    if (!m->told_since_ns || now - m->told_since_ns > TOLD_S * NS_PER_S) {
        m->told_since_ns = now;
        m->told = 0;
    }
    return m->told < TOLD_MAX && ++m->told;
}

void presence_hello(struct cluster *c, const char *sender, const struct message_hello *hello,
                    uint64_t now)
{
    uint32_t ms = hello->watch_ms > MESSAGE_WATCH_END ? hello->watch_ms : hello->interval_ms;
    worker_lock(&c->worker);
    enum members_change change = members_hello(c->members, sender, hello, now, clock_real_ns());
    due_at_latest(c, now + (2ull * ms + MEMBER_GRACE_MS) * NS_PER_MS);
    bool tell = (change == MEMBERS_JOINED || change == MEMBERS_BACK) &&
                is_worth_a_line(members_find(c->members, sender), now);
    worker_unlock(&c->worker);
    if (tell)
        log_info("node %s (%s) %s the cluster", hello->name, hello->version,
                 change == MEMBERS_JOINED ? "joined" : "is back in");
    if (hello->first)
        greet_later(c, sender, now);
}

void presence_bye(struct cluster *c, const char *sender, bool lost, uint64_t now)
{
    char label[MEMBER_LABEL_MAX] = "";
    worker_lock(&c->worker);
    bool changed =
        lost ? members_lost(c->members, sender, now) : members_bye(c->members, sender, now);
    struct member *m = members_find(c->members, sender);
    if (m)
        member_label(m, label);
    changed = changed && is_worth_a_line(m, now);
    c->members_due_ns = now;
    worker_unlock(&c->worker);
    if (changed && lost)
        log_warn("node %s lost its connection to the cluster", label);
    else if (changed)
        log_info("node %s left the cluster", label);
}

void presence_lost(struct cluster *c, const char *id, uint64_t now)
{
    if (strcmp(id, c->id) == 0) {
        if (now - c->beat_sent_ns >= REFUTE_MS * NS_PER_MS)
            send_hello(c, NULL, false, 0);
        return;
    }
    worker_lock(&c->worker);
    if (members_doubt(c->members, id, now))
        due_at_latest(c, now + MEMBER_DOUBT_MS * NS_PER_MS);
    worker_unlock(&c->worker);
}

/* ---- silence ---- */

struct deaths {
    uint64_t now;
    char ids[LOST_MAX][SUBJECT_ID_CHARS + 1]; /* to be reported */
    size_t n;
};

/* Locked. */
static void on_death(const struct member *member, void *context)
{
    struct deaths *deaths = context;
    char label[MEMBER_LABEL_MAX];
    log_warn("node %s does not answer any more", member_label(member, label));
    if (member_overdue(member, deaths->now) && deaths->n < LOST_MAX)
        memcpy(deaths->ids[deaths->n++], member->id, SUBJECT_ID_CHARS + 1);
}

uint64_t presence_tick(struct cluster *c, uint64_t now)
{
    struct deaths deaths = {.now = now};
    worker_lock(&c->worker);
    if (now >= c->members_due_ns)
        c->members_due_ns = members_tick(c->members, now, on_death, &deaths);
    uint64_t next = c->members_due_ns;
    worker_unlock(&c->worker);
    for (size_t i = 0; i < deaths.n; i++) {
        struct buffer *out = cluster_scratch(c);
        message_write_lost(deaths.ids[i], out);
        (void)cluster_send(c, "beat", NULL, out);
    }
    return next;
}
