/* Probed calls: one program at their entry, one at their return, for every function of every probe table.
 *
 * The row of the function (its number is the probe's cookie) says what the call does and where its arguments are. What is
 * live is kept here, in maps, so that totals are right whatever happens to the ring and to the observer:
 *  - an allocation enters the table at return, if the call succeeded;
 *  - a free removes its block at entry and puts it back if the call fails. Removed at return, another thread could have got
 *    the address before.
 * The ring carries events for histories. A full ring, or a process that has filled its share, costs events, which are
 * counted. */
#include "observe/wire.h"
#include "trace/event.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "observe/machine.bpf.h"
#include "observe/python.bpf.h"

enum { SPACE_DRAM = 16, SPACE_PINNED = 3 }; /* enum memoir_space */
enum { BPF_ANY_ = 0, BPF_NOEXIST_ = 1 };

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, uint32_t);
    __type(value, struct wire_settings);
} settings SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, WIRE_FUNCTIONS_MAX);
    __type(key, uint32_t);
    __type(value, struct wire_function);
} functions SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, WIRE_PROCESSES_MAX);
    __type(key, uint32_t);
    __type(value, struct wire_process);
} processes SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, WIRE_CONTEXTS_MAX);
    __type(key, struct wire_context_key);
    __type(value, struct wire_context);
} contexts SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, WIRE_BLOCKS_MAX);
    __type(key, struct wire_key);
    __type(value, struct wire_block);
} blocks SEC(".maps");

/* What the observer has read of each process's events, in bytes. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, WIRE_PROCESSES_MAX);
    __type(key, uint32_t);
    __type(value, uint64_t);
} consumed SEC(".maps");

/* Processes that run CPython. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, WIRE_PROCESSES_MAX);
    __type(key, uint32_t);
    __type(value, struct python_kernel_facts);
} python_facts SEC(".maps");

/* Full of stacks that are seen no more, it forgets the one that was asked for least recently. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, WIRE_KNOWN_MAX);
    __type(key, struct wire_known_key);
    __type(value, struct wire_known);
} known SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, uint32_t);
    __type(value, struct wire_machine);
} machine SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, WIRE_RING_BYTES);
} ring SEC(".maps");

enum { STACK_WORDS = 64 };

/* A probed call that has not returned. */
struct call {
    uint64_t sp; /* at entry */
    uint64_t number;
    uint64_t address, size, source,
        extra;                 /* arguments by their roles; for copies what they led to */
    struct wire_block removed; /* by a free, to be put back if it fails */
    uint32_t site;
    uint16_t function;
    uint8_t has_stack, has_removed;
    uint8_t direction;
    uint8_t async;
    uint8_t spare[2];
};

struct thread {
    uint64_t contexts[WIRE_CONTEXT_STACK]; /* the last one is current; 0: not known */
    uint32_t n_contexts;                   /* may be more than there is room for */
    uint32_t depth;
    uint32_t generation; /* of the process: what is here of an earlier image does not count */
    uint32_t spare;
    struct call calls[WIRE_CALLS_MAX];
    uint64_t system[2];           /* arguments of the system call that it is in */
    uint64_t stack[STACK_WORDS];  /* the innermost words of its stack */
    struct python_capture python; /* of the call that begins */
    struct python_scratch scratch;
};

struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct thread);
} threads SEC(".maps");

/* What both ends of a call need. */
struct at {
    const struct wire_settings *settings;
    struct wire_process *process;
    struct thread *thread;
    uint32_t pid, tid, generation;
};

/* ---- processes ---- */

/* A set-uid process acts with more rights than its real user has: its history is root's. */
static uint32_t current_user(void)
{
    struct task_struct *task = bpf_get_current_task_btf();
    uint32_t uid = BPF_CORE_READ(task, cred, uid.val);
    bool one =
        BPF_CORE_READ(task, cred, euid.val) == uid && BPF_CORE_READ(task, cred, suid.val) == uid;
    return one ? uid : 0;
}

static struct wire_process *process_make(uint32_t pid, struct task_struct *leader)
{
    uint32_t zero = 0;
    struct wire_process fresh = {
        .start_ns = BPF_CORE_READ(leader, start_boottime),
        .uid = current_user(),
    };
    fresh.generation = wire_generation(fresh.start_ns);
    bpf_map_update_elem(&processes, &pid, &fresh, BPF_NOEXIST_);
    struct wire_process *p = bpf_map_lookup_elem(&processes, &pid);
    struct wire_machine *m = bpf_map_lookup_elem(&machine, &zero);
    if (!p && m)
        m->lost_processes++;
    return p;
}

/* The state of the process begins anew: another one has its PID, or it goes on with another program. */
static void process_renew(uint32_t pid, struct wire_process *p, uint64_t start_ns)
{
    uint32_t generation = wire_generation(start_ns);
    p->uid = current_user();
    p->generation = p->start_ns == start_ns ? p->generation + 1 : generation;
    p->start_ns = start_ns;
    p->live_blocks = 0;
    p->default_context = 0;
    p->n_contexts = 0;
    p->from_start = 0;
    p->calls = p->events = p->faults = 0;
    for (int i = 0; i < 5; i++)
        p->copies[i] = p->copied_bytes[i] = 0;
    p->lost_events = p->lost_stacks = p->lost_blocks = p->lost_bytes = 0;
    p->unknown_frees = p->replaced = p->unreadable = p->unpaired = 0;
    bpf_map_delete_elem(&python_facts, &pid);
}

