/* The observer of one heap. See heap.h. */
#include "observe/heap.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "ledger/proc.h"
#include "observe/control.h"
#include "observe/elf_parser.h"
#include "observe/heap_callers.h"
#include "observe/heap_internal.h"
#include "observe/sources.h"
#include "observe/stacks.h"
#include "trace/ask.h"

/* ---- what it says ---- */

static const char *end_word(enum heap_end end)
{
    static const char *const words[] = {"attached", "detached", "exited",
                                        "executed another program", "failed"};
    return words[end];
}

/* PIDs of the children that have an observer. */
static void children_json(const struct heap *h, struct json *json)
{
    json_key(json, "children");
    json_array_begin(json);
    for (size_t i = 0; i < HEAP_CHILDREN_MAX; i++)
        if (h->children.all[i].pid && h->children.all[i].observer)
            json_i64(json, h->children.all[i].pid);
    json_array_end(json);
    json_field_u64(json, "missed_children", h->children.missed);
}

static void status_json(struct heap *h, struct buffer *out)
{
    const struct heap_state *s = heap_kernel_state(h->kernel);
    struct heap_sums sums;
    struct json json;
    double alloc_ns, free_ns;
    size_t functions = 0, slow = 0;
    bool news = false;
    heap_sums(h, &sums);
    heap_kernel_costs(h->kernel, &alloc_ns, &free_ns);
    for (size_t i = 0; i < h->target.n; i++) {
        functions += h->target.files[i].n;
        slow += h->target.files[i].slow;
        news |= h->target.files[i].news;
    }
    json_init(&json, out);
    json_object_begin(&json);
    json_field_i64(&json, "pid", h->options->pid);
    json_field_i64(&json, "observer_pid", getpid());
    json_field_string(&json, "state", end_word(h->end));
    json_field_string(&json, "allocator", h->target.allocator);
    json_field_string(&json, "file", h->target.files[0].path);
    json_field_u64(&json, "probed_functions", functions);
    json_field_u64(&json, "slow_functions", slow);
    json_field_bool(&json, "operator_new_unseen", news);
    json_field_u64(&json, "unseen_news", load_relaxed(&s->unseen_news));
    json_field_bool(&json, "estimated", h->budget.windowed);
    json_field_double(&json, "cpu_share", h->budget.share);
    json_field_u64(&json, "windows", h->budget.windows);
    json_field_double(&json, "probe_cost", h->budget.cost_ns / NS_PER_S);
    json_field_bool(&json, "probe_measured", h->budget.measured);
    json_field_double(&json, "figures_age", (double)(heap_budget_age_ns(h) / NS_PER_MS) / 1000);
    if (h->budget.windowed)
        json_field_u64(&json, "bytes_error",
                       (uint64_t)heap_estimate_error(h, heap_budget_since(h)));
    json_field_double(&json, "attached",
                      (double)(clock_monotonic_ns() - h->attached_ns) / NS_PER_S);
    json_field_u64(&json, "bytes", sums.alloc_bytes - sums.freed_bytes);
    json_field_u64(&json, "blocks", sums.alloc_blocks - sums.freed_blocks);
    json_field_u64(&json, "allocated_blocks", sums.alloc_blocks);
    json_field_u64(&json, "freed_blocks", sums.freed_blocks);
    json_field_u64(&json, "unknown_frees", load_relaxed(&s->unknown_frees));
    json_field_u64(&json, "failed", load_relaxed(&s->failed));
    json_field_u64(&json, "replaced", load_relaxed(&s->replaced));
    json_field_u64(&json, "uncounted_blocks", load_relaxed(&s->lost_blocks));
    json_field_u64(&json, "uncounted", load_relaxed(&s->lost_bytes));
    json_field_u64(&json, "lost_callers", load_relaxed(&s->lost_nodes));
    json_field_u64(&json, "lost_stacks", load_relaxed(&s->lost_samples) + h->stacks_lost);
    json_field_u64(&json, "stacks", h->samples_taken);
    json_field_u64(&json, "callers", h->n_told);
    children_json(h, &json);
    json_field_double(&json, "alloc_program", alloc_ns / NS_PER_S);
    json_field_double(&json, "free_program", free_ns / NS_PER_S);
    json_object_end(&json);
}

static enum control_result request(void *context, int fd, const char *line, struct buffer *out,
                                   char *why)
{
    struct heap *h = context;
    if (strcmp(line, "stop") == 0) {
        h->end = HEAP_DETACHED;
        return CONTROL_ANSWERED;
    }
    if (strcmp(line, "status") != 0 && strcmp(line, "flush") != 0)
        return CONTROL_REFUSED;
    heap_book_tell(h);
    if (strcmp(line, "status") == 0)
        status_json(h, out);
    return CONTROL_ANSWERED;
}

