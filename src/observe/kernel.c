/* Loading the probes and reading their maps. See kernel.h; attach.c has the links. */
#include "observe/kernel.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "base/accountable.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "bpf/object.h"
#include "observe/kernel_internal.h"
#include "observe/pins.h"
#include "observe/probe_table.h"
#include "observe/uprobe_link.h"
#include "trace/ask.h"

/* The compiled programs, as bytes. libbpf wants them aligned. */
static const unsigned char object_bytes[] __attribute__((aligned(16))) = {
#include "observe/probe.bpf.inc"
};

/* The number of the kernel's first PID namespace. */
#define PID_NS_INITIAL UINT32_C(0xeffffffc)

enum { WALK_BATCH = 4096, WAKE_PART = 16 };

static int map_of(const struct kernel *k, const char *name)
{
    struct bpf_map *map = bpf_object__find_map_by_name(k->object, name);
    return map ? bpf_map__fd(map) : -1;
}

/* ---- opening ---- */

static int sizes_set(struct bpf_object *object, const struct kernel_options *options)
{
    struct bpf_map *ring = bpf_object__find_map_by_name(object, "ring");
    struct bpf_map *blocks = bpf_object__find_map_by_name(object, "blocks");
    if (!ring || !blocks)
        return -EINVAL;
    int r = 0;
    if (options->ring_bytes)
        r = bpf_map__set_max_entries(ring, options->ring_bytes);
    if (r == 0 && options->blocks_max)
        r = bpf_map__set_max_entries(blocks, options->blocks_max);
    return r;
}

static int pin_paths_set(struct bpf_object *object, const char *directory)
{
    struct bpf_map *map;
    bpf_object__for_each_map(map, object)
    {
        char path[PINS_PATH_MAX + KERNEL_NAME_MAX];
        if (bpf_map__is_internal(map))
            continue;
        snprintf(path, sizeof(path), "%s/%s", directory, bpf_map__name(map));
        int r = bpf_map__set_pin_path(map, path);
        if (r < 0)
            return r;
    }
    return 0;
}

static int object_open(struct kernel *k, const struct kernel_options *options)
{
    struct bpf_object_open_opts open = {.sz = sizeof(open), .object_name = "memoir_observe"};
    k->object = bpf_object__open_mem(object_bytes, sizeof(object_bytes), &open);
    if (!k->object)
        return -errno;
    k->enter = bpf_object__find_program_by_name(k->object, "call_enter");
    k->leave = bpf_object__find_program_by_name(k->object, "call_leave");
    k->session = bpf_object__find_program_by_name(k->object, "call_session");
    if (!k->enter || !k->leave || !k->session)
        return -EINVAL;
    bpf_program__set_expected_attach_type(k->enter, (enum bpf_attach_type)UPROBE_LINK_MULTI);
    bpf_program__set_expected_attach_type(k->leave, (enum bpf_attach_type)UPROBE_LINK_MULTI);
    bpf_program__set_expected_attach_type(k->session, (enum bpf_attach_type)UPROBE_LINK_SESSION);
    bpf_program__set_autoload(k->enter, !k->has_session);
    bpf_program__set_autoload(k->leave, !k->has_session);
    bpf_program__set_autoload(k->session, k->has_session);
    int r = sizes_set(k->object, options);
    return r < 0 ? r : pin_paths_set(k->object, k->pins);
}

static int settings_tell(const struct kernel *k)
{
    uint32_t zero = 0;
    return bpf_map_update_elem(k->settings, &zero, &k->setting, BPF_ANY) < 0 ? -errno : 0;
}

/* What an earlier observer pinned may be of another layout: libbpf refuses maps of other sizes,
 * the number tells the rest. */
