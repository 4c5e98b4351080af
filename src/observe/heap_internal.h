/* heap_internal.h: what the parts of heap.h share. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observe/heap.h"
#include "observe/heap_kernel.h"
#include "observe/heap_target.h"
#include "observe/process_book.h"

struct buffer;
struct control;
struct elf_parser;
struct heap_callers;
struct stack_process;
struct stacks;

/* What was told of a node. */
struct heap_told {
    bool looked;   /* its caller is known */
    uint32_t site; /* of the book */
    struct book_frame frame;
    uint64_t alloc_bytes, alloc_blocks, freed_bytes, freed_blocks; /* as the kernel had them */
    uint64_t old_bytes, old_blocks, extra_bytes, extra_blocks;
    struct book_site_counters book; /* as the book has them */
    /* Estimates: blocks of all windows that were left when theirs closed, those of them that are expected to have outlived a window's
     * length, and frees that were more than the site had. */
    double left, outlived, debt_bytes, debt_blocks;
};

/* What a node counted since the last look. */
struct heap_change {
    int64_t alloc_bytes, alloc_blocks, freed_bytes, freed_blocks;
    int64_t old_bytes, old_blocks, extra_bytes, extra_blocks;
};

/* A sampled block that lives: what it stands for. */
struct heap_sample {
    uint64_t address; /* 0: unused */
    uint32_t site, blocks;
    uint64_t bytes;
};

/* A process that it forked; pid 0: unused. */
struct heap_child {
    pid_t pid, observer; /* observer 0: not yet */
    uint64_t forked_ns;
};

enum heap_end { HEAP_RUNS, HEAP_DETACHED, HEAP_EXITED, HEAP_EXECUTED, HEAP_FAILED };

struct heap {
    const struct heap_options *options;
    struct heap_kernel *kernel;
    struct heap_target target;
    struct elf_parser *parser;
    struct stacks *stacks;
    struct stack_process *process;
    struct heap_callers *callers;
    struct process_book book;
    uint32_t account;
    struct control *control;
    int pidfd;
    enum heap_end end;
    char why[HEAP_KERNEL_WHY_MAX]; /* it could not begin */
    uint64_t started_ns, attached_ns, unheld_ns;

    struct heap_told *told; /* HEAP_NODES_MAX */
    uint32_t n_told;        /* nodes up to this one were seen */

    struct heap_sample *samples; /* a hash by address */
    size_t n_samples, cap_samples;
    uint64_t samples_taken, stacks_lost, lost_told;

    struct heap_children {
        struct heap_child all[HEAP_CHILDREN_MAX];
        uint64_t missed; /* too many at a time, or no observer could be started */
    } children;

    struct heap_budget {
        uint64_t calls, cpu_ns;     /* at the last look, or when the window opened */
        uint64_t marked_ns;         /* when `calls` and `cpu_ns` were taken */
        uint64_t begun_cpu_ns;      /* at the attach */
        uint64_t closed_cpu_ns;     /* when the last one closed */
        uint64_t closed_ns;         /* the same, CLOCK_MONOTONIC */
        double share;               /* of the process's CPU time that probes took, of late */
        unsigned over;              /* looks in a row that were above the budget */
        bool windowed, in, closing; /* probes are in for part of the time; are now; go now */
        uint64_t next_ns;           /* when they come or go */
        uint64_t windows;
        uint64_t random;
        double cost_ns;       /* CPU time that a probe adds to a call */
        bool tried, measured; /* on this machine; else as usual */
    } budget;

    /* What a window stands for, and how far the estimates may be off (heap_estimate.c). */
    struct heap_estimate {
        double scale;      /* what was counted stands for this much; 1: all of it */
        double old_weight; /* frees that one of an earlier window's blocks stands for */
        double work_ns;    /* CPU time that this window stands for */
        double doubt;      /* of the scale */
        uint64_t unknown;  /* frees of unknown blocks, when it opened */
        double undivided;  /* such frees that no site got yet */
        double net;        /* bytes: what it added */
        double rate;       /* bytes per ns of work, in the last window */
        double variance, doubt_bytes, old_doubt; /* of all windows */
    } estimate;
};

/* ---- heap.c ---- */

/* Put the probes in; they count while heap_state.on is set. Stop counting, and take them out. */
int heap_probes_in(struct heap *h);
void heap_probes_out(struct heap *h);

/* ---- heap_budget.c ---- */

void heap_budget_begin(struct heap *h);
/* At every tick. -errno: the probes could not be put in again. */
int heap_budget_look(struct heap *h);
/* CPU time of the process since the last window closed. */
double heap_budget_since(const struct heap *h);

/* Age of the figures: 0 while all is counted, else the time since the last window closed. */
uint64_t heap_budget_age_ns(const struct heap *h);

/* ---- heap_cost.c ---- */

/* CPU time in nanoseconds that a probe adds to a call on this machine, now: a child of ours allocates and frees, without probes and with
 * them. About a quarter of a second, during which counting goes on. -errno: it cannot be measured. */
int heap_cost_measure(struct elf_parser *parser, bool two_links, double *ret_ns);

/* ---- heap_estimate.c ---- */

/* The window closes: it stands for `scale` times what it counted, by `work_ns` of CPU time; `doubt` is the relative error of that. */
void heap_estimate_begin(struct heap *h, double scale, double work_ns, double doubt);
/* What to add to the book for a node's change. */
void heap_estimate_node(struct heap *h, struct heap_told *told, const struct heap_change *change,
                        struct book_site_counters *ret_add);
void heap_estimate_end(struct heap *h);
/* The time of exact figures ends, after so much CPU time without the probes'. */
void heap_estimate_exact(struct heap *h, double work_ns);
/* Bytes by which the live bytes of the book may be off (about two standard deviations), with what was not counted yet since the last
 * window closed, `since_ns` of CPU time ago. */
double heap_estimate_error(const struct heap *h, double since_ns);

/* ---- heap_children.c ---- */

/* A record of the ring says that the process forked. */
void heap_children_forked(struct heap *h, pid_t pid);
/* At every tick: start observers, see which have ended. */
void heap_children_look(struct heap *h);
/* Ends their observers, and waits for a few seconds until they have. */
void heap_children_stop(struct heap *h);

/* ---- heap_rights.c ---- */

/* May user `uid` trace the process with ptrace? The rules of the kernel for processes that are no relatives, on the safe side: all its
 * user and group IDs are the user's, it can be dumped, it has no capabilities, and lives in our user namespace; and Yama does not
 * restrict tracing. An observer that memoird starts cannot become the user and try. 0 is root, who may. */
bool heap_may_trace(uint32_t uid, pid_t pid);

/* ---- heap_book.c ---- */

int heap_book_open(struct heap *h);
/* Bring the book up to what the kernel has counted. */
void heap_book_tell(struct heap *h);
/* A record of the ring. */
void heap_book_record(void *heap, const void *record, size_t bytes);
void heap_book_release(struct heap *h);

/* What a node counted since it was told last. */
struct heap_change heap_book_change(const struct heap_told *told, const struct heap_node *node);

/* Calls that probes have seen, by what they cost: one that is single-stepped is as many others. */
uint64_t heap_calls(const struct heap *h);

/* What the book has, all sites together. */
struct heap_sums {
    uint64_t alloc_bytes, alloc_blocks, freed_bytes, freed_blocks;
};
void heap_sums(const struct heap *h, struct heap_sums *ret_sums);
