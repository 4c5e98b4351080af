/* See asking.h. */
#include "daemon/asking.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/accountable.h"
#include "base/clock.h"
#include "base/json.h"
#include "daemon/asking_world.h"
#include "daemon/chores.h"
#include "daemon/daemon.h"
#include "daemon/exit_watch.h"
#include "daemon/server.h"
#include "daemon/turns.h"
#include "daemon/users.h"
#include "ledger/ledger.h"
#include "query/exit_file.h"
#include "query/query.h"

/* A question that is kept, and what became of it. */
struct kept {
    struct asked asked;
    uint64_t used; /* number of the question that used it last; 0: a free place */
};

struct asking {
    struct daemon *daemon;
    struct kept kept[ASKING_KEPT];
    uint64_t questions;
    struct users *users;
    struct turns turns;
    uint64_t refresh_cost_ns; /* about: of reading all figures */
    uint64_t reports_seen;    /* by the figures that the last question saw */
    uint64_t facts_ns;        /* when those of /proc were read last */
};

/* ---- kept questions ---- */

static void kept_release(struct kept *kept)
{
    query_result_free(kept->asked.result);
    query_free(kept->asked.query);
    *kept = (struct kept){0};
}

static bool same_words(const char *a, const char *b)
{
    return strcmp(a ? a : "", b) == 0;
}

static bool is_same(const struct kept *kept, const struct query_spec *spec, const char *table)
{
    if (!kept->used)
        return false;
    const struct query_spec *own = query_spec_of(kept->asked.query);
    return strcmp(own->table, table) == 0 && own->limit == spec->limit &&
           own->others == spec->others && own->lenient == spec->lenient &&
           same_words(spec->by, own->by) && same_words(spec->where, own->where) &&
           same_words(spec->show, own->show) && same_words(spec->sort, own->sort);
}

uint64_t asking_limit(uint64_t wanted)
{
    return wanted && wanted < ASKING_ROWS_MAX ? wanted : ASKING_ROWS_MAX;
}

int asking_prepare(struct asking *asking, const struct query_spec *asked, struct asked **ret_asked,
                   struct query_error *ret_error)
{
    struct query_spec spec = *asked;
    const char *table = spec.table && *spec.table ? spec.table : query_tables()[0]->name;
    spec.limit = asking_limit(spec.limit);
    struct kept *kept = NULL, *oldest = &asking->kept[0];
    for (size_t i = 0; i < ASKING_KEPT && !kept; i++) {
        struct kept *k = &asking->kept[i];
        if (is_same(k, &spec, table))
            kept = k;
        if (k->used < oldest->used)
            oldest = k;
    }
    if (!kept) { /* an invalid query must not evict a kept one */
        struct kept fresh = {0};
        int r = query_new(&spec, &fresh.asked.query, ret_error);
        if (r < 0)
            return r;
        kept_release(oldest);
        *oldest = fresh;
        kept = oldest;
    }
    if (!kept->asked.result) {
        int r = query_result_new(kept->asked.query, ASKING_GROUPS_MAX, &kept->asked.result);
        if (r < 0)
            return r;
    }
    kept->used = ++asking->questions;
    query_result_reset(kept->asked.result);
    *ret_asked = &kept->asked;
    return 0;
}

void asking_done(struct asked *asked)
{
    if (query_result_matched(asked->result) <= ASKING_KEPT_ROWS)
        return;
    query_result_free(asked->result);
    asked->result = NULL;
}

/* ---- whose turn it is ---- */

uint64_t asking_wait(struct asking *asking, const struct query_table *table, struct turn *turn,
                     uint64_t who)
{
    /* A refresh of many processes takes long: the loop neither does it nor waits for it. */
    if (table && !asking_world_ready(asking->daemon, table->needs))
        return ASKING_HOST_WAIT_MS * NS_PER_MS;
    if (!table || !table->costly)
        return 0;
    return turns_wait(&asking->turns, turn, accountable_uid((uint32_t)who), clock_monotonic_ns());
}

void asking_leave(struct asking *asking, struct turn *turn)
{
    turns_leave(&asking->turns, turn);
}

void asking_costs(struct asking *asking, uint64_t begin_ns)
{
    uint64_t now = clock_monotonic_ns();
    turns_done(&asking->turns, now - begin_ns, now);
}

/* ---- asking ---- */

const char *asking_user_name(struct asking *asking, uint32_t uid)
{
    users_refresh(asking->users);
    return users_name(asking->users, uid);
}

static const char *user_name(uint32_t uid, void *context)
{
    const struct asking *asking = context;
    return users_name(asking->users, uid);
}

/* Facts of /proc are refreshed for questions that look at processes, at most as often as the figures. */
static void facts_refresh(struct asking *asking)
{
    struct daemon *daemon = asking->daemon;
    uint64_t now = clock_monotonic_ns();
    size_t n;
    if (now - asking->facts_ns < daemon->config.refresh_ns)
        return;
    asking->facts_ns = now;
    struct ledger_process *const *processes = ledger_processes(daemon->ledger, &n);
    for (size_t i = 0; i < n && clock_monotonic_ns() - now < ASKING_FACTS_MS * NS_PER_MS; i++)
        ledger_update_facts(daemon->ledger, processes[i]);
}