/* A thread that is seen for the first time, or with another program: it may be of another process with this PID. */
static __noinline bool thread_begin(struct at *at, struct task_struct *task)
{
    uint64_t start_ns = BPF_CORE_READ(task, group_leader, start_boottime);
    uint64_t told = at->process->start_ns;
    if (start_ns - told < WIRE_START_SLACK_NS)
        at->process->start_ns = start_ns; /* the observer knew it by ticks */
    else if (told != start_ns)
        process_renew(at->pid, at->process, start_ns);
    at->generation = at->process->generation;
    at->thread->generation = at->generation;
    at->thread->depth = 0;
    at->thread->n_contexts = 0;
    at->thread->system[0] = at->thread->system[1] = 0;
    return true;
}

static bool here(struct at *at)
{
    uint64_t id = bpf_get_current_pid_tgid();
    uint32_t zero = 0;
    at->settings = bpf_map_lookup_elem(&settings, &zero);
    if (!at->settings)
        return false;
    at->pid = (uint32_t)(id >> 32);
    at->tid = (uint32_t)id;
    struct task_struct *task = bpf_get_current_task_btf();
    struct wire_process *p = bpf_map_lookup_elem(&processes, &at->pid);
    if (!p && at->settings->all)
        p = process_make(at->pid, BPF_CORE_READ(task, group_leader));
    if (!p)
        return false;
    at->process = p;
    at->thread = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
    if (!at->thread)
        return false;
    at->generation = p->generation;
    return at->thread->generation == at->generation || thread_begin(at, task);
}

static uint64_t context_of(const struct at *at)
{
    uint32_t n = at->thread->n_contexts;
    uint64_t context = 0;
    if (n > 0 && n <= WIRE_CONTEXT_STACK)
        context = at->thread->contexts[(n - 1) & (WIRE_CONTEXT_STACK - 1)];
    return context ? context : at->process->default_context;
}

static void context_push(struct thread *t, uint64_t context)
{
    uint32_t n = t->n_contexts++;
    if (n < WIRE_CONTEXT_STACK)
        t->contexts[n & (WIRE_CONTEXT_STACK - 1)] = context;
}

static void context_pop(struct thread *t)
{
    if (t->n_contexts > 0)
        t->n_contexts--;
}

/* In the place of the current one. None is as good as a pop. */
static void context_set(struct thread *t, uint64_t context)
{
    context_pop(t);
    if (context)
        context_push(t, context);
}

static struct wire_context *context_find(const struct at *at, uint64_t context)
{
    struct wire_context_key key = {
        .pid = at->pid, .generation = at->generation, .context = context};
    return bpf_map_lookup_elem(&contexts, &key);
}

/* Its value is too large for the stack. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, uint32_t);
    __type(value, struct wire_context);
} empty_context SEC(".maps");

static struct wire_context *context_make(const struct at *at, uint64_t context, int32_t device)
{
    struct wire_context *c = context_find(at, context);
    uint32_t zero = 0;
    if (!c) {
        const struct wire_context *empty = bpf_map_lookup_elem(&empty_context, &zero);
        struct wire_context_key key = {
            .pid = at->pid, .generation = at->generation, .context = context};
        if (!empty || (context && at->process->n_contexts >= WIRE_CONTEXTS_QUOTA))
            return 0;
        if (bpf_map_update_elem(&contexts, &key, empty, BPF_NOEXIST_) == 0) {
            __sync_fetch_and_add(&at->process->n_contexts, 1);
            c = context_find(at, context);
            if (c)
                c->device = -1;
        } else {
            c = context_find(at, context);
        }
    }
    if (c && device >= 0)
        c->device = device;
    return c;
}

/* ---- the ring ---- */

enum { RING_NO_WAKEUP = 1, RING_FORCE_WAKEUP = 2, RING_AVAILABLE = 0, RING_SIZE = 1 };

/* A process gets as much of the ring as is free beyond its share, and its quota at most: few or many that fill theirs leave room
 * for others. What the observer has read is looked up only when the last figure is not good enough. */
static bool ring_admits(const struct at *at, uint64_t bytes)
{
    struct wire_process *p = at->process;
    uint64_t all = bpf_ringbuf_query(&ring, RING_AVAILABLE),
             size = bpf_ringbuf_query(&ring, RING_SIZE);
    uint64_t quota = at->settings->ring_quota, left = size > all ? size - all : 0;
    if (left < quota)
        quota = left;
    if (p->produced - p->consumed + bytes <= quota)
        return true;
    const uint64_t *done = bpf_map_lookup_elem(&consumed, &at->pid);
    uint64_t told = done ? *done : 0, produced = p->produced;
    int64_t waits = (int64_t)(produced - told - p->amended);
    if (waits < 0)
        p->amended = produced - told;
    else if (
        waits >
        (int64_t)
            all) /* more than there is: an observer was killed before it could tell what it had read */
        p->amended += (uint64_t)waits - all;
    p->consumed = told + p->amended;
    return p->produced - p->consumed + bytes <= quota;
}

static struct wire_event *event_new(const struct at *at, uint16_t kind, uint16_t function)
{
    struct wire_event *e = 0;
    if (ring_admits(at, sizeof(*e)))
        e = bpf_ringbuf_reserve(&ring, sizeof(*e), 0);
    if (!e) {
        __sync_fetch_and_add(&at->process->lost_events, 1);
        return 0;
    }
    __builtin_memset(e, 0, sizeof(*e));
    e->record = WIRE_RECORD_EVENT;
    e->pid = at->pid;
    e->tid = at->tid;
    e->generation = at->generation;
    e->time_ns = bpf_ktime_get_ns();
    e->kind = kind;
    e->function = function;
    e->device = -1;
    return e;
}

