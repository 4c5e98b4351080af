/* See world.h. */
#include "cli/world.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/command.h"
#include "cli/leaks_ask.h"
#include "cli/ps.h"
#include "explain/explain.h"
#include "explain/sites.h"
#include "history/tier.h"
#include "ledger/cgroups.h"
#include "ledger/follow.h"
#include "ledger/host.h"
#include "ledger/ledger.h"
#include "profile/site_names.h"

enum {
    PROBE_ONCE_MS = 2000,   /* CPU time for costly fields of a single question, */
    PROBE_REPEATED_MS = 20, /* and of each that is repeated */
    HISTORY_PAST_S = 3600,
};

/* A question that is repeated more often finds new books as late as this: to look for them takes longer than all the rest. */
#define FIND_NS NS_PER_S

/* One user has most of the rows, so the last answer will do. */
static const char *user_name(uint32_t uid, void *context)
{
    struct world *world = context;
    if (!world->known || world->uid != uid) {
        const struct passwd *pw = getpwuid(uid);
        if (pw)
            snprintf(world->user, sizeof(world->user), "%s", pw->pw_name);
        else
            snprintf(world->user, sizeof(world->user), "%u", uid);
        world->uid = uid;
        world->known = true;
    }
    return world->user;
}

static bool source_of(const struct query_code *code, struct query_source *ret_source, void *context)
{
    const struct world *world = context;
    return site_names_source(world->symbols, code, ret_source);
}

static bool site_of(const struct ledger_book *book, uint32_t site, struct query_site *ret_site,
                    void *context)
{
    struct world *world = context;
    world->lines.symbols = world->symbols;
    return site_lines_find(&world->lines, book, site, ret_site);
}

static int no_list(struct world *world, const struct world_options *options, const char *state)
{
    if (!world->told) /* again and again, with --watch */
        command_fail("there is no list of processes that ended in '%s' yet: memoird keeps it; "
                     "start it with 'memoird --daemon', name its state directory by --state, or "
                     "ask the one that runs by 'memoir exited'",
                     state);
    world->told = true;
    return options->state || options->selective ? COMMAND_NOTHING : COMMAND_OK;
}

/* The lines are read while the table looks at them. */
static int look_at_retired(struct world *world, const struct world_options *options)
{
    const char *state = ps_state_find(options->state);
    world->retired = (struct retired_files){{retired_files_read}, state};
    int r = retired_files_exist(state);
    if (r == -ENOENT)
        return no_list(world, options, state);
    return r < 0 ? command_fail("cannot read the daemon's list in '%s': %s", state, strerror(-r))
                 : COMMAND_OK;
}

static int look_at_exits(struct world *world, const struct world_options *options)
{
    const char *state = ps_state_find(options->state);
    query_exited_release(&world->exited);
    int r = query_exited_read(state, &world->exited);
    if (r == -ENOENT)
        return no_list(world, options, state);
    if (r < 0)
        return command_fail("cannot read the daemon's list in '%s': %s", state, strerror(-r));
    if (world->exited.skipped && !options->repeated)
        fprintf(stderr, "memoir: %zu invalid line%s in the daemon's list\n", world->exited.skipped,
                world->exited.skipped == 1 ? "" : "s");
    return COMMAND_OK;
}

static int look_at_host(struct world *world, const struct world_options *options, unsigned needs)
{
    bool first = !world->host;
    int r = first ? host_new(&(struct host_options){.user_names = true}, &world->host) : 0;
    if (r == 0)
        r = host_refresh(world->host);
    if (r < 0)
        return command_fail("cannot read /proc: %s", strerror(-r));
    if (needs & QUERY_NEEDS_PROBES)
        (void)host_refine(world->host,
                          (first && !options->repeated ? PROBE_ONCE_MS : PROBE_REPEATED_MS) *
                              NS_PER_MS);
    return COMMAND_OK;
}

/* Where there is no device by NVIDIA the question is answered, too, without what the driver knows. A table of nothing but
 * the driver's facts (it needs no account of a device) says what is missing even there. */
static void look_at_driver(struct world *world, const struct query *query)
{
    char text[512];
    driver_join(&world->driver, world->ledger, false);
    const char *problem =
        driver_problem(&world->driver, query_table_of(query)->driver_only, text, sizeof(text));
    if (problem && !world->told)
        fprintf(stderr, "memoir: %s\n", problem);
    world->told |= problem != NULL;
}

static int look_at_cgroups(struct world *world)
{
    cgroups_freep(&world->cgroups);
    world->cgroups = NULL;
    int r = cgroups_new(NULL, &world->cgroups);
    if (r == -ENOENT) {
        command_fail("no cgroups that account memory are mounted at /sys/fs/cgroup");
        return COMMAND_NOTHING;
    }
    while (r == 0)
        r = cgroups_read(world->cgroups, UINT64_MAX);
    return r < 0 ? command_fail("cannot read /sys/fs/cgroup: %s", strerror(-r)) : COMMAND_OK;
}

