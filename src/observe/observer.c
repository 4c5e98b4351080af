/* The observer's loop. See observer.h. */
#include "observe/observer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/accountable.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "book/identity.h"
#include "ledger/proc.h"
#include "observe/control.h"
#include "observe/device_facts.h"
#include "observe/elf_parser.h"
#include "observe/kernel.h"
#include "observe/observed.h"
#include "observe/observer_internal.h"
#include "observe/probe_table.h"
#include "observe/sources.h"
#include "observe/stacks.h"
#include "observe/targets.h"
#include "trace/dump.h"

enum {
    READ_MAX = 1024,
    LOOK_MOST_MS = 50,
    STREAM_BYTES_MAX = 16 << 20,
    PURGE_TICKS = 40,
    SCAN_TICKS = 8,
    TIDY_TICKS = 1200, /* five minutes: a look at all processes takes 0.1 ms for each */
    FULL_S = 5
};

/* ---- processes ---- */

static size_t place_of(const struct observer *o, pid_t pid)
{
    size_t i = (size_t)pid % WIRE_PROCESSES_MAX;
    while (o->running[i] && observed_pid(o->running[i]) != pid)
        i = (i + 1) % WIRE_PROCESSES_MAX;
    return i;
}

struct observed *observer_find(struct observer *o, pid_t pid)
{
    return o->n_running < WIRE_PROCESSES_MAX ? o->running[place_of(o, pid)] : NULL;
}

struct observed *observer_find_any(struct observer *o, pid_t pid)
{
    struct observed *p = observer_find(o, pid);
    for (size_t i = 0; !p && i < o->n_ended && i < OBSERVER_ENDED_MAX; i++) {
        struct observed *e = o->ended[(o->n_ended - 1 - i) % OBSERVER_ENDED_MAX];
        if (observed_pid(e) == pid)
            p = e;
    }
    return p;
}

/* Take out of the table and move what was displaced by it. */
static void running_remove(struct observer *o, pid_t pid)
{
    size_t hole = place_of(o, pid);
    if (!o->running[hole])
        return;
    o->running[hole] = NULL;
    o->n_running--;
    for (size_t i = (hole + 1) % WIRE_PROCESSES_MAX; o->running[i];
         i = (i + 1) % WIRE_PROCESSES_MAX) {
        struct observed *p = o->running[i];
        o->running[i] = NULL;
        o->running[place_of(o, observed_pid(p))] = p;
    }
}

/* Its history stays for a while. `off`: it goes on, but its tracing is switched off. */
void observer_process_close(struct observer *o, struct observed *p, bool off)
{
    running_remove(o, observed_pid(p));
    if (off)
        observed_off(p);
    else
        observed_exit(p);
    size_t slot = o->n_ended++ % OBSERVER_ENDED_MAX;
    observed_free(o->ended[slot], false);
    o->ended[slot] = p;
}

static void process_end(struct observer *o, struct observed *p)
{
    observer_process_close(o, p, false);
}

static struct observed *process_begin(struct observer *o, pid_t pid, uint32_t generation)
{
    struct wire_process entry;
    struct observed *p = NULL;
    if (o->n_running + 1 >= WIRE_PROCESSES_MAX || kernel_process_get(o->kernel, pid, &entry) < 0 ||
        entry.generation != generation || entry.off)
        return NULL;
    struct observed_options options = {
        .kernel = o->kernel,
        .stacks = o->stacks,
        .dir = o->options->dir,
        .no_book = o->options->no_books,
        .keep_ended = o->options->linger_s > 0 && o->options->kernel.all, /* memoird started us */
        .stream = o->streams ? &o->stream : NULL,
    };
    int r = observed_new(&options, pid, &entry, &p);
    if (r < 0) {
        log_warn("cannot trace process %d: %s", pid, strerror(-r));
        return NULL;
    }
    char names[DEVICE_USES_MAX][DEVICE_NAME_MAX];
    size_t n = o->facts && !options.no_book ? device_facts_names(o->facts, pid, names) : 0;
    for (size_t i = 0; i < n; i++)
        observed_device_name(p, (int32_t)i, names[i]);
    o->running[place_of(o, pid)] = p;
    o->n_running++;
    return p;
}