static uint64_t wakeup(const struct at *at)
{
    if (at->settings->wake)
        return 0; /* the kernel wakes a reader that has read all */
    if (at->process->events & 31)
        return RING_NO_WAKEUP; /* looking costs a cache miss: the reader writes there */
    return bpf_ringbuf_query(&ring, RING_AVAILABLE) > at->settings->wake_bytes ? RING_FORCE_WAKEUP
                                                                               : RING_NO_WAKEUP;
}

static void event_send(const struct at *at, struct wire_event *e)
{
    __sync_fetch_and_add(&at->process->produced, sizeof(*e));
    __sync_fetch_and_add(&at->process->events, 1);
    bpf_ringbuf_submit(e, wakeup(at));
}

/* An event about a block. */
static __always_inline void block_tell(const struct at *at, uint16_t kind, const struct call *call,
                                       uint64_t address, const struct wire_block *block,
                                       uint8_t class, uint8_t flags)
{
    struct wire_event *e = event_new(at, kind, call->function);
    if (!e)
        return;
    e->address = address;
    e->size = block->size;
    e->call = call->number;
    e->context = block->context;
    e->site = call->site;
    e->has_stack = call->has_stack;
    e->space = block->space;
    e->class = class;
    e->flags = flags;
    event_send(at, e);
}

#include "observe/stack.bpf.h"

/* ---- the table of live blocks ---- */

static void key_set(const struct at *at, uint8_t class, uint64_t address, struct wire_key *key)
{
    key->pid = at->pid;
    key->class_generation = at->generation << 8 | class;
    key->address = address;
}

/* Mappings and memory of other processes are in the table, but in no total. Registered bytes have a total of their own. */
static void count(const struct at *at, const struct wire_block *block, uint8_t class, bool alloc,
                  int64_t sign)
{
    uint8_t space = class == WIRE_REGISTERED ? WIRE_SPACE_REGISTERED : block->space;
    if (class == WIRE_MAPPING || block->flags & WIRE_FUNCTION_SHARED)
        return;
    struct wire_context *c = context_find(at, class == WIRE_HANDLE ? 0 : block->context);
    if (!c || c->generation != block->context_generation)
        return;
    struct wire_counters *n = &c->space[space & (WIRE_SPACES - 1)];
    if (alloc) {
        __sync_fetch_and_add(&n->alloc_bytes, sign * (int64_t)block->size);
        __sync_fetch_and_add(&n->alloc_blocks, sign);
    } else {
        __sync_fetch_and_add(&n->freed_bytes, sign * (int64_t)block->size);
        __sync_fetch_and_add(&n->freed_blocks, sign);
    }
}

/* Is it of a context that has not ended since? Mappings and handles are of no context. */
static bool block_current(const struct at *at, const struct wire_block *block, uint8_t class)
{
    if (class == WIRE_MAPPING || class == WIRE_HANDLE)
        return true;
    const struct wire_context *c = context_find(at, block->context);
    return !c || c->generation == block->context_generation;
}

/* False: there is no room, and nothing is counted. */
static __noinline bool block_put(const struct at *at, uint64_t address, uint8_t class,
                                 struct wire_block *block)
{
    struct wire_key key;
    key_set(at, class, address, &key);
    const struct wire_block *old = bpf_map_lookup_elem(&blocks, &key);
    bool takes_room = !old || !block_current(at, old, class);
    if (class != WIRE_MAPPING && !(block->flags & WIRE_FUNCTION_SHARED) &&
        !context_find(at, class == WIRE_HANDLE ? 0 : block->context))
        goto full; /* of contexts: it would be in the table and in no total */
    if (!takes_room) {
        count(at, old, class, false, 1);
        __sync_fetch_and_add(&at->process->replaced, 1);
    } else if (at->process->live_blocks >= at->settings->blocks_quota) {
        goto full;
    }
    if (bpf_map_update_elem(&blocks, &key, block, BPF_ANY_) < 0)
        goto full;
    if (takes_room)
        __sync_fetch_and_add(&at->process->live_blocks, 1);
    count(at, block, class, true, 1);
    return true;
full:
    __sync_fetch_and_add(&at->process->lost_blocks, 1);
    __sync_fetch_and_add(&at->process->lost_bytes, block->size);
    return false;
}

static __noinline bool block_take(const struct at *at, uint64_t address, uint8_t class,
                                  struct wire_block *ret_block)
{
    struct wire_key key;
    key_set(at, class, address, &key);
    const struct wire_block *block = bpf_map_lookup_elem(&blocks, &key);
    if (!block)
        return false;
    *ret_block = *block;
    if (bpf_map_delete_elem(&blocks, &key) < 0)
        return false; /* another thread was faster */
    if (!block_current(at, ret_block, class))
        return false; /* it went with its context */
    __sync_fetch_and_add(&at->process->live_blocks, -1);
    count(at, ret_block, class, false, 1);
    return true;
}

/* ---- what calls do ---- */

static void block_new(const struct at *at, const struct call *call, const struct wire_function *f,
                      uint64_t size, struct wire_block *ret_block)
{
    uint64_t context = context_of(at);
    bool physical =
        f->op ==
        WIRE_OP_HANDLE_MAKE; /* outlives contexts: it counts in the one that is not known */
    const struct wire_context *c = context_make(at, physical ? 0 : context, -1);
    if (!c) { /* there is no room for one more */
        context = 0;
        c = context_make(at, 0, -1);
    }
    *ret_block = (struct wire_block){
        .size = size,
        .time_ns = bpf_ktime_get_ns(),
        .call = call->number,
        .context = context,
        .context_generation = c ? c->generation : 0,
        .site = call->site,
        .function = call->function,
        .space = f->space,
        .flags = f->flags,
        .references = 1,
    };
}

