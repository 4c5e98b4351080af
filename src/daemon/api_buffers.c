/* Single blocks of one process over HTTP: the table buffers over its books alone, so that the worker can give call sites
 * their names. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/api_internal.h"
#include "daemon/daemon.h"
#include "ledger/ledger.h"
#include "profile/site_names.h"
#include "query/query.h"

enum { READ_MS = 2000 }; /* for the blocks; then the answer is incomplete */

struct wish {
    struct query *query; /* made on the loop's thread, which tells what is wrong with it */
    bool arrays;
    char user[64];
};

static void wish_free(struct wish *wish)
{
    query_free(wish->query);
    free(wish);
}

static void wish_release(struct job *job)
{
    wish_free(job->more);
}

/* ---- on the worker ---- */

struct lookups {
    struct site_names *names;
    const char *user;
};

static const char *user_name(uint32_t uid, void *context)
{
    const struct lookups *lookups = context;
    return lookups->user[0] ? lookups->user : NULL;
}

static bool source_of(const struct query_code *code, struct query_source *ret_source, void *context)
{
    const struct lookups *lookups = context;
    return site_names_source(lookups->names, code, ret_source);
}

static int ask(struct job *job, struct query_result *result)
{
    const struct wish *wish = job->more;
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    struct ledger_process *process;
    struct site_names *names __attribute__((cleanup(site_names_freep))) =
        site_names_over(api_symbols(job, &job->part));
    struct lookups lookups = {names, wish->user};
    int r = part_open(&job->part, &ledger, &process);
    if (r < 0)
        return r;
    r = query_run(wish->query,
                  &(struct query_world){
                      .ledger = ledger,
                      .sees_all = true, /* whose it is was looked at before */
                      .user_name = user_name,
                      .source_of = source_of,
                      .context = &lookups,
                      .time_max_ns = READ_MS * NS_PER_MS,
                  },
                  result);
    if (r == -ETIME)
        r = 0; /* the answer says that it is not complete */
    return r < 0 ? r : query_result_finish(result);
}

static void run(struct job *job)
{
    const struct wish *wish = job->more;
    struct query_result *result = NULL;
    int r = query_result_new(wish->query, ASKING_GROUPS_MAX, &result);
    if (r >= 0)
        r = ask(job, result);
    if (r == -ESRCH) {
        http_problem(job->call, 404, "no-process", "the process has ended");
    } else if (r < 0) {
        api_failed(job->call, "the blocks could not be read", r);
    } else {
        struct json *json = http_json(job->call);
        api_json_begin(json, "memoir.query/1");
        if (wish->arrays)
            query_result_arrays(result, json);
        else
            query_result_json(result, json);
        json_object_end(json);
    }
    query_result_free(result);
}

/* ---- on the loop ---- */

void api_answer_process_buffers(struct http_call *call, void *context)
{
    struct daemon *daemon = context;
    struct query_spec spec = {.table = "buffers",
                              .where = http_argument(call, "where"),
                              .show = http_argument(call, "show"),
                              .sort = http_argument(call, "sort"),
                              .limit = ASKING_ROWS_MAX};
    const char *shape = http_argument(call, "shape");
    struct ledger_process *process = api_own_process(call, daemon);
    if (!process)
        return;
    (void)http_number(call, "limit", &spec.limit);
    if (!spec.limit) /* here as elsewhere: all that an answer may have */
        spec.limit = ASKING_ROWS_MAX;
    if (!spec.show)
        spec.show = "device,ordinal,space,bytes,age,tag,site,id";
    struct wish *wish = calloc(1, sizeof(*wish));
    struct query_error error = {0};
    int r = wish ? query_new(&spec, &wish->query, &error) : -ENOMEM;
    if (r < 0) {
        free(wish);
        if (error.text[0])
            api_bad_query(call, &error);
        else
            api_failed(call, "the query failed", r);
        return;
    }
    const char *user = asking_user_name(daemon->asking, process->uid);
    wish->arrays = shape && strcmp(shape, "arrays") == 0;
    snprintf(wish->user, sizeof(wish->user), "%s", user ? user : "");
    api_job(call, daemon->api, process, run, wish_release, wish);
}
