/* One picture of all values at one moment, in plain memory that is used again for the next one: what the
 * thread that owns the ledger hands to the one that writes history. Holds no pointer into the ledger. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "history/tier.h"
#include "ledger/host_books.h"

struct ledger;

enum {
    SAMPLE_PROCESSES_MAX = 65536,
    SAMPLE_DEVICES_MAX = 4096,
    SAMPLE_VALUES_MAX = 1 << 20,
    SAMPLE_VALUES_PER_PROCESS_MAX = 64, /* spaces beyond are left out */
    SAMPLE_USERS = 1024, /* counts of values; users of the same remainder share one */
};

struct sample_process {
    uint64_t pid_ns, start_ticks, exec_id;
    uint64_t began_ns;       /* since 1970; 0: unknown */
    pid_t pid;               /* as we see it, else in its own namespace */
    struct host_claim claim; /* which row of the process table is its own */
    /* Not from the ledger: whoever has looked sets these. */
    bool has_rss, has_pss;
    bool bookless; /* it keeps no book, and is in no sum over those that do */
    uint64_t rss_bytes, pss_bytes;
    uint32_t uid;
    char node[64]; /* another machine's name, or "" */
    char program[64];
    uint32_t first_value, n_values; /* in sample.values */
};

struct sample_device {
    uint32_t kind;
    int32_t ordinal;
    char node[64], name[64], uid[64], bus[32];
};

struct sample_value {
    uint32_t device; /* 1 + number in sample.devices; 0: the host */
    uint16_t space;  /* enum memoir_space, or 0 */
    uint16_t metric; /* enum history_metric */
    uint64_t value;
};

struct sample {
    uint64_t real_ns;
    struct sample_process *processes;
    size_t n_processes, cap_processes;
    struct sample_device *devices;
    size_t n_devices, cap_devices;
    struct sample_value *values;
    size_t n_values, cap_values;
    /* Sums of devices and of the host: the values from here on belong to no process. */
    size_t first_total;
    uint64_t left_out; /* values past a limit or for want of memory, since sample_init() */
    uint32_t by_user[SAMPLE_USERS];
};

void sample_init(struct sample *sample); /* no memory yet */
void sample_release(struct sample *sample);

/* Begin a new picture, keeping the memory. */
void sample_reset(struct sample *sample, uint64_t real_ns);

/* Add in this order: devices, then each process followed by its values, then sample_totals() and the sums
 * of all; processes without a value of their own may come later. NULL, and what follows is left out, past a limit. */
struct sample_device *sample_add_device(struct sample *sample);
struct sample_process *sample_add_process(struct sample *sample);
void sample_add_value(struct sample *sample, uint32_t device, uint32_t space, uint32_t metric,
                      uint64_t value);
void sample_totals(struct sample *sample);

/* Reserve room for `values` of a user's `per_user_max` in this picture, so that one user's processes do not push the
 * history of all others out of the file. False if there is none; then they are counted as left out. Root and our own user
 * have no limit. Users share by accountable_uid(). */
bool sample_reserve(struct sample *sample, uint32_t uid, uint32_t values, uint64_t per_user_max);

/* All of that from the ledger as it is; looks at nothing else. 1,000 processes in about 100 us. Processes whose user has
 * no room for them are left out. */
void sample_take(struct sample *sample, const struct ledger *ledger, uint64_t real_ns,
                 uint64_t per_user_max);