static bool read_word(const struct at *at, uint64_t from, bool narrow, uint64_t *ret_value)
{
    uint32_t small = 0;
    uint64_t value = 0;
    long r = narrow ? bpf_probe_read_user(&small, sizeof(small), (void *)from)
                    : bpf_probe_read_user(&value, sizeof(value), (void *)from);
    if (r < 0) {
        __sync_fetch_and_add(&at->process->unreadable, 1);
        return false;
    }
    *ret_value = narrow ? small : value;
    return true;
}

static __noinline void failed_tell(const struct at *at, const struct call *call,
                                   const struct wire_function *f, int32_t result)
{
    struct wire_event *e = event_new(at, TRACE_FAILED, call->function);
    if (!e)
        return;
    e->size = call->size;
    e->call = call->number;
    e->context = context_of(at);
    e->result = result;
    e->site = call->site;
    e->has_stack = call->has_stack;
    e->space = f->space;
    event_send(at, e);
}

static uint8_t class_of(const struct wire_function *f)
{
    if (f->flags & WIRE_FUNCTION_ARRAY)
        return WIRE_ARRAY;
    if (f->op == WIRE_OP_REGISTER || f->op == WIRE_OP_UNREGISTER)
        return WIRE_REGISTERED;
    if (f->op == WIRE_OP_HANDLE_MAKE || f->op == WIRE_OP_HANDLE_FREE)
        return WIRE_HANDLE;
    return WIRE_MEMORY;
}

static __noinline void alloc_done(const struct at *at, struct call *call,
                                  const struct wire_function *f, int32_t result)
{
    uint64_t address = call->address, size = call->size;
    bool narrow = f->flags & WIRE_FUNCTION_NARROW;
    if (result != 0) {
        failed_tell(at, call, f, result);
        return;
    }
    if (f->op != WIRE_OP_REGISTER && !read_word(at, call->address, narrow, &address))
        return;
    if (address == 0)
        return; /* the driver gives nothing for nothing */
    if (f->op == WIRE_OP_ALLOC_PITCH) {
        uint64_t pitch;
        if (!read_word(at, call->source, narrow, &pitch))
            return;
        size = pitch * call->extra;
    }
    struct wire_block block;
    block_new(at, call, f, size, &block);
    uint8_t class = class_of(f);
    bool kept = block_put(at, address, class, &block);
    block_tell(at, TRACE_ALLOC, call, address, &block, class, kept ? 0 : WIRE_EVENT_UNKEPT);
}

static __noinline void free_begin(const struct at *at, struct call *call,
                                  const struct wire_function *f)
{
    if (call->address == 0)
        return;
    uint8_t class = class_of(f);
    call->has_removed = block_take(at, call->address, class, &call->removed);
    if (!call->has_removed) {
        __sync_fetch_and_add(&at->process->unknown_frees, 1);
        call->removed = (struct wire_block){.space = f->space};
    }
    block_tell(at, TRACE_FREE, call, call->address, &call->removed, class,
               call->has_removed ? 0 : WIRE_EVENT_UNKNOWN);
}

static __noinline void free_undo(const struct at *at, struct call *call,
                                 const struct wire_function *f)
{
    if (!call->has_removed)
        return;
    uint8_t class = class_of(f);
    struct wire_key key;
    key_set(at, class, call->address, &key);
    if (bpf_map_update_elem(&blocks, &key, &call->removed, BPF_NOEXIST_) < 0)
        return; /* another thread has got the address: the free did work */
    __sync_fetch_and_add(&at->process->live_blocks, 1);
    count(at, &call->removed, class, false, -1);
    block_tell(at, TRACE_RESTORE, call, call->address, &call->removed, class, 0);
}

enum { REMOVED_BLOCK = 1, REMOVED_REFERENCE = 2 };

/* A reference to a handle goes; its memory with the last one. */
static __noinline void handle_drop(const struct at *at, struct call *call, uint64_t handle)
{
    struct wire_key key;
    key_set(at, WIRE_HANDLE, handle, &key);
    struct wire_block *block = bpf_map_lookup_elem(&blocks, &key);
    if (!block)
        return;
    call->has_removed = REMOVED_REFERENCE;
    if (__sync_fetch_and_add(&block->references, -1) > 1)
        return;
    if (!block_take(at, handle, WIRE_HANDLE, &call->removed))
        return;
    call->has_removed = REMOVED_BLOCK;
    block_tell(at, TRACE_FREE, call, handle, &call->removed, WIRE_HANDLE, 0);
}

/* The release failed. */
static __noinline void handle_undo(const struct at *at, struct call *call,
                                   const struct wire_function *f)
{
    struct wire_key key;
    if (call->has_removed == REMOVED_BLOCK) {
        call->removed.references = 1;
        free_undo(at, call, f);
    } else if (call->has_removed == REMOVED_REFERENCE) {
        key_set(at, WIRE_HANDLE, call->address, &key);
        struct wire_block *block = bpf_map_lookup_elem(&blocks, &key);
        if (block)
            __sync_fetch_and_add(&block->references, 1);
    }
}