static int object_load(struct kernel *k, const struct kernel_options *options, bool *ret_adopted)
{
    uint32_t zero = 0;
    struct wire_settings settings = {0};
    int r = object_open(k, options);
    if (r < 0)
        return r;
    r = bpf_object__load(k->object);
    if (r < 0)
        return r;
    k->settings = map_of(k, "settings");
    if (bpf_map_lookup_elem(k->settings, &zero, &settings) < 0)
        return -errno;
    if (settings.layout != 0 && settings.layout != WIRE_LAYOUT)
        return -EPROTO;
    *ret_adopted = settings.layout == WIRE_LAYOUT;
    settings = (struct wire_settings){
        .layout = WIRE_LAYOUT,
        .epoch = (settings.epoch + 1) & (UINT32_MAX >> WIRE_SITE_EPOCH_SHIFT),
        .all = options->all,
        .blocks_quota = options->blocks_quota ? options->blocks_quota : WIRE_BLOCKS_QUOTA,
        .user_quota = options->user_quota ? options->user_quota : WIRE_USER_QUOTA,
        .ring_quota = options->ring_quota ? options->ring_quota : WIRE_RING_QUOTA,
        .ring_bytes = options->ring_bytes ? options->ring_bytes : WIRE_RING_BYTES,
        .wake = 1,
        .wake_bytes = (options->ring_bytes ? options->ring_bytes : WIRE_RING_BYTES) / WAKE_PART,
    };
    for (size_t i = 0; probe_tables[i] && i < WIRE_LIBRARIES_MAX; i++)
        snprintf(settings.libraries[i], WIRE_LIBRARY_NAME, "%s", probe_tables[i]->library);
    k->setting = settings;
    return settings_tell(k);
}

/* With a session link where the kernel has them, else with two links. */
static int object_load_best(struct kernel *k, const struct kernel_options *options,
                            bool *ret_adopted)
{
    k->has_session = !options->two_links;
    int r = object_load(k, options, ret_adopted);
    if (r >= 0 || !k->has_session || r == -EPERM || r == -EACCES || r == -EPROTO)
        return r;
    bpf_object__close(k->object);
    k->object = NULL;
    k->has_session = false;
    return object_load(k, options, ret_adopted);
}

static int function_put(void *context, const struct probe_symbol *symbol)
{
    const struct kernel *k = context;
    if (symbol->number >= WIRE_FUNCTIONS_MAX)
        return -E2BIG;
    return bpf_map_update_elem(map_of(k, "functions"), &symbol->number, &symbol->function->wire,
                               BPF_ANY) < 0
               ? -errno
               : 0;
}

static int functions_fill(struct kernel *k)
{
    int r = 0;
    for (size_t i = 0; probe_tables[i] && r == 0; i++)
        r = probe_table_each(probe_tables[i], function_put, k);
    return r;
}

static void consumed_tell(struct kernel *k)
{
    for (size_t i = 0; i < k->n_shares; i++) {
        struct wire_process entry;
        struct wire_consumed bytes = {0};
        if (bpf_map_lookup_elem(k->processes, &k->shares[i].pid, &entry) < 0)
            continue; /* ended: an entry of its own would stay for ever */
        bpf_map_lookup_elem(k->consumed, &k->shares[i].pid, &bytes);
        bytes.events += k->shares[i].bytes.events;
        bytes.stacks += k->shares[i].bytes.stacks;
        bpf_map_update_elem(k->consumed, &k->shares[i].pid, &bytes, BPF_ANY);
    }
    k->n_shares = 0;
}

/* All records begin with their kind and the process. */
static struct wire_consumed *consumed_of(struct kernel *k, const uint32_t *record)
{
    uint32_t pid = record[1];
    size_t i = 0;
    while (i < k->n_shares && k->shares[i].pid != pid)
        i++;
    if (i == SHARES_MAX) {
        consumed_tell(k);
        i = 0;
    }
    if (i == k->n_shares)
        k->shares[k->n_shares++] = (struct share){.pid = pid};
    return &k->shares[i].bytes;
}

static int on_stack(void *context, void *data, size_t size)
{
    struct kernel *k = context;
    if (size >= 2 * sizeof(uint32_t))
        consumed_of(k, data)->stacks += size;
    k->each(k->each_context, data, size);
    return 0;
}

static bool has_stack(const void *record, size_t size)
{
    const struct wire_event *event = record;
    const struct wire_copy *copy = record;
    if (size >= sizeof(*event) && event->record == WIRE_RECORD_EVENT)
        return event->has_stack;
    return size >= sizeof(*copy) && copy->record == WIRE_RECORD_COPY && copy->has_stack;
}