/* The process that a record is of; an older image of it is ended. NULL: none that can be told
 * of. */
static struct observed *process_for(struct observer *o, pid_t pid, uint32_t generation)
{
    struct observed *p = observer_find(o, pid);
    if (p && observed_generation(p) != generation) {
        if ((int32_t)(observed_generation(p) - generation) > 0)
            return NULL;
        process_end(o, p);
        p = NULL;
    }
    return p ? p : process_begin(o, pid, generation);
}

/* ---- records ---- */

static void on_exit_event(struct observer *o, const struct wire_event *event)
{
    struct observed *p = observer_find(o, (pid_t)event->pid);
    if (p && observed_generation(p) == event->generation)
        process_end(o, p);
    struct wire_process entry;
    if (event->flags & WIRE_EVENT_EXEC ||
        kernel_process_get(o->kernel, (pid_t)event->pid, &entry) < 0)
        return;
    if (entry.generation == event->generation) /* else another process has this PID already */
        kernel_process_remove(o->kernel, (pid_t)event->pid);
}

void observer_library_used(void *context, const struct probe_table *table, int fd, const char *path)
{
    struct observer *o = context;
    kernel_attached_mark(o->kernel, fd);
}

/* Containers bring files of their own and go. False: all are in use. */
static bool room_make(struct observer *o)
{
    uint64_t now = clock_monotonic_ns();
    if (now < o->full_until_ns)
        return false;
    kernel_attached_unmark(o->kernel);
    targets_running(NULL, observer_library_used, o);
    size_t n = kernel_attached_evict(o->kernel);
    o->room_ns += clock_monotonic_ns() - now;
    if (n == 0)
        o->full_until_ns = now + FULL_S * NS_PER_S;
    else
        log_info("removed the probes of %zu libraries that no process uses any more", n);
    return n > 0;
}

void observer_tidy(struct observer *o)
{
    if (!kernel_attached_passing(o->kernel))
        return;
    kernel_attached_unmark(o->kernel);
    targets_running(NULL, observer_library_used, o);
    size_t n = kernel_attached_age(o->kernel);
    if (n)
        log_info("removed the probes of %zu libraries that no process used for a while", n);
}

void observer_library_found(void *context, const struct probe_table *table, int fd,
                            const char *path)
{
    struct observer *o = context;
    char why[KERNEL_WHY_MAX];
    bool full = clock_monotonic_ns() < o->full_until_ns; /* was told */
    size_t before = kernel_attached(o->kernel);
    int n = kernel_attach(o->kernel, table, fd, why);
    if (n == -EUSERS && room_make(o)) {
        before = kernel_attached(o->kernel);
        n = kernel_attach(o->kernel, table, fd, why);
    }
    if (n == -EALREADY || (n == -EUSERS && full))
        return;
    if (n < 0)
        log_warn("no probes on '%s': %s", path, why);
    else if (kernel_attached(o->kernel) > before)
        log_info("probes on %d functions of '%s'", n, path);
}

/* If the process lacked memory on a device: who else holds what there? */
static void failure_ask(struct observer *o, struct observed *p)
{
    struct trace_failure failure;
    if (trace_history_failures(observed_history(p), &failure, 1) == 1 && failure.out_of_memory &&
        !failure.capacity_bytes && failure.device >= 0)
        device_facts_ask(o->facts, DEVICE_QUESTION_FAILURE, observed_pid(p), failure.device);
}

/* At once, or at a later tick. */
static void libraries_look(struct observer *o, struct observed *p)
{
    struct look *look = &o->looks[accountable_uid(observed_uid(p)) % LOOK_USERS];
    uint64_t now = clock_monotonic_ns();
    int64_t earned = (int64_t)((now - look->since_ns) / LOOK_PART);
    look->credit_ns = look->since_ns == 0 || look->credit_ns + earned > LOOK_CREDIT_NS
                          ? LOOK_CREDIT_NS
                          : look->credit_ns + earned;
    look->since_ns = now;
    *observed_look_due(p) = look->credit_ns <= 0;
    o->looks_due |= look->credit_ns <= 0;
    if (look->credit_ns <= 0)
        return;
    uint64_t attach_ns = kernel_attach_ns(o->kernel) + o->room_ns; /* has limits of its own */
    targets_of(observed_pid(p), observer_library_found, o);
    observed_code_changed(p);
    attach_ns = kernel_attach_ns(o->kernel) + o->room_ns - attach_ns;
    look->credit_ns -= (int64_t)(clock_monotonic_ns() - now - attach_ns);
}

