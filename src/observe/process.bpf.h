/* process.bpf.h: which process and thread a probe runs in. Included by probe.bpf.c alone. */
#pragma once

static bool is_dumpable(struct task_struct *task)
{
    const struct mm_struct___long *with_long = (const void *)BPF_CORE_READ(task, mm);
    const struct mm_struct___bits *with_bits = (const void *)with_long;
    unsigned long flags = MM_DUMPABLE_BY_USER;
    if (bpf_core_field_exists(with_long->flags))
        flags = BPF_CORE_READ(with_long, flags);
    else if (bpf_core_field_exists(with_bits->flags))
        bpf_core_read(&flags, sizeof(flags), &with_bits->flags);
    return (flags & MM_DUMPABLE_MASK) == MM_DUMPABLE_BY_USER;
}

/* The user who may see the history of the current process. That is its real user only if this user could trace it: not one that is
 * set-uid, set-gid or privileged, or has hidden itself. In a user namespace capabilities are those of its maker. */
static uint32_t current_user(void)
{
    struct task_struct *task = bpf_get_current_task_btf();
    const struct cred *cred = BPF_CORE_READ(task, cred);
    uint32_t uid = BPF_CORE_READ(cred, uid.val), gid = BPF_CORE_READ(cred, gid.val);
    uint64_t capabilities = 0;
    bool plain = BPF_CORE_READ(cred, euid.val) == uid && BPF_CORE_READ(cred, suid.val) == uid &&
                 BPF_CORE_READ(cred, egid.val) == gid && BPF_CORE_READ(cred, sgid.val) == gid;
    if (!BPF_CORE_READ(cred, user_ns, parent))
        bpf_core_read(&capabilities, sizeof(capabilities), &cred->cap_permitted);
    return plain && !capabilities && is_dumpable(task) ? uid : 0;
}

/* The user whose quota the process is counted in: by its real uid, for a set-uid program is started by its user. */
static uint32_t current_payer(void)
{
    struct task_struct *task = bpf_get_current_task_btf();
    uint32_t uid = BPF_CORE_READ(task, cred, uid.val), zero = 0, payer = uid;
    const struct wire_ranges *ranges = bpf_map_lookup_elem(&subordinates, &zero);
    if (!ranges)
        return uid;
    for (uint32_t i = 0; i < WIRE_RANGES_MAX; i++) {
        if (i >= ranges->n || uid < ranges->range[i].first)
            break;
        payer = uid <= ranges->range[i].last ? ranges->range[i].owner : uid;
    }
    return payer;
}

static struct wire_process *process_make(uint32_t pid, struct task_struct *leader)
{
    uint32_t zero = 0;
    struct wire_process fresh = {
        .start_ns = BPF_CORE_READ(leader, start_boottime),
        .uid = current_user(),
        .payer = current_payer(),
    };
    fresh.generation = wire_generation(fresh.start_ns);
    bpf_map_update_elem(&processes, &pid, &fresh, BPF_NOEXIST_);
    struct wire_process *p = bpf_map_lookup_elem(&processes, &pid);
    struct wire_machine *m = bpf_map_lookup_elem(&machine, &zero);
    if (!p && m)
        m->lost_processes++;
    return p;
}

/* The blocks of a user, for its quota. Root has none. */
static void user_add(const struct wire_process *p, int64_t blocks)
{
    uint32_t uid = p->payer;
    uint64_t none = 0;
    if (!uid)
        return;
    uint64_t *n = bpf_map_lookup_elem(&users, &uid);
    if (!n) {
        bpf_map_update_elem(&users, &uid, &none, BPF_NOEXIST_);
        n = bpf_map_lookup_elem(&users, &uid);
    }
    if (n)
        __sync_fetch_and_add(n, blocks);
}

static bool user_admits(const struct wire_process *p, uint32_t quota)
{
    uint32_t uid = p->payer;
    const uint64_t *n = uid ? bpf_map_lookup_elem(&users, &uid) : 0;
    return !n || *n < quota || *n > (uint64_t)1 << 63;
}

static void blocks_add(const struct at *at, int64_t blocks)
{
    __sync_fetch_and_add(&at->process->live_blocks, blocks);
    user_add(at->process, blocks);
}

/* The state of the process begins anew: another one has its PID, or it goes on with another
 * program. */
static void process_renew(uint32_t pid, struct wire_process *p, uint64_t start_ns)
{
    uint32_t generation = wire_generation(start_ns);
    uint32_t uid = current_user();
    user_add(p, -(int64_t)p->live_blocks);
    /* A user cannot switch off what it is about to start by exec with other rights. */
    if (uid != p->uid || p->start_ns != start_ns)
        p->off = 0;
    p->uid = uid;
    p->payer = current_payer();
    p->generation = p->start_ns == start_ns ? p->generation + 1 : generation;
    p->start_ns = start_ns;
    p->live_blocks = 0;
    p->default_context = 0;
    p->n_contexts = 0;
    p->from_start = 0;
    p->calls = p->faults = p->unchecked = p->doubtful = 0;
    p->graph_blocks = p->graph_bytes = p->graph_flow.copies = p->graph_flow.bytes = 0;
    p->captures = p->n_graphs = 0;
    p->epoch++;
    for (int i = 0; i < 5; i++)
        p->flow[i].copies = p->flow[i].bytes = 0;
    p->lost_events = p->lost_stacks = p->lost_blocks = p->lost_bytes = 0;
    p->unknown_frees = p->replaced = p->unreadable = p->unpaired = 0;
    bpf_map_delete_elem(&python_facts, &pid);
}

/* A thread that is seen for the first time, or with another program: it may be of another
 * process with this PID. */
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
    at->thread->recent.known.site = 0;
    at->thread->proved_epoch = at->process->epoch - 1;
    at->thread->unchecked = 0;
    at->thread->pythons = 0;
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
    if (!p || p->off)
        return false;
    at->process = p;
    at->thread = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
    if (!at->thread)
        return false;
    at->generation = p->generation;
    return at->thread->generation == at->generation || thread_begin(at, task);
}

/* A word of the program's memory. */
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
