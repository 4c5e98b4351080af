/* The process table of the machine: every process that /proc shows, whether it keeps a book or not, and the
 * memory of the machine itself.
 *
 *     struct host *host;
 *     int r = host_new(&(struct host_options){.user_names = true}, &host);
 *     for (;;) {
 *         r = host_refresh(host);                   // cheap: each second
 *         host_refine(host, 10 * NS_PER_MS);        // costly fields, as far as the time allows
 *         size_t n;
 *         struct host_process *const *rows = host_processes(host, &n);
 *         ...
 *     }
 *
 * What costs what. A refresh reads statm of every process through a descriptor that is kept (2 µs each; with
 * host_set_marks() only of those that changed), and compares bytes; only where they differ, or in turn every HOST_TURN refreshes, are stat and status read
 * (15 µs). PSS and its kin (smaps_rollup) take 25 µs for a small process and 11 ms for each GB, and hold the
 * process's mm lock meanwhile; command lines and environments lie in the memory of the process, so that a
 * reader may wait for ever. These come by probes, one process at a time: host_refine() does them on the spot;
 * a daemon takes host_probe_next(), lets somebody else look (host_probe.h), and brings the result by
 * host_probe_done().
 *
 * A field whose bit in `valid` is not set is unknown, never 0. Costly fields say when they were read. Rows
 * stay where they are until the refresh after which their process is gone; arrays are good until the next
 * refresh. One thread at a time. Nothing here logs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "book/pressure_source.h"

struct host;
struct host_probe;
struct ledger;
struct ledger_process;

enum {
    HOST_TURN = 64, /* refreshes after which stat and status are read again in any case */
    HOST_PROCESSES_MAX = 1 << 20,
    HOST_COMMAND_MAX = 512,   /* bytes of a command line that are kept, with the 0 at the end */
    HOST_PATH_MAX = 256,      /* of a program's file and of a cgroup, likewise */
    HOST_WORD_MAX = 72,       /* of a container, a pod, a job */
    HOST_CGROUPS_MAX = 16384, /* with figures; processes of further ones have their path only */
};

/* A process, and a number that differs from that of last time if its statm does. */
struct host_mark {
    int32_t pid;
    uint32_t reserved;
    uint64_t mark; /* 0: not known */
};

/* Marks of all processes, by pid, which are good until the next call. -errno: there are none this time. */
typedef int host_marks_fn(void *context, const struct host_mark **ret_marks, size_t *ret_n);

struct host_options {
    const char *proc;    /* NULL: "/proc" */
    const char *cgroups; /* NULL: "/sys/fs/cgroup" */
    /* Descriptors to keep, at most; the rest is opened, read and closed, at 4 times the cost. 0: half of
     * RLIMIT_NOFILE. */
    size_t files_max;
    bool user_names;          /* look up names of users: NSS may block, so not in a loop thread */
    uint64_t (*now_ns)(void); /* NULL: CLOCK_MONOTONIC */
};

/* ---- processes ---- */

/* Bits of host_process.valid. */
enum host_field {
    HOST_HAS_MEMORY = 1u << 0,  /* rss, vms, shared, text, data: of each refresh */
    HOST_HAS_STAT = 1u << 1,    /* state, parent, threads, faults, comm: as of details_ns */
    HOST_HAS_STATUS = 1u << 2,  /* uid; as of details_ns, as are the next three */
    HOST_HAS_PARTS = 1u << 3,   /* anon, file, shmem, lib, swap */
    HOST_HAS_PEAK = 1u << 4,    /* peak_bytes, the largest rss ever */
    HOST_HAS_USER = 1u << 5,    /* user, the name; uid comes with HOST_HAS_STATUS */
    HOST_HAS_PSS = 1u << 6,     /* pss, uss, dirty: as of pss_ns */
    HOST_HAS_OOM = 1u << 7,     /* oom_score: as of pss_ns */
    HOST_HAS_COMMAND = 1u << 8, /* command, not "" */
    HOST_HAS_EXE = 1u << 9,
    HOST_HAS_CGROUP = 1u << 10, /* cgroup, its path; figures have bits of their own */
    HOST_HAS_JOB = 1u << 11,
    HOST_HAS_RANK = 1u << 12,
    HOST_HAS_CONTAINER = 1u << 13,
    HOST_HAS_POD = 1u << 14,
    HOST_HAS_TRACKED = 1u << 15,
};