static int on_record(void *context, void *data, size_t size)
{
    struct kernel *k = context;
    if (size >= 2 * sizeof(uint32_t))
        consumed_of(k, data)->events += size;
    if (has_stack(data, size)) /* it came before, in the other ring */
        ring_buffer__consume(k->stack_ring);
    k->each(k->each_context, data, size);
    k->done++;
    return --k->left > 0 ? 0 : -EAGAIN; /* which ends ring_buffer__consume() */
}

/* Attached once, and pinned like the rest. */
static int tracepoint_attach(struct kernel *k, struct bpf_program *program)
{
    char path[PINS_PATH_MAX + KERNEL_NAME_MAX];
    snprintf(path, sizeof(path), "%s/link-%s", k->pins, bpf_program__name(program));
    if (access(path, F_OK) == 0)
        return 0;
    struct bpf_link *link = bpf_program__attach(program);
    if (!link)
        return -errno;
    int r = bpf_link__pin(link, path);
    bpf_link__disconnect(link); /* the pin keeps it */
    bpf_link__destroy(link);
    return r;
}

/* Exec and exit are needed by the table of processes; what the operating system does to memory
 * is worth having. */
static int tracepoints_attach(struct kernel *k, bool system_calls)
{
    int missing = pins_tracefs();
    struct bpf_program *program;
    bpf_object__for_each_program(program, k->object)
    {
        bool of_call = strncmp(bpf_program__section_name(program), "tp/syscalls/", 12) == 0;
        bool of_library = program == k->enter || program == k->leave || program == k->session;
        if (of_library || (of_call && !system_calls))
            continue;
        int r = tracepoint_attach(k, program);
        bool needed = strncmp(bpf_program__name(program), "process_", 8) == 0;
        if (r < 0 && needed)
            return r;
        if (r < 0)
            missing = r;
    }
    if (missing < 0)
        log_warn("what the system does to host memory is not told in full: %s", strerror(-missing));
    return 0;
}

static int maps_find(struct kernel *k)
{
    k->processes = map_of(k, "processes");
    k->contexts = map_of(k, "contexts");
    k->blocks = map_of(k, "blocks");
    k->known = map_of(k, "known");
    k->consumed = map_of(k, "consumed");
    k->python = map_of(k, "python_facts");
    k->machine = map_of(k, "machine");
    k->faults = map_of(k, "faults");
    k->users = map_of(k, "users");
    k->graphs = map_of(k, "graphs");
    k->subordinates.n = UINT32_MAX; /* an earlier observer's may be there */
    kernel_subordinates_tell(k);
    k->ring = ring_buffer__new(map_of(k, "ring"), on_record, k, NULL);
    if (k->ring)
        k->stack_ring = ring_buffer__new(map_of(k, "stacks"), on_stack, k, NULL);
    return k->stack_ring ? 0 : -errno;
}

static int load(struct kernel *k, const struct kernel_options *options, bool *ret_adopted,
                char *why)
{
    int r = object_load_best(k, options, ret_adopted);
    if (r < 0 && r != -EPERM && r != -EACCES) {
        /* Perhaps pins of another layout: once more without. */
        log_debug("cannot use what is pinned in '%s': %s", k->pins, strerror(-r));
        bpf_object__close(k->object);
        k->object = NULL;
        pins_empty(k->pins);
        r = object_load_best(k, options, ret_adopted);
    }
    if (r < 0)
        return object_fail(why, r, "loading the probes");
    r = functions_fill(k);
    if (r == 0)
        r = maps_find(k);
    if (r == 0)
        r = tracepoints_attach(k, options->system_calls);
    if (r < 0)
        return object_fail(why, r, "preparing the probes");
    return 0;
}

int kernel_open(const struct kernel_options *options, struct kernel **ret_kernel, bool *ret_adopted,
                char why[static KERNEL_WHY_MAX])
{
    if (object_namespace_inode("/proc/self/ns/pid") != PID_NS_INITIAL)
        return object_fail(why, -ENOTSUP, "tracing from inside a PID namespace");
    struct kernel *k = calloc(1, sizeof(*k));
    if (!k)
        return object_fail(why, -ENOMEM, "starting");
    k->lock = -1;
    object_log();
    int dir = trace_ask_dir_make();
    int r = dir < 0 ? dir : pins_open(options->name, k->pins, &k->lock);
    if (dir == -EPERM || dir == -ENOTDIR)
        snprintf(why, KERNEL_WHY_MAX,
                 "'%s' must be a directory of root's that no other user can write to",
                 TRACE_ASK_DIR);
    else if (r == -EBUSY)
        snprintf(why, KERNEL_WHY_MAX, "another observer is running (its name is '%s')",
                 options->name);
    else if (r < 0)
        object_fail(why, r, "finding or mounting a bpffs");
    else
        r = load(k, options, ret_adopted, why);
    if (r < 0) {
        kernel_close(k, true);
        return r;
    }
    attach_adopt(k);
    *ret_kernel = k;
    return 0;
}

