/* The few types of the kernel that our programs look into. Only names and nesting matter: offsets are those of
 * the running kernel, which libbpf fills in when it loads the program (CO-RE). */
#pragma once

typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef int int32_t;
typedef long long int64_t;

/* As <bpf/bpf_helpers.h> calls them. */
typedef uint8_t __u8;
typedef uint16_t __u16;
typedef uint32_t __u32;
typedef uint64_t __u64;
typedef int32_t __s32;
typedef int64_t __s64;
typedef uint16_t __be16;
typedef uint32_t __be32;
typedef uint32_t __wsum;
typedef _Bool bool;
enum { false, true };

enum {
    BPF_MAP_TYPE_HASH = 1,
    BPF_MAP_TYPE_ARRAY = 2,
    BPF_MAP_TYPE_PERCPU_ARRAY = 6,
    BPF_MAP_TYPE_LRU_HASH = 9,
    BPF_MAP_TYPE_RINGBUF = 27,
    BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum { BPF_F_NO_PREALLOC = 1, BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };

/* Flags of the kernel that have no BTF. */
enum { PF_KTHREAD = 0x00200000, SIGNAL_GROUP_EXIT = 0x00000004 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
    int counter;
} atomic_t;

typedef struct {
    long counter;
} atomic_long_t;

struct percpu_counter {
    int64_t count; /* what CPUs have not added yet is missing: */
    int *counters; /* one for each CPU, at its own offset */
};

enum { MM_FILEPAGES, MM_ANONPAGES, MM_SWAPENTS, MM_SHMEMPAGES, NR_MM_COUNTERS };

struct task_struct;

/* Since Linux 6.2; before, rss_stat is something else. */
struct mm_struct {
    unsigned long hiwater_rss;
    unsigned long brk;
    struct task_struct *owner; /* with CONFIG_MEMCG */
    unsigned long total_vm, data_vm, stack_vm, start_code, end_code;
    struct percpu_counter rss_stat[NR_MM_COUNTERS];
};

/* The lowest two bits say whether the process may be traced by its user: 1 if so. */
enum { MM_DUMPABLE_MASK = 3, MM_DUMPABLE_BY_USER = 1 };
struct mm_struct___long { /* before Linux 6.18 */
    unsigned long flags;
};
struct mm_struct___bits {
    struct {
        unsigned long __mm_flags[1];
    } flags;
};

struct ns_common {
    unsigned int inum;
};

typedef struct {
    uint32_t val;
} kuid_t;

typedef struct {
    uint32_t val;
} kgid_t;

typedef struct { /* before Linux 6.3 two halves */
    uint64_t val;
} kernel_cap_t;

struct user_namespace {
    struct user_namespace *parent;
    kuid_t owner;
    struct ns_common ns;
};

struct pid_namespace {
    struct ns_common ns;
};

struct upid {
    int nr;
    struct pid_namespace *ns;
};

struct pid {
    unsigned int level;
    struct upid numbers[1];
};

struct cred {
    kuid_t uid, suid, euid;
    kgid_t gid, sgid, egid;
    kernel_cap_t cap_permitted;
    struct user_namespace *user_ns;
};

struct signal_struct {
    atomic_t live;
    int group_exit_code;
    unsigned int flags;
    unsigned long long sum_sched_runtime;
    unsigned long maxrss;
    struct mm_struct *oom_mm;
};

struct sched_entity {
    uint64_t sum_exec_runtime;
};

struct kernfs_node {
    const char *name;
    uint64_t id;
};

struct cgroup_root;

struct cgroup {
    struct kernfs_node *kn;
    struct cgroup_root *root;
};

struct cgroup_subsys_state {
    struct cgroup *cgroup;
};

enum cgroup_subsys_id { memory_cgrp_id };

struct css_set {
    struct cgroup_subsys_state *subsys[1];
    struct cgroup *dfl_cgrp;
};

struct qstr {
    const unsigned char *name;
};

struct dentry {
    struct qstr d_name;
};

struct path {
    struct dentry *dentry;
};

struct file {
    struct path f_path;
};

struct fdtable {
    unsigned int max_fds;
    struct file **fd;
};

struct files_struct {
    struct fdtable *fdt;
};

struct task_struct {
    struct files_struct *files;
    unsigned int flags;
    struct sched_entity se;
    struct mm_struct *mm;
    int exit_code;
    int pid;
    int tgid;
    struct task_struct *real_parent;
    struct task_struct *group_leader;
    struct pid *thread_pid;
    uint64_t start_boottime, self_exec_id;
    const struct cred *cred;
    char comm[16];
    struct signal_struct *signal;
    struct css_set *cgroups;
};

struct seq_file;

struct bpf_iter_meta {
    struct seq_file *seq;
    uint64_t seq_num;
};

struct bpf_map {
    uint32_t id;
};

struct bpf_array {
    struct bpf_map map;
    void *pptrs[1];
};

struct bpf_iter__bpf_map {
    struct bpf_iter_meta *meta;
    struct bpf_map *map;
};

struct bpf_iter__task {
    struct bpf_iter_meta *meta;
    struct task_struct *task;
};

#pragma clang attribute pop