static void looks_make(struct observer *o)
{
    if (!o->looks_due)
        return;
    o->looks_due = false;
    for (size_t i = 0; i < WIRE_PROCESSES_MAX; i++)
        if (o->running[i] && *observed_look_due(o->running[i]))
            libraries_look(o, o->running[i]);
}

/* What the driver counts for the process, if that is to be known. */
static void use_ask(struct observer *o, struct observed *p)
{
    if (o->facts && observed_use_due(p) &&
        device_facts_ask(o->facts, DEVICE_QUESTION_USE, observed_pid(p), 0))
        observed_use_asked(p);
}

static void on_record(void *context, const void *record, size_t bytes)
{
    struct observer *o = context;
    uint32_t kind = bytes >= sizeof(kind) ? *(const uint32_t *)record : 0;
    const struct wire_event *event = record;
    const struct wire_stack *stack = record;
    const struct wire_more *more = record;
    struct observed *p = NULL;
    o->records++;
    if (kind == WIRE_RECORD_COPY && bytes >= sizeof(struct wire_copy)) {
        const struct wire_copy *copy = record;
        p = process_for(o, (pid_t)copy->pid, copy->generation);
        if (p)
            observed_copy(p, copy);
    } else if (kind == WIRE_RECORD_EVENT && bytes >= sizeof(*event)) {
        if (event->kind == TRACE_EXIT) {
            on_exit_event(o, event);
            return;
        }
        p = process_for(o, (pid_t)event->pid, event->generation);
        if (p)
            observed_event(p, event);
        if (p && event->kind == TRACE_FAILED && o->facts)
            failure_ask(o, p);
        if (p && event->kind == TRACE_NONE)
            use_ask(o, p);
    } else if (kind == WIRE_RECORD_STACK && bytes >= sizeof(*stack)) {
        p = process_for(o, (pid_t)stack->pid, stack->generation);
        if (p)
            observed_stack(p, stack);
    } else if (kind == WIRE_RECORD_MORE && bytes >= sizeof(*more)) {
        p = observer_find(o, (pid_t)more->pid);
        if (p)
            observed_more(p, more);
    } else if (kind == WIRE_RECORD_LIBRARY && bytes >= sizeof(*event)) {
        p = process_for(o, (pid_t)event->pid, event->generation);
        if (p)
            libraries_look(o, p);
    }
}

/* So many records fit into the ring: what it had when we began has been read then, and the rest
 * can wait. */
enum { DRAIN_MAX = WIRE_RING_BYTES / sizeof(struct wire_event) / READ_MAX };

/* False: there is more. */
static bool ring_read(struct observer *o, uint64_t most_ns)
{
    uint64_t start_ns = clock_monotonic_ns();
    bool all = false;
    for (size_t i = 0; i < DRAIN_MAX && !all; i++) {
        all = kernel_read(o->kernel, READ_MAX, on_record, o) != READ_MAX;
        if (clock_monotonic_ns() - start_ns > most_ns)
            break;
    }
    if (o->streams && trace_stream_flush(&o->stream, o->options->stream_fd) < 0)
        o->stopping = true; /* its reader is gone */
    return all;
}

void observer_drain(struct observer *o)
{
    ring_read(o, UINT64_MAX);
}

/* For the loop: requests and signals have their turn under any load. */
static bool observer_look(struct observer *o)
{
    return ring_read(o, LOOK_MOST_MS * NS_PER_MS);
}

/* ---- what the ring does not tell ---- */

static bool is_alive(pid_t pid, uint64_t start_ns)
{
    struct proc_stat stat;
    int r = proc_stat_read(pid, &stat);
    if (r < 0)
        return r != -ESRCH;
    uint64_t ticks = (uint64_t)book_ticks_of((int64_t)start_ns, (uint64_t)sysconf(_SC_CLK_TCK));
    return !stat.dead && proc_same_start(stat.start_ticks, ticks);
}