void kernel_forget(struct kernel *k)
{
    closep(&k->lock);
}

void kernel_close(struct kernel *k, bool leave)
{
    if (!k)
        return;
    attach_release(k);
    ring_buffer__free(k->ring);
    ring_buffer__free(k->stack_ring);
    bpf_object__close(k->object);
    if (!leave && k->pins[0] && k->lock >= 0)
        pins_remove(k->pins);
    if (k->lock >= 0)
        pins_unlock(k->pins, k->lock);
    free(k);
}

/* ---- processes ---- */

int kernel_process_add(struct kernel *k, pid_t pid, uint64_t start_ns, uint32_t uid)
{
    uint32_t key = (uint32_t)pid;
    struct wire_process fresh = {
        .start_ns = start_ns, .generation = wire_generation(start_ns), .uid = uid};
    if (bpf_map_update_elem(k->processes, &key, &fresh, BPF_NOEXIST) < 0 && errno != EEXIST)
        return -errno;
    return 0;
}

int kernel_process_switch(struct kernel *k, pid_t pid, bool on, uint32_t uid)
{
    uint32_t key = (uint32_t)pid;
    struct wire_process before;
    int r = kernel_process_get(k, pid, &before);
    if (r < 0)
        return r;
    struct wire_process entry = {.start_ns = before.start_ns,
                                 .generation = before.generation + 1,
                                 .uid = uid,
                                 .payer = before.payer,
                                 .off = !on};
    return bpf_map_update_elem(k->processes, &key, &entry, BPF_EXIST) < 0 ? -errno : 0;
}

void kernel_process_remove(struct kernel *k, pid_t pid)
{
    uint32_t key = (uint32_t)pid;
    bpf_map_delete_elem(k->processes, &key);
    bpf_map_delete_elem(k->consumed, &key);
    bpf_map_delete_elem(k->python, &key);
}

/* Memory of a graph goes with its group. */
static bool is_of_ended_graph(struct kernel *k, const struct wire_key *key,
                              const struct wire_block *block)
{
    struct wire_process entry;
    struct wire_graph group;
    uint32_t pid = key->pid;
    if (bpf_map_lookup_elem(k->processes, &pid, &entry) < 0 ||
        (entry.generation & 0xffffff) != key->class_generation >> 8)
        return true;
    struct wire_graph_key at = {.pid = pid,
                                .generation = entry.generation,
                                .kind = WIRE_GRAPH_GROUP,
                                .handle = block->context};
    return bpf_map_lookup_elem(k->graphs, &at, &group) < 0;
}

bool kernel_block_stale(struct kernel *k, const struct wire_key *key,
                        const struct wire_block *block)
{
    uint8_t class = (uint8_t)key->class_generation;
    struct wire_process entry;
    struct wire_context context;
    if (class == WIRE_MAPPING || class == WIRE_HANDLE || !block->context)
        return false;
    if (class == WIRE_GRAPH)
        return is_of_ended_graph(k, key, block);
    if (k->last.pid != key->pid || k->last.context != block->context ||
        (k->last.generation & 0xffffff) != key->class_generation >> 8) {
        uint32_t pid = key->pid;
        if (bpf_map_lookup_elem(k->processes, &pid, &entry) < 0 ||
            (entry.generation & 0xffffff) != key->class_generation >> 8)
            return true;
        k->last = (struct wire_context_key){
            .pid = key->pid, .generation = entry.generation, .context = block->context};
        k->last_generation = bpf_map_lookup_elem(k->contexts, &k->last, &context) < 0
                                 ? block->context_generation
                                 : context.generation;
    }
    return block->context_generation != k->last_generation;
}

int kernel_process_get(struct kernel *k, pid_t pid, struct wire_process *ret_process)
{
    uint32_t key = (uint32_t)pid;
    return bpf_map_lookup_elem(k->processes, &key, ret_process) < 0 ? -errno : 0;
}

