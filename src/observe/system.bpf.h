/* system.bpf.h: what the operating system does to host memory of traced processes. Included by
 * probe.bpf.c alone.
 *
 * Large mappings are told as events, page faults are counted by granules of address space: there
 * may be hundreds of thousands a second. A process that maps a library with probes becomes a
 * traced one, and the observer looks at its libraries. */
#pragma once

enum { PROT_EXEC_ = 4, MAP_ANONYMOUS_ = 0x20 };

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, WIRE_GRANULES_MAX);
    __type(key, struct wire_granule_key);
    __type(value, uint64_t);
} faults SEC(".maps");

/* As the tracepoints of system calls lay out their arguments. */
struct sys_enter {
    uint64_t common;
    int64_t nr;
    uint64_t args[6];
};
struct sys_exit {
    uint64_t common;
    int64_t nr;
    int64_t result;
};

/* True for threads of processes that are traced already. */
static bool here_traced(struct at *at)
{
    uint32_t pid = (uint32_t)(bpf_get_current_pid_tgid() >> 32);
    return bpf_map_lookup_elem(&processes, &pid) && here(at);
}

/* ---- libraries ---- */

static __noinline bool library_wanted(const struct wire_settings *s, const char *name)
{
    for (int i = 0; i < WIRE_LIBRARIES_MAX; i++) {
        bool same = s->libraries[i][0] != 0;
        for (int c = 0; c < WIRE_LIBRARY_NAME; c++) {
            if (!s->libraries[i][c])
                break;
            if (s->libraries[i][c] != name[c]) {
                same = false;
                break;
            }
        }
        if (same)
            return true;
    }
    return false;
}

static __noinline bool file_is_library(const struct wire_settings *s, int64_t fd)
{
    char name[WIRE_LIBRARY_NAME] = {0};
    struct task_struct *task = bpf_get_current_task_btf();
    struct fdtable *table = BPF_CORE_READ(task, files, fdt);
    if (fd < 0 || fd >= BPF_CORE_READ(table, max_fds))
        return false;
    struct file **files = BPF_CORE_READ(table, fd), *file = 0;
    bpf_probe_read_kernel(&file, sizeof(file), &files[fd]);
    if (!file)
        return false;
    const unsigned char *text = BPF_CORE_READ(file, f_path.dentry, d_name.name);
    bpf_probe_read_kernel_str(name, sizeof(name), text);
    return library_wanted(s, name);
}

static __noinline void library_mapped(int64_t fd)
{
    uint32_t zero = 0;
    const struct wire_settings *s = bpf_map_lookup_elem(&settings, &zero);
    struct at at;
    if (!s || !file_is_library(s, fd) || !here(&at))
        return;
    struct wire_event *e = event_new(&at, TRACE_NONE, 0);
    if (!e)
        return;
    e->record = WIRE_RECORD_LIBRARY;
    __sync_fetch_and_add(&at.process->events.produced, sizeof(*e));
    bpf_ringbuf_submit(
        e, RING_FORCE_WAKEUP); /* probes and interpreter should be known before the first call */
}

/* ---- mappings ---- */

static __noinline void mapping_tell(const struct at *at, uint16_t kind, uint64_t address,
                                    uint64_t size)
{
    struct wire_event *e = event_new(at, kind, 0);
    if (!e)
        return;
    e->address = address;
    e->size = size;
    e->class = WIRE_SYSTEM;
    e->space = 2; /* MEMOIR_SPACE_MAPPED */
    event_send(at, e);
}

/* `n` times; of a range, if there is one. */
static __noinline void system_tell(const struct at *at, uint8_t what, uint64_t n, uint64_t address,
                                   uint64_t size)
{
    struct wire_event *e = event_new(at, TRACE_SYSTEM, 0);
    if (!e)
        return;
    e->address = address;
    e->size = n;
    e->source = size;
    e->flags = what;
    e->class = WIRE_SYSTEM;
    event_send(at, e);
}

SEC("tp/syscalls/sys_enter_mmap")
int mmap_enter(struct sys_enter *ctx)
{
    struct at at;
    uint64_t size = ctx->args[1], protection = ctx->args[2], flags = ctx->args[3];
    if (protection & PROT_EXEC_) {
        if (!(flags & MAP_ANONYMOUS_))
            library_mapped((int32_t)ctx->args[4]);
        return 0;
    }
    if (size < WIRE_SYSTEM_BYTES_MIN || !(flags & MAP_ANONYMOUS_) || !here_traced(&at))
        return 0;
    at.thread->system[0] = size;
    return 0;
}

