/* What the NVIDIA driver says, for commands: NVML is asked by a worker process (nvml/nvml.h) and joined to a ledger. */
#ifndef MEMOIR_CLI_DRIVER_H
#define MEMOIR_CLI_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ledger;
struct nvml;

/* Zeroed at first. */
struct driver {
    struct nvml *nvml; /* NULL until it was asked */
    uint64_t asked_ns; /* when; 0: never */
    int error;         /* of the last question, as nvml_ask() returns it */
    char why[256];     /* the reason, in one line; "" without error */
};

/* A new reading for a ledger; for one that is kept (`kept`), at most once a second. Blocks for up to 3 s where NVML hangs, and
 * then not again for a while. Without NVML the ledger stays as it is. */
void driver_join(struct driver *driver, struct ledger *ledger, bool kept);

/* Why figures of the driver are missing, as one sentence without full stop; NULL when they are not. A machine without the
 * library is worth the sentence only where there is an NVIDIA device (`has_gpu`). */
const char *driver_problem(const struct driver *driver, bool has_gpu, char *text, size_t size);

void driver_release(struct driver *driver);

#endif
