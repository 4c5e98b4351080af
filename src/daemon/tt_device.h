/* Tenstorrent devices: what is known about them, and how much of them is in use. */
#pragma once

#include <stdint.h>

#include "daemon/tt_wire.h"

struct server;
struct behalf;

/* Fill in capacities and whether the device is there: from what processes told, else from the architecture
 * (by a process's word, /sys, or tt-arch). What is not known is 0. */
void tt_device_describe(struct server *server, int32_t ordinal, struct tt_answer *answer);

/* The size of a memory of a Tenstorrent device, where the driver or tt-arch tells the architecture; else 0. For
 * ledger_options.device_size; `context` is the daemon. */
struct ledger_device;
uint64_t tt_device_size(void *context, const struct ledger_device *device, uint32_t space);

/* How many there are: those in /sys, and those that processes told of. */
uint32_t tt_device_count(struct server *server);

/* What all processes hold on it, whatever reported it, from the ledger's figures as they are. `size` gets
 * the sum, `buffer_id` the number of blocks. */
void tt_device_usage(struct server *server, int32_t ordinal, struct tt_answer *answer);

/* Enter the device into a book by the name that others call it. Its number or -errno. */
int tt_device_declare(struct server *server, struct behalf *behalf, int32_t ordinal);