struct round {
    struct observer *o;
    bool thorough; /* look for the dead, too: their ends are told, but an event may be lost */
    bool faults, compares; /* there is something to tell */
    bool drained;          /* the ring was read to its end: comparing makes sense */
    pid_t dead[256];
    size_t n_dead;
};

static int process_look(void *context, pid_t pid, const struct wire_process *entry)
{
    struct round *round = context;
    struct observer *o = round->o;
    struct observed *p = observer_find(o, pid);
    if (p && observed_generation(p) == entry->generation) {
        round->faults |= observed_faults_new(p, entry);
        if (round->drained && observed_compare_due(p)) {
            observed_compare_begin(p);
            round->compares = true;
        }
        o->gaps += observed_losses(p, entry);
    }
    if (round->thorough && round->n_dead < 256 && !is_alive(pid, entry->start_ns))
        round->dead[round->n_dead++] = pid;
    return 0;
}

static int fault_each(void *context, const struct wire_granule_key *key, uint64_t count)
{
    struct observed *p = observer_find(context, (pid_t)key->pid);
    if (p)
        observed_faults_tell(p, key, count);
    return 0;
}

static int compare_context(void *context, const struct wire_context_key *key,
                           const struct wire_context *value)
{
    struct observed *p = observer_find(context, (pid_t)key->pid);
    if (p && observed_compares(p))
        observed_compare_context(p, key, value);
    return 0;
}

static int compare_block(void *context, const struct wire_key *key, const struct wire_block *value)
{
    struct observed *p = observer_find(context, (pid_t)key->pid);
    if (p && observed_compares(p))
        observed_compare_block(p, key, value);
    return 0;
}

/* All that began to, in one walk. */
static void compare(struct observer *o)
{
    kernel_contexts(o->kernel, compare_context, o);
    int r = kernel_blocks(o->kernel, compare_block, o);
    for (size_t i = 0; i < WIRE_PROCESSES_MAX; i++)
        if (o->running[i] && observed_compares(o->running[i]))
            observed_compare_end(o->running[i], r == 0);
}

bool observer_is_stale(void *context, pid_t pid, uint32_t generation)
{
    struct observer *o = context;
    struct wire_process entry;
    return kernel_process_get(o->kernel, pid, &entry) < 0 ||
           (entry.generation & 0xffffff) != (generation & 0xffffff);
}

/* Compare counters; find the dead whose end was not told; now and then remove what they left in
 * the kernel's tables. */
static void round_make(struct observer *o, bool purge)
{
    struct round round = {.o = o, .thorough = purge};
    round.drained = observer_look(o);
    kernel_processes(o->kernel, process_look, &round);
    if (round.faults)
        kernel_faults(o->kernel, fault_each, o);
    if (round.compares)
        compare(o);
    for (size_t i = 0; i < round.n_dead; i++) {
        struct observed *p = observer_find(o, round.dead[i]);
        if (p)
            process_end(o, p);
        kernel_process_remove(o->kernel, round.dead[i]);
    }
    looks_make(o);
    if (purge || round.n_dead) {
        kernel_purge(o->kernel, observer_is_stale, o);
        kernel_subordinates_tell(o->kernel);
        kernel_users_count(o->kernel);
    }
}

/* Processes that an observer before us traced: their blocks are in the kernel's table. */
static int adopt_each(void *context, pid_t pid, const struct wire_process *entry)
{
    struct observer *o = context;
    if (entry->off || !is_alive(pid, entry->start_ns))
        return 0;
    struct observed *p = observer_find(o, pid);
    if (!p)
        p = process_begin(o, pid, entry->generation);
    if (p) {
        observed_losses(p, entry);
        observed_compare_begin(p);
    }
    return 0;
}

/* ---- beginning ---- */

static void on_installed(void *context, const struct probe_table *table, int fd, const char *path)
{
    struct observer *o = context;
    observer_library_found(o, table, fd, path);
    kernel_attached_keep(o->kernel, fd);
}