static __noinline void handle_make(const struct at *at, struct call *call,
                                   const struct wire_function *f, int32_t result)
{
    uint64_t handle;
    if (result != 0) {
        failed_tell(at, call, f, result);
        return;
    }
    if (!read_word(at, call->address, false, &handle))
        return;
    struct wire_block block;
    block_new(at, call, f, call->size, &block);
    /* CUmemAllocationProp: the type of the location is at 8, and 1 for a device. */
    uint32_t location = 1;
    if (call->source &&
        bpf_probe_read_user(&location, sizeof(location), (void *)(call->source + 8)) == 0 &&
        location != 1)
        block.space = SPACE_PINNED;
    bool kept = block_put(at, handle, WIRE_HANDLE, &block);
    block_tell(at, TRACE_ALLOC, call, handle, &block, WIRE_HANDLE, kept ? 0 : WIRE_EVENT_UNKEPT);
}

static __noinline void handle_keep(const struct at *at, struct call *call)
{
    uint64_t handle;
    struct wire_key key;
    if (!read_word(at, call->address, false, &handle))
        return;
    key_set(at, WIRE_HANDLE, handle, &key);
    struct wire_block *block = bpf_map_lookup_elem(&blocks, &key);
    if (block)
        __sync_fetch_and_add(&block->references, 1);
}

static __noinline void map_done(const struct at *at, struct call *call,
                                const struct wire_function *f)
{
    struct wire_key key;
    struct wire_block block;
    key_set(at, WIRE_HANDLE, call->source, &key);
    struct wire_block *handle = bpf_map_lookup_elem(&blocks, &key);
    block_new(at, call, f, call->size, &block);
    if (handle) {
        __sync_fetch_and_add(&handle->references, 1);
        block.space = handle->space;
    }
    block.context = call->source;
    bool kept = block_put(at, call->address, WIRE_MAPPING, &block);
    block_tell(at, TRACE_ALLOC, call, call->address, &block, WIRE_MAPPING,
               kept ? 0 : WIRE_EVENT_UNKEPT);
}

struct unmap {
    const struct at *at;
    struct call *call;
    uint64_t address, end;
    uint64_t unknown; /* there were some */
};

static long unmap_next(uint32_t i, struct unmap *u)
{
    struct wire_block block;
    if (u->address >= u->end)
        return 1;
    if (!block_take(u->at, u->address, WIRE_MAPPING, &block) || block.size == 0) {
        /* Mapped before tracing began. Known ones may follow. */
        if (!u->unknown)
            __sync_fetch_and_add(&u->at->process->unknown_frees, 1);
        u->unknown = 1;
        u->address += 1ull << WIRE_GRANULE_SHIFT;
        return 0;
    }
    block_tell(u->at, TRACE_FREE, u->call, u->address, &block, WIRE_MAPPING, 0);
    handle_drop(u->at, u->call, block.context);
    u->address += block.size;
    return 0;
}

static __noinline void unmap_done(const struct at *at, struct call *call)
{
    struct unmap u = {at, call, call->address, call->address + call->size, 0};
    bpf_loop(WIRE_MAPPINGS_MAX, unmap_next, &u, 0);
}

/* ---- copies ---- */

static __always_inline uint8_t copy_count(const struct at *at, const struct call *call,
                                          uint64_t size)
{
    uint8_t direction = call->direction < 5 ? call->direction : 0;
    __sync_fetch_and_add(&at->process->copies[direction], 1);
    __sync_fetch_and_add(&at->process->copied_bytes[direction], size);
    return direction;
}

static __noinline void copy_tell(const struct at *at, const struct call *call, uint64_t address,
                                 uint64_t source, uint64_t size)
{
    uint8_t direction = copy_count(at, call, size);
    struct wire_event *e = event_new(at, TRACE_COPY, call->function);
    if (!e)
        return;
    e->address = address;
    e->source = source;
    e->size = size;
    e->call = call->number;
    e->site = call->site;
    e->has_stack = call->has_stack;
    e->direction = direction;
    e->context = context_of(at);
    e->async = call->async;
    event_send(at, e);
}

/* Types of memory in CUDA_MEMCPY2D and 3D. */
enum { MEMORY_HOST = 1, MEMORY_DEVICE = 2, MEMORY_ARRAY = 3, MEMORY_UNIFIED = 4 };

static uint8_t direction_of(uint32_t from, uint32_t to)
{
    bool from_device = from == MEMORY_DEVICE || from == MEMORY_ARRAY;
    bool to_device = to == MEMORY_DEVICE || to == MEMORY_ARRAY;
    if (from == MEMORY_UNIFIED || to == MEMORY_UNIFIED || !from || !to)
        return TRACE_DIRECTION_UNKNOWN;
    if (from_device)
        return to_device ? TRACE_ON_DEVICE : TRACE_FROM_DEVICE;
    return to_device ? TRACE_TO_DEVICE : TRACE_ON_HOST;
}

/* One side of a copy with several dimensions. Its fields lie side by side: type, host, device. */
struct side {
    uint64_t type, host, device;
};

static uint64_t side_address(const struct side *side)
{
    uint32_t type = (uint32_t)side->type;
    if (type == MEMORY_HOST)
        return side->host;
    return type == MEMORY_DEVICE || type == MEMORY_UNIFIED ? side->device : 0;
}

