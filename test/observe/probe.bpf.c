/* A probe that copies all that src/observe/stacks.h needs: for the test of the whole chain. */
#include "bpf/kernel.h"

#include <bpf/bpf_helpers.h>

#include <bpf/bpf_core_read.h>

#include "observe/python.bpf.h"
#include "probe_event.h"

enum { MAP_HASH = 1 };

/* As the context of a probe has them. */
struct probe_regs {
    unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs,
        flags, sp, ss;
};

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 20);
} events SEC(".maps");

struct {
    __uint(type, MAP_HASH);
    __uint(max_entries, 64);
    __type(key, uint32_t);
    __type(value, struct python_kernel_facts);
} pythons SEC(".maps");

struct scratch {
    struct python_scratch python;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, uint32_t);
    __type(value, struct scratch);
} scratches SEC(".maps");

SEC("kprobe")
int on_entry(struct probe_regs *regs)
{
    uint32_t zero = 0, tgid = bpf_get_current_pid_tgid() >> 32;
    struct scratch *scratch = bpf_map_lookup_elem(&scratches, &zero);
    struct python_kernel_facts *facts = bpf_map_lookup_elem(&pythons, &tgid);
    struct probe_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
    if (!event)
        return 0;
    event->registers[0] = regs->ip;
    event->registers[1] = regs->sp;
    event->registers[2] = regs->bp;
    event->registers[3] = regs->bx;
    event->registers[4] = regs->r12;
    event->registers[5] = regs->r13;
    event->registers[6] = regs->r14;
    event->registers[7] = regs->r15;
    event->argument = regs->di;
    event->pid = tgid;
    event->n_bytes = 0;
    event->python.n = 0;
    event->python.hash = 0;
    uint64_t from = bpf_ktime_get_ns();
    if (facts && scratch)
        python_capture_take(facts, &event->python, &scratch->python);
    event->took_ns = bpf_ktime_get_ns() - from;
    /* Up to the end of the first page, then page by page: a read across the stack's top fails as a whole. */
    uint32_t at = 0;
    uint64_t sp = regs->sp;
    for (int i = 0; i < PROBE_PAGES; i++) {
        uint32_t n = PROBE_PAGE - (sp & (PROBE_PAGE - 1));
        if (n > PROBE_PAGE || at > (PROBE_PAGES - 1) * PROBE_PAGE ||
            bpf_probe_read_user(event->bytes + at, n, (const void *)sp))
            break;
        at += n;
        sp += n;
    }
    event->n_bytes = at;
    bpf_ringbuf_submit(event, 0);
    return 0;
}

/* As in src/bpf/os.bpf.c. */
const char licence[] SEC("license") = "GPL";
