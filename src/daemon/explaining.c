/* See explaining.h. */
#include "daemon/explaining.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/api_internal.h"
#include "daemon/broker.h"
#include "daemon/clustering.h"
#include "daemon/daemon.h"
#include "daemon/hosts.h"
#include "explain/sites.h"
#include "explain/table.h"
#include "ledger/host.h"
#include "ledger/ledger.h"
#include "profile/site_names.h"
#include "query/query.h"

enum { NAME_BYTES = 64 };

struct found {
    bool has_book;
    struct part part; /* with has_book */
    char program[NAME_BYTES], user[NAME_BYTES];
};

struct explaining {
    struct daemon *daemon;
    struct asking_viewer viewer;
    struct query *query;
    char node[NAME_BYTES];
    struct explain_subject subjects[QUERY_NAMED_MAX];
    struct found found[QUERY_NAMED_MAX]; /* of the same processes */
    size_t n;
};

/* ---- on the loop ---- */

/* Adds what is known of a process; one of which the viewer may not see details is left out. */
static void add(struct explaining *x, const struct host_process *row)
{
    struct found *found = &x->found[x->n];
    struct explain_subject *subject = &x->subjects[x->n];
    struct ledger_process *process = api_process_proved(x->daemon, row->pid);
    uint32_t uid = process ? process->uid : row->valid & HOST_HAS_STATUS ? row->uid : UINT32_MAX;
    if (!asking_may_see(&x->viewer, uid))
        return;
    *found = (struct found){.has_book = process != NULL};
    if (process)
        part_take(process, &found->part);
    snprintf(found->program, sizeof(found->program), "%s", process ? process->name : row->name);
    const char *user = uid == UINT32_MAX ? NULL : asking_user_name(x->daemon->asking, uid);
    if (user)
        snprintf(found->user, sizeof(found->user), "%s", user);
    else
        snprintf(found->user, sizeof(found->user), "%u", uid);
    *subject = (struct explain_subject){.pid = row->pid,
                                        .uid = uid,
                                        .program = found->program,
                                        .user = uid == UINT32_MAX ? NULL : found->user};
    x->n++;
}

static int find(struct explaining *x)
{
    uint64_t pids[QUERY_NAMED_MAX];
    size_t n = 0;
    struct hosts *hosts = x->daemon->hosts;
    int r = query_named(x->query, pids, QUERY_NAMED_MAX, &n);
    const struct host *host = hosts && hosts_ready(hosts) ? hosts_peek(hosts) : NULL;
    if (r < 0 || !host) {
        if (host)
            hosts_unlock(hosts);
        return r < 0 ? r : hosts ? -EAGAIN : -ENODEV;
    }
    for (size_t i = 0; i < n; i++) {
        pid_t pid = pids[i] <= INT32_MAX ? (pid_t)pids[i] : 0;
        const struct host_process *row = pid > 0 ? host_process_find(host, pid) : NULL;
        if (row)
            add(x, row);
        else if (pid > 0 && !api_pid_gone(pid))
            r = -EAGAIN;
    }
    hosts_unlock(hosts);
    return r;
}

int explaining_new(struct daemon *daemon, const struct query_spec *asked,
                   const struct asking_viewer *viewer, struct explaining **ret_explaining,
                   struct query_error *ret_error)
{
    struct query_spec spec = *asked;
    struct explaining *x = calloc(1, sizeof(*x));
    if (!x)
        return -ENOMEM;
    spec.limit = asking_limit(spec.limit);
    x->daemon = daemon;
    x->viewer = *viewer;
    const char *node = clustering_node_name(daemon->clustering);
    snprintf(x->node, sizeof(x->node), "%s", node ? node : "");
    int r = query_new(&spec, &x->query, ret_error);
    if (r >= 0)
        r = find(x);
    if (r < 0) {
        explaining_free(x);
        return r;
    }
    *ret_explaining = x;
    return 0;
}

void explaining_free(struct explaining *x)
{
    if (!x)
        return;
    for (size_t i = 0; i < x->n; i++)
        part_release(&x->found[i].part);
    query_free(x->query);
    free(x);
}

/* ---- on another thread ---- */

int explaining_take(struct daemon *daemon, const struct asking_viewer *viewer, pid_t pid,
                    uint32_t uid, struct explain *ret)
{
    if (geteuid() != 0 || viewer->sees_all)
        return explain_take_apart(pid, uid, EXPLAINING_MS_MAX, ret);
    return broker_explain(daemon->broker, viewer->uid, pid, EXPLAINING_MS_MAX, ret, NULL);
}

static int take(const struct explain_subject *subject, struct explain *ret,
                struct explain_sites *ret_sites, void *context)
{
    struct explaining *x = context;
    const struct found *found = &x->found[subject - x->subjects];
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    struct ledger_process *process = NULL;
    int r = explaining_take(x->daemon, &x->viewer, subject->pid, subject->uid, ret);
    if (r < 0 || !found->has_book || part_open(&found->part, &ledger, &process) < 0 ||
        !explain_live_by(ret, process))
        return r;
    MEMOIR_CLEANUP(site_names_freep)
    struct site_names *symbols = NULL;
    if (query_needs(x->query) & QUERY_NEEDS_SYMBOLS)
        symbols =
            site_names_over(api_symbols_for(x->daemon->api, x->viewer.sees_all, &found->part));
    (void)explain_sites_take(process, subject->uid, ret, EXPLAIN_SITES_TOP, symbols, ret_sites);
    return r;
}

int explaining_run(struct explaining *x, struct query_result **ret_result)
{
    struct explain_world explain = {x->subjects, x->n, take, x};
    struct query_world world = {.explain = &explain,
                                .sees_all = x->viewer.sees_all,
                                .viewer_uid = x->viewer.uid,
                                .node = x->node[0] ? x->node : NULL};
    MEMOIR_CLEANUP(query_result_freep)
    struct query_result *result = NULL;
    int r = query_result_new(x->query, ASKING_GROUPS_MAX, &result);
    if (r >= 0)
        r = query_run(x->query, &world, result);
    if (r >= 0)
        r = query_result_finish(result);
    if (r >= 0)
        *ret_result = MEMOIR_TAKE(result);
    return r < 0 ? r : 0;
}
