/* device_facts.h: what NVML says of a device at the moment when an allocation failed there, and
 * what the driver counts for a process when it makes a context, asked beside the observer's
 * loop.
 *
 * NVML may take seconds and may hang, so a thread asks it. The loop never waits, except for a
 * limited time before a dump. The thread and NVML's worker start with the first question. */
#pragma once

#include <stdbool.h>
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

enum device_question {
    DEVICE_QUESTION_FAILURE, /* who holds the memory of a device? */
    DEVICE_QUESTION_USE, /* what does the driver count for the process, on each of its devices? */
};

enum { DEVICE_USES_MAX = 16 };

/* A device that the driver counts memory of the process on. */
struct device_use {
    int32_t ordinal; /* as the process counts */
    uint32_t index;  /* in NVML's list */
    uint64_t used_bytes;
};

struct device_answer {
    enum device_question question;
    pid_t pid;
    struct device_use uses[DEVICE_USES_MAX]; /* DEVICE_QUESTION_USE */
    size_t n_uses;
    /* DEVICE_QUESTION_FAILURE: */
    uint64_t capacity_bytes;
    uint64_t used_bytes; /* 0: not known, because the process had ended before NVML answered */
    struct trace_failure_other others[TRACE_FAILURE_OTHERS]; /* largest first */
    size_t n_others;
};

int device_facts_new(struct device_facts **ret_facts);
void device_facts_free(struct device_facts *facts); /* NULL is fine */

/* Readable when there is an answer. */
int device_facts_fd(const struct device_facts *facts);

/* Ask about process `pid` and, of a failure, about the device that it counts as `ordinal`. One
 * question at a time: false while another one is not answered; of failures one waits for its
 * turn then. */
bool device_facts_ask(struct device_facts *facts, enum device_question question, pid_t pid,
                      int32_t ordinal);

/* UUIDs of the devices of a process, by its own numbers, from NVML's last answer to any
 * question; `names` has DEVICE_USES_MAX places. How many there are; 0: nothing is known yet, or
 * their order is a guess. */
enum { DEVICE_NAME_MAX = 64 };
size_t device_facts_names(struct device_facts *facts, pid_t pid, char (*names)[DEVICE_NAME_MAX]);

/* The answer, if there is one. 0, or -EAGAIN. */
int device_facts_take(struct device_facts *facts, struct device_answer *ret_answer);

/* Wait for an answer, if there is a question about a failure of this process, at most
 * DEVICE_FACTS_SETTLE_MS. True: there is an answer to be taken, perhaps to the question before
 * that one. */
bool device_facts_settle(struct device_facts *facts, pid_t pid);
