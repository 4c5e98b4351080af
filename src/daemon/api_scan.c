/* A scan of a process's heap over HTTP: what is lost, by the line that asked for it, as `memoir leaks --scan` has it. The process
 * stands still meanwhile, so this takes the role control and is audited. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/apart.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/api_internal.h"
#include "daemon/broker.h"
#include "daemon/daemon.h"
#include "daemon/heap_scan.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"
#include "profile/book_names.h"
#include "profile/site_names.h"
#include "query/document.h"

/* ---- looking ---- */

static int child_look(struct buffer *out, void *context)
{
    struct heap_scan_found found;
    int r = heap_scan_look(context, &found);
    return r == 0 ? buffer_append(out, &found, sizeof(found)) : r;
}

/* The viewer's rights decide, as the kernel sees them: see api_ages.c. */
static int look(struct job *job, const struct ledger_process *p, const struct ledger_book *book,
                uint32_t sites, struct heap_scan_found *ret_found)
{
    const struct http_viewer *viewer = http_viewer(job->call);
    struct heap_scan_wish wish = {.sites = sites,
                                  .gaps_are_roots = p->losses[BOOK_LOSS_SUSPENDED] > 0};
    struct apart_options apart = {.all_ms = HEAP_SCAN_MS_MAX, .owner = p->uid};
    heap_ages_wish_make(p->pid, book->identity, proc_monotonic_ns(), &wish.heap);
    if (geteuid() != 0 || viewer->sees_all)
        return apart_value(child_look, &wish, &apart, ret_found, sizeof(*ret_found));
    return broker_scan(job->api->daemon->broker, viewer->uid, &wish, HEAP_SCAN_MS_MAX, ret_found);
}

/* ---- telling ---- */

static void sum_json(struct json *json, const char *key, const struct scan_sum *sum)
{
    json_key(json, key);
    json_object_begin(json);
    json_field_u64(json, "blocks", sum->blocks);
    json_field_u64(json, "bytes", sum->bytes);
    json_object_end(json);
}

static void site_json(struct json *json, const struct heap_scan_site *row, struct book_names *names,
                      struct site_names *symbols)
{
    const struct book_site_name *site = book_names_site(names, row->site, symbols);
    json_object_begin(json);
    json_field_string(json, "state", scan_state_name((enum scan_state)row->state));
    json_field_u64(json, "blocks", row->blocks);
    json_field_u64(json, "bytes", row->bytes);
    json_field_u64(json, "oldest", row->oldest_ns / NS_PER_S);
    json_field_string(json, "site", site ? site->text : NULL);
    json_field_string(json, "via", site ? site->via : NULL);
    json_field_string(json, "frame", site ? site->frame : NULL);
    json_field_string(json, "function", site ? site->function : NULL);
    json_field_string(json, "source_file", site ? site->file : NULL);
    json_object_end(json);
}

static void tell(struct job *job, const struct heap_scan_found *found, struct book_names *names)
{
    struct symbolizer *symbolizer = api_symbols(job, &job->part);
    MEMOIR_CLEANUP(site_names_freep)
    struct site_names *symbols = symbolizer ? site_names_over(symbolizer) : NULL;
    struct json *json = http_json(job->call);
    api_json_begin(json, "memoir.scan/2");
    json_field_i64(json, "pid", job->part.pid);
    json_field_string(json, "program", job->part.name);
    json_field_bool(json, "proof", found->whole);
    json_field_u64(json, "unread", found->unread_bytes);
    json_field_double(json, "stood_still", (double)(found->stood_ns / 1000) / 1e6);
    sum_json(json, "lost", &found->sums[SCAN_LOST]);
    sum_json(json, "indirectly_lost", &found->sums[SCAN_INDIRECT]);
    sum_json(json, "reachable", &found->sums[SCAN_REACHABLE]);
    sum_json(json, "inherited_lost", &found->inherited);
    json_field_u64(json, "sites_left_out", found->sites_more);
    json_key(json, "sites");
    json_array_begin(json);
    for (size_t i = 0; i < found->n_sites && i < HEAP_SCAN_SITES; i++)
        site_json(json, &found->sites[i], names, symbols);
    json_array_end(json);
    query_document_end(json);
}

static void problem(struct job *job, int error)
{
    int pid = (int)job->part.pid;
    if (error == -ESRCH)
        http_problem(job->call, 404, "no-process", "the process has ended");
    else if (error == -EACCES || error == -EPERM)
        http_problem(job->call, 403, "no-access",
                     "process %d may not be stopped: you may not trace it, a debugger has it, or "
                     "/proc/sys/kernel/yama/ptrace_scope forbids it",
                     pid);
    else if (error == -ETIMEDOUT || error == -EBUSY || error == -ECHILD)
        http_problem(job->call, 504, "no-answer",
                     "the scan of process %d took longer than %d s and was given up; the process "
                     "goes on as before",
                     pid, HEAP_SCAN_MS_MAX / 1000);
    else if (error == -ENOENT)
        http_problem(job->call, 409, "not-tracked",
                     "the heap of %s (PID %d) is not known block by block: start it by 'memoir run "
                     "COMMAND'",
                     job->part.name, pid);
    else if (error == -EPROTO)
        http_problem(job->call, 409, "not-tracked",
                     "%s (PID %d) has a libmemoir-malloc of another version, whose blocks cannot "
                     "be found: start it anew",
                     job->part.name, pid);
    else
        api_failed(job->call, "the heap could not be scanned", error);
}

static void run(struct job *job)
{
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    struct ledger_process *p = NULL;
    struct heap_scan_found found;
    struct book_names names = {0};
    int r = part_open(&job->part, &ledger, &p);
    if (r == 0 && !api_heap_readable(ledger, p))
        r = -ESRCH;
    const struct ledger_book *book = r == 0 ? api_heap_book(p) : NULL;
    if (r == 0)
        r = book ? book_names_load(book, &names) : -ENOENT;
    if (r == 0)
        r = look(job, p, book, (uint32_t)names.copy.n_sites, &found);
    if (r == 0)
        tell(job, &found, &names);
    else
        problem(job, r);
    if (names.book)
        book_names_release(&names);
}

void api_answer_scan(struct http_call *call, void *context)
{
    struct daemon *daemon = context;
    uint64_t pid = 0;
    (void)http_number(call, "pid", &pid);
    http_audit(call, "scan of PID %llu", (unsigned long long)pid);
    struct ledger_process *process = api_own_process(call, daemon);
    if (process)
        api_job(call, daemon->api, process, run, NULL, NULL);
}
