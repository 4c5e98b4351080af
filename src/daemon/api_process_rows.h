/* Tables over the books of one process: asked on the loop, answered by the worker, laid out by the route. */
#pragma once

#include <stdbool.h>

#include "profile/site_lines.h"
#include "profile/tables.h"
#include "query/query.h"

struct daemon;
struct http_call;
struct job;
struct ledger;
struct site_names;

/* What was asked for; read on the loop's thread, since the arguments are the call's. */
struct process_wish {
    struct query *query;
    bool arrays, at_peak, inverted;
    char user[64], program[64];
};

/* The question `spec` over the process of the call's path, which the viewer may see the inside of. `work` answers on the worker;
 * job.more is a struct process_wish then. Else the call has its problem. */
void api_process_rows(struct http_call *call, struct daemon *daemon, const struct query_spec *spec,
                      void (*work)(struct job *job));

/* Does the route have this parameter? */
bool api_takes(const struct http_call *call, const char *name);

/* On the worker: the world of that question. */
struct process_asking {
    const struct process_wish *wish;
    struct ledger *ledger;
    struct site_names *names;
    struct site_lines lines;
    struct profile_world profile;
    struct query_world world;
};

/* 0 or -errno: -ESRCH where the process has ended. To be released in any case, and not moved. */
int process_asking_open(struct job *job, struct process_asking *asking);
void process_asking_release(struct process_asking *asking);

/* Give the call its problem for `r`, or for an answer without rows because books could not be read. False: all is well. */
bool process_asking_failed(struct job *job, const struct process_asking *asking, int r, bool empty);