/* Is every allocation of the process accounted, and if not, why? */
enum host_tracked {
    HOST_TRACKED_UNKNOWN, /* may not be looked at, or was not yet */
    HOST_TRACKED_YES,     /* it keeps a book of its heap */
    HOST_TRACKED_ASKED,   /* the tracker is in its environment, but keeps no book (yet) */
    HOST_TRACKED_NOT_ASKED,
    HOST_TRACKED_STATIC, /* a static program: nothing can be preloaded */
    HOST_TRACKED_GO,     /* Go's runtime has an allocator of its own */
    HOST_TRACKED_SETUID, /* setuid, setgid or with capabilities: the loader ignores LD_PRELOAD */
    HOST_TRACKED_32BIT,
    HOST_TRACKED_MACHINE, /* of another processor */
    HOST_TRACKED_LIBC,    /* of another C library than ours (musl) */
    HOST_TRACKED_KERNEL,  /* a thread of the kernel has no memory of its own */
};

/* HOST_STEADY is for host_steady() alone. */
enum host_window { HOST_10S, HOST_1MIN, HOST_10MIN, HOST_STEADY, HOST_WINDOWS };
enum { HOST_STEADY_S = 30, HOST_STEADY_PARTS = 3 };

/* A cgroup, shared by its processes. v1's is that of the memory controller. */
struct host_cgroup {
    char path[HOST_PATH_MAX];
    bool known;              /* limit_bytes and headroom_bytes could be read: */
    bool limited;            /* it, or one around it, has a limit; false: none, and both are 0 */
    uint64_t limit_bytes;    /* of the one with the least headroom */
    uint64_t headroom_bytes; /* how much its processes may still take */
    bool has_used;
    uint64_t used_bytes; /* of the cgroup itself, with the page cache that it pays for */
    uint64_t read_ns;    /* CLOCK_MONOTONIC */
};

struct host_process {
    uint32_t valid; /* enum host_field */
    pid_t pid, parent_pid;
    uint64_t start_ticks; /* together with pid the identity; as struct ledger_process has it */
    uint64_t start_realtime_ns; /* since 1970 */
    bool kernel;                /* a thread of the kernel: no memory of its own */
    char state;                 /* 'R', 'S', 'D', 'Z', 'T' ... */
    uint32_t uid;               /* the real one */
    char user[32]; /* without HOST_HAS_USER: the number, or empty where names are not looked up */
    uint32_t threads;
    char comm[16];       /* any bytes but 0 */
    char name[64];       /* for people: "train.py" for "/usr/bin/python3 train.py"; never empty */
    const char *command; /* arguments, any bytes, separated by spaces and cut; never NULL, as is */
    const char *exe;     /* path of the program */

    uint64_t rss_bytes, vms_bytes, shared_bytes, text_bytes, data_bytes;
    uint64_t anon_bytes, file_bytes, shmem_bytes, lib_bytes, swap_bytes, peak_bytes;
    uint64_t minor_faults, major_faults;
    uint64_t details_ns; /* CLOCK_MONOTONIC of the last look at stat and status */

    uint64_t pss_bytes, uss_bytes, dirty_bytes;
    uint32_t oom_score;
    uint64_t pss_ns; /* CLOCK_MONOTONIC; 0: never read */

    const struct host_cgroup *cgroup; /* NULL: not known */
    char container[HOST_WORD_MAX], pod[HOST_WORD_MAX], job[HOST_WORD_MAX];
    /* the job, like any rank, is known from the environment, not from the cgroup */
    bool job_private;
    uint32_t rank;
    enum host_tracked tracked; /* without books; see host_tracked_of() */

    void *user_data; /* the caller's; NULL in a new row */
};

int host_new(const struct host_options *options, struct host **ret_host);
void host_free(struct host *host); /* NULL is fine */
void host_freep(struct host **host);

/* From now on ask `marks` first who is there and whose memory changed, and read statm of the others only in turn: results
 * are the same, at a third of the cost. NULL: no more. */
void host_set_marks(struct host *host, host_marks_fn *marks, void *context);

/* Look at every process. Only lack of memory or of /proc fails. */
int host_refresh(struct host *host);

/* By pid. */
struct host_process *const *host_processes(const struct host *host, size_t *ret_n);
struct host_process *host_process_find(const struct host *host, pid_t pid); /* or NULL */
uint64_t host_time_ns(const struct host *host);  /* CLOCK_MONOTONIC of the last refresh; 0: none */
uint64_t host_left_out(const struct host *host); /* processes past a limit, since the start */

/* Growth of the resident memory in bytes a second over the last 10 s, minute or 10 minutes. false until
 * there are figures of that long ago. */
bool host_rate(const struct host *host, const struct host_process *process, enum host_window window,
               double *ret_bytes_per_s);