static __noinline void copy_shaped(const struct at *at, struct call *call, bool three)
{
    uint64_t at_from = call->address + (three ? 32 : 16),
             at_to = call->address + (three ? 120 : 72);
    uint64_t at_shape = call->address + (three ? 176 : 112);
    struct side from = {0}, to = {0};
    uint64_t shape[3] = {0, 0, 1};
    long r = bpf_probe_read_user(&from, sizeof(from), (void *)at_from);
    r |= bpf_probe_read_user(&to, sizeof(to), (void *)at_to);
    r |= bpf_probe_read_user(shape, three ? 24 : 16, (void *)at_shape);
    if (r < 0) {
        __sync_fetch_and_add(&at->process->unreadable, 1);
        call->size = 0;
        return;
    }
    call->direction = direction_of((uint32_t)from.type, (uint32_t)to.type);
    call->address = side_address(&to);
    call->source = side_address(&from);
    call->size = shape[0] * shape[1] * shape[2];
}

struct batch {
    const struct at *at;
    const struct call *call;
    uint64_t n;
};

static long batch_next(uint32_t i, struct batch *b)
{
    uint64_t to = 0, from = 0, size = 0;
    if (i >= b->n)
        return 1;
    long r = bpf_probe_read_user(&to, 8, (void *)(b->call->address + i * 8ull));
    r |= bpf_probe_read_user(&from, 8, (void *)(b->call->source + i * 8ull));
    r |= bpf_probe_read_user(&size, 8, (void *)(b->call->size + i * 8ull));
    if (r < 0) {
        __sync_fetch_and_add(&b->at->process->unreadable, 1);
        return 1;
    }
    if (i < WIRE_BATCH_MAX)
        copy_tell(b->at, b->call, to, from, size);
    else
        copy_count(b->at, b->call, size);
    return 0;
}

static __noinline void batch_done(const struct at *at, const struct call *call)
{
    struct batch b = {at, call, call->extra};
    if (b.n > WIRE_BATCH_MAX)
        __sync_fetch_and_add(&at->process->lost_events, b.n - WIRE_BATCH_MAX);
    bpf_loop(WIRE_BATCH_COUNTED_MAX, batch_next, &b, 0);
}

static __noinline void range_tell(const struct at *at, const struct call *call,
                                  const struct wire_function *f, uint16_t kind)
{
    struct wire_event *e = event_new(at, kind, call->function);
    if (!e)
        return;
    e->address = call->address;
    e->size = call->size;
    e->call = call->number;
    e->context = context_of(at);
    e->space = f->space;
    event_send(at, e);
}

/* ---- contexts ---- */

static __noinline void reset_tell(const struct at *at, const struct call *call, uint64_t context)
{
    struct wire_event *e = event_new(at, TRACE_RESET, call->function);
    if (!e)
        return;
    e->context = context;
    e->call = call->number;
    event_send(at, e);
}

/* All memory of the context is gone, in one step. Its blocks stay in the table until the observer removes them; they are
 * of an earlier generation and count no more. */
static __noinline void context_end(const struct at *at, const struct call *call, uint64_t context)
{
    struct wire_context *c = context_find(at, context);
    if (!c)
        return;
    if (!context)
        return; /* what is counted there may be of any */
    c->generation++;
    for (uint32_t i = 0; i < WIRE_SPACES; i++) {
        __sync_fetch_and_add(&at->process->live_blocks,
                             c->space[i].freed_blocks - c->space[i].alloc_blocks);
        c->space[i].freed_bytes = c->space[i].alloc_bytes;
        c->space[i].freed_blocks = c->space[i].alloc_blocks;
    }
    reset_tell(at, call, context);
}

struct reset {
    const struct at *at;
    const struct call *call;
    int32_t device;
};

static long reset_each(void *map, struct wire_context_key *key, struct wire_context *c,
                       struct reset *reset)
{
    if (key->pid == reset->at->pid && key->generation == reset->at->generation &&
        c->device == reset->device)
        context_end(reset->at, reset->call, key->context);
    return 0;
}

static __noinline void device_reset(const struct at *at, const struct call *call)
{
    struct reset reset = {at, call, (int32_t)call->extra};
    bpf_for_each_map_elem(&contexts, reset_each, &reset, 0);
}

static __noinline void context_made(const struct at *at, const struct call *call, bool current)
{
    uint64_t context;
    if (!read_word(at, call->address, false, &context) || !context)
        return;
    struct wire_context *c = context_make(at, context, (int32_t)call->extra);
    if (!at->process->default_context)
        at->process->default_context = context;
    if (current)
        context_push(at->thread, context);
    else if (c)
        __sync_fetch_and_add(&c->retained, 1);
    struct wire_event *e = event_new(at, TRACE_NONE, call->function);
    if (!e)
        return;
    e->context = context;
    e->device = (int32_t)call->extra;
    event_send(at, e);
}

/* A process that was not seen from its start may have retained the context before. */
static long release_each(void *map, struct wire_context_key *key, struct wire_context *c,
                         struct reset *reset)
{
    if (key->pid == reset->at->pid && key->generation == reset->at->generation &&
        c->device == reset->device && c->retained > 0 &&
        __sync_fetch_and_add(&c->retained, -1) == 1 && reset->at->process->from_start)
        context_end(reset->at, reset->call, key->context);
    return 0;
}

static __noinline void primary_release(const struct at *at, const struct call *call)
{
    struct reset reset = {at, call, (int32_t)call->extra};
    bpf_for_each_map_elem(&contexts, release_each, &reset, 0);
}

static __noinline void note_tell(const struct at *at, const struct call *call)
{
    struct wire_event *e = event_new(at, TRACE_NONE, call->function);
    if (e)
        event_send(at, e);
}

