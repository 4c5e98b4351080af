/* Live blocks of a process by age and size: of its heap, found in its memory by the trailers that the tracker leaves
 * there, or by the words of libmemoir-malloc; or of its devices, as its books list them. Its memory is read while it runs, by a process
 * that may hang (base/apart.h, daemon/broker.h); it is not stopped. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/apart.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "book/trailer.h"
#include "daemon/api_internal.h"
#include "daemon/broker.h"
#include "daemon/daemon.h"
#include "daemon/heap_ages.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"
#include "profile/ages.h"
#include "query/document.h"

enum { ANSWER_MS_MAX = HEAP_AGES_MS_MAX + 1000 }; /* after which its memory does not answer */

struct wish {
    bool heap, device; /* neither: whatever there is, the heap first */
};

static void wish_release(struct job *job)
{
    free(job->more);
}

/* ---- the heap ---- */

static int heap_look(struct buffer *out, void *context)
{
    struct heap_ages_found found;
    int r = heap_ages_look(context, &found);
    return r == 0 ? buffer_append(out, &found, sizeof(found)) : r;
}

const struct ledger_book *api_heap_book(const struct ledger_process *p)
{
    for (size_t i = 0; i < p->n_books; i++)
        if (book_trailer_known(p->books[i]->identity->trailer_format))
            return p->books[i];
    return NULL;
}

bool api_heap_readable(struct ledger *ledger, struct ledger_process *p)
{
    ledger_update_state(ledger, p);
    return ledger_process_holds(p) && ledger_process_reachable(p) && p->pid_proved;
}

/* Memory is read with the rights of the viewer: the book, which says where and what to look for, is untrusted. A root
 * daemon has rights that the viewer lacks, so it leaves the search to the broker. The process is looked at before and
 * after, so that what was read is its memory. */
static int heap_take(struct job *job, struct ledger *ledger, struct ledger_process *p,
                     const struct ledger_book *book, struct ages *ages, uint64_t *ret_searched)
{
    const struct http_viewer *viewer = http_viewer(job->call);
    struct heap_ages_wish wish;
    struct heap_ages_found found;
    struct apart_options apart = {.all_ms = ANSWER_MS_MAX, .owner = p->uid};
    if (!api_heap_readable(ledger, p))
        return -ESRCH;
    heap_ages_wish_make(p->pid, book->identity, proc_monotonic_ns(), &wish);
    int r = geteuid() != 0 || viewer->sees_all
                ? apart_value(heap_look, &wish, &apart, &found, sizeof(found))
                : broker_ages(job->api->daemon->broker, viewer->uid, &wish, ANSWER_MS_MAX, &found);
    if (r == 0 && !api_heap_readable(ledger, p))
        r = -ESRCH;
    if (r < 0)
        return r;
    *ages = found.ages;
    *ret_searched = found.searched;
    return found.late ? -ETIME : 0;
}

/* ---- devices ---- */

struct listed {
    struct ages *ages;
    const struct ledger_process *process;
    uint32_t accounts[BOOK_RECORDS_MAX];
    uint64_t now_ns;
};

static int each_listed_block(const struct book_block_view *block, void *context)
{
    const struct listed *listed = context;
    uint32_t account =
        block->account < BOOK_RECORDS_MAX ? listed->accounts[block->account] : UINT32_MAX;
    if (account == UINT32_MAX || !listed->process->accounts[account].device)
        return 0;
    ages_add(listed->ages, listed->now_ns > block->time_ns ? listed->now_ns - block->time_ns : 0,
             block->bytes);
    return 0;
}

static bool has_device(const struct ledger_process *p)
{
    for (size_t i = 0; i < p->n_accounts; i++)
        if (p->accounts[i].device)
            return true;
    return false;
}

static int devices_take(const struct ledger_process *p, struct ages *ages)
{
    MEMOIR_CLEANUP(freep)
    struct listed *listed = calloc(1, sizeof(*listed));
    if (!listed)
        return -ENOMEM;
    listed->ages = ages;
    listed->process = p;
    listed->now_ns = proc_monotonic_ns();
    for (size_t i = 0; i < p->n_books; i++) {
        MEMOIR_CLEANUP(closep)
        int fd = ledger_book_open(p->books[i]);
        if (fd < 0)
            continue;
        ledger_book_accounts(p->books[i], listed->accounts);
        (void)book_reader_blocks(p->books[i]->reader, fd, each_listed_block, listed, NULL);
    }
    return 0;
}

/* ---- both ---- */

static void problem(struct job *job, int error, bool heap)
{
    if (error == -ESRCH)
        http_problem(job->call, 404, "no-process", "the process has ended");
    else if (error == -EACCES || error == -EPERM)
        http_problem(
            job->call, 403, "no-access",
            "the memory of process %d may not be read: you may not trace it "
            "(set-uid, capabilities, not dumpable, or /proc/sys/kernel/yama/ptrace_scope), "
            "or memoird runs as another user",
            (int)job->part.pid);
    else if (error == -ETIMEDOUT || error == -EBUSY)
        http_problem(
            job->call, 504, "no-answer",
            "the memory of process %d does not answer: some of it comes from a file system or "
            "a program that hangs",
            (int)job->part.pid);
    else if (error == -ENOENT)
        http_problem(job->call, 409, "not-tracked",
                     heap ? "the heap of %s (PID %d) is not known block by block: start it by "
                            "'memoir run COMMAND'"
                          : "%s (PID %d) has no memory on a device",
                     job->part.name, (int)job->part.pid);
    else if (error == -EPROTO)
        http_problem(job->call, 409, "not-tracked",
                     "%s (PID %d) has a libmemoir-malloc of another version, whose blocks cannot "
                     "be found: start it anew",
                     job->part.name, (int)job->part.pid);
    else
        api_failed(job->call, "the blocks could not be read", error);
}

static void run(struct job *job)
{
    const struct wish *wish = job->more;
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    struct ledger_process *p = NULL;
    struct ages ages = {0};
    uint64_t searched = 0;
    int r = part_open(&job->part, &ledger, &p);
    const struct ledger_book *book = r == 0 ? api_heap_book(p) : NULL;
    bool heap = wish->heap || (!wish->device && (book || !p || !has_device(p)));
    if (r == 0 && heap)
        r = book ? heap_take(job, ledger, p, book, &ages, &searched) : -ENOENT;
    else if (r == 0)
        r = has_device(p) ? devices_take(p, &ages) : -ENOENT;
    if (r < 0 && r != -ETIME) {
        problem(job, r, heap);
        return;
    }
    struct json *json = http_json(job->call);
    api_json_begin(json, "memoir.ages/2");
    json_field_i64(json, "pid", job->part.pid);
    json_field_string(json, "program", job->part.name);
    json_field_string(json, "source", heap ? "heap" : "device");
    json_field_bool(json, "complete", r == 0);
    json_field_u64(json, "searched", searched);
    ages_json(&ages, json);
    query_document_end(json);
}

void api_answer_ages(struct http_call *call, void *context)
{
    struct daemon *daemon = context;
    const char *source = http_argument(call, "source");
    struct ledger_process *process = api_own_process(call, daemon);
    if (!process)
        return;
    struct wish *wish = malloc(sizeof(*wish));
    if (!wish) {
        api_failed(call, "there is no room for the question", -ENOMEM);
        return;
    }
    *wish = (struct wish){.heap = source && strcmp(source, "heap") == 0,
                          .device = source && strcmp(source, "device") == 0};
    api_job(call, daemon->api, process, run, wish_release, wish);
}