static int look_at_history(struct world *world, const struct world_options *options)
{
    const char *state = ps_state_find(options->state);
    uint64_t now_s = clock_real_ns() / NS_PER_S;
    snprintf(world->history_path, sizeof(world->history_path), "%s/%s", state, HISTORY_FILE);
    world->history = (struct history_world){.path = world->history_path,
                                            .since_s = now_s - HISTORY_PAST_S,
                                            .until_s = now_s + 1,
                                            .step_s = HISTORY_STEP_MAX_S};
    if (options->window.until_s) {
        world->history.since_s = options->window.since_s;
        world->history.until_s = options->window.until_s;
        world->history.step_s = options->window.step_s;
    }
    if (access(world->history_path, R_OK) == 0)
        return COMMAND_OK;
    if (errno == EACCES)
        return command_fail("cannot read '%s': only memoird's own user can; others see the past on "
                            "the dashboard (memoir open) and over HTTP",
                            world->history_path);
    command_fail("cannot read the history in '%s': %s; memoird keeps it while it runs", state,
                 strerror(errno));
    return COMMAND_NOTHING;
}

static void books_release(struct world *world)
{
    if (world->follow)
        follow_free(world->follow);
    else
        ledger_freep(&world->ledger);
    world->follow = NULL;
    world->ledger = NULL;
}

/* New books, of those that are known their figures, and who ended. */
static int books_follow(struct world *world, const struct world_options *options)
{
    if (!world->follow) {
        books_release(world);
        int r = follow_new(options->dir, &world->follow);
        if (r < 0)
            return r;
        world->ledger = follow_ledger(world->follow);
    }
    return follow_look(world->follow, true);
}

static int look_at_books(struct world *world, const struct world_options *options)
{
    uint64_t now_ns = clock_monotonic_ns();
    size_t n;
    site_lines_release(&world->lines);
    if (options->repeated && world->ledger && now_ns - world->found_ns < FIND_NS) {
        struct ledger_process *const *processes = ledger_processes(world->ledger, &n);
        for (size_t i = 0; i < n; i++) {
            ledger_update_state(world->ledger, processes[i]);
            ledger_update_facts(world->ledger, processes[i]);
        }
        ledger_refresh(world->ledger);
        return 0;
    }
    world->found_ns = now_ns;
    if (options->repeated)
        return books_follow(world, options);
    books_release(world);
    return ledger_scan(options->dir, &world->ledger);
}

static int explain_take_one(const struct explain_subject *subject, struct explain *ret,
                            struct explain_sites *ret_sites, void *context)
{
    const struct world *world = context;
    int r = explain_take_apart(subject->pid, geteuid(), EXPLAIN_MS_MAX, ret);
    const struct ledger_process *process =
        r >= 0 && world->ledger ? ledger_process_find(world->ledger, subject->pid) : NULL;
    if (explain_live_by(ret, process))
        (void)explain_sites_take(process, geteuid(), ret, EXPLAIN_SITES_TOP, world->symbols,
                                 ret_sites);
    return r;
}

/* Processes that the question names, with what /proc says of them now. */
static int look_at_mappings(struct world *world, const struct world_options *options,
                            const struct query *query)
{
    uint64_t pids[QUERY_NAMED_MAX];
    size_t n = 0;
    int r = look_at_books(world, options);
    if (r == 0)
        r = look_at_host(world, options, 0);
    if (r == 0)
        r = query_named(query, pids, QUERY_NAMED_MAX, &n);
    world->explain = (struct explain_world){world->subjects, 0, explain_take_one, world};
    for (size_t i = 0; i < n && r == 0; i++) {
        const struct host_process *p =
            pids[i] <= INT32_MAX ? host_process_find(world->host, (pid_t)pids[i]) : NULL;
        if (!p)
            continue;
        world->subjects[world->explain.n++] = (struct explain_subject){
            .pid = p->pid,
            .uid = p->valid & HOST_HAS_STATUS ? p->uid : UINT32_MAX,
            .program = p->name,
            .user = p->valid & HOST_HAS_USER ? p->user : NULL,
        };
    }
    return r;
}

static bool any(const struct ledger_process *process, void *context)
{
    return true;
}

static bool any_other(uint64_t pid, const char *program, void *context)
{
    return true;
}

/* One look cannot tell what grows: memoird has watched. */
static int look_at_leaks(struct world *world, const struct world_options *options,
                         const struct query *query)
{
    struct leaks_ask request = {.socket = options->socket,
                                .ledger = world->ledger,
                                .all = query_asks_unusual(query),
                                .soon = query_asks_unusual(query),
                                .wanted = any,
                                .wanted_other = any_other};
    uint64_t watched_ns = 0;
    suspects_release(&world->suspects);
    world->suspects = (struct suspects){0};
    int r = leaks_ask(&request, &world->suspects, &watched_ns);
    if (r == -ENODATA) {
        command_fail("memoird has not watched for long enough: memoir leaks waits for it");
        return COMMAND_NOTHING;
    }
    if (r == -ENOMEM)
        return r;
    if (r < 0)
        return command_fail("leaks cannot be detected from one snapshot, and no memoird answers "
                            "(%s): memoir leaks watches by itself",
                            strerror(-r));
    if (!world->symbols && !world->no_symbols) /* its rows are few, and each has a place */
        world->symbols = site_names_new();
    suspects_name(&world->suspects, world->suspects.n, world->ledger, world->symbols);
    return COMMAND_OK;
}

