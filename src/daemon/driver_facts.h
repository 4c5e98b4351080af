/* memoird's view of what the NVIDIA driver says: NVML is asked by a thread of its own (nvml.h), at most once a second and
 * only while views ask for it; the loop joins the answer to the ledger (ledger/driver.h). One reading is taken at the start, so
 * that sizes are confirmed. After DRIVER_FACTS_IDLE_S without a question the worker process ends, which closes the device files.
 *
 * A reading costs the worker 0.1 ms for one GPU and the loop some microseconds. When NVML is missing, refuses, hangs or
 * crashes, one line of the log says so and figures of the driver are unknown; everything else goes on. All calls are the
 * loop's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct daemon;
struct driver_facts;

enum {
    DRIVER_FACTS_EVERY_MS = 1000,    /* between two readings */
    DRIVER_FACTS_FRESH_MS = 3000,    /* a question waits for a reading that is no older, */
    DRIVER_FACTS_PATIENCE_MS = 1000, /* but not for longer than this */
    DRIVER_FACTS_STALE_MS = 10000,   /* figures of the driver that are older are unknown */
    DRIVER_FACTS_IDLE_S = 30,
};

int driver_facts_new(struct daemon *daemon, struct driver_facts **ret_facts);
void driver_facts_free(struct driver_facts *facts); /* NULL is fine */

/* A view asks: readings go on for DRIVER_FACTS_IDLE_S. NULL is fine. */
void driver_facts_want(struct driver_facts *facts);

/* The same for a question that may wait: is there a reading that is fresh enough, or none to be had? NULL: true. */
bool driver_facts_ready(struct driver_facts *facts);

/* What it costs and how it goes, for memoird's own status. `ret_why` is "" while NVML answers. */
struct driver_facts_status {
    uint64_t readings, failures;
    uint64_t cost_ns; /* CPU time of the last reading, in the worker */
    char why[256];
};
void driver_facts_status(struct driver_facts *facts, struct driver_facts_status *ret_status);
