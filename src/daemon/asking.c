/* See asking.h. */
#include "daemon/asking.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/accountable.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "daemon/daemon.h"
#include "daemon/driver_facts.h"
#include "daemon/exit_watch.h"
#include "daemon/growing.h"
#include "daemon/hosts.h"
#include "daemon/native_exited.h"
#include "daemon/server.h"
#include "daemon/turns.h"
#include "daemon/users.h"
#include "ledger/leaks.h"
#include "ledger/ledger.h"
#include "query/exit_file.h"
#include "query/query.h"

enum { PARTS = 5 }; /* of a spec, apart from the limit */

/* A question that is kept: its words, and what became of them. */
struct kept {
    struct asked asked;
    char *words[PARTS];
    uint64_t limit;
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
    for (size_t i = 0; i < PARTS; i++)
        free(kept->words[i]);
    *kept = (struct kept){0};
}

static void words_of(const struct query_spec *spec, const char *ret_words[PARTS])
{
    const char *words[PARTS] = {spec->table, spec->by, spec->where, spec->show, spec->sort};
    for (size_t i = 0; i < PARTS; i++)
        ret_words[i] = words[i] ? words[i] : "";
}

static bool is_same(const struct kept *kept, const char *const words[PARTS], uint64_t limit)
{
    if (!kept->used || kept->limit != limit)
        return false;
    for (size_t i = 0; i < PARTS; i++)
        if (strcmp(kept->words[i], words[i]) != 0)
            return false;
    return true;
}

static int kept_fill(struct kept *kept, const struct query_spec *spec,
                     const char *const words[PARTS], struct query_error *error)
{
    int r = query_new(spec, &kept->asked.query, error);
    for (size_t i = 0; i < PARTS && r >= 0; i++) {
        kept->words[i] = strdup(words[i]);
        r = kept->words[i] ? 0 : -ENOMEM;
    }
    kept->limit = spec->limit;
    if (r < 0)
        kept_release(kept);
    return r;
}

