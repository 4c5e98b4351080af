/* Why memory of a process is pinned or not, over HTTP: from the file that libmemoir-cuda keeps
 * beside the book. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "daemon/api_internal.h"
#include "daemon/daemon.h"
#include "ledger/ledger.h"
#include "pin/advice.h"
#include "pin/kernel_pinned.h"
#include "pin/label.h"
#include "pin/reason.h"
#include "pin/settings.h"
#include "pin/state_read.h"
#include "query/document.h"

enum { ROWS_MAX = 200 };

struct wish {
    int fd;
    pid_t pid;
};

static void wish_release(struct job *job)
{
    struct wish *wish = job->more;
    close(wish->fd);
    free(wish);
}

static int compare_blocks(const void *a, const void *b)
{
    const struct pin_state_block *x = *(const struct pin_state_block *const *)a,
                                 *y = *(const struct pin_state_block *const *)b;
    uint64_t u = x->saved_ns + x->missed_ns, v = y->saved_ns + y->missed_ns;
    return u != v ? (u < v ? 1 : -1) : (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static int compare_sites(const void *a, const void *b)
{
    const struct pin_state_site *x = *(const struct pin_state_site *const *)a,
                                *y = *(const struct pin_state_site *const *)b;
    uint64_t u = x->saved_ns + x->missed_ns, v = y->saved_ns + y->missed_ns;
    return (u < v) - (u > v);
}

static void blocks_json(struct json *json, const struct pin_state *s, struct symbolizer *names,
                        pid_t pid)
{
    const struct pin_state_block **order = calloc(PIN_STATE_BLOCKS, sizeof(*order));
    char text[PIN_LABEL_MAX];
    size_t n = 0;
    for (size_t i = 0; order && i < PIN_STATE_BLOCKS; i++)
        if (s->block[i].address)
            order[n++] = &s->block[i];
    if (order)
        qsort(order, n, sizeof(*order), compare_blocks);
    json_key(json, "allocations");
    json_array_begin(json);
    for (size_t i = 0; i < n && i < ROWS_MAX; i++) {
        const struct pin_state_block *b = order[i];
        json_object_begin(json);
        snprintf(text, sizeof(text), "0x%" PRIx64, b->address);
        json_field_string(json, "address", text);
        json_field_bool(json, "is_pinned", b->pinned && s->mode != PIN_SHADOW);
        json_field_u64(json, "bytes", b->bytes);
        json_field_u64(json, "copies", b->copies[0] + b->copies[1]);
        json_field_double(json, "missed", (double)b->missed_ns / 1e9);
        json_field_double(json, "saved", (double)b->saved_ns / 1e9);
        json_field_double(json, "cost", (double)b->cost_ns / 1e9);
        json_field_string(json, "reason", pin_reason_word((enum pin_reason)b->reason));
        snprintf(text, sizeof(text), "%s%s",
                 b->pinned && s->mode == PIN_SHADOW ? "would be pinned: " : "",
                 pin_reason_text((enum pin_reason)b->reason));
        json_field_string(json, "why", text);
        json_field_string(json, "site",
                          b->reason == PIN_REASON_RING ? "staging ring"
                                                       : pin_label(names, s, b->site, pid, text));
        json_object_end(json);
    }
    json_array_end(json);
    free(order);
}

static void sites_json(struct json *json, const struct pin_state *s, struct symbolizer *names,
                       pid_t pid)
{
    const struct pin_state_site **order = calloc(PIN_STATE_SITES, sizeof(*order));
    char text[PIN_LABEL_MAX];
    size_t n = 0;
    for (size_t i = 1; order && i < s->n_sites; i++)
        if (s->site[i].key && s->site[i].copies[0] + s->site[i].copies[1])
            order[n++] = &s->site[i];
    if (order)
        qsort(order, n, sizeof(*order), compare_sites);
    json_key(json, "sites");
    json_array_begin(json);
    for (size_t i = 0; i < n && i < ROWS_MAX; i++) {
        const struct pin_state_site *site = order[i];
        struct pin_advice advice = pin_advice_of(s, site);
        json_object_begin(json);
        json_field_string(json, "site", pin_label(names, s, (uint32_t)(site - s->site), pid, text));
        snprintf(text, sizeof(text), "%016" PRIx64, site->key);
        json_field_string(json, "key", text);
        json_field_u64(json, "allocations", site->blocks);
        json_field_string(json, "advice", pin_advice_word(advice.kind));
        json_field_double(json, "saves_each", (double)advice.each_ns / 1e9);
        json_field_u64(json, "bytes", advice.cost_bytes);
        json_field_u64(json, "copies", site->copies[0] + site->copies[1]);
        json_field_double(json, "missed", (double)site->missed_ns / 1e9);
        json_field_double(json, "saved", (double)site->saved_ns / 1e9);
        json_field_u64(json, "registered", s->mode == PIN_SHADOW ? 0 : site->pinned_bytes);
        json_object_end(json);
    }
    json_array_end(json);
    free(order);
}

static void answer(struct job *job, const struct pin_state *s)
{
    struct wish *wish = job->more;
    struct symbolizer *names = api_symbols(job, &job->part);
    struct json *json = http_json(job->call);
    api_json_begin(json, "memoir.pinning/3");
    json_field_i64(json, "pid", wish->pid);
    json_field_string(json, "mode", pin_mode_word((enum pin_mode)s->mode));
    json_field_u64(json, "registered", s->mode == PIN_SHADOW ? 0 : s->registered_bytes);
    json_field_u64(json, "registered_peak", s->mode == PIN_SHADOW ? 0 : s->registered_peak);
    json_field_u64(json, "own_pinned", s->own_bytes);
    json_field_u64(json, "live", s->live_bytes);
    uint64_t kernel;
    if (pin_kernel_pinned("/proc/vmstat", &kernel) == 0)
        json_field_u64(json, "kernel_pinned", kernel);
    else
        json_field_null(json, "kernel_pinned");
    if (s->budget_bytes == UINT64_MAX)
        json_field_null(json, "budget");
    else
        json_field_u64(json, "budget", s->budget_bytes);
    json_field_double(json, "saved", (double)s->saved_ns / 1e9);
    json_field_double(json, "missed", (double)s->missed_ns / 1e9);
    json_field_double(json, "cost", (double)s->cost_ns / 1e9);
    json_field_u64(json, "staged_copies", s->staged_copies);
    json_field_u64(json, "staged", s->staged_bytes);
    json_field_double(json, "staged_saved", (double)s->staged_saved_ns / 1e9);
    json_field_u64(json, "touched_ahead", s->touched_bytes);
    json_field_u64(json, "failures", s->failures + s->unregister_failed);
    json_field_u64(json, "not_shown_blocks", s->not_shown);
    json_field_bool(json, "calibrated", s->calibrated);
    blocks_json(json, s, names, wish->pid);
    sites_json(json, s, names, wish->pid);
    query_document_end(json);
}

static void run(struct job *job)
{
    struct wish *wish = job->more;
    MEMOIR_CLEANUP(freep)
    char *bytes = malloc(sizeof(struct pin_state));
    MEMOIR_CLEANUP(freep)
    struct pin_state *state = NULL;
    ssize_t n = bytes ? pread(wish->fd, bytes, sizeof(struct pin_state), 0) : -1;
    int r = n < 0 ? -ENOMEM : pin_state_check(bytes, (size_t)n, 0, &state);
    if (r < 0)
        api_failed(job->call, "what the process shows about its pinning cannot be read", r);
    else
        answer(job, state);
}

/* Beside the book of the library, in a directory that was checked when the book was added.
 * -errno. */
