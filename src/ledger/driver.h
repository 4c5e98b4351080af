/* What the driver of a device says (nvml/facts.h), joined to the ledger's devices by UUID, else by PCI address.
 *
 * The driver knows a device also where no process tells of it: its row then stays for as long as the driver does. A size
 * that the driver confirms counts more than what any process claims. A GPU in MIG mode has no row of its own: its instances
 * have, so that nothing counts twice. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ledger;
struct ledger_device;
struct nvml_facts;
struct nvml_process;

/* Joins a new reading and takes it: `facts` is then empty. The last one is released. -ENOMEM: then nothing of the driver is
 * known, rather than a part. About 1 µs a device and process; no system call. */
int ledger_driver_set(struct ledger *ledger, struct nvml_facts *facts);

/* The reading is too old: devices and confirmed sizes stay, what is used of them becomes unknown. */
void ledger_driver_forget(struct ledger *ledger);

/* Forgets the devices, too, except for those that processes tell of. */
void ledger_driver_clear(struct ledger *ledger);

/* The version of the driver, "" when nothing is known. */
const char *ledger_driver_version(const struct ledger *ledger);

/* When the reading came: CLOCK_MONOTONIC; 0: there is none. */
uint64_t ledger_driver_time_ns(const struct ledger *ledger);

/* The size of a space, as the driver itself says: from now on claims of processes do not change it. */
void ledger_device_confirm_capacity(struct ledger_device *device, uint32_t space, uint64_t bytes);

/* The processes that the driver counts on a device, by PID; borrowed until the next set or clear. */
const struct nvml_process *ledger_driver_processes(const struct ledger *ledger,
                                                   const struct ledger_device *device,
                                                   size_t *ret_n);

/* What the driver counts for a process of our PID namespace on one device (NULL: on all). */
struct ledger_driver_use {
    bool listed;    /* the driver knows it there */
    bool known;     /* and told bytes of it, at least on one device */
    bool partly;    /* but not on all */
    uint64_t bytes; /* with `known` */
};
struct ledger_driver_use ledger_driver_use(const struct ledger *ledger, pid_t pid,
                                           const struct ledger_device *device);

/* What the driver counts on a device beyond what processes account there. False: not known, since the driver tells no
 * figure. 0 where the accounts say as much or more. */
bool ledger_driver_unattributed(const struct ledger_device *device, uint64_t *ret_bytes);