static int libraries_attach(struct observer *o)
{
    const struct observer_options *options = o->options;
    for (size_t i = 0; i < options->n_libraries; i++) {
        const char *path = options->libraries[i], *name = strrchr(path, '/');
        const struct probe_table *table = probe_table_for(name ? name + 1 : path);
        MEMOIR_CLEANUP(closep)
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (!table || fd < 0) {
            log_error("cannot attach to '%s': %s", path,
                      fd < 0 ? strerror(errno)
                             : "there is no probe table for a library of that name");
            return -ENOENT;
        }
        on_installed(o, table, fd, path);
    }
    targets_installed(options->search, on_installed, o);
    if (options->pid == 0)
        targets_running(observer_is_on, observer_library_found, o);
    if (kernel_attached(o->kernel) == 0)
        log_warn("no driver library was found to trace: probes follow when a process maps one");
    return 0;
}

/* What was live before is not known to a stream of its own probes: from here on all is told. */
static void stream_begin(struct observer *o)
{
    int flags = fcntl(o->options->stream_fd, F_GETFL);
    fcntl(o->options->stream_fd, F_SETFL, flags | O_NONBLOCK);
    for (size_t i = 0; i < WIRE_PROCESSES_MAX; i++)
        if (o->running[i])
            trace_stream_synced(&o->stream, observed_pid(o->running[i]));
    if (trace_stream_flush(&o->stream, o->options->stream_fd) < 0)
        o->stopping = true;
}

static int start(struct observer *o)
{
    const struct observer_options *options = o->options;
    char why[KERNEL_WHY_MAX];
    int r = 0;
    if (options->stream_fd >= 0) {
        r = trace_stream_writer_init(&o->stream, STREAM_BYTES_MAX);
        o->streams = r == 0;
    }
    if (r == 0)
        r = kernel_open(&options->kernel, &o->kernel, &o->adopted, why);
    if (r < 0) {
        log_error("cannot trace: %s", why);
        if (o->streams) {
            trace_stream_error(&o->stream, -r, why);
            trace_stream_flush(&o->stream, options->stream_fd);
        }
        return r;
    }
    r = elf_parser_new(&o->parser);
    if (r < 0) {
        log_error("cannot confine the parser of files and memory of users: %s", strerror(-r));
        return r;
    }
    kernel_parser_set(o->kernel, o->parser);
    r = stacks_new(&o->stacks);
    if (r == 0)
        r = stacks_parser_set(o->stacks, o->parser);
    if (r == 0 && device_facts_new(&o->facts) < 0)
        log_warn("NVML is not asked about failed allocations: %m");
    if (r == 0 && options->socket)
        r = control_new(observer_request, o, options->socket, &o->control);
    if (r < 0) {
        log_error("cannot start: %s", strerror(-r));
        return r;
    }
    if (options->kernel.all && !options->kernel.system_calls && targets_scan_new(&o->scan) < 0)
        log_warn("out of memory: libraries that processes map from now on are not found");
    r = libraries_attach(o);
    if (r < 0)
        return r;
    if (o->facts && !options->no_books && kernel_attached(o->kernel) > 0) /* for their names */
        device_facts_ask(o->facts, DEVICE_QUESTION_USE, getpid(), 0);
    if (o->adopted) {
        observer_drain(o);
        kernel_processes(o->kernel, adopt_each, o);
        compare(o);
    }
    if (options->pid) {
        r = observer_trace(o, options->pid, why);
        if (r < 0)
            log_error("%s", why);
        struct wire_process entry;
        if (r == 0 && o->streams && kernel_process_get(o->kernel, options->pid, &entry) == 0)
            process_for(o, options->pid, entry.generation);
    }
    if (r == 0 && o->streams)
        stream_begin(o);
    return r;
}

/* The context of a process that was traced from its start tells what others take on the same
 * device. */
static void contexts_learn(struct observer *o, struct observed *p)
{
    const struct observed_baseline *b;
    struct wire_process entry;
    size_t n = observed_baselines(p, &b);
    if (kernel_process_get(o->kernel, observed_pid(p), &entry) < 0 || !entry.from_start)
        return;
    for (size_t i = 0; i < n; i++)
        if (!b[i].estimate && b[i].index < OBSERVER_DEVICES_MAX)
            o->context_bytes[b[i].index] = b[i].bytes;
}

