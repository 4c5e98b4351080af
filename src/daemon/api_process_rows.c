/* Tables over the books of one process, over HTTP: the worker reads them and gives places in the code their names. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/api_internal.h"
#include "daemon/api_process_rows.h"
#include "daemon/daemon.h"
#include "ledger/ledger.h"
#include "profile/site_names.h"
#include "query/query.h"
#include "query/view.h"

enum { READ_MS = 2000 }; /* for the blocks; then the answer is incomplete */

static void wish_release(struct job *job)
{
    struct process_wish *wish = job->more;
    query_free(wish->query);
    free(wish);
}

/* ---- on the worker ---- */

static const char *user_name(uint32_t uid, void *context)
{
    const struct process_asking *asking = context;
    return asking->wish->user[0] ? asking->wish->user : NULL;
}

static bool source_of(const struct query_code *code, struct query_source *ret_source, void *context)
{
    const struct process_asking *asking = context;
    return site_names_source(asking->names, code, ret_source);
}

static bool site_of(const struct ledger_book *book, uint32_t site, struct query_site *ret_site,
                    void *context)
{
    struct process_asking *asking = context;
    asking->lines.symbols = asking->names;
    return site_lines_find(&asking->lines, book, site, ret_site);
}

int process_asking_open(struct job *job, struct process_asking *asking)
{
    struct symbolizer *symbols = api_symbols(job, &job->part);
    struct ledger_process *process;
    *asking = (struct process_asking){.wish = job->more, .names = site_names_over(symbols)};
    asking->profile = (struct profile_world){.symbols = symbols,
                                             .at_peak = asking->wish->at_peak,
                                             .goes_on = api_goes_on,
                                             .context = job};
    int r = part_open(&job->part, &asking->ledger, &process);
    asking->world = (struct query_world){
        .ledger = asking->ledger,
        .profile = &asking->profile,
        .sees_all = true, /* whose it is was looked at before */
        .user_name = user_name,
        .source_of = source_of,
        .site_of = site_of,
        .context = asking,
        .time_max_ns = READ_MS * NS_PER_MS,
    };
    return r;
}

void process_asking_release(struct process_asking *asking)
{
    site_lines_release(&asking->lines);
    ledger_freep(&asking->ledger);
    site_names_freep(&asking->names);
}

bool process_asking_failed(struct job *job, const struct process_asking *asking, int r, bool empty)
{
    if (r == -ESRCH)
        http_problem(job->call, 404, "no-process", "the process has ended");
    else if (r < 0)
        api_failed(job->call, "the process's books could not be read", r);
    else if (empty && asking->profile.books_unread)
        http_problem(job->call, 500, "failed",
                     "the process's book cannot be read; memoir doctor tells why");
    else
        return false;
    return true;
}

static int ask(struct process_asking *asking, struct query_result *result)
{
    int r = query_run(asking->wish->query, &asking->world, result);
    if (r == -ETIME)
        r = 0; /* the answer says that it is not complete */
    return r < 0 ? r : query_result_finish(result);
}

static void run(struct job *job)
{
    const struct process_wish *wish = job->more;
    MEMOIR_CLEANUP(process_asking_release)
    struct process_asking asking;
    MEMOIR_CLEANUP(query_result_freep)
    struct query_result *result = NULL;
    int r = process_asking_open(job, &asking);
    if (r >= 0)
        r = query_result_new(wish->query, ASKING_GROUPS_MAX, &result);
    if (r >= 0)
        r = ask(&asking, result);
    if (process_asking_failed(job, &asking, r, r >= 0 && !query_result_matched(result)))
        return;
    struct json *json = http_json(job->call);
    api_json_begin(json, "memoir.query/1");
    if (wish->arrays)
        query_result_arrays(result, json);
    else
        query_result_json(result, json);
    json_object_end(json);
}

/* ---- on the loop ---- */

bool api_takes(const struct http_call *call, const char *name)
{
    for (const struct http_param *p = http_route(call)->params; p->name; p++)
        if (strcmp(p->name, name) == 0)
            return true;
    return false;
}

void api_process_rows(struct http_call *call, struct daemon *daemon, const struct query_spec *spec,
                      void (*work)(struct job *job))
{
    struct ledger_process *process = api_own_process(call, daemon);
    if (!process)
        return;
    struct process_wish *wish = calloc(1, sizeof(*wish));
    struct query_error error = {0};
    int r = wish ? query_new(spec, &wish->query, &error) : -ENOMEM;
    if (r < 0) {
        free(wish);
        if (error.text[0])
            api_bad_query(call, &error);
        else
            api_failed(call, "the query failed", r);
        return;
    }
    const char *user = asking_user_name(daemon->asking, process->uid);
    const char *shape = api_takes(call, "shape") ? http_argument(call, "shape") : NULL;
    wish->arrays = shape && strcmp(shape, "arrays") == 0;
    wish->at_peak = api_takes(call, "at_peak") && http_yes(call, "at_peak", false);
    wish->inverted = api_takes(call, "inverted") && http_yes(call, "inverted", false);
    snprintf(wish->user, sizeof(wish->user), "%s", user ? user : "");
    snprintf(wish->program, sizeof(wish->program), "%s", process->name);
    api_job(call, daemon->api, process, work, wish_release, wish);
}

/* A view over the books of one process. */
static void answer(struct http_call *call, struct daemon *daemon, const char *name)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer where = BUFFER_INIT(4 * QUERY_TEXT_MAX);
    struct query_spec asked = api_spec_of(call), spec;
    int r = query_view_spec(query_view_find(name), &asked, &where, &spec);
    spec.limit = asking_limit(spec.limit);
    if (r < 0)
        api_failed(call, "the query failed", r);
    else
        api_process_rows(call, daemon, &spec, run);
}

void api_answer_process_buffers(struct http_call *call, void *context)
{
    answer(call, context, "buffers");
}

void api_answer_sites(struct http_call *call, void *context)
{
    answer(call, context, "sites");
}

void api_answer_stacks(struct http_call *call, void *context)
{
    answer(call, context, "flame");
}
