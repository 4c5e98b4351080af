/* Where the resident memory of a process goes (doc/explain.md). smaps and memory are read with the rights of the viewer, by a process
 * that may hang; the heap is divided among call sites by the book, where there is one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "daemon/api_internal.h"
#include "daemon/daemon.h"
#include "daemon/explaining.h"
#include "explain/sites.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"
#include "profile/site_names.h"
#include "query/document.h"
#include "query/query.h"

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

/* True where the book tells of the heap. */
static bool sites_take(struct job *job, struct explain *e, struct explain_sites *ret_sites)
{
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    struct ledger_process *process = NULL;
    if (part_open(&job->part, &ledger, &process) < 0 || !explain_live_by(e, process))
        return false;
    MEMOIR_CLEANUP(site_names_freep)
    struct site_names *symbols = site_names_over(api_symbols(job, &job->part));
    return explain_sites_take(process, ((const struct wish *)job->more)->uid, e, EXPLAIN_SITES_TOP,
                              symbols, ret_sites) == 0;
}

static void run(struct job *job)
{
    const struct wish *wish = job->more;
    char comm[PROC_COMM_MAX];
    MEMOIR_CLEANUP(freep)
    struct explain *e = calloc(1, sizeof(*e));
    MEMOIR_CLEANUP(explain_sites_release)
    struct explain_sites sites = {0};
    const struct asking_viewer viewer = api_viewer(job->call);
    int r = e ? explaining_take(job->api->daemon, &viewer, wish->pid, wish->uid, e) : -ENOMEM;
    if (r < 0) {
        problem(job, wish->pid, r);
        return;
    }
    bool known = wish->book && sites_take(job, e, &sites);
    struct json *json = http_json(job->call);
    api_json_begin(json, "memoir.explain/2");
    json_field_string(json, "program",
                      wish->book                             ? job->part.name
                      : proc_comm_read(wish->pid, comm) == 0 ? comm
                                                             : NULL);
    explain_json(e, json);
    explain_sites_json(known ? &sites : NULL, json);
    query_document_end(json);
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

/* ---- the table ---- */

struct question {
    struct explaining *explaining;
    bool arrays;
};

static void question_release(struct job *job)
{
    struct question *question = job->more;
    explaining_free(question->explaining);
    free(question);
}

static void question_run(struct job *job)
{
    const struct question *question = job->more;
    MEMOIR_CLEANUP(query_result_freep)
    struct query_result *result = NULL;
    int r = explaining_run(question->explaining, &result);
    if (r < 0) {
        api_failed(job->call, "the query failed", r);
        return;
    }
    struct json *json = http_json(job->call);
    api_json_begin(json, "memoir.query/1");
    if (question->arrays)
        query_result_arrays(result, json);
    else
        query_result_json(result, json);
    json_object_end(json);
}

void api_explain_query(struct http_call *call, struct daemon *daemon, const struct query_spec *spec)
{
    const struct asking_viewer viewer = api_viewer(call);
    const char *shape = http_argument(call, "shape");
    struct query_error wrong = {0};
    struct question *question = calloc(1, sizeof(*question));
    int r =
        question ? explaining_new(daemon, spec, &viewer, &question->explaining, &wrong) : -ENOMEM;
    if (r >= 0) {
        question->arrays = shape && strcmp(shape, "arrays") == 0;
        api_job(call, daemon->api, NULL, question_run, question_release, question);
        return;
    }
    free(question);
    if (r == -EAGAIN && http_tries(call) < API_TABLE_TRIES)
        http_again(call);
    else if (wrong.text[0])
        api_bad_query(call, &wrong);
    else
        api_failed(call, "the query failed", r);
}
