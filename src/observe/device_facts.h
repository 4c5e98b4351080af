/* device_facts.h: what NVML says of a device at the moment when an allocation failed there, asked beside the observer's loop.
 *
 * NVML may take seconds and may hang, so a thread asks it. The loop never waits, except for a limited time before a dump. The thread and
 * NVML's worker start with the first question: programs whose allocations do not fail cost nothing. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "trace/history.h"

struct device_facts;

enum {
    DEVICE_FACTS_WAIT_MS = 3000,   /* for NVML */
    DEVICE_FACTS_SETTLE_MS = 1000, /* for an answer, before a dump */
    DEVICE_FACTS_ENVIRON_MAX = 1 << 20,
};

struct device_answer {
    pid_t pid;
    uint64_t capacity_bytes;
    uint64_t used_bytes; /* 0: not known, because the process had ended before NVML answered */
    struct trace_failure_other others[TRACE_FAILURE_OTHERS]; /* largest first */
    size_t n_others;
};

int device_facts_new(struct device_facts **ret_facts);
void device_facts_free(struct device_facts *facts); /* NULL is fine */

/* Readable when there is an answer. */
int device_facts_fd(const struct device_facts *facts);

/* Ask about the device that process `pid` counts as `ordinal`. One question at a time: those that come meanwhile are dropped. */
void device_facts_ask(struct device_facts *facts, pid_t pid, int32_t ordinal);

/* The answer, if there is one. 0, or -EAGAIN. */
int device_facts_take(struct device_facts *facts, struct device_answer *ret_answer);

/* Wait until a question about this process is answered, at most DEVICE_FACTS_SETTLE_MS. */
void device_facts_settle(struct device_facts *facts, pid_t pid);