int asking_prepare(struct asking *asking, const struct query_spec *asked, struct asked **ret_asked,
                   struct query_error *ret_error)
{
    struct query_spec spec = *asked;
    const char *words[PARTS];
    if (!spec.limit || spec.limit > ASKING_ROWS_MAX)
        spec.limit = ASKING_ROWS_MAX;
    words_of(&spec, words);
    struct kept *kept = NULL, *oldest = &asking->kept[0];
    for (size_t i = 0; i < ASKING_KEPT && !kept; i++) {
        struct kept *k = &asking->kept[i];
        if (is_same(k, words, spec.limit))
            kept = k;
        if (k->used < oldest->used)
            oldest = k;
    }
    if (!kept) { /* one that makes no sense pushes nobody out */
        struct kept fresh = {0};
        int r = kept_fill(&fresh, &spec, words, ret_error);
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

/* Blocks and sites are read from the books' files, and whoever likes can make ten thousand processes, or let them
 * end: the loop has other things to do for most of the time. */
static bool is_costly(const char *table)
{
    static const char *const costly[] = {"buffers", "sites", "leaks", "host", "exited", "cgroups"};
    for (size_t i = 0; i < sizeof(costly) / sizeof(*costly); i++)
        if (strcmp(table, costly[i]) == 0)
            return true;
    return false;
}

static bool is_of_host(const char *table)
{
    return strcmp(table, "host") == 0 || strcmp(table, "system") == 0;
}

static bool is_of_cgroups(const char *table)
{
    return strcmp(table, "cgroups") == 0;
}

static bool is_of_driver(const char *table)
{
    return strcmp(table, "devices") == 0 || strcmp(table, "device_processes") == 0;
}

uint64_t asking_wait(struct asking *asking, const char *table, struct turn *turn, uint64_t who)
{
    struct hosts *hosts = asking->daemon->hosts;
    /* A refresh of many processes takes long: the loop neither does it nor waits for it. */
    if (is_of_host(table) && hosts && !hosts_ready(hosts))
        return ASKING_HOST_WAIT_MS * NS_PER_MS;
    if (is_of_cgroups(table) && hosts && !hosts_cgroups_ready(hosts))
        return ASKING_HOST_WAIT_MS * NS_PER_MS;
    if (is_of_driver(table) && !driver_facts_ready(asking->daemon->driver))
        return ASKING_HOST_WAIT_MS * NS_PER_MS;
    if (!is_costly(table))
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
    return users_name(asking->users, uid);
}

static const char *user_name(uint32_t uid, void *context)
{
    return asking_user_name(context, uid);
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

static bool is_visible(const struct ledger_process *process, void *context)
{
    const struct asking_viewer *viewer = context;
    return query_may_see(viewer->sees_all, viewer->uid, process->uid);
}

/* Who only reads memory waits for nobody: where the loop was interrupted meanwhile, he is not to blame. */
static void costs(struct asking *asking, const char *table, uint64_t begin, uint64_t begin_own)
{
    uint64_t now = clock_monotonic_ns(), cost = now - begin;
    if (is_of_host(table) && cost >= ASKING_SHORT_NS)
        cost = clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin_own;
    turns_done(&asking->turns, cost, now);
}

int asking_run(struct asking *asking, struct asked *asked, const struct asking_viewer *viewer)
{
    struct daemon *daemon = asking->daemon;
    struct query_exited_list exited = {0};
    MEMOIR_CLEANUP(leaks_release)
    struct leaks leaks = {0};
    const char *table = query_table_of(asked->query)->name;
    uint64_t begin = clock_monotonic_ns();
    uint64_t begin_own = is_of_host(table) ? clock_ns(CLOCK_THREAD_CPUTIME_ID) : 0;
    int r = 0;
    users_refresh(asking->users);
    if (strcmp(table, "exited") == 0)
        r = native_exited_read(daemon->retired, exit_watch_file(daemon->exits), asking->users,
                               &exited);
    if (strcmp(table, "processes") == 0)
        facts_refresh(asking);
    if (is_of_driver(table) || query_has_flags(asked->query, QUERY_DRIVER))
        driver_facts_want(daemon->driver);
    if (r >= 0)
        figures_refresh(asking);
    if (r >= 0 && strcmp(table, "leaks") == 0)
        r = growing_leaks(daemon->growing,
                          &(struct leaks_options){
                              .all = query_asks_unusual(asked->query),
                              .deadline_ns = begin + ASKING_MS * NS_PER_MS,
                              .wanted = is_visible, /* nobody's time goes into others' books */
                              .context = (void *)viewer,
                          },
                          &leaks);
    const struct host *host = NULL;
    if (r >= 0 && is_of_host(table) && daemon->hosts) {
        host = viewer->hasty ? hosts_peek(daemon->hosts) : hosts_lock(daemon->hosts);
        if (!host && viewer->hasty)
            r = -EAGAIN;
    }
    if (r >= 0 && is_of_host(table) && !host)
        r = -ENODEV;
    const struct cgroups *cgroups =
        r >= 0 && is_of_cgroups(table) && daemon->hosts ? hosts_cgroups_lock(daemon->hosts) : NULL;
    if (r >= 0) {
        r = query_run(asked->query,
                      &(struct query_world){
                          .ledger = daemon->ledger,
                          .exited = exited.rows,
                          .n_exited = exited.n,
                          .leaks = &leaks,
                          .host = host,
                          .cgroups = cgroups,
                          .sees_all = viewer->sees_all,
                          .viewer_uid = viewer->uid,
                          .user_name = user_name,
                          .context = asking,
                          .time_max_ns = ASKING_MS * NS_PER_MS,
                      },
                      asked->result);
        if (r == -ETIME)
            r = 0; /* the answer says that it is not complete */
    }
    query_exited_release(&exited);
    if (host)
        hosts_unlock(daemon->hosts);
    if (cgroups)
        hosts_cgroups_unlock(daemon->hosts);
    if (r >= 0)
        r = query_result_finish(asked->result);
    if (is_costly(table))
        costs(asking, table, begin, begin_own);
    return r;
}

void asking_exits_json(const struct asking *asking, const struct asked *asked, struct json *json)
{
    static const char *const states[] = {"off", "on", "failed"};
    if (strcmp(query_table_of(asked->query)->name, "exited") != 0)
        return;
    const struct exit_file *file = exit_watch_file(asking->daemon->exits);
    const struct exit_file_header *h = file ? &file->header : NULL;
    json_key(json, "exits");
    json_object_begin(json);
    json_field_string(json, "state", h && h->state <= EXIT_WATCH_CANNOT ? states[h->state] : "off");
    if (h && h->state == EXIT_WATCH_CANNOT)
        json_field_string(json, "why", h->why);
    if (h && h->state == EXIT_WATCH_ON)
        json_field_double(json, "since", (double)(h->since_ns / NS_PER_MS) / 1000);
    if (h) {
        json_field_u64(json, "seen", h->seen);
        json_field_u64(json, "lost", h->lost);
        json_field_u64(json, "forgotten", h->forgotten);
    }
    if (h && h->gap_to_ns) {
        json_field_double(json, "gap_from", (double)(h->gap_from_ns / NS_PER_MS) / 1000);
        json_field_double(json, "gap_to", (double)(h->gap_to_ns / NS_PER_MS) / 1000);
    }
    json_object_end(json);
}

/* ---- life ---- */

bool asking_may_see(const struct asking_viewer *viewer, uint32_t uid)
{
    return query_may_see(viewer->sees_all, viewer->uid, uid);
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
