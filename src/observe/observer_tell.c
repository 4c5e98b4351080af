/* What the observer says of itself and of traced processes, as JSON. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "base/clock.h"
#include "base/json.h"
#include "observe/elf_parser.h"
#include "observe/kernel.h"
#include "observe/observed.h"
#include "observe/observer_internal.h"
#include "observe/stacks.h"
#include "trace/history.h"

/* Counters of one process, all contexts together. */
struct sums {
    uint32_t pid;
    struct wire_process entry;
    struct wire_counters space[WIRE_SPACES];
};

/* Of all processes: the table of contexts is walked once. */
struct list {
    struct observer *o;
    struct sums *all;
    size_t n, cap;
};

static int process_add(void *context, pid_t pid, const struct wire_process *entry)
{
    struct list *l = context;
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        struct sums *all = realloc(l->all, cap * sizeof(*all));
        if (!all)
            return -ENOMEM;
        l->all = all;
        l->cap = cap;
    }
    l->all[l->n++] = (struct sums){.pid = (uint32_t)pid, .entry = *entry};
    return 0;
}

static int by_pid(const void *a, const void *b)
{
    uint32_t x = ((const struct sums *)a)->pid, y = ((const struct sums *)b)->pid;
    return (x > y) - (x < y);
}

static int sums_add(void *context, const struct wire_context_key *key,
                    const struct wire_context *value)
{
    struct list *l = context;
    struct sums *s =
        l->n ? bsearch(&(struct sums){.pid = key->pid}, l->all, l->n, sizeof(*s), by_pid) : NULL;
    if (!s || key->generation != s->entry.generation)
        return 0;
    for (size_t i = 0; i < WIRE_SPACES; i++) {
        s->space[i].freed_bytes += value->space[i].freed_bytes;
        s->space[i].freed_blocks += value->space[i].freed_blocks;
        s->space[i].alloc_bytes += value->space[i].alloc_bytes;
        s->space[i].alloc_blocks += value->space[i].alloc_blocks;
    }
    return 0;
}

static const char *space_name(size_t space)
{
    switch (space) {
    case MEMOIR_SPACE_PINNED:
        return "pinned";
    case MEMOIR_SPACE_MANAGED:
        return "managed";
    case MEMOIR_SPACE_DRAM:
        return "dram";
    case WIRE_SPACE_REGISTERED:
        return "registered";
    default:
        return NULL;
    }
}

static void spaces_tell(struct json *j, const struct sums *s)
{
    json_key(j, "spaces");
    json_object_begin(j);
    for (size_t i = 0; i < WIRE_SPACES; i++) {
        const struct wire_counters *c = &s->space[i];
        const char *name = space_name(i);
        if (!name || !c->alloc_blocks)
            continue;
        json_key(j, name);
        json_object_begin(j);
        json_field_u64(j, "bytes", c->alloc_bytes - c->freed_bytes);
        json_field_u64(j, "blocks", c->alloc_blocks - c->freed_blocks);
        json_field_u64(j, "allocated", c->alloc_bytes);
        json_field_u64(j, "allocated_blocks", c->alloc_blocks);
        json_object_end(j);
    }
    json_object_end(j);
}

static void copies_tell(struct json *j, const struct wire_process *p)
{
    static const char *const names[] = {"unknown", "to_device", "from_device", "on_device",
                                        "on_host"};
    json_key(j, "copies");
    json_object_begin(j);
    for (size_t i = 0; i < 5; i++) {
        json_key(j, names[i]);
        json_object_begin(j);
        json_field_u64(j, "copies", p->flow[i].copies);
        json_field_u64(j, "bytes", p->flow[i].bytes);
        json_object_end(j);
    }
    json_object_end(j);
}

/* What graphs recorded. Launches, which are not observed, give it bytes and do it. */
static void graphs_tell(struct json *j, const struct wire_process *p)
{
    json_key(j, "graphs");
    json_object_begin(j);
    json_field_u64(j, "recorded_blocks", p->graph_blocks);
    json_field_u64(j, "recorded", p->graph_bytes);
    json_field_u64(j, "recorded_copies", p->graph_flow.copies);
    json_field_u64(j, "recorded_copied", p->graph_flow.bytes);
    json_field_u64(j, "capturing_streams", p->captures);
    json_object_end(j);
}

