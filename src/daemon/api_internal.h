/* What the files of the HTTP API share. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "daemon/api.h"
#include "daemon/asking.h"
#include "daemon/turns.h"
#include "http/http.h"
#include "ledger/part.h"
#include "site/symbols.h"

struct daemon;
struct event;
struct ledger_process;
struct query_error;
struct query_table;
struct symbol_pool;
struct symbolizer;

enum {
    API_TURNS = 64,              /* viewers that are told apart where they wait for costly tables */
    API_LANES = 6,               /* threads for jobs (chores.h) */
    API_SYMBOLS_MS = 5000,       /* for one answer of the symbol helper */
    API_SYMBOLS_BYTES = 8 << 20, /* of answers that are kept */
    API_SUSPECTS_MAX = 100,
    API_TABLE_TRIES = 2000, /* a few seconds, until the table of processes has a new one */
};

struct api {
    struct daemon *daemon;
    struct http *http;     /* from api_start() to api_stop() */
    struct chores *chores; /* until api_stop() */
    struct symbol_pool *symbols;
    atomic_bool ending;
    struct turn turns[API_TURNS];
    struct api_stream *stream;
    struct leak_log *leak_log; /* the stream's */
    uint64_t started_real_ns;
};

/* ---- who asks ---- */

struct asking_viewer api_viewer(const struct http_call *call);

/* A number for all calls of one viewer, below API_TURNS. */
size_t api_viewer_slot(const struct http_call *call);

/* ---- tables: api_tables.c ---- */

/* Is it this call's turn to ask a costly table? If not, the handler is run again later. */
/* What the arguments of a view or a query ask for; borrowed from the call. */
struct query_spec api_spec_of(const struct http_call *call);

bool api_turn(struct http_call *call, struct api *api, const struct query_table *table);

/* The problem of an invalid question. */
void api_bad_query(struct http_call *call, const struct query_error *error);

/* "schema" and "time", as documents of the command line begin. */
void api_json_begin(struct json *json, const char *schema);

void api_answer_query(struct http_call *call, void *context);
void api_answer_view(struct http_call *call, void *context);
void api_answer_tables(struct http_call *call, void *context);

/* ---- other nodes: api_cluster.c ---- */

void api_answer_cluster(struct http_call *call, void *context);
void api_answer_cluster_programs(struct http_call *call, void *context);

/* Does the call ask for other nodes (scope=cluster, node=)? Then the query goes to them, and answers the call. */
struct query_spec;
bool api_cluster_wanted(const struct http_call *call);
void api_cluster_query(struct http_call *call, struct daemon *daemon,
                       const struct query_spec *spec);
void api_cluster_failed(struct http_call *call, int error);

/* Send the call to that node; false: it is this one. */
bool api_cluster_call(struct http_call *call, struct daemon *daemon, const char *node);

/* ---- one process ---- */

void api_answer_process(struct http_call *call, void *context);
void api_answer_tracking(struct http_call *call, void *context);
void api_answer_tracing(struct http_call *call, void *context);
void api_answer_scan(struct http_call *call, void *context);

/* The process of the path's {pid} with a book, which the viewer may see the inside of; else NULL, and the call
 * has its problem. */
struct ledger_process *api_own_process(struct http_call *call, struct daemon *daemon);

/* The same for any process, with a book (*ret_process) or without one (NULL). False: the call has its problem, or is run again. */
bool api_own_pid(struct http_call *call, struct daemon *daemon, pid_t *ret_pid, uint32_t *ret_uid,
                 struct ledger_process **ret_process);

/* The row with that PID. Its owner is proved again first: since the last look, another user's process may have got the
 * PID, or the process may have become another user's by exec. NULL: none. */
struct ledger_process *api_process_proved(struct daemon *daemon, pid_t pid);

/* Is there no process with this PID? The table of processes may not have one yet, or still have it. The number of a thread is no
 * PID: the table never has it. */
bool api_pid_gone(pid_t pid);

/* The body {"on": true}, with "children": true where `ret_children` is not NULL: false, and the call has its problem. */
bool api_wish_on(struct http_call *call, bool *ret_on, bool *ret_children);

/* The book by which blocks are found in the memory of the process; NULL: there is none. */
const struct ledger_book *api_heap_book(const struct ledger_process *process);

/* Does it run, and is its PID proved to be that of its book? Before its memory is read. */
bool api_heap_readable(struct ledger *ledger, struct ledger_process *process);

/* ---- work for the worker: api_job.c ---- */

struct job {
    struct http_call *call;
    struct api *api;
    struct part part;             /* of the process that it is about; zero where there is none */
    void (*run)(struct job *job); /* on the worker: answers the call */
    void (*release)(struct job *job); /* frees what is below; NULL: nothing */
    void *more;
};

/* Give the call to the worker; `process` may be NULL. Where that is not possible the call gets its problem and `more` is
 * released. */
void api_job(struct http_call *call, struct api *api, const struct ledger_process *process,
             void (*run)(struct job *job), void (*release)(struct job *job), void *more);

/* The same for the thread that asks the observer (traces.h). */
void api_job_trace(struct http_call *call, struct api *api, void (*run)(struct job *job),
                   void (*release)(struct job *job), void *more);

/* On a worker: the helper for names, which is this thread's until api_rest(); NULL: it cannot be had. From now on it opens files
 * for the process of `part`, with the rights of that process's user; NULL: it opens none. */
struct symbolizer *api_symbols(const struct job *job, const struct part *part);
/* The same for a viewer that need not have come by HTTP. */
struct symbolizer *api_symbols_for(struct api *api, bool sees_all, const struct part *part);

/* On a worker that asked the broker or names: it has no more questions for the moment. Jobs need not call it. */
void api_rest(struct api *api);

/* On the worker: does a client still wait for the answer? For profile_name_all(); `context` is the job. */
bool api_goes_on(size_t done, size_t all, void *context);

/* A problem for an error of our own. */
void api_failed(struct http_call *call, const char *what, int error);

/* The number of a space by its word; 0 with a problem when there is none. True also where nothing was asked for. */
bool api_space(struct http_call *call, uint32_t *ret_space);

void api_answer_sites(struct http_call *call, void *context);
void api_answer_stacks(struct http_call *call, void *context);
void api_answer_flame(struct http_call *call, void *context);
void api_answer_profile(struct http_call *call, void *context);
void api_answer_explain(struct http_call *call, void *context);
/* A question to the table `explain`, on the worker. */
void api_explain_query(struct http_call *call, struct daemon *daemon,
                       const struct query_spec *spec);
void api_answer_ages(struct http_call *call, void *context);
void api_answer_process_buffers(struct http_call *call, void *context);
void api_answer_leaks(struct http_call *call, void *context);
void api_answer_history(struct http_call *call, void *context);
void api_answer_traced(struct http_call *call, void *context);
void api_answer_trace(struct http_call *call, void *context);
void api_answer_pinning(struct http_call *call, void *context);
void api_answer_trace_dump(struct http_call *call, void *context);

/* ---- the daemon itself ---- */

void api_answer_self(struct http_call *call, void *context);
void api_answer_session(struct http_call *call, void *context);

/* ---- streams: api_stream.c ---- */

void api_answer_stream(struct http_call *call, void *context);
int api_stream_start(struct api *api);
void api_stream_stop(struct api *api);