int world_look(struct world *world, const struct world_options *options, const struct query *query,
               struct query_world *ret_world)
{
    unsigned needs = query_needs(query);
    int r = COMMAND_OK;
    if (needs & QUERY_NEEDS_EXITS)
        r = look_at_exits(world, options);
    if (r == 0 && needs & QUERY_NEEDS_RETIRED)
        r = look_at_retired(world, options);
    if (r == 0 && needs & QUERY_NEEDS_CGROUPS)
        r = look_at_cgroups(world);
    if (r == 0 && needs & QUERY_NEEDS_HISTORY)
        r = look_at_history(world, options);
    if (r == 0 && needs & QUERY_NEEDS_BOOKS)
        r = look_at_books(world, options);
    if (r == 0 && needs & QUERY_NEEDS_LEAKS)
        r = look_at_leaks(world, options, query);
    if (r == 0 && needs & QUERY_NEEDS_HOST)
        r = look_at_host(world, options, needs);
    if (r == 0 && needs & QUERY_NEEDS_MAPPINGS)
        r = look_at_mappings(world, options, query);
    if (r == 0 && needs & QUERY_NEEDS_DRIVER && world->ledger)
        look_at_driver(world, query);
    if (needs & QUERY_NEEDS_SYMBOLS && !world->symbols && !world->no_symbols)
        world->symbols = site_names_new();
    world->profile = (struct profile_world){.symbols = site_names_symbolizer(world->symbols)};
    /* What we could read is ours to see: the books' permissions decide. */
    *ret_world = (struct query_world){
        .ledger = world->ledger,
        .exited = world->exited.rows,
        .n_exited = world->exited.n,
        .host = world->host,
        .cgroups = world->cgroups,
        .retired = needs & QUERY_NEEDS_RETIRED ? &world->retired.source : NULL,
        .history = needs & QUERY_NEEDS_HISTORY ? &world->history : NULL,
        .profile = &world->profile,
        .suspects = needs & QUERY_NEEDS_LEAKS ? &world->suspects : NULL,
        .explain = needs & QUERY_NEEDS_MAPPINGS ? &world->explain : NULL,
        .sees_all = true,
        .viewer_uid = geteuid(),
        .user_name = user_name,
        .source_of = world->symbols ? source_of : NULL,
        .site_of = world->symbols ? site_of : NULL,
        .context = world,
    };
    return r;
}

int world_ask(struct world *world, const struct world_options *options, const struct query *query,
              struct query_result *result)
{
    struct query_world looked;
    int r = world_look(world, options, query, &looked);
    if (r != 0)
        return r;
    query_result_reset(result);
    r = query_run(query, &looked, result);
    if (r == -E2BIG && query_needs(query) & QUERY_NEEDS_HISTORY)
        return command_fail(
            "that would be too many points: ask for a longer --step or a shorter time");
    return r < 0 ? r : query_result_finish(result);
}

int world_ask_ledger(struct ledger *ledger, struct site_names *symbols,
                     const struct query_spec *spec, struct query **ret_query,
                     struct query_result **ret_result)
{
    struct world names = {.symbols = symbols};
    struct profile_world profile = {.symbols = site_names_symbolizer(symbols)};
    struct query_world world = {.ledger = ledger,
                                .profile = &profile,
                                .sees_all = true,
                                .viewer_uid = geteuid(),
                                .user_name = user_name,
                                .source_of = symbols ? source_of : NULL,
                                .site_of = symbols ? site_of : NULL,
                                .context = &names};
    MEMOIR_CLEANUP(query_freep)
    struct query *query = NULL;
    struct query_error error;
    struct query_result *result = NULL;
    int r = query_new(spec, &query, &error);
    if (r == 0)
        r = query_result_new(query, 0, &result);
    if (r == 0)
        r = query_run(query, &world, result);
    if (r == 0)
        r = query_result_finish(result);
    site_lines_release(&names.lines);
    if (r < 0) {
        query_result_free(result);
        return r;
    }
    *ret_query = MEMOIR_TAKE(query);
    *ret_result = result;
    return 0;
}

void world_release(struct world *world)
{
    site_lines_release(&world->lines);
    books_release(world);
    host_free(world->host);
    cgroups_freep(&world->cgroups);
    query_exited_release(&world->exited);
    suspects_release(&world->suspects);
    site_names_freep(&world->symbols);
    driver_release(&world->driver);
    *world = (struct world){0};
}