/* Growth that lasts: the least that the resident memory grew in bytes a second in any third of the last 30 s, and 0 if it did not grow in one of them. A leak has it, a burst has not. false until there are
 * figures of that long ago. */
bool host_steady(const struct host *host, const struct host_process *process,
                 double *ret_bytes_per_s);

/* Another time than HOST_STEADY_S for it. What was noted before does not count. */
void host_set_steady(struct host *host, uint64_t window_ns);

/* Is it tracked, with what its books say (NULL: it has none). */
enum host_tracked host_tracked_of(const struct host_process *process,
                                  const struct ledger_process *books);
const char *host_tracked_name(enum host_tracked tracked); /* "yes", "no: static" ... */
/* The one with this name; HOST_TRACKED_UNKNOWN for NULL and any other text. */
enum host_tracked host_tracked_find(const char *name);

/* What a process and all its descendants hold, as of the last refresh. */
struct host_family {
    uint64_t rss_bytes;
    bool partial; /* the memory of one of them is not known */
};
/* The first call after a refresh computes all of them: 1 ms with 10,000 processes. Not from two threads at once. 0; -ENOMEM; -ESRCH. */
int host_family(const struct host *host, const struct host_process *process,
                struct host_family *ret_family);

/* ---- costly fields ---- */

/* The process to probe next: first those never probed, then sizes of the largest and of what changed
 * the most since the last look. false: none, all is fresh enough. */
struct host_todo {
    pid_t pid;
    uint32_t kinds;       /* enum host_probe_kind, or-ed */
    uint64_t start_ticks; /* whom it is about */
    uint64_t cost_ns;     /* what it will take, as far as can be told */
};
bool host_probe_next(struct host *host, struct host_todo *ret_todo);

/* Someone looks at this process: for HOST_WATCHED_S its sizes come before those of others and are measured again
 * every HOST_WATCHED_EACH_S, or less often where that would take more than a 200th of a processor. */
enum { HOST_WATCHED_S = 15, HOST_WATCHED_EACH_S = 5, HOST_WATCHED_SHARE = 200 };
void host_watch(struct host *host, pid_t pid);

/* What came of it: 0 and `probe`, or why there is nothing (-EACCES, -ESRCH, -ETIMEDOUT: the process is left
 * alone for a long while). A process that is gone or another by now is none. */
void host_probe_done(struct host *host, const struct host_todo *todo, int error,
                     const struct host_probe *probe);

/* Probe in this thread, and read the figures of cgroups, until nobody is left or `cpu_ns` have been spent. True: nobody is left. */
bool host_refine(struct host *host, uint64_t cpu_ns);

/* ---- the machine ---- */

enum host_system_field {
    HOST_HAS_TOTAL = 1u << 0, /* all of meminfo that has no bit of its own */
    HOST_HAS_AVAILABLE = 1u << 1,
    HOST_HAS_PSI = 1u << 2,
};

/* Who holds the machine's memory: these add up to the total. */
enum host_part {
    HOST_PART_ANON,    /* memory of processes */
    HOST_PART_SHMEM,   /* tmpfs and shared memory */
    HOST_PART_CACHE,   /* other files */
    HOST_PART_BUFFERS, /* disks */
    HOST_PART_SLAB_RECLAIMABLE,
    HOST_PART_SLAB,
    HOST_PART_PAGE_TABLES,
    HOST_PART_STACKS, /* of the kernel */
    HOST_PART_PERCPU,
    HOST_PART_HUGETLB, /* reserved huge pages, used or not */
    HOST_PART_FREE,
    HOST_PART_REST, /* what meminfo does not attribute: drivers, pages in flight */
    HOST_PARTS,
};
const char *host_part_name(enum host_part part); /* "anon", "page_tables" ... */

struct host_system {
    uint32_t valid; /* enum host_system_field */
    uint64_t total_bytes, free_bytes;
    uint64_t available_bytes; /* the kernel's own estimate */
    uint64_t used_bytes;      /* total - available, with HOST_HAS_AVAILABLE */
    uint64_t active_bytes, inactive_bytes, buffers_bytes, cached_bytes, shared_bytes, slab_bytes;
    uint64_t dirty_bytes;
    uint64_t swap_total_bytes, swap_free_bytes, swap_cached_bytes;
    uint64_t parts[HOST_PARTS];
    uint64_t excess_bytes; /* by how much the other parts passed the total, the rest being 0 then */
    struct pressure_stall some, full;
    uint64_t read_ns; /* CLOCK_MONOTONIC */
};

/* As of the last refresh. */
const struct host_system *host_system(const struct host *host);