static int state_open(const struct ledger_process *p)
{
    for (size_t i = 0; i < p->n_books; i++) {
        const struct ledger_book *book = p->books[i];
        char name[32];
        struct stat info;
        if (book->dirfd < 0 || book->identity->source != BOOK_SOURCE_CUDA)
            continue;
        snprintf(name, sizeof(name), PIN_STATE_PREFIX "%d",
                 (int)book->identity->pid); /* in its own namespace */
        int fd =
            openat(book->dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
        if (fd < 0)
            continue;
        if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == p->uid &&
            info.st_size == sizeof(struct pin_state))
            return fd;
        close(fd);
    }
    return -ENOENT;
}

void api_answer_pinning(struct http_call *call, void *context)
{
    struct daemon *daemon = context;
    const struct ledger_process *p = api_own_process(call, daemon);
    if (!p)
        return;
    int fd = state_open(p);
    if (fd < 0) {
        http_problem(
            call, 404, "no-pinning",
            "the process shows no pinning: it was not started by memoir pin run, or has copied nothing yet");
        return;
    }
    struct wish *wish = malloc(sizeof(*wish));
    if (!wish) {
        close(fd);
        api_failed(call, "there is no room for the question", -ENOMEM);
        return;
    }
    *wish = (struct wish){.fd = fd, .pid = p->pid};
    api_job(call, daemon->api, p, run, wish_release, wish);
}
