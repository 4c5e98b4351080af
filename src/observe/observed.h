/* observed.h: one traced process: its book, its history, its call sites.
 *
 * Records from the ring become events (trace/event.h), which change all three. What the ring
 * lost is found again by comparing with the kernel's table: observed_compare(). One thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct kernel;
struct observed;
struct stacks;
struct trace_history;
struct trace_stream_writer;
struct wire_block;
struct wire_context;
struct wire_context_key;
struct wire_copy;
struct wire_event;
struct wire_granule_key;
struct wire_key;
struct wire_more;
struct wire_process;
struct wire_stack;

struct observed_options {
    struct kernel *kernel; /* borrowed */
    struct stacks *stacks; /* borrowed */
    const char *dir;       /* where books go; NULL: the usual places */
    bool no_book;          /* only the history */
    bool keep_ended;       /* a daemon retires books of ended processes; else they are removed */
    struct trace_stream_writer *stream; /* events are told there, too; NULL: nowhere */
};

/* `generation` and `start_ns` are those of its entry in the kernel's table. -ESRCH: the process
 * is gone. A book that cannot be made is told in the log, and there is only a history then. */
int observed_new(const struct observed_options *options, pid_t pid,
                 const struct wire_process *process, struct observed **ret_observed);

/* With `leave` a book that is open stays and counts, for the next observer; else it is removed,
 * since nothing counts in it any more. NULL is fine. */
void observed_free(struct observed *o, bool leave);

pid_t observed_pid(const struct observed *o);
uint32_t observed_uid(const struct observed *o);
uint32_t observed_generation(const struct observed *o);
struct trace_history *observed_history(struct observed *o);

/* ---- what the driver counts beyond known blocks ---- */

struct device_answer;

struct observed_baseline {
    int32_t ordinal; /* of the device, as the process counts */
    uint32_t index;  /* of the device, in NVML's list */
    uint64_t bytes;  /* the context, and what was allocated before tracing began */
    bool estimate;   /* blocks came or went while NVML was asked */
};

/* NVML should be asked about this process; the answer goes to observed_use_told(). */
bool observed_use_due(const struct observed *o);
void observed_use_wanted(struct observed *o);
void observed_use_asked(struct observed *o);
void observed_use_told(struct observed *o, const struct device_answer *answer);
/* All contexts of the device ended. */
void observed_use_ended(struct observed *o, int32_t ordinal);
size_t observed_baselines(const struct observed *o, const struct observed_baseline **ret_baselines);

/* Devices by the names that the driver has for them, where the program did not ask for one. */
void observed_device_name(struct observed *o, int32_t ordinal, const char *uuid);

/* Records of this process, in the order of the ring. */
void observed_event(struct observed *o, const struct wire_event *event);
void observed_copy(struct observed *o, const struct wire_copy *copy);
void observed_stack(struct observed *o, const struct wire_stack *stack);
void observed_more(struct observed *o, const struct wire_more *more);

/* Tell what the kernel counted as lost, and what was skipped, since the last call; true: the tables may differ now. */
bool observed_losses(struct observed *o, const struct wire_process *process);

/* Make book and history agree with the kernel's table of live blocks: begin, then tell all
 * contexts and blocks of the table (those of other processes are left out), then end. One walk
 * serves all processes. `whole`: the walk reached the end of the table. */
void observed_compare_begin(struct observed *o);
void observed_compare_context(struct observed *o, const struct wire_context_key *key,
                              const struct wire_context *value);
void observed_compare_block(struct observed *o, const struct wire_key *key,
                            const struct wire_block *value);
void observed_compare_end(struct observed *o, bool whole);

/* Is it time to? After losses, once a second, and not before the ring was read once more: what
 * came before the losses is known then. Call it once for each look at the ring. */
bool observed_compare_due(struct observed *o);

/* Between begin and end. */
bool observed_compares(const struct observed *o);

/* The process ended, or goes on with another program: its book is closed (keep_ended), its
 * history stays. */
void observed_exit(struct observed *o);

/* Its tracing was switched off: its history stays, its book goes, since its figures are not kept any more. */
void observed_off(struct observed *o);

/* Did page faults come since the last call? Then tell the counters of all granules. */
bool observed_faults_new(struct observed *o, const struct wire_process *process);
void observed_faults_tell(struct observed *o, const struct wire_granule_key *key, uint64_t count);

/* Its libraries are to be looked at: for the observer's own use. */
bool *observed_look_due(struct observed *o);

/* The process mapped or unmapped code. */
void observed_code_changed(struct observed *o);
