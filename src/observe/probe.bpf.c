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

#include "observe/maps.bpf.h"

#include "observe/process.bpf.h"
#include "observe/ring.bpf.h"
#include "observe/stack.bpf.h"

#include "observe/context.bpf.h"
#include "observe/group.bpf.h"

#include "observe/block.bpf.h"
#include "observe/handle.bpf.h"

#include "observe/copy.bpf.h"
#include "observe/graph.bpf.h"

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
    call->stream = argument(&a, f->stream);
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

/* Calls that were left by longjmp or an exception have a lower place on the stack than one that
 * begins now. */
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
    case WIRE_OP_COPY_3D_BATCH:
        batch_3d_done(at, call);
        break;
    case WIRE_OP_SET:
        range_tell(at, call, f, TRACE_SET);
        break;
    case WIRE_OP_PREFETCH:
        range_tell(at, call, f, TRACE_PREFETCH);
        break;
    case WIRE_OP_PREFETCH_BATCH:
        prefetch_batch(at, call, f);
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
    case WIRE_OP_CAPTURE_BEGIN:
        capture_begun(at, call);
        break;
    case WIRE_OP_GRAPH_NODE:
        node_added(at, call, f);
        break;
    case WIRE_OP_GRAPH_EXEC:
        exec_made(at, call);
        break;
    case WIRE_OP_GRAPH_END:
        graph_end(at, call, f->unit);
        break;
    case WIRE_OP_GREEN_MAKE:
        green_made(at, call);
        break;
    case WIRE_OP_GREEN_CONTEXT:
        green_context(at, call);
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

/* What a call does before it has returned. */
static __always_inline void begun(const struct at *at, struct call *call,
                                  const struct wire_function *f)
{
    switch (f->op) {
    case WIRE_OP_FREE:
    case WIRE_OP_UNREGISTER:
        free_begin(at, call, f);
        proofs_end(at);
        break;
    case WIRE_OP_HANDLE_FREE:
        handle_drop(at, call, call->address);
        break;
    case WIRE_OP_GREEN_END:
        green_end(at, call);
        proofs_end(at);
        break;
    case WIRE_OP_UNMAP:
    case WIRE_OP_CONTEXT_END:
    case WIRE_OP_DEVICE_RESET:
    case WIRE_OP_PRIMARY_RELEASE:
        proofs_end(at);
        break;
    case WIRE_OP_CONTEXT_SET:
    case WIRE_OP_CONTEXT_PUSH:
    case WIRE_OP_CONTEXT_POP:
        if (f->op != WIRE_OP_CONTEXT_SET || call->address != context_of(at))
            at->thread->proved_epoch = at->process->epoch - 1;
        break;
    case WIRE_OP_COPY_2D:
    case WIRE_OP_COPY_3D:
        copy_shaped(at, call, f->op == WIRE_OP_COPY_3D);
        break;
    case WIRE_OP_ALLOC_ARRAY:
        call->size = array_bytes(at, call->size, f->unit & 1, call->extra);
        break;
    case WIRE_OP_SET:
        call->size *= f->unit ? f->unit : 1;
        if (f->extra)
            call->size *= call->extra;
        break;
    default:
        break;
    }
}

static __always_inline void call_begin(struct pt_regs *regs, const struct at *at, struct call *call,
                                       uint32_t number, const struct wire_function *f, uint64_t sp)
{
    call->sp = sp;
    call->function = (uint16_t)number;
    call->number = __sync_fetch_and_add(&at->process->calls, 1) + 1;
    call->site = 0;
    call->has_stack = 0;
    call->has_removed = 0;
    call->direction = f->direction;
    call->async = !!(f->flags & WIRE_FUNCTION_ASYNC);
    call->epoch = at->process->epoch;
    call->recorder = 0;
    arguments_take(regs, f, call);
}

/* A copy that is over at its entry. */
static __always_inline void copy_brief(const struct at *at, struct pt_regs *regs, struct call *call,
                                       uint64_t sp)
{
    uint64_t python = python_take(at);
    copy_count(at, call, call->size);
    if (stack_may_be_recent(at, call->function, sp, python) && copy_record_early(at, call, sp))
        return;
    stack_take(at, regs, call, python);
    copy_record(at, call, call->address, call->source, call->size);
}

/* With `skips` the return of a call may be left out. Returns 1 if it is. */
static __always_inline int enter(struct pt_regs *regs, bool skips)
{
    struct at at;
    uint32_t number = (uint32_t)bpf_get_attach_cookie(regs);
    const struct wire_function *f = bpf_map_lookup_elem(&functions, &number);
    if (!f || !here(&at))
        return 1;
    uint64_t sp = stack_pointer(regs);
    bool returns = wire_op_returns(f->op);
    struct call *call = &at.thread->brief;
    call_begin(regs, &at, call, number, f, sp);
    if (f->stream && at.process->captures && f->op < WIRE_OP_CAPTURE_BEGIN)
        call->recorder = recorder_of(&at, call->stream);
    if (skips && f->op == WIRE_OP_COPY && !call->recorder && copy_proved(&at, call)) {
        copy_brief(&at, regs, call, sp);
        return 1;
    }
    if (returns) {
        struct call *kept = call_push(&at, sp);
        if (!kept)
            return 1;
        *kept = *call;
        call = kept;
    }
    if (f->flags & WIRE_FUNCTION_SITE)
        stack_take(&at, regs, call, python_take(&at));
    begun(&at, call, f);
    if (returns)
        return 0;
    done(&at, call, f);
    return 1;
}

static __always_inline void leave(struct pt_regs *regs)
{
    struct at at;
    uint32_t number = (uint32_t)bpf_get_attach_cookie(regs);
    const struct wire_function *f = bpf_map_lookup_elem(&functions, &number);
    if (!f || !here(&at))
        return;
    struct call *call = call_pop(&at, stack_pointer(regs) - RETURN_ADDRESS_BYTES, (uint16_t)number);
    if (!call)
        return;
    int32_t result = returned(regs);
    if (f->op == WIRE_OP_COPY && !call->recorder)
        copy_checked(&at, call, result);
    if (result != 0)
        proofs_end(&at);
    switch (f->op) {
    case WIRE_OP_ALLOC:
    case WIRE_OP_ALLOC_PITCH:
    case WIRE_OP_ALLOC_ARRAY:
    case WIRE_OP_REGISTER:
        if (call->recorder && result == 0)
            record_done(&at, call, f);
        else
            alloc_done(&at, call, f, result);
        break;
    case WIRE_OP_CAPTURE_END:
        capture_end(&at, call, result);
        break;
    case WIRE_OP_GREEN_END:
        green_ended(&at, call, result);
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
}

/* Linux 6.13 and later: one link for entries and returns, which runs this at both. At an entry,
 * 1 leaves out the return. */
extern bool bpf_session_is_return(void) __ksym __weak;

SEC("uprobe")
int call_session(struct pt_regs *regs)
{
    if (!bpf_session_is_return)
        return 0;
    if (!bpf_session_is_return())
        return enter(regs, true);
    leave(regs);
    return 0;
}

/* Earlier kernels: two links. Another result than 0 would remove the probe. */
SEC("uprobe")
int call_enter(struct pt_regs *regs)
{
    enter(regs, false);
    return 0;
}

SEC("uprobe")
int call_leave(struct pt_regs *regs)
{
    leave(regs);
    return 0;
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
    user_add(p, -(int64_t)p->live_blocks); /* the observer removes them from the table */
    p->live_blocks = 0;
    return 0;
}

#include "observe/system.bpf.h"

const char licence[] SEC("license") = "GPL";