SEC("tp/syscalls/sys_exit_mmap")
int mmap_leave(struct sys_exit *ctx)
{
    struct at at;
    if (!here_traced(&at) || !at.thread->system[0])
        return 0;
    uint64_t size = at.thread->system[0];
    at.thread->system[0] = 0;
    if (ctx->result > 0 || ctx->result < -4095)
        mapping_tell(&at, TRACE_ALLOC, (uint64_t)ctx->result, size);
    return 0;
}

/* Before the range goes: afterwards another thread may have got it. */
SEC("tp/syscalls/sys_enter_munmap")
int munmap_enter(struct sys_enter *ctx)
{
    struct at at;
    if (ctx->args[1] < WIRE_SYSTEM_BYTES_MIN || !here_traced(&at))
        return 0;
    mapping_tell(&at, TRACE_FREE, ctx->args[0], ctx->args[1]);
    return 0;
}

SEC("tp/syscalls/sys_enter_mremap")
int mremap_enter(struct sys_enter *ctx)
{
    struct at at;
    if (!here_traced(&at))
        return 0;
    at.thread->system[1] = ctx->args[2];
    if (ctx->args[1] >= WIRE_SYSTEM_BYTES_MIN)
        mapping_tell(&at, TRACE_FREE, ctx->args[0], ctx->args[1]);
    return 0;
}

SEC("tp/syscalls/sys_exit_mremap")
int mremap_leave(struct sys_exit *ctx)
{
    struct at at;
    if (!here_traced(&at))
        return 0;
    uint64_t size = at.thread->system[1];
    at.thread->system[1] = 0;
    if (size >= WIRE_SYSTEM_BYTES_MIN && (ctx->result > 0 || ctx->result < -4095))
        mapping_tell(&at, TRACE_ALLOC, (uint64_t)ctx->result, size);
    return 0;
}

/* The heap of malloc() grows and shrinks at its end. */
SEC("tp/syscalls/sys_enter_brk")
int brk_enter(struct sys_enter *ctx)
{
    struct at at;
    struct task_struct *task = bpf_get_current_task_btf();
    if (here_traced(&at))
        at.thread->system[1] = BPF_CORE_READ(task, mm, brk);
    return 0;
}

SEC("tp/syscalls/sys_exit_brk")
int brk_leave(struct sys_exit *ctx)
{
    struct at at;
    if (!here_traced(&at))
        return 0;
    uint64_t before = at.thread->system[1], now = (uint64_t)ctx->result;
    at.thread->system[1] = 0;
    if (before && now >= before + WIRE_SYSTEM_BYTES_MIN)
        mapping_tell(&at, TRACE_ALLOC, before, now - before);
    else if (before && now + WIRE_SYSTEM_BYTES_MIN <= before)
        mapping_tell(&at, TRACE_FREE, now, before - now);
    return 0;
}

SEC("tp/syscalls/sys_enter_madvise")
int madvise_enter(struct sys_enter *ctx)
{
    struct at at;
    if (ctx->args[1] >= WIRE_SYSTEM_BYTES_MIN && here_traced(&at))
        system_tell(&at, TRACE_SYSTEM_ADVISE, 1, ctx->args[0], ctx->args[1]);
    return 0;
}

SEC("tp/syscalls/sys_enter_mlock")
int mlock_enter(struct sys_enter *ctx)
{
    struct at at;
    if (ctx->args[1] >= WIRE_SYSTEM_BYTES_MIN && here_traced(&at))
        system_tell(&at, TRACE_SYSTEM_LOCK, 1, ctx->args[0], ctx->args[1]);
    return 0;
}

SEC("tp/syscalls/sys_enter_munlock")
int munlock_enter(struct sys_enter *ctx)
{
    struct at at;
    if (ctx->args[1] >= WIRE_SYSTEM_BYTES_MIN && here_traced(&at))
        system_tell(&at, TRACE_SYSTEM_UNLOCK, 1, ctx->args[0], ctx->args[1]);
    return 0;
}

/* ---- page faults, the OOM killer ---- */

