/* observer_internal.h: what the loop and its control socket share. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "observe/control.h"
#include "observe/observer.h"
#include "trace/stream.h"

struct device_facts;
struct elf_parser;
struct kernel;
struct observed;
struct stacks;
struct targets_scan;

enum { OBSERVER_DEVICES_MAX = 64 };

enum { LOOK_USERS = 64, LOOK_CREDIT_NS = 500000000, LOOK_PART = 20 };

/* Time that looking at the libraries of a user's processes may take: a twentieth of all, after a
 * first half second. A process may have 65,530 mappings and map a library again and again. */
struct look {
    uint64_t since_ns;
    int64_t credit_ns;
};

struct observer {
    struct look looks[LOOK_USERS]; /* by UID % LOOK_USERS */
    bool looks_due;                /* processes wait for their turn */
    const struct observer_options *options;
    struct kernel *kernel;
    struct elf_parser *parser; /* of ELF files, which any user may write */
    struct stacks *stacks;
    struct targets_scan *scan; /* NULL: the kernel tells of new libraries */
    struct control *control;
    struct device_facts *facts;                   /* NULL: NVML is not asked */
    uint64_t context_bytes[OBSERVER_DEVICES_MAX]; /* of a context, by NVML's list; 0: not known */
    struct trace_stream_writer stream;
    bool streams;
    struct observed
        *running[WIRE_PROCESSES_MAX]; /* by PID % WIRE_PROCESSES_MAX, then the next free place */
    size_t n_running;
    struct observed *ended[OBSERVER_ENDED_MAX]; /* in turn */
    size_t n_ended;
    pid_t dumps[OBSERVER_DUMPS_MAX]; /* children that write one; 0: none */
    uint64_t records, gaps, started_ns, unheld_ns;
    uint64_t ended_ns;      /* when the only traced process was found ended; 0: it runs */
    uint64_t room_ns;       /* that making room for libraries took */
    uint64_t full_until_ns; /* no library can be attached, and that was told */
    unsigned idle_looks;
    bool adopted, stopping, leave;
};

struct observed *observer_find(struct observer *o, pid_t pid);
/* A running process, else the last ended one with that PID. */
struct observed *observer_find_any(struct observer *o, pid_t pid);

/* Read all that is in the ring now. */
void observer_drain(struct observer *o);

/* A process is traced no more; its history stays for a while. `off`: it goes on, but its tracing is switched off. */
void observer_process_close(struct observer *o, struct observed *p, bool off);

/* For targets.h; `context` is the observer. A process maps the library: attach probes, or keep those that there are. */
struct probe_table;
void observer_library_found(void *context, const struct probe_table *table, int fd,
                            const char *path);
void observer_library_used(void *context, const struct probe_table *table, int fd,
                           const char *path);
/* The same for processes: is its tracing not switched off; is what the kernel has of this generation of no use any more? */
bool observer_is_on(void *context, pid_t pid);
bool observer_is_stale(void *context, pid_t pid, uint32_t generation);

/* One round of looking for libraries that no process uses any more. */
void observer_tidy(struct observer *o);

/* ---- observer_switch.c ---- */

/* Begin to trace a process: probes on its libraries, an entry in the kernel's table. */
int observer_trace(struct observer *o, pid_t pid, char why[static KERNEL_WHY_MAX]);
/* Switch the tracing of a process off or on. Off removes its book and forgets its blocks, and removes the probes of libraries that
 * no other process needs. `asker`: the user who wants that, who must be the one that may see it (0: root). -ESRCH: none such has called
 * a probed function; -EPERM: it is not the asker's. */
int observer_switch(struct observer *o, pid_t pid, bool on, uint32_t asker);

/* ---- others ---- */

/* A request at the socket (control.h). */
enum control_result observer_request(void *observer, int fd, const char *line, struct buffer *out,
                                     char *why);

void observer_list(struct observer *o, struct buffer *out);
void observer_status(struct observer *o, struct buffer *out);

/* Write a dump of the process's history to `fd` in a child, which does not hold up the ring. "ok
 * BYTES" comes first. */
int observer_dump(struct observer *o, pid_t pid, int fd);
