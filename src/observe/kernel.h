/* kernel.h: the probes in the kernel and their maps, seen from the observer.
 *
 * Maps and links are pinned in a directory of bpffs, so that counting goes on when the observer
 * ends. The next observer of the same name takes them over: it reads the maps, reads on in the
 * ring, and finds what is attached. Pins of another layout are removed. One process at a time
 * owns a directory (a lock file beside it tells); one thread uses a struct kernel.
 *
 * Needs root with CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN (uprobes of other users' files, bpffs),
 * the initial PID namespace, a kernel with BTF and uprobe_multi (Linux 6.6). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "observe/wire.h"

struct kernel;
struct probe_table;

enum { KERNEL_WHY_MAX = 256, KERNEL_NAME_MAX = 64 };

/* 0 takes the default of wire.h. */
struct kernel_options {
    const char *name; /* of the directory: "all", "pid-123" */
    bool all;         /* trace every process that calls a probed function */
    /* Tell large mappings and advice, too, by tracepoints of system calls. While one of these is
     * attached, the kernel takes a slower way for every system call of the machine: a
     * launch-bound step of PyTorch took 2 % longer. */
    bool system_calls;
    uint32_t ring_bytes, ring_quota;
    uint32_t blocks_max, blocks_quota, user_quota;
    bool two_links; /* probe every return, as kernels without session links must */
};

/* Load, or take over what an earlier observer left. About 100 ms. On failure -errno and, for
 * people, `why`. -EBUSY: another observer owns that name. *ret_adopted: there was something to
 * take over. */
int kernel_open(const struct kernel_options *options, struct kernel **ret_kernel, bool *ret_adopted,
                char why[static KERNEL_WHY_MAX]);

/* With `leave` probes go on counting without us; else all is removed. NULL is fine. */
void kernel_close(struct kernel *kernel, bool leave);

/* In a child of the observer: its name is free again when the observer ends, whatever the child
 * does. */
void kernel_forget(struct kernel *kernel);

/* Who parses libraries (elf_file.h), before the first one. Borrows it. */
struct elf_parser;
void kernel_parser_set(struct kernel *kernel, struct elf_parser *parser);

/* Attach all functions of the table that the library exports; nothing happens if that file has
 * probes already. `fd` is the open file. Returns how many functions have probes, or -errno:
 * -ENOENT: it exports none of them; -EALREADY: it was refused before and has not changed since;
 * -EUSERS: there are too many, in all or of its owner. About 50 ms. */
int kernel_attach(struct kernel *kernel, const struct probe_table *table, int fd, char *why);

/* Probes of this file stay while no process uses it. */
void kernel_attached_keep(struct kernel *kernel, int fd);

/* To make room: after kernel_attached_unmark(), kernel_attached_mark() for each file that is in
 * use, remove probes of some others. Returns how many files lost theirs. */
void kernel_attached_unmark(struct kernel *kernel);
void kernel_attached_mark(struct kernel *kernel, int fd);
size_t kernel_attached_evict(struct kernel *kernel);

/* The same for files that were not in use for two rounds. Probes hold the file: its space on the disk is not free before they are
 * gone, even if its name is. */
size_t kernel_attached_age(struct kernel *kernel);
/* Is there a file that is not kept for good? */
bool kernel_attached_passing(const struct kernel *kernel);

/* The same for one that no traced process uses although it is kept: after kernel_attached_mark_all(). */
void kernel_attached_mark_all(struct kernel *kernel);
void kernel_attached_release(struct kernel *kernel, int fd);

/* How many library files have probes, and how long it took to attach them. */
size_t kernel_attached(const struct kernel *kernel);
uint64_t kernel_attach_ns(const struct kernel *kernel);

/* Remove the probes of all libraries; counters and tables stay. Returns how long that took, in
 * ns. */
uint64_t kernel_detach(struct kernel *kernel);

/* Trace this process, which may not have made a call yet. `start_ns` is its start since boot. */
int kernel_process_add(struct kernel *kernel, pid_t pid, uint64_t start_ns, uint32_t uid);
void kernel_process_remove(struct kernel *kernel, pid_t pid);
/* Probes do nothing in this process, or work again. Its blocks and counters are forgotten: they are not kept meanwhile. `uid`: the user
 * who may see it from now on. */
