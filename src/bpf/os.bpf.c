/* Processes that end, whoever they are: one event for each, from the tracepoint sched_process_exit.
 *
 * The tracepoint is called for every thread; the last one of a process tells. Two that end at the same time
 * may both be the last in their own eyes, so the reader drops the second (exits of the same pid and start).
 * A full ring costs events, which are counted; nobody waits. */
#include "bpf/exit_event.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

enum { NAMESPACES_MAX = 32 };

/* Compiled twice. Where the kernel knows the types of what a tracepoint hands over, and follows the pointers in them, a look
 * is a load; else it is a call. Pointers that come from elsewhere are followed by calls in either case. */
#ifdef EXIT_DIRECT
#define TRACEPOINT     "tp_btf"
#define READ(p, field) ((p)->field)
#else
#define TRACEPOINT     "raw_tp"
#define READ(p, field) BPF_CORE_READ(p, field)
#endif

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 20);
} events SEC(".maps");

const volatile struct exit_settings settings;
struct exit_counters counters;

/* The index has to be a constant: only then the kernel's own size of an element is used. */
#define PAGES_OF(mm, which)                                 \
    ({                                                      \
        int64_t pages_ = READ((mm), rss_stat[which].count); \
        pages_ > 0 ? (uint64_t)pages_ : 0;                  \
    })

/* Up to Linux 6.15 the memory is gone when the tracepoint comes, and what is left counts also what was there
 * before exec: the pages that fork had copied. Either is what getrusage() tells, whose counters lag by some
 * pages for each CPU. */
static void peak_take(struct task_struct *task, struct signal_struct *signal,
                      struct exit_event *event)
{
    struct mm_struct *mm = READ(task, mm);
    if (!mm || !bpf_core_field_exists(mm->rss_stat[0].count)) {
        event->peak_pages = READ(signal, maxrss);
        return;
    }
    uint64_t now =
        PAGES_OF(mm, MM_FILEPAGES) + PAGES_OF(mm, MM_ANONPAGES) + PAGES_OF(mm, MM_SHMEMPAGES);
    uint64_t before = READ(mm, hiwater_rss);
    event->peak_pages = now > before ? now : before;
    event->flags |= EXIT_PEAK_MM;
}

/* False when memoird's namespace does not have it. */
static bool pids_take(struct task_struct *leader, struct exit_event *event)
{
    struct pid *pid = READ(leader, thread_pid);
    uint32_t level = READ(pid, level);
    bool found = false;
    for (uint32_t i = 0; i < NAMESPACES_MAX; i++) {
        struct upid *number =
            (void *)((char *)&pid->numbers[0] + i * bpf_core_type_size(struct upid));
        if (i > level)
            break;
        int nr = BPF_CORE_READ(number, nr);
        if (BPF_CORE_READ(number, ns, ns.inum) == settings.pid_ns) {
            event->pid = nr;
            found = true;
        }
        event->inner_pid = nr;
    }
    return found;
}

/* Who answers for it: the owner of the outermost user namespace between memoird's and its own, unless that
 * is root; else its real uid. The same rule as proc_owner(). */
static uint32_t owner_of(struct task_struct *leader)
{
    const struct cred *cred = READ(leader, cred);
    struct user_namespace *ns = READ(cred, user_ns);
    uint32_t owner = 0;
    for (int i = 0; i < NAMESPACES_MAX && ns; i++) {
        if (READ(ns, ns.inum) == settings.user_ns)
            break;
        owner = READ(ns, owner.val);
        ns = READ(ns, parent);
    }
    return owner ? owner : READ(cred, uid.val);
}

/* With cgroup v1 the hierarchy of the memory controller; with v2 the only one that there is. */
static void cgroup_take(struct task_struct *leader, struct exit_event *event)
{
    struct css_set *set = READ(leader, cgroups);
    struct cgroup *cgroup = READ(set, dfl_cgrp);
    if (bpf_core_enum_value_exists(enum cgroup_subsys_id, memory_cgrp_id)) {
        uint64_t index = bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id);
        struct cgroup_subsys_state *css = 0;
        bpf_probe_read_kernel(&css, sizeof(css), (char *)&set->subsys[0] + index * sizeof(void *));
        struct cgroup *memory = css ? BPF_CORE_READ(css, cgroup) : 0;
        if (memory && BPF_CORE_READ(memory, root) != BPF_CORE_READ(cgroup, root)) {
            cgroup = memory;
            event->flags |= EXIT_CGROUP_V1;
        }
    }
    struct kernfs_node *node = BPF_CORE_READ(cgroup, kn);
    event->cgroup_id = BPF_CORE_READ(node, id);
    bpf_probe_read_kernel_str(event->cgroup, sizeof(event->cgroup), BPF_CORE_READ(node, name));
}

static void event_fill(struct task_struct *task, struct task_struct *leader,
                       struct signal_struct *signal, struct exit_event *event)
{
    event->end_ns = bpf_ktime_get_boot_ns();
    event->start_ns = READ(leader, start_boottime);
    event->cpu_ns = READ(signal, sum_sched_runtime) + READ(task, se.sum_exec_runtime);
    if (leader != task) /* it ended before the others, but is not counted with the dead yet */
        event->cpu_ns += READ(leader, se.sum_exec_runtime);
    struct task_struct *parent = READ(leader, real_parent);
    event->parent = READ(parent, tgid);
    event->uid = owner_of(leader);
    event->status = READ(signal, flags) & SIGNAL_GROUP_EXIT ? READ(signal, group_exit_code)
                                                            : READ(leader, exit_code);
    if (READ(signal, oom_mm))
        event->flags |= EXIT_OOM;
    BPF_CORE_READ_STR_INTO(&event->comm, leader, comm);
    peak_take(task, signal, event);
    cgroup_take(leader, event);
}

SEC(TRACEPOINT "/sched_process_exit")
int process_exits(uint64_t *context)
{
    struct task_struct *task = (void *)context[0];
    struct signal_struct *signal = READ(task, signal);
    if (READ(task, flags) & PF_KTHREAD || READ(signal, live.counter) != 0)
        return 0;
    struct task_struct *leader = READ(task, group_leader);
    struct exit_event event = {0};
    if (!pids_take(leader, &event))
        return 0;
    event_fill(task, leader, signal, &event);
    if (bpf_ringbuf_output(&events, &event, sizeof(event), 0) < 0)
        __sync_fetch_and_add(&counters.lost, 1);
    return 0;
}

/* Helpers that read the kernel's memory are for programs under the GPL; this file may be used under
 * GPL-2.0 as well as under the licence of the project. */
const char licence[] SEC("license") = "GPL";
