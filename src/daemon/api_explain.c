/* Where the resident memory of a process goes (doc/explain.md). smaps and memory are read with the rights of the viewer, by a process
 * that may hang; the heap is divided among call sites by the book, where there is one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "daemon/api_internal.h"
#include "daemon/broker.h"
#include "daemon/daemon.h"
#include "explain/sites.h"
#include "ledger/ledger.h"
#include "profile/site_names.h"

enum { ANSWER_MS_MAX = 3000, SITES_TOP = 20 };

struct wish {
    pid_t pid;
    uint32_t uid;
    bool book;
};

static void wish_release(struct job *job)
{
    free(job->more);
}

static void problem(struct job *job, pid_t pid, int error)
{
    if (error == -ESRCH)
        http_problem(job->call, 404, "no-process", "the process has ended");
    else if (error == -EACCES || error == -EPERM)
        http_problem(job->call, 403, "no-access",
                     "/proc/%d/smaps may not be read: you may not trace the process, or memoird "
                     "runs as another user",
                     (int)pid);
    else if (error == -ETIME || error == -ETIMEDOUT || error == -EBUSY)
        http_problem(job->call, 504, "no-answer", "process %d does not answer in time", (int)pid);
    else
        api_failed(job->call, "the mappings could not be read", error);
}

int api_explain_take(struct job *job, pid_t pid, uint32_t uid, struct explain *ret)
{
    const struct http_viewer *viewer = http_viewer(job->call);
    if (geteuid() != 0 || viewer->sees_all)
        return explain_take_apart(pid, uid, ANSWER_MS_MAX, ret);
    return broker_explain(job->api->daemon->broker, viewer->uid, pid, ANSWER_MS_MAX, ret);
}

/* True where the book tells of the heap. */
static bool sites_take(struct job *job, struct explain *e, struct explain_sites *ret_sites)
{
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    struct ledger_process *process = NULL;
    uint64_t live = 0;
    bool partial = false;
    if (part_open(&job->part, &ledger, &process) < 0 || !explain_live_of(process, &live, &partial))
        return false;
    explain_live(e, live, partial);
    MEMOIR_CLEANUP(site_names_freep)
    struct site_names *symbols = site_names_over(api_symbols(job, &job->part));
    return explain_sites_take(process, ((const struct wish *)job->more)->uid, e, SITES_TOP, symbols,
                              ret_sites) == 0;
}

static void run(struct job *job)
{
    const struct wish *wish = job->more;
    MEMOIR_CLEANUP(freep)
    struct explain *e = calloc(1, sizeof(*e));
    MEMOIR_CLEANUP(explain_sites_release)
    struct explain_sites sites = {0};
    int r = e ? api_explain_take(job, wish->pid, wish->uid, e) : -ENOMEM;
    if (r < 0) {
        problem(job, wish->pid, r);
        return;
    }
    bool known = wish->book && sites_take(job, e, &sites);
    struct json *json = http_json(job->call);
    api_json_begin(json, "memoir.explain/1");
    json_field_string(json, "program", wish->book ? job->part.name : NULL);
    explain_json(e, json);
    explain_sites_json(known ? &sites : NULL, json);
    json_object_end(json);
}

void api_answer_explain(struct http_call *call, void *context)
{
    struct daemon *daemon = context;
    struct wish found = {0};
    struct ledger_process *process = NULL;
    if (!api_own_pid(call, daemon, &found.pid, &found.uid, &process))
        return;
    struct wish *wish = malloc(sizeof(*wish));
    if (!wish) {
        api_failed(call, "there is no room for the question", -ENOMEM);
        return;
    }
    found.book = process != NULL;
    *wish = found;
    api_job(call, daemon->api, process, run, wish_release, wish);
}