int kernel_process_switch(struct kernel *kernel, pid_t pid, bool on, uint32_t uid);
int kernel_process_get(struct kernel *kernel, pid_t pid, struct wire_process *ret_process);

/* Call `each` for every process in the table, until it returns other than 0. */
int kernel_processes(struct kernel *kernel,
                     int (*each)(void *context, pid_t pid, const struct wire_process *process),
                     void *context);

/* The same for contexts and live blocks. A table that changes meanwhile is seen partly before,
 * partly after. */
int kernel_contexts(struct kernel *kernel,
                    int (*each)(void *context, const struct wire_context_key *key,
                                const struct wire_context *value),
                    void *context);
int kernel_blocks(struct kernel *kernel,
                  int (*each)(void *context, const struct wire_key *key,
                              const struct wire_block *value),
                  void *context);
void kernel_block_remove(struct kernel *kernel, const struct wire_key *key);

/* Did the block go with its context? Such blocks stay in the table until they are purged. Fast
 * inside kernel_blocks(). */
bool kernel_block_stale(struct kernel *kernel, const struct wire_key *key,
                        const struct wire_block *block);

/* Remove blocks, contexts and known stacks that `stale` says are of no living process, or of an
 * earlier image of one. Returns how many. */
size_t kernel_purge(struct kernel *kernel,
                    bool (*stale)(void *context, pid_t pid, uint32_t generation), void *context);

/* Let the kernel recognise a stack. */
int kernel_known_add(struct kernel *kernel, const struct wire_known_key *key,
                     const struct wire_known *value);

/* The interpreter of a process; NULL: it has none. */
int kernel_python_set(struct kernel *kernel, pid_t pid, const struct python_kernel_facts *facts);

/* Page faults of a process, by granules of address space; the first is 0 for one that had none. */
uint64_t kernel_faults_at(struct kernel *kernel, pid_t pid, uint32_t generation, uint64_t granule);
int kernel_faults(struct kernel *kernel,
                  int (*each)(void *context, const struct wire_granule_key *key, uint64_t count),
                  void *context);

/* Readable (EPOLLIN) when there are records and kernel_sleep() asked to be woken, or when much
 * waits. */
int kernel_fd(const struct kernel *kernel);

/* True before the observer sleeps for long: read once more after it. False: it looks by itself
 * every few milliseconds. */
void kernel_sleep(struct kernel *kernel, bool sleep);

/* Call `each` for records in the ring, at most `max`. How many there were. What was read is free
 * again for its process. */
int kernel_read(struct kernel *kernel, size_t max,
                void (*each)(void *context, const void *record, size_t bytes), void *context);

/* Mean run time of the programs at entries and returns, where the machine measures that
 * (kernel.bpf_stats_enabled); else 0. With a session link they are one program, and the second
 * figure is 0. */
void kernel_costs(struct kernel *kernel, double *ret_enter_ns, double *ret_leave_ns);

/* Is there one link for entries and returns, so that some returns can be left out? */
bool kernel_has_session(const struct kernel *kernel);

/* Number and epoch of a site, as the kernel has them; 0 for a site that an earlier observer
 * numbered. */
uint32_t kernel_site_number(const struct kernel *kernel, uint32_t site);

/* Tell which uids are subordinate to which user, where that changed: processes that make their first call from now on are
 * counted in that user's quota. */
void kernel_subordinates_tell(struct kernel *kernel);

/* Count the blocks of each user again: processes were removed from the table. */
void kernel_users_count(struct kernel *kernel);

void kernel_machine(struct kernel *kernel, struct wire_machine *ret_machine);

/* ---- without an observer ---- */

/* Pinned directories whose observer is gone; `only` the one of this name, if it is not NULL. Calls `each` with their names;
 * with `remove` they are removed. Returns how many there were, or -errno. */
int kernel_orphans(const char *only, bool remove, void (*each)(void *context, const char *name),
                   void *context);