static __noinline void uuid_told(const struct at *at, const struct call *call)
{
    struct wire_event *e = event_new(at, TRACE_NONE, call->function);
    if (!e)
        return;
    e->device = (int32_t)call->extra;
    e->flags = WIRE_EVENT_UUID;
    if (bpf_probe_read_user(e->uuid, sizeof(e->uuid), (void *)call->address) < 0)
        e->flags = 0;
    event_send(at, e);
}

/* ---- entry and return ---- */

static __noinline void arguments_take(struct pt_regs *regs, const struct wire_function *f,
                                      struct call *call)
{
    struct arguments a;
    arguments_read(regs, &a);
    call->address = argument(&a, f->address);
    call->size = argument(&a, f->size);
    call->source = argument(&a, f->source);
    call->extra = argument(&a, f->extra);
    if (f->flags & (WIRE_FUNCTION_NARROW | WIRE_FUNCTION_NARROW_SIZE))
        call->size = (uint32_t)call->size;
    if (f->flags & WIRE_FUNCTION_NARROW) {
        call->extra = (uint32_t)call->extra;
        if (f->op == WIRE_OP_FREE)
            call->address = (uint32_t)call->address;
    }
    if (f->op == WIRE_OP_ALLOC_ARRAY)
        call->extra = (uint32_t)call->extra; /* levels */
}

/* Calls that were left by longjmp or an exception have a lower place on the stack than one that begins now. */
static __noinline struct call *call_push(const struct at *at, uint64_t sp)
{
    struct thread *t = at->thread;
    uint32_t depth = t->depth;
    for (int i = 0; i < WIRE_CALLS_MAX; i++) {
        if (depth == 0 || depth > WIRE_CALLS_MAX ||
            t->calls[(depth - 1) & (WIRE_CALLS_MAX - 1)].sp > sp)
            break;
        depth--;
        __sync_fetch_and_add(&at->process->unpaired, 1);
    }
    if (depth >= WIRE_CALLS_MAX) {
        __sync_fetch_and_add(&at->process->unpaired, 1);
        return 0;
    }
    t->depth = depth + 1;
    return &t->calls[depth & (WIRE_CALLS_MAX - 1)];
}

static __noinline struct call *call_pop(const struct at *at, uint64_t sp, uint16_t function)
{
    struct thread *t = at->thread;
    for (int i = 0; i < WIRE_CALLS_MAX; i++) {
        uint32_t depth = t->depth;
        if (depth == 0 || depth > WIRE_CALLS_MAX)
            break;
        struct call *call = &t->calls[(depth - 1) & (WIRE_CALLS_MAX - 1)];
        if (call->sp > sp)
            break; /* of a call further out: the entry of this one was not seen */
        t->depth = depth - 1;
        if (call->sp == sp && call->function == function)
            return call;
    }
    __sync_fetch_and_add(&at->process->unpaired, 1);
    return 0;
}

static uint64_t array_bytes(const struct at *at, uint64_t descriptor, bool three, uint64_t levels);

static __noinline void done(const struct at *at, struct call *call, const struct wire_function *f)
{
    switch (f->op) {
    case WIRE_OP_COPY:
    case WIRE_OP_COPY_2D:
    case WIRE_OP_COPY_3D:
        copy_tell(at, call, call->address, call->source, call->size);
        break;
    case WIRE_OP_COPY_BATCH:
        batch_done(at, call);
        break;
    case WIRE_OP_SET:
        range_tell(at, call, f, TRACE_SET);
        break;
    case WIRE_OP_PREFETCH:
        range_tell(at, call, f, TRACE_PREFETCH);
        break;
    case WIRE_OP_CONTEXT_SET:
        context_set(at->thread, call->address);
        break;
    case WIRE_OP_CONTEXT_PUSH:
        context_push(at->thread, call->address);
        break;
    case WIRE_OP_CONTEXT_POP:
        context_pop(at->thread);
        break;
    case WIRE_OP_PRIMARY_RELEASE:
        primary_release(at, call);
        break;
    case WIRE_OP_CONTEXT_MAKE:
        context_made(at, call, f->unit);
        break;
    case WIRE_OP_CONTEXT_END:
        if (at->thread->n_contexts > 0 && context_of(at) == call->address)
            context_pop(at->thread);
        context_end(at, call, call->address);
        break;
    case WIRE_OP_DEVICE_RESET:
        device_reset(at, call);
        break;
    case WIRE_OP_HANDLE_KEEP:
        handle_keep(at, call);
        break;
    case WIRE_OP_MAP:
        map_done(at, call, f);
        break;
    case WIRE_OP_UNMAP:
        unmap_done(at, call);
        break;
    case WIRE_OP_DEVICE_UUID:
        uuid_told(at, call);
        break;
    case WIRE_OP_NOTE:
        if (call->number == 1)
            at->process->from_start = 1;
        note_tell(at, call);
        break;
    default:
        break;
    }
}