/* ---- beginning ---- */

static int fail(struct heap *h, int error, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int fail(struct heap *h, int error, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(h->why, sizeof(h->why), fmt, args);
    va_end(args);
    return error;
}

/* The process is held by its pidfd from here on: what has its PID later is another one. */
static int process_hold(struct heap *h)
{
    struct proc_stat stat;
    pid_t pid = h->options->pid;
    h->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (h->pidfd < 0 || proc_stat_read(pid, &stat) < 0 || stat.dead)
        return fail(h, -ESRCH, "there is no process %d", (int)pid);
    if (!heap_may_trace(h->options->uid, pid))
        return fail(
            h, -EPERM,
            "process %d is not one that user %u may trace: it belongs to another user, has more "
            "rights, or ptrace is restricted",
            (int)pid, h->options->uid);
    return 0;
}

/* Two observers would count the same twice. */
static int alone_check(struct heap *h)
{
    MEMOIR_CLEANUP(closep)
    int other = h->options->socket ? trace_ask_open(h->options->socket) : -1;
    if (other < 0)
        return 0;
    return fail(h, -EALREADY, "process %d is attached already", (int)h->options->pid);
}

static int probes_load(struct heap *h)
{
    struct heap_kernel_options options = {
        .pid = h->options->pid,
        .blocks_max = h->options->blocks_max,
        .two_links = h->options->two_links,
        .children = h->options->children > 0,
    };
    int r = elf_parser_new(&h->parser);
    if (r < 0)
        return fail(h, r, "cannot confine the parser of files and memory of users: %s",
                    strerror(-r));
    r = heap_target_find(h->options->pid, h->parser, &h->target, h->why);
    if (r == 0)
        r = heap_kernel_open(&options, &h->kernel, h->why);
    if (r < 0)
        return r;
    heap_kernel_state(h->kernel)->mean =
        h->options->sample_bytes ? h->options->sample_bytes : HEAP_SAMPLE_BYTES;
    return 0;
}

int heap_probes_in(struct heap *h)
{
    for (size_t i = 0; i < h->target.n; i++) {
        const struct heap_target_file *f = &h->target.files[i];
        int r = heap_kernel_attach(h->kernel, f->fd, f->functions, f->n, h->why);
        if (r < 0) {
            heap_kernel_detach(h->kernel);
            return r;
        }
    }
    return 0;
}

void heap_probes_out(struct heap *h)
{
    store_relaxed(&heap_kernel_state(h->kernel)->on, 0);
    heap_kernel_detach(h->kernel);
}

static void python_follow(struct heap *h)
{
    struct python_kernel_facts facts;
    struct heap_state *s = heap_kernel_state(h->kernel);
    int r = stack_process_python(h->process, &facts);
    if (r != 1)
        return;
    store_relaxed(&s->has_python, 0);
    s->python = facts;
    store_release(&s->has_python, 1);
}

/* From now on an exec is noticed: before, it may have begun a program that its user may not trace. */
static int rights_check(struct heap *h)
{
    if (heap_may_trace(h->options->uid, h->options->pid) &&
        !load_acquire(&heap_kernel_state(h->kernel)->ended))
        return 0;
    return fail(h, -EPERM, "process %d went on with another program: try again",
                (int)h->options->pid);
}

static int start(struct heap *h)
{
    int r = process_hold(h);
    if (r == 0)
        r = alone_check(h);
    if (r == 0)
        r = probes_load(h);
    if (r == 0)
        r = rights_check(h);
    if (r < 0)
        return r;
    r = stacks_new(&h->stacks);
    if (r == 0)
        r = stacks_parser_set(h->stacks, h->parser);
    if (r == 0)
        r = stack_process_new(h->stacks, h->options->pid, &h->process);
    if (r == 0)
        r = heap_callers_new(h->process, h->parser, &h->callers);
    if (r < 0)
        return fail(h, r, "cannot look into the process: %s", strerror(-r));
    r = heap_book_open(h);
    if (r < 0)
        return fail(h, r, "cannot make a book for the process: %s",
                    r == -EMEDIUMTYPE ? "the directory of books is not on a tmpfs" : strerror(-r));
    if (h->options->socket) {
        r = control_new(request, h, h->options->socket, &h->control);
        if (r < 0)
            return fail(h, r, "cannot listen at '%s': %s", h->options->socket, strerror(-r));
    }
    python_follow(h);
    uint64_t before = clock_monotonic_ns();
    store_relaxed(&heap_kernel_state(h->kernel)->on, 1);
    r = heap_probes_in(h);
    if (r < 0)
        return r;
    h->attached_ns = clock_monotonic_ns();
    heap_budget_begin(h);
    log_info("attached to process %d (%s) in %.1f ms", (int)h->options->pid, h->target.allocator,
             (double)(h->attached_ns - before) / 1e6);
    return 0;
}

/* ---- the loop ---- */

enum { SOURCE_PROCESS = SOURCE_MORE };

static void on_tick(struct heap *h, struct sources *sources, bool *early)
{
    uint64_t now = clock_monotonic_ns();
    if (!sources_ticked(sources))
        return;
    heap_book_tell(h);
    heap_children_look(h);
    if (*early && now - h->attached_ns > HEAP_EARLY_MS * NS_PER_MS) {
        *early = false;
        sources_tick_set(sources, HEAP_TICK_MS);
    }
    if (!*early) {
        python_follow(h);
        if (heap_budget_look(h) < 0) {
            log_error("the probes cannot be put in again: %s", h->why);
            h->end = HEAP_FAILED;
        }
    }
    if (!h->options->linger_s || !h->control)
        return;
    if (control_holders(h->control))
        h->unheld_ns = 0;
    else if (!h->unheld_ns)
        h->unheld_ns = now;
    else if (now - h->unheld_ns > h->options->linger_s * NS_PER_S)
        h->end = HEAP_DETACHED;
}

static void on_event(struct heap *h, struct sources *sources, uint32_t what, bool *early)
{
    if (what == SOURCE_RING)
        heap_kernel_read(h->kernel, heap_book_record, h);
    else if (what == SOURCE_TICK)
        on_tick(h, sources, early);
    else if (what == SOURCE_CONTROL)
        control_serve(h->control);
    else if (what == SOURCE_SIGNAL)
        h->end = HEAP_DETACHED;
    else
        h->end = HEAP_EXITED;
}

static int loop_run(struct heap *h, int signals)
{
    struct sources sources;
    uint32_t what[SOURCES_MAX];
    bool early = true;
    int r =
        sources_open(&sources, signals, heap_kernel_fd(h->kernel), h->control, HEAP_TICK_EARLY_MS);
    if (r < 0)
        return r;
    r = sources_add(&sources, h->pidfd, EPOLLIN, SOURCE_PROCESS);
    while (r >= 0 && h->end == HEAP_RUNS) {
        r = sources_wait(&sources, -1, what);
        for (int i = 0; i < r; i++)
            on_event(h, &sources, what[i], &early);
    }
    sources_close(&sources);
    return r < 0 ? r : 0;
}

static void ready_tell(const struct heap *h)
{
    int fd = h->options->ready_fd;
    if (h->why[0])
        log_error("%s", h->why);
    if (fd < 0)
        return;
    if ((h->why[0] ? dprintf(fd, "failed %s\n", h->why) : dprintf(fd, "ready\n")) < 0)
        log_debug("the starter does not wait any more: %m");
    close(fd);
}

/* The program is free of probes first, then the last figures are told. */
static void finish(struct heap *h)
{
    if (h->kernel) {
        uint64_t before = clock_monotonic_ns();
        heap_probes_out(h);
        if (h->attached_ns)
            log_info("detached from process %d in %.1f ms", (int)h->options->pid,
                     (double)(clock_monotonic_ns() - before) / 1e6);
        if (h->told && h->samples && h->callers)
            heap_book_tell(h);
    }
    if (h->end == HEAP_DETACHED || h->end == HEAP_FAILED)
        heap_children_stop(h);
    heap_book_release(h);
    control_free(h->control);
    heap_callers_free(h->callers);
    stack_process_free(h->process);
    stacks_free(h->stacks);
    elf_parser_free(h->parser);
    heap_kernel_close(h->kernel);
    heap_target_release(&h->target);
    closep(&h->pidfd);
    free(h);
}

int heap_run(const struct heap_options *options)
{
    MEMOIR_CLEANUP(closep)
    int signals = sources_begin(SIGHUP);
    struct heap *h = calloc(1, sizeof(*h));
    if (!h || signals < 0) {
        log_error("cannot start: %m");
        free(h);
        return 1;
    }
    h->options = options;
    h->pidfd = -1;
    h->book.place = -1;
    int r = start(h);
    ready_tell(h);
    if (r == 0)
        r = loop_run(h, signals);
    if (r < 0)
        h->end = HEAP_FAILED;
    finish(h);
    return r < 0 ? 1 : 0;
}