/* ---- walking ---- */

/* A copy of a whole hash, in batches. `each` gets key and value. */
static int map_walk(int fd, size_t key_bytes, size_t value_bytes,
                    int (*each)(void *context, const void *key, const void *value), void *context)
{
    char *keys = malloc(WALK_BATCH * key_bytes), *values = malloc(WALK_BATCH * value_bytes);
    uint64_t cursor = 0, next = 0;
    bool first = true;
    int r = keys && values ? 0 : -ENOMEM;
    while (r == 0) {
        uint32_t n = WALK_BATCH;
        int got = bpf_map_lookup_batch(fd, first ? NULL : &cursor, &next, keys, values, &n, NULL);
        int error = got < 0 ? errno : 0;
        if (error && error != ENOENT) {
            r = -error;
            break;
        }
        for (uint32_t i = 0; i < n && r == 0; i++)
            r = each(context, keys + i * key_bytes, values + i * value_bytes);
        if (error == ENOENT)
            break;
        cursor = next;
        first = false;
    }
    free(keys);
    free(values);
    return r;
}

struct processes_walk {
    int (*each)(void *context, pid_t pid, const struct wire_process *process);
    void *context;
};

static int process_each(void *context, const void *key, const void *value)
{
    const struct processes_walk *w = context;
    return w->each(w->context, (pid_t) * (const uint32_t *)key, value);
}

int kernel_processes(struct kernel *k,
                     int (*each)(void *context, pid_t pid, const struct wire_process *process),
                     void *context)
{
    struct processes_walk w = {each, context};
    return map_walk(k->processes, sizeof(uint32_t), sizeof(struct wire_process), process_each, &w);
}

struct contexts_walk {
    int (*each)(void *context, const struct wire_context_key *key,
                const struct wire_context *value);
    void *context;
};

static int context_each(void *context, const void *key, const void *value)
{
    const struct contexts_walk *w = context;
    return w->each(w->context, key, value);
}

int kernel_contexts(struct kernel *k,
                    int (*each)(void *context, const struct wire_context_key *key,
                                const struct wire_context *value),
                    void *context)
{
    struct contexts_walk w = {each, context};
    return map_walk(k->contexts, sizeof(struct wire_context_key), sizeof(struct wire_context),
                    context_each, &w);
}

struct blocks_walk {
    int (*each)(void *context, const struct wire_key *key, const struct wire_block *value);
    void *context;
};

static int block_each(void *context, const void *key, const void *value)
{
    const struct blocks_walk *w = context;
    return w->each(w->context, key, value);
}

int kernel_blocks(struct kernel *k,
                  int (*each)(void *context, const struct wire_key *key,
                              const struct wire_block *value),
                  void *context)
{
    struct blocks_walk w = {each, context};
    k->last = (struct wire_context_key){0};
    return map_walk(k->blocks, sizeof(struct wire_key), sizeof(struct wire_block), block_each, &w);
}

void kernel_block_remove(struct kernel *k, const struct wire_key *key)
{
    bpf_map_delete_elem(k->blocks, key);
}

/* ---- purging ---- */

struct purge {
    struct kernel *kernel;
    bool (*stale)(void *context, pid_t pid, uint32_t generation);
    void *context;
    size_t n;
};

static int block_purge(void *context, const struct wire_key *key, const struct wire_block *value)
{
    struct purge *p = context;
    bool ended = p->stale(p->context, (pid_t)key->pid, key->class_generation >> 8);
    if (!ended && !kernel_block_stale(p->kernel, key, value))
        return 0;
    /* An address of a context that ended may have been given out again meanwhile. */
    struct wire_block there;
    if (!ended &&
        (bpf_map_lookup_elem(p->kernel->blocks, key, &there) < 0 || there.call != value->call))
        return 0;
    kernel_block_remove(p->kernel, key);
    p->n++;
    return 0;
}

static int context_purge(void *context, const struct wire_context_key *key,
                         const struct wire_context *value)
{
    struct purge *p = context;
    if (p->stale(p->context, (pid_t)key->pid, key->generation)) {
        bpf_map_delete_elem(p->kernel->contexts, key);
        p->n++;
    }
    return 0;
}