SEC("uprobe")
int call_enter(struct pt_regs *regs)
{
    struct at at;
    uint32_t number = (uint32_t)bpf_get_attach_cookie(regs);
    const struct wire_function *f = bpf_map_lookup_elem(&functions, &number);
    if (!f || !here(&at))
        return 0;
    uint64_t sp = stack_pointer(regs);
    struct call *call = call_push(&at, sp);
    if (!call)
        return 0;
    call->sp = sp;
    call->function = (uint16_t)number;
    call->number = __sync_fetch_and_add(&at.process->calls, 1) + 1;
    call->site = 0;
    call->has_stack = 0;
    call->has_removed = 0;
    call->direction = f->direction;
    call->async = !!(f->flags & WIRE_FUNCTION_ASYNC);
    arguments_take(regs, f, call);
    if (f->flags & WIRE_FUNCTION_SITE)
        stack_take(&at, regs, call);
    switch (f->op) {
    case WIRE_OP_FREE:
    case WIRE_OP_UNREGISTER:
        free_begin(&at, call, f);
        break;
    case WIRE_OP_HANDLE_FREE:
        handle_drop(&at, call, call->address);
        break;
    case WIRE_OP_COPY_2D:
    case WIRE_OP_COPY_3D:
        copy_shaped(&at, call, f->op == WIRE_OP_COPY_3D);
        break;
    case WIRE_OP_ALLOC_ARRAY:
        call->size = array_bytes(&at, call->size, f->unit & 1, call->extra);
        break;
    case WIRE_OP_SET:
        call->size *= f->unit ? f->unit : 1;
        if (f->extra)
            call->size *= call->extra;
        break;
    default:
        break;
    }
    if (!wire_op_returns(f->op)) { /* its return is not looked at */
        at.thread->depth--;
        done(&at, call, f);
    }
    return 0;
}

SEC("uprobe")
int call_leave(struct pt_regs *regs)
{
    struct at at;
    uint32_t number = (uint32_t)bpf_get_attach_cookie(regs);
    const struct wire_function *f = bpf_map_lookup_elem(&functions, &number);
    if (!f || !here(&at))
        return 0;
    struct call *call = call_pop(&at, stack_pointer(regs) - RETURN_ADDRESS_BYTES, (uint16_t)number);
    if (!call)
        return 0;
    int32_t result = returned(regs);
    switch (f->op) {
    case WIRE_OP_ALLOC:
    case WIRE_OP_ALLOC_PITCH:
    case WIRE_OP_ALLOC_ARRAY:
    case WIRE_OP_REGISTER:
        alloc_done(&at, call, f, result);
        break;
    case WIRE_OP_HANDLE_MAKE:
        handle_make(&at, call, f, result);
        break;
    case WIRE_OP_FREE:
    case WIRE_OP_UNREGISTER:
        if (result != 0)
            free_undo(&at, call, f);
        break;
    case WIRE_OP_HANDLE_FREE:
        if (result != 0)
            handle_undo(&at, call, f);
        break;
    default:
        if (result == 0)
            done(&at, call, f);
        break;
    }
    return 0;
}

/* CUDA_ARRAY_DESCRIPTOR: width, height, format, channels. CUDA_ARRAY3D_DESCRIPTOR has a depth before the format. A height
 * or depth of 0 means that the array has fewer dimensions. */
static uint64_t array_bytes(const struct at *at, uint64_t descriptor, bool three, uint64_t levels)
{
    uint64_t shape[3] = {0, 0, 0};
    uint32_t element[2] = {0, 0};
    long r = bpf_probe_read_user(shape, three ? 24 : 16, (void *)descriptor);
    r |= bpf_probe_read_user(element, sizeof(element), (void *)(descriptor + (three ? 24 : 16)));
    if (r < 0) {
        __sync_fetch_and_add(&at->process->unreadable, 1);
        return 0;
    }
    /* CU_AD_FORMAT: 0x01, 0x08: 8 bits; 0x02, 0x09, 0x10: 16; 0x03, 0x0a, 0x20: 32. */
    uint32_t format = element[0];
    uint64_t bytes = format == 0x01 || format == 0x08                     ? 1
                     : format == 0x03 || format == 0x0a || format == 0x20 ? 4
                                                                          : 2;
    uint64_t total = 0;
    for (uint32_t level = 0; level < 32; level++) {
        uint64_t width = shape[0] >> level, height = shape[1] >> level, depth = shape[2] >> level;
        if (level > 0 && level >= levels)
            break;
        total += (width ? width : 1) * (height ? height : 1) * (depth ? depth : 1);
    }
    return total * bytes * element[1];
}

/* ---- processes that begin anew or end ---- */

static void ended(uint32_t pid, struct wire_process *p, uint8_t flags)
{
    uint32_t zero = 0;
    struct at at = {.settings = bpf_map_lookup_elem(&settings, &zero),
                    .process = p,
                    .pid = pid,
                    .tid = pid,
                    .generation = p->generation};
    if (!at.settings)
        return;
    struct wire_event *e = event_new(&at, TRACE_EXIT, 0);
    if (!e)
        return;
    e->flags = flags;
    event_send(&at, e);
}

SEC("raw_tp/sched_process_exec")
int process_exec(void *args)
{
    uint32_t pid = (uint32_t)(bpf_get_current_pid_tgid() >> 32);
    struct wire_process *p = bpf_map_lookup_elem(&processes, &pid);
    if (!p)
        return 0;
    ended(pid, p, WIRE_EVENT_EXEC);
    process_renew(pid, p, p->start_ns);
    return 0;
}

SEC("raw_tp/sched_process_exit")
int process_exit(void *args)
{
    uint64_t id = bpf_get_current_pid_tgid();
    uint32_t pid = (uint32_t)(id >> 32);
    struct wire_process *p = bpf_map_lookup_elem(&processes, &pid);
    if (!p)
        return 0;
    struct task_struct *task = bpf_get_current_task_btf();
    if (BPF_CORE_READ(task, signal, live.counter) != 0)
        return 0; /* other threads go on */
    ended(pid, p, 0);
    return 0;
}

#include "observe/system.bpf.h"

const char licence[] SEC("license") = "GPL";