static void losses_tell(struct json *j, const struct wire_process *p)
{
    json_key(j, "lost");
    json_object_begin(j);
    json_field_u64(j, "events", p->lost_events);
    json_field_u64(j, "stacks", p->lost_stacks);
    json_field_u64(j, "blocks", p->lost_blocks);
    json_field_u64(j, "bytes", p->lost_bytes);
    json_field_u64(j, "unknown_frees", p->unknown_frees);
    json_field_u64(j, "replaced", p->replaced);
    json_field_u64(j, "unreadable", p->unreadable);
    json_field_u64(j, "unpaired", p->unpaired);
    json_field_u64(j, "doubtful_copies", p->doubtful);
    json_object_end(j);
}

/* What the driver counts beyond blocks, as far as it can be told apart. */
static void devices_tell(const struct list *l, struct json *j, const struct observed *p,
                         bool from_start)
{
    const struct observed_baseline *b;
    size_t n = observed_baselines(p, &b);
    json_key(j, "devices");
    json_array_begin(j);
    for (size_t i = 0; i < n; i++) {
        uint64_t bytes = b[i].bytes;
        uint64_t context = b[i].index < OBSERVER_DEVICES_MAX ? l->o->context_bytes[b[i].index] : 0;
        bool known = from_start || context;
        if (from_start || context > bytes)
            context = bytes;
        json_object_begin(j);
        json_field_i64(j, "ordinal", b[i].ordinal);
        if (known)
            json_field_u64(j, "context", context);
        json_field_u64(j, "before", bytes - context);
        json_field_bool(j, "estimated", b[i].estimate || (known && !from_start));
        json_object_end(j);
    }
    json_array_end(j);
}

static void process_tell(const struct list *l, struct json *j, const struct sums *s)
{
    struct observed *p =
        s->entry.off ? observer_find_any(l->o, (pid_t)s->pid) : observer_find(l->o, (pid_t)s->pid);
    json_object_begin(j);
    json_field_i64(j, "pid", s->pid);
    json_field_u64(j, "uid", s->entry.uid);
    json_field_u64(j, "calls", s->entry.calls);
    json_field_u64(j, "blocks", s->entry.live_blocks);
    json_field_u64(j, "unchecked_copies", s->entry.unchecked);
    json_field_bool(j, "off", s->entry.off);
    if (p) {
        struct trace_identity id = trace_history_identity(observed_history(p));
        struct trace_totals totals = trace_history_totals(observed_history(p));
        json_field_string(j, "program", id.name);
        json_field_u64(j, "events", totals.events);
        json_field_u64(j, "history_events", totals.events);
        json_field_u64(j, "history_live", totals.live_bytes);
        json_field_u64(j, "history_live_blocks", totals.live_blocks);
        json_field_u64(j, "sites", totals.sites);
        devices_tell(l, j, p, s->entry.from_start);
    }
    spaces_tell(j, s);
    copies_tell(j, &s->entry);
    graphs_tell(j, &s->entry);
    losses_tell(j, &s->entry);
    json_object_end(j);
}

void observer_list(struct observer *o, struct buffer *out)
{
    struct json j;
    struct list list = {.o = o};
    kernel_processes(o->kernel, process_add, &list);
    if (list.n)
        qsort(list.all, list.n, sizeof(list.all[0]), by_pid);
    kernel_contexts(o->kernel, sums_add, &list);
    json_init(&j, out);
    json_object_begin(&j);
    json_field_string(&j, "schema", "memoir.traced/2");
    json_key(&j, "processes");
    json_array_begin(&j);
    for (size_t i = 0; i < list.n; i++)
        process_tell(&list, &j, &list.all[i]);
    json_array_end(&j);
    json_object_end(&j);
    json_finish(&j);
    free(list.all);
}