static int graph_purge(void *context, const void *at, const void *value)
{
    struct purge *p = context;
    const struct wire_graph_key *key = at;
    if (p->stale(p->context, (pid_t)key->pid, key->generation)) {
        bpf_map_delete_elem(p->kernel->graphs, key);
        p->n++;
    }
    return 0;
}

static void known_purge(struct purge *p)
{
    struct wire_known_key key, next;
    int r = bpf_map_get_next_key(p->kernel->known, NULL, &next);
    for (uint32_t i = 0; r == 0 && i < WIRE_KNOWN_MAX; i++) {
        key = next;
        r = bpf_map_get_next_key(p->kernel->known, &key, &next);
        if (p->stale(p->context, (pid_t)key.pid, key.generation)) {
            bpf_map_delete_elem(p->kernel->known, &key);
            p->n++;
        }
    }
}

size_t kernel_purge(struct kernel *k, bool (*stale)(void *context, pid_t pid, uint32_t generation),
                    void *context)
{
    struct purge p = {k, stale, context, 0};
    kernel_blocks(k, block_purge, &p);
    kernel_contexts(k, context_purge, &p);
    map_walk(k->graphs, sizeof(struct wire_graph_key), sizeof(struct wire_graph), graph_purge, &p);
    known_purge(&p);
    return p.n;
}

/* ---- users ---- */

enum { USERS_COUNTED_MAX = 256 }; /* those of further users stay as they are until a later look */

struct users_count {
    struct {
        uint32_t uid;
        uint64_t blocks;
    } user[USERS_COUNTED_MAX];
    size_t n;
};

static int user_count(void *context, pid_t pid, const struct wire_process *process)
{
    struct users_count *c = context;
    size_t i = 0;
    while (i < c->n && c->user[i].uid != process->payer)
        i++;
    if (i == USERS_COUNTED_MAX)
        return 0;
    if (i == c->n)
        c->user[c->n++].uid = process->payer;
    c->user[i].blocks += process->live_blocks;
    return 0;
}

/* Only if they changed: a probe may read them just now. */
void kernel_subordinates_tell(struct kernel *k)
{
    static_assert(sizeof(struct accountable_range) == sizeof(k->subordinates.range[0]),
                  "they are copied");
    struct accountable_range ranges[WIRE_RANGES_MAX];
    struct wire_ranges now = {.n = (uint32_t)accountable_ranges(ranges, WIRE_RANGES_MAX)};
    uint32_t zero = 0;
    memcpy(now.range, ranges, now.n * sizeof(ranges[0]));
    if (memcmp(&now, &k->subordinates, sizeof(now)) != 0 &&
        bpf_map_update_elem(map_of(k, "subordinates"), &zero, &now, BPF_ANY) == 0)
        k->subordinates = now;
}

/* A call that is made meanwhile may be missed or counted twice: the quota is not that exact. */
void kernel_users_count(struct kernel *k)
{
    uint32_t uid, next;
    struct users_count *c = calloc(1, sizeof(*c));
    if (!c || kernel_processes(k, user_count, c) < 0) {
        free(c);
        return;
    }
    int r = bpf_map_get_next_key(k->users, NULL, &next);
    for (size_t left = WIRE_USERS_MAX; r == 0 && left > 0; left--) {
        uid = next;
        r = bpf_map_get_next_key(k->users, &uid, &next);
        size_t i = 0;
        while (i < c->n && c->user[i].uid != uid)
            i++;
        if (i < c->n)
            bpf_map_update_elem(k->users, &uid, &c->user[i].blocks, BPF_EXIST);
        else if (c->n < USERS_COUNTED_MAX)
            bpf_map_delete_elem(k->users, &uid);
    }
    free(c);
}

/* ---- stacks, interpreters ---- */

int kernel_known_add(struct kernel *k, const struct wire_known_key *key,
                     const struct wire_known *value)
{
    struct wire_known_key at = *key;
    struct wire_known there, with_epoch = *value;
    at.epoch = k->setting.epoch;
    with_epoch.site |= k->setting.epoch << WIRE_SITE_EPOCH_SHIFT;
    value = &with_epoch;
    for (at.variant = 0; at.variant < WIRE_KNOWN_VARIANTS; at.variant++) {
        if (bpf_map_lookup_elem(k->known, &at, &there) < 0)
            break;
        if (memcmp(&there, value, sizeof(there)) == 0)
            return 0; /* two threads had it at the same time */
    }
    if (at.variant == WIRE_KNOWN_VARIANTS)
        at.variant = (uint16_t)(k->variants++ % WIRE_KNOWN_VARIANTS);
    return bpf_map_update_elem(k->known, &at, value, BPF_ANY) < 0 ? -errno : 0;
}