/* NVML answered. */
static void facts_take(struct observer *o)
{
    struct device_answer answer;
    if (device_facts_take(o->facts, &answer) < 0)
        return;
    if (answer.question == DEVICE_QUESTION_USE)
        observer_drain(o); /* blocks that came meanwhile are in its figure */
    struct observed *p = observer_find_any(o, answer.pid);
    if (p && answer.question == DEVICE_QUESTION_USE) {
        observed_use_told(p, &answer);
        contexts_learn(o, p);
    } else if (p)
        trace_history_failure_context(observed_history(p), answer.capacity_bytes, answer.used_bytes,
                                      answer.others, answer.n_others);
}

/* ---- dumps ---- */

static void children_reap(struct observer *o)
{
    for (size_t i = 0; i < OBSERVER_DUMPS_MAX; i++)
        if (o->dumps[i] > 0 && waitpid(o->dumps[i], NULL, WNOHANG) != 0)
            o->dumps[i] = 0;
}

static int dump_in_child(struct observer *o, struct observed *p, int fd)
{
    pid_t child = fork();
    if (child != 0)
        return child < 0 ? -errno : child;
    struct buffer out = BUFFER_INIT(TRACE_DUMP_FILE_MAX);
    char head[48];
    int flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    control_forget(o->control, fd);
    kernel_forget(o->kernel);
    alarm(60);
    int r = trace_dump_encode(observed_history(p), TRACE_DUMP_BINARY, &out);
    int n = r < 0 ? snprintf(head, sizeof(head), "error %s\n", strerror(-r))
                  : snprintf(head, sizeof(head), "ok %zu\n", out.len);
    bool good = write(fd, head, (size_t)n) == n;
    for (size_t done = 0; good && r == 0 && done < out.len;) {
        ssize_t wrote = write(fd, out.data + done, out.len - done);
        good = wrote > 0;
        done += good ? (size_t)wrote : 0;
    }
    _exit(good ? 0 : 1);
}

int observer_dump(struct observer *o, pid_t pid, int fd)
{
    size_t slot = 0;
    for (int i = 0; i < 2 && o->facts && device_facts_settle(o->facts, pid); i++)
        facts_take(o);
    struct observed *p = observer_find_any(o, pid);
    if (!p)
        return -ESRCH;
    children_reap(o);
    while (slot < OBSERVER_DUMPS_MAX && o->dumps[slot])
        slot++;
    if (slot == OBSERVER_DUMPS_MAX)
        return -EBUSY; /* the ring is not read while we wait */
    int child = dump_in_child(o, p, fd);
    if (child < 0)
        return child;
    o->dumps[slot] = child;
    return 0;
}

/* ---- the loop ---- */

enum { SOURCE_FACTS = SOURCE_MORE, SOURCE_STREAM };