SEC("raw_tp/page_fault_user")
int page_fault(uint64_t *args)
{
    uint32_t pid = (uint32_t)(bpf_get_current_pid_tgid() >> 32);
    struct wire_process *p = bpf_map_lookup_elem(&processes, &pid);
    if (!p || p->off)
        return 0;
    uint64_t one = 1;
    struct wire_granule_key key = {
        .pid = pid, .generation = p->generation, .granule = args[0] >> WIRE_GRANULE_SHIFT};
    __sync_fetch_and_add(&p->faults, 1);
    uint64_t *count = bpf_map_lookup_elem(&faults, &key);
    if (count)
        __sync_fetch_and_add(count, 1);
    else
        bpf_map_update_elem(&faults, &key, &one, BPF_NOEXIST_);
    return 0;
}

/* A process without the thread at hand: what befalls it may be the doing of another. */
static __noinline bool process_at(uint32_t pid, struct at *at)
{
    uint32_t zero = 0;
    at->settings = bpf_map_lookup_elem(&settings, &zero);
    at->process = bpf_map_lookup_elem(&processes, &pid);
    if (!at->settings || !at->process || at->process->off)
        return false;
    at->thread = 0;
    at->pid = at->tid = pid;
    at->generation = at->process->generation;
    return true;
}

struct mark_victim {
    uint64_t common;
    int32_t pid;
};

SEC("tp/oom/mark_victim")
int oom_victim(struct mark_victim *ctx)
{
    struct at at;
    if (process_at((uint32_t)ctx->pid, &at))
        system_tell(&at, TRACE_SYSTEM_OOM, 1, 0, 0);
    return 0;
}

/* ---- reclaim, migration, huge pages ---- */

/* The process had to wait while the kernel freed pages: of the machine, or of its cgroup. */
static __always_inline void reclaimed(uint64_t pages)
{
    struct at at;
    if (process_at((uint32_t)(bpf_get_current_pid_tgid() >> 32), &at))
        system_tell(&at, TRACE_SYSTEM_RECLAIM, pages, 0, 0);
}

SEC("raw_tp/mm_vmscan_direct_reclaim_end")
int direct_reclaim(uint64_t *args)
{
    reclaimed(args[0]);
    return 0;
}

SEC("raw_tp/mm_vmscan_memcg_reclaim_end")
int group_reclaim(uint64_t *args)
{
    reclaimed(args[0]);
    return 0;
}

/* As the tracepoint lays it out; kernels differ. */
struct trace_event_raw_mm_migrate_pages {
    unsigned long succeeded;
    int reason;
} __attribute__((preserve_access_index));

/* enum migrate_reason: those for which a process moves its own pages. Compaction moves pages of
 * any process, and does not tell whose. */
enum { MIGRATE_SYSCALL = 3, MIGRATE_MBIND = 4, MIGRATE_NUMA = 5, MIGRATE_PIN = 7 };

SEC("tp/migrate/mm_migrate_pages")
int pages_migrated(struct trace_event_raw_mm_migrate_pages *ctx)
{
    struct at at;
    int reason = ctx->reason;
    uint64_t pages = ctx->succeeded;
    if (reason != MIGRATE_SYSCALL && reason != MIGRATE_MBIND && reason != MIGRATE_NUMA &&
        reason != MIGRATE_PIN)
        return 0;
    if (pages && process_at((uint32_t)(bpf_get_current_pid_tgid() >> 32), &at))
        system_tell(&at, TRACE_SYSTEM_MIGRATE, pages, 0, 0);
    return 0;
}

enum { COLLAPSE_SUCCEEDED = 1 };

/* By khugepaged or by madvise(MADV_COLLAPSE), perhaps of another process. */
SEC("raw_tp/mm_collapse_huge_page")
int huge_collapsed(uint64_t *args)
{
    struct at at;
    struct mm_struct *mm = (struct mm_struct *)args[0];
    if ((int32_t)args[2] != COLLAPSE_SUCCEEDED || !bpf_core_field_exists(mm->owner))
        return 0;
    struct task_struct *owner = BPF_CORE_READ(mm, owner);
    if (owner && process_at((uint32_t)BPF_CORE_READ(owner, tgid), &at))
        system_tell(&at, TRACE_SYSTEM_HUGE, 1, 0, 0);
    return 0;
}
