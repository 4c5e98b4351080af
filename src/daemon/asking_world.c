/* See asking_world.h. */
#include "daemon/asking_world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/asking.h"
#include "daemon/climbing.h"
#include "daemon/clustering.h"
#include "daemon/daemon.h"
#include "daemon/driver_facts.h"
#include "daemon/exit_watch.h"
#include "daemon/growing.h"
#include "daemon/hosts.h"
#include "daemon/native_exited.h"
#include "ledger/leaks.h"
#include "ledger/ledger.h"

bool asking_world_ready(struct daemon *daemon, unsigned needs)
{
    struct hosts *hosts = daemon->hosts;
    if (needs & QUERY_NEEDS_HOST && hosts && !hosts_ready(hosts))
        return false;
    if (needs & QUERY_NEEDS_CGROUPS && hosts && !hosts_cgroups_ready(hosts))
        return false;
    return !(needs & QUERY_NEEDS_DRIVER) || driver_facts_ready(daemon->driver);
}

static bool is_visible(const struct ledger_process *process, void *context)
{
    const struct asking_viewer *viewer = context;
    return query_may_see(viewer->sees_all, viewer->uid, process->uid);
}

int asking_suspects(struct daemon *daemon, const struct asking_viewer *viewer,
                    const struct leaks *leaks, struct suspects *ret_suspects)
{
    int r = suspects_from(leaks, ret_suspects);
    ret_suspects->daemon = true;
    for (size_t i = 0; i < ret_suspects->n; i++) {
        struct suspect *row = &ret_suspects->rows[i];
        const char *name = asking_user_name(daemon->asking, row->uid);
        char *user = name ? strdup(name) : NULL;
        if (!user)
            continue; /* its number is there */
        free(row->user);
        row->user = user;
    }
    return r < 0 ? r : climbing_suspects(daemon->climbing, viewer, ret_suspects);
}

static int leaks_open(struct asking_world *w, const struct query *query,
                      const struct asking_viewer *viewer)
{
    struct leaks_options options = {
        .all = query_asks_unusual(query),
        .deadline_ns = clock_monotonic_ns() + ASKING_MS * NS_PER_MS,
        .wanted = is_visible, /* no time goes into books that the viewer may not see */
        .context = (void *)viewer,
    };
    MEMOIR_CLEANUP(leaks_release)
    struct leaks leaks = {0};
    int r = growing_leaks(w->daemon->growing, &options, &leaks);
    if (r >= 0)
        r = asking_suspects(w->daemon, viewer, &leaks, &w->suspects);
    w->world.suspects = &w->suspects;
    return r;
}

static int host_open(struct asking_world *w, const struct asking_viewer *viewer)
{
    struct hosts *hosts = w->daemon->hosts;
    if (!hosts)
        return -ENODEV;
    w->world.host = viewer->hasty ? hosts_peek(hosts) : hosts_lock(hosts);
    if (!w->world.host)
        return viewer->hasty ? -EAGAIN : -ENODEV;
    return 0;
}

int asking_world_open(struct daemon *daemon, const struct query *query,
                      const struct asking_viewer *viewer, const struct users *users,
                      struct asking_world *w)
{
    unsigned needs = query_needs(query);
    int r = 0;
    *w = (struct asking_world){
        .daemon = daemon,
        .world = {.ledger = daemon->ledger,
                  .sees_all = viewer->sees_all,
                  .viewer_uid = viewer->uid,
                  .node = clustering_node_name(daemon->clustering),
                  .time_max_ns = ASKING_MS * NS_PER_MS},
    };
    if (needs & QUERY_NEEDS_DRIVER)
        driver_facts_want(daemon->driver);
    if (needs & (QUERY_NEEDS_HISTORY | QUERY_NEEDS_MAPPINGS))
        return -EOPNOTSUPP;
    if (needs & QUERY_NEEDS_EXITS) {
        r = native_exited_read(daemon->retired, exit_watch_file(daemon->exits), users, &w->exited);
        w->world.exited = w->exited.rows;
        w->world.n_exited = w->exited.n;
    }
    if (needs & QUERY_NEEDS_EVENTS) {
        w->events.events = daemon->events;
        w->world.events = &w->events;
    }
    if (needs & QUERY_NEEDS_RETIRED) {
        w->retired = (struct native_exited_lines){{native_exited_lines_read}, daemon->retired};
        w->world.retired = &w->retired.source;
    }
    if (r == 0 && needs & QUERY_NEEDS_LEAKS)
        r = leaks_open(w, query, viewer);
    if (r == 0 && needs & QUERY_NEEDS_HOST)
        r = host_open(w, viewer);
    if (needs & QUERY_NEEDS_CGROUPS && daemon->hosts)
        w->world.cgroups = hosts_cgroups_lock(daemon->hosts);
    return r;
}

void asking_world_release(struct asking_world *w)
{
    query_exited_release(&w->exited);
    suspects_release(&w->suspects);
    if (w->world.host)
        hosts_unlock(w->daemon->hosts);
    if (w->world.cgroups)
        hosts_cgroups_unlock(w->daemon->hosts);
    *w = (struct asking_world){0};
}
