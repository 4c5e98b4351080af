/* Work that may block: prepared on the loop, done by the worker. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/api_internal.h"
#include "daemon/broker.h"
#include "daemon/chores.h"
#include "daemon/daemon.h"
#include "daemon/symbol_pool.h"
#include "daemon/traces.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"
#include "site/symbol_file.h"
#include "site/symbols.h"

static void job_free(struct job *job)
{
    part_release(&job->part);
    if (job->release)
        job->release(job);
    free(job);
}

static void job_run(void *context)
{
    struct job *job = context;
    struct http_call *call = job->call;
    if (!http_abandoned(call))
        job->run(job);
    api_rest(job->api);
    job_free(job);
    http_done(call);
}

static void job_drop(void *context)
{
    struct job *job = context;
    struct http_call *call = job->call;
    http_problem(call, 503, "ending", "memoird ends");
    job_free(job);
    http_done(call);
}

static int job_add(struct job *job, bool trace)
{
    struct api *api = job->api;
    const struct asking_viewer viewer = api_viewer(job->call);
    uint32_t user = asking_user(&viewer);
    return trace ? traces_add(api->daemon->traces, user, job_run, job_drop, job)
                 : chores_add(api->chores, user, job_run, job_drop, job);
}

static void job_begin(struct http_call *call, struct api *api, const struct ledger_process *process,
                      bool trace, void (*run)(struct job *job), void (*release)(struct job *job),
                      void *more)
{
    struct job *job = malloc(sizeof(*job));
    struct job none = {.more = more};
    if (!job) {
        if (release)
            release(&none);
        api_failed(call, "there is no room for the question", -ENOMEM);
        return;
    }
    *job = (struct job){.call = call, .api = api, .run = run, .release = release, .more = more};
    if (process)
        part_take(process, &job->part);
    http_later(call); /* before a worker can be done with it */
    if (job_add(job, trace) == 0)
        return;
    http_problem(
        call, 429, "busy",
        "too many questions about call sites, blocks, traces or history wait already: ask again in a "
        "moment");
    job_free(job);
    http_done(call);
}

void api_job(struct http_call *call, struct api *api, const struct ledger_process *process,
             void (*run)(struct job *job), void (*release)(struct job *job), void *more)
{
    job_begin(call, api, process, false, run, release, more);
}

void api_job_trace(struct http_call *call, struct api *api, void (*run)(struct job *job),
                   void (*release)(struct job *job), void *more)
{
    job_begin(call, api, NULL, true, run, release, more);
}

/* ---- names ---- */

/* Whose rights open the files of a process. Inside a user namespace, its maker has rights that the process's own uid
 * lacks. Only who sees all may use them: the process is not the maker, and what it runs may be nothing that the maker
 * trusts. PIDs are given again, so for all others the user must not follow from one. */
static uint32_t acting_user(bool sees_all, const struct part *part)
{
    uint32_t maker = UINT32_MAX;
    if (sees_all && part->uid != 0 && part->pid > 0)
        maker = proc_namespace_owner(part->pid);
    return maker == UINT32_MAX || maker == 0 ? part->uid : maker;
}

struct symbolizer *api_symbols_for(struct api *api, bool sees_all, const struct part *part)
{
    return symbol_pool_get(api->symbols,
                           part ? acting_user(sees_all, part) : (uint32_t)SYMBOL_OWNER_NONE);
}

struct symbolizer *api_symbols(const struct job *job, const struct part *part)
{
    return api_symbols_for(job->api, http_viewer(job->call)->sees_all, part);
}

void api_rest(struct api *api)
{
    broker_rest(api->daemon->broker);
    symbol_pool_rest(api->symbols);
    traces_rest(api->daemon->traces);
}

bool api_goes_on(size_t done, size_t all, void *context)
{
    const struct job *job = context;
    return !atomic_load(&job->api->ending) && !http_abandoned(job->call);
}

void api_failed(struct http_call *call, const char *what, int error)
{
    if (error == -ENODEV)
        http_problem(call, 503, "no-table", "%s: /proc cannot be read", what);
    else if (error == -ENOMEM)
        http_problem(call, 503, "no-memory", "%s: memoird is out of memory", what);
    else if (error == -ECANCELED)
        http_problem(call, 503, "ending", "memoird ends");
    else
        http_problem(call, 500, "failed", "%s: %s", what, strerror(-error));
}

bool api_space(struct http_call *call, uint32_t *ret_space)
{
    const char *word = http_argument(call, "space");
    *ret_space = 0;
    if (!word)
        return true;
    for (uint32_t i = 0; i <= MEMOIR_SPACE_MAX; i++)
        if (ledger_space_words[i] && strcmp(ledger_space_words[i], word) == 0) {
            *ret_space = i;
            return true;
        }
    http_problem(call, 400, "bad-argument",
                 "'%s' is no kind of memory: heap, mapped, pinned, dram, l1 ... are", word);
    return false;
}