void observer_status(struct observer *o, struct buffer *out)
{
    struct json j;
    struct wire_machine machine;
    struct stacks_figures stacks;
    double enter_ns, leave_ns;
    kernel_machine(o->kernel, &machine);
    stacks_figures(o->stacks, &stacks);
    json_init(&j, out);
    json_object_begin(&j);
    json_field_string(&j, "schema", "memoir.observer/2");
    json_field_i64(&j, "pid", getpid());
    json_field_u64(&j, "libraries", kernel_attached(o->kernel));
    json_field_double(&j, "attach_took", (double)kernel_attach_ns(o->kernel) / 1e9);
    json_field_u64(&j, "processes", o->n_running);
    json_field_bool(&j, "adopted", o->adopted);
    json_field_bool(&j, "session", kernel_has_session(o->kernel));
    kernel_costs(o->kernel, &enter_ns, &leave_ns);
    if (enter_ns > 0) {
        json_field_double(&j, "enter_program", enter_ns / 1e9);
        json_field_double(&j, "leave_program", leave_ns / 1e9);
    }
    json_field_u64(&j, "records", o->records);
    json_field_u64(&j, "gaps", o->gaps);
    json_field_u64(&j, "lost_processes", machine.lost_processes);
    json_field_u64(&j, "stacks", stacks.walks);
    json_field_u64(&j, "stacks_lost", stacks.lost);
    json_field_i64(&j, "parser_pid", elf_parser_pid(o->parser));
    json_field_u64(&j, "parser_deaths", elf_parser_deaths(o->parser) + stacks.parsers.deaths);
    json_field_u64(&j, "memory_parsers", stacks.parsers.running);
    json_field_u64(&j, "memory_parsers_refused", stacks.parsers.refused);
    json_field_double(&j, "uptime", (double)(clock_monotonic_ns() - o->started_ns) / 1e9);
    json_object_end(&j);
    json_finish(&j);
}

/* ---- requests ---- */

static bool pid_read(const char *text, pid_t *ret_pid)
{
    char *end;
    long pid = strtol(text, &end, 10);
    if (end == text || *end || pid <= 0 || pid > 1 << 22)
        return false;
    *ret_pid = (pid_t)pid;
    return true;
}

static enum control_result dump_request(struct observer *o, pid_t pid, int fd, char *why)
{
    observer_drain(o);
    int r = observer_dump(o, pid, fd);
    if (r == 0)
        return CONTROL_LEFT;
    snprintf(why, CONTROL_WHY_MAX, "%s",
             r == -ESRCH   ? "no such process is traced"
             : r == -EBUSY ? "too many dumps are being written: ask again"
                           : strerror(-r));
    return CONTROL_REFUSED;
}

/* "PID", or "PID UID" for a user other than root. */
static bool pid_uid_read(const char *text, pid_t *ret_pid, uint32_t *ret_uid)
{
    char first[16], *end;
    const char *space = strchr(text, ' ');
    size_t len = space ? (size_t)(space - text) : strlen(text);
    if (len >= sizeof(first))
        return false;
    memcpy(first, text, len);
    first[len] = '\0';
    *ret_uid = 0;
    if (!pid_read(first, ret_pid))
        return false;
    if (!space)
        return true;
    unsigned long uid = strtoul(space + 1, &end, 10);
    *ret_uid = (uint32_t)uid;
    return end != space + 1 && !*end && uid > 0 && uid < UINT32_MAX;
}

static enum control_result switch_request(struct observer *o, pid_t pid, bool on, uint32_t uid,
                                          char *why)
{
    int r = observer_switch(o, pid, on, uid);
    if (r >= 0)
        return CONTROL_ANSWERED;
    snprintf(why, CONTROL_WHY_MAX, "%s",
             r == -EPERM ? "not allowed for this user" : "no such process is traced");
    return CONTROL_REFUSED;
}

enum control_result observer_request(void *observer, int fd, const char *line, struct buffer *out,
                                     char *why)
{
    struct observer *o = observer;
    pid_t pid;
    uint32_t uid;
    if (strcmp(line, "list") == 0) {
        observer_drain(o);
        observer_list(o, out);
    } else if (strcmp(line, "status") == 0) {
        observer_status(o, out);
    } else if (strcmp(line, "flush") == 0) {
        observer_drain(o);
    } else if (strcmp(line, "tidy") == 0) {
        observer_tidy(o);
    } else if (strcmp(line, "stop") == 0) {
        o->stopping = true;
    } else if (strncmp(line, "trace ", 6) == 0 && pid_read(line + 6, &pid)) {
        return observer_trace(o, pid, why) >= 0 ? CONTROL_ANSWERED : CONTROL_REFUSED;
    } else if ((strncmp(line, "off ", 4) == 0 && pid_uid_read(line + 4, &pid, &uid)) ||
               (strncmp(line, "on ", 3) == 0 && pid_uid_read(line + 3, &pid, &uid))) {
        return switch_request(o, pid, line[1] == 'n', uid, why);
    } else if (strncmp(line, "dump ", 5) == 0 && pid_read(line + 5, &pid)) {
        return dump_request(o, pid, fd, why);
    } else {
        return CONTROL_REFUSED;
    }
    return CONTROL_ANSWERED;
}