/* Who reports and then asks wants to see it: where reading all figures is cheap, new ones are read whenever
 * something was reported since, and not only when the last ones are a millisecond old. */
static void figures_refresh(struct asking *asking)
{
    struct server *server = asking->daemon->server;
    if (server->figures.reports != asking->reports_seen &&
        asking->refresh_cost_ns < ASKING_REFRESH_NS)
        server_figures_changed(server);
    asking->reports_seen = server->figures.reports;
    server_refresh(server);
    /* One that was interrupted took longer than it costs: up slowly, down at once. */
    uint64_t more = asking->refresh_cost_ns + asking->refresh_cost_ns / 8 + 1000;
    asking->refresh_cost_ns = server->refresh_cost_ns < more ? server->refresh_cost_ns : more;
}

uint64_t asking_cost(unsigned needs, uint64_t passed_ns, uint64_t own_ns)
{
    return needs & QUERY_NEEDS_HOST && passed_ns >= ASKING_SHORT_NS ? own_ns : passed_ns;
}

static void costs(struct asking *asking, unsigned needs, uint64_t begin, uint64_t begin_own)
{
    uint64_t now = clock_monotonic_ns();
    uint64_t own = clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin_own;
    turns_done(&asking->turns, asking_cost(needs, now - begin, own), now);
}

int asking_run(struct asking *asking, struct asked *asked, const struct asking_viewer *viewer)
{
    const struct query_table *table = query_table_of(asked->query);
    unsigned needs = query_needs(asked->query);
    uint64_t begin = clock_monotonic_ns();
    uint64_t begin_own = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    struct asking_world world;
    users_refresh(asking->users);
    if (needs & QUERY_NEEDS_FACTS)
        facts_refresh(asking);
    figures_refresh(asking);
    int r = asking_world_open(asking->daemon, asked->query, viewer, asking->users, &world);
    world.world.user_name = user_name;
    world.world.context = asking;
    if (r >= 0)
        r = query_run(asked->query, &world.world, asked->result);
    if (r == -ETIME)
        r = 0; /* the answer says that it is not complete */
    asking_world_release(&world);
    if (r >= 0)
        r = query_result_finish(asked->result);
    if (table->costly)
        costs(asking, needs, begin, begin_own);
    return r;
}

/* Milliseconds as seconds. */
static void time_json(struct json *json, const char *key, uint64_t time_ns)
{
    json_field_double(json, key, (double)(time_ns / NS_PER_MS) / 1000);
}

static void watch_json(const struct exit_file_header *h, struct json *json)
{
    static const char *const states[] = {"off", "on", "failed"};
    json_field_string(json, "state", h->state <= EXIT_WATCH_CANNOT ? states[h->state] : "off");
    if (h->state == EXIT_WATCH_CANNOT)
        json_field_string(json, "why", h->why);
    if (h->state == EXIT_WATCH_ON)
        time_json(json, "since", h->since_ns);
    json_field_u64(json, "seen", h->seen);
    json_field_u64(json, "lost", h->lost);
    json_field_u64(json, "forgotten", h->forgotten);
    if (h->gap_to_ns) {
        time_json(json, "gap_from", h->gap_from_ns);
        time_json(json, "gap_to", h->gap_to_ns);
    }
}

void asking_exit_state_json(const struct exit_file_header *header, struct json *json)
{
    json_key(json, "exits");
    json_object_begin(json);
    if (header)
        watch_json(header, json);
    else
        json_field_string(json, "state", "off");
    json_object_end(json);
}

void asking_exits_json(const struct asking *asking, const struct asked *asked, struct json *json)
{
    if (!(query_needs(asked->query) & QUERY_NEEDS_EXITS))
        return;
    const struct exit_file *file = exit_watch_file(asking->daemon->exits);
    asking_exit_state_json(file ? &file->header : NULL, json);
}

/* ---- life ---- */

bool asking_may_see(const struct asking_viewer *viewer, uint32_t uid)
{
    return query_may_see(viewer->sees_all, viewer->uid, uid);
}

uint32_t asking_user(const struct asking_viewer *viewer)
{
    return viewer->sees_all ? CHORES_ROOT : accountable_uid(viewer->uid);
}

int asking_new(struct daemon *daemon, struct asking **ret_asking)
{
    struct asking *asking = calloc(1, sizeof(*asking));
    if (!asking || users_new(&asking->users) < 0) {
        free(asking);
        return -ENOMEM;
    }
    asking->daemon = daemon;
    turns_init(&asking->turns, ASKING_SHARE, ASKING_SHORT_NS);
    *ret_asking = asking;
    return 0;
}

void asking_free(struct asking *asking)
{
    if (!asking)
        return;
    for (size_t i = 0; i < ASKING_KEPT; i++)
        kept_release(&asking->kept[i]);
    users_free(asking->users);
    free(asking);
}