static void on_signal(struct observer *o, int fd)
{
    struct signalfd_siginfo info;
    while (read(fd, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            children_reap(o);
        else
            o->stopping = true;
    }
}

/* The only traced process ended some time ago: its history is not needed any more. */
static void kept_check(struct observer *o)
{
    struct wire_process entry;
    if (!o->options->keep_s || !o->options->pid)
        return;
    if (kernel_process_get(o->kernel, o->options->pid, &entry) == 0)
        o->ended_ns = 0;
    else if (!o->ended_ns)
        o->ended_ns = clock_monotonic_ns();
    else if (clock_monotonic_ns() - o->ended_ns > o->options->keep_s * UINT64_C(1000000000))
        o->stopping = true;
}

static void on_tick(struct observer *o, struct sources *sources, uint64_t *ticks)
{
    if (!sources_ticked(sources))
        return;
    round_make(o, ++*ticks % PURGE_TICKS == 0);
    if (o->scan && *ticks % SCAN_TICKS == 0)
        targets_scan(o->scan, observer_is_on, observer_library_found, o);
    if (o->options->pid == 0 && *ticks % TIDY_TICKS == 0)
        observer_tidy(o);
    kept_check(o);
    for (size_t i = 0; o->facts && i < WIRE_PROCESSES_MAX; i++)
        if (o->running[i])
            use_ask(o, o->running[i]);
    if (!o->options->linger_s)
        return;
    if (control_holders(o->control))
        o->unheld_ns = 0;
    else if (!o->unheld_ns)
        o->unheld_ns = clock_monotonic_ns();
    else if (clock_monotonic_ns() - o->unheld_ns > o->options->linger_s * UINT64_C(1000000000))
        o->stopping = true;
}

/* How long to wait for something to happen, in ms; -1: for ever. While records come, the ring is
 * looked at again and again; after some looks in vain the kernel is asked to wake us. */
static int busy_wait(struct observer *o)
{
    uint64_t before = o->records;
    if (!observer_look(o)) {
        o->idle_looks = 0;
        return 0;
    }
    o->idle_looks = o->records == before ? o->idle_looks + 1 : 0;
    if (o->idle_looks < OBSERVER_IDLE_LOOKS) {
        kernel_sleep(o->kernel, false);
        return OBSERVER_LOOK_MS;
    }
    kernel_sleep(o->kernel, true);
    observer_drain(o); /* what came before the kernel knew */
    return -1;
}

static int sources_make(const struct observer *o, int signals, struct sources *sources)
{
    int r = sources_open(sources, signals, kernel_fd(o->kernel), o->control, OBSERVER_TICK_MS);
    if (r < 0)
        return r;
    if (o->facts)
        r = sources_add(sources, device_facts_fd(o->facts), EPOLLIN, SOURCE_FACTS);
    if (r == 0 && o->streams) /* only that its reader is gone */
        r = sources_add(sources, o->options->stream_fd, 0, SOURCE_STREAM);
    if (r < 0)
        sources_close(sources);
    return r;
}

static int loop_run(struct observer *o, int signals)
{
    struct sources sources;
    uint32_t what[SOURCES_MAX];
    uint64_t ticks = 0;
    int r = sources_make(o, signals, &sources);
    if (r < 0)
        return r;
    while (r >= 0 && !o->stopping) {
        r = sources_wait(&sources, busy_wait(o), what);
        for (int i = 0; i < r; i++) {
            if (what[i] == SOURCE_RING)
                observer_look(o);
            else if (what[i] == SOURCE_TICK)
                on_tick(o, &sources, &ticks);
            else if (what[i] == SOURCE_SIGNAL)
                on_signal(o, signals);
            else if (what[i] == SOURCE_FACTS)
                facts_take(o);
            else if (what[i] == SOURCE_CONTROL)
                control_serve(o->control);
            else
                o->stopping = true;
        }
    }
    sources_close(&sources);
    return r < 0 ? r : 0;
}

static void ready_tell(const struct observer *o)
{
    if (o->options->ready_fd < 0)
        return;
    if (write(o->options->ready_fd, "ready\n", 6) < 0)
        log_debug("the starter does not wait any more: %m");
    close(o->options->ready_fd);
}

static void finish(struct observer *o)
{
    if (o->kernel)
        observer_drain(o);
    for (size_t i = 0; i < WIRE_PROCESSES_MAX; i++)
        observed_free(o->running[i], o->leave);
    for (size_t i = 0; i < OBSERVER_ENDED_MAX; i++)
        observed_free(o->ended[i], false);
    control_free(o->control);
    device_facts_free(o->facts);
    stacks_free(o->stacks);
    elf_parser_free(o->parser);
    targets_scan_free(o->scan);
    if (o->streams)
        trace_stream_writer_release(&o->stream);
    if (o->kernel && !o->leave) { /* programs are free of them first, then the rest is tidied up */
        size_t n = kernel_attached(o->kernel);
        log_info("removed the probes of %zu libraries in %.1f ms", n,
                 (double)kernel_detach(o->kernel) / 1e6);
    }
    kernel_close(o->kernel, o->leave);
    free(o);
}

int observer_run(const struct observer_options *options)
{
    MEMOIR_CLEANUP(closep)
    int signals = sources_begin(SIGCHLD);
    struct observer *o = calloc(1, sizeof(*o));
    if (!o || signals < 0) {
        log_error("cannot start: %m");
        free(o);
        return 1;
    }
    o->options = options;
    o->started_ns = clock_monotonic_ns();
    int r = start(o);
    if (r == 0) {
        ready_tell(o);
        r = loop_run(o, signals);
    }
    finish(o);
    return r < 0 ? 1 : 0;
}