int kernel_python_set(struct kernel *k, pid_t pid, const struct python_kernel_facts *facts)
{
    uint32_t key = (uint32_t)pid;
    int r = facts ? bpf_map_update_elem(k->python, &key, facts, BPF_ANY)
                  : bpf_map_delete_elem(k->python, &key);
    if (r < 0)
        return -errno;
    k->setting.pythons++; /* threads that know of none look again */
    return settings_tell(k);
}

uint32_t kernel_site_number(const struct kernel *k, uint32_t site)
{
    return site >> WIRE_SITE_EPOCH_SHIFT == k->setting.epoch ? site & WIRE_SITE_NUMBER_MASK : 0;
}

/* ---- page faults ---- */

uint64_t kernel_faults_at(struct kernel *k, pid_t pid, uint32_t generation, uint64_t granule)
{
    struct wire_granule_key key = {(uint32_t)pid, generation, granule};
    uint64_t count = 0;
    return bpf_map_lookup_elem(k->faults, &key, &count) < 0 ? 0 : count;
}

struct faults_walk {
    int (*each)(void *context, const struct wire_granule_key *key, uint64_t count);
    void *context;
};

static int faults_each(void *context, const void *key, const void *value)
{
    const struct faults_walk *w = context;
    return w->each(w->context, key, *(const uint64_t *)value);
}

int kernel_faults(struct kernel *k,
                  int (*each)(void *context, const struct wire_granule_key *key, uint64_t count),
                  void *context)
{
    struct faults_walk w = {each, context};
    return map_walk(k->faults, sizeof(struct wire_granule_key), sizeof(uint64_t), faults_each, &w);
}

/* ---- the ring ---- */

int kernel_fd(const struct kernel *k)
{
    return ring_buffer__epoll_fd(k->ring);
}

void kernel_sleep(struct kernel *k, bool sleep)
{
    if (k->setting.wake == sleep)
        return;
    k->setting.wake = sleep;
    settings_tell(k);
}

int kernel_read(struct kernel *k, size_t max,
                void (*each)(void *context, const void *record, size_t bytes), void *context)
{
    k->each = each;
    k->each_context = context;
    k->left = max;
    k->done = 0;
    if (max > 0)
        ring_buffer__consume(k->stack_ring); /* also those whose event was lost */
    int r = max > 0 ? ring_buffer__consume(k->ring) : 0;
    consumed_tell(k);
    return r < 0 && r != -EAGAIN ? r : (int)k->done;
}

static double cost_of(const struct bpf_program *program)
{
    struct bpf_prog_info info = {0};
    uint32_t len = sizeof(info);
    if (bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &len) < 0 || !info.run_cnt)
        return 0;
    return (double)info.run_time_ns / (double)info.run_cnt;
}

void kernel_costs(struct kernel *k, double *ret_enter_ns, double *ret_leave_ns)
{
    *ret_enter_ns = cost_of(k->has_session ? k->session : k->enter);
    *ret_leave_ns = k->has_session ? 0 : cost_of(k->leave);
}

bool kernel_has_session(const struct kernel *k)
{
    return k->has_session;
}

void kernel_machine(struct kernel *k, struct wire_machine *ret_machine)
{
    int n = libbpf_num_possible_cpus();
    uint32_t zero = 0;
    *ret_machine = (struct wire_machine){0};
    struct wire_machine *each = n > 0 ? calloc((size_t)n, sizeof(*each)) : NULL;
    if (each && bpf_map_lookup_elem(k->machine, &zero, each) == 0)
        for (int i = 0; i < n; i++) {
            ret_machine->lost_processes += each[i].lost_processes;
            ret_machine->unpaired += each[i].unpaired;
        }
    free(each);
}

int kernel_orphans(const char *only, bool remove, void (*each)(void *context, const char *name),
                   void *context)
{
    return pins_orphans(only, remove, each, context);
}
