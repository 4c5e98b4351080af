/*
 * devices.h: what `memoir devices` shows, apart from how, and how.
 *
 * One row per device: its spaces with what all living processes hold there, the on-chip memory (L1) as
 * one sum of what lives in it (buffers, circular buffers, kernels), and who holds it. Processes that
 * are gone do not count, whether or not a daemon has retired their books yet; how much that is, is told.
 */
#ifndef MEMOIR_CLI_DEVICES_H
#define MEMOIR_CLI_DEVICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <memoir/memoir.h>

#include "cli/bar.h"
#include "cli/table.h"
#include "cli/term.h"

struct buffer;
struct ledger;
struct ledger_device;
struct ledger_process;
struct nvml_device;
struct nvml_process;

struct devices_space {
    uint32_t space;     /* enum memoir_space; 0 for the sum of L1 */
    char name[32];      /* as the books call it */
    uint64_t used;      /* bytes, of living processes */
    uint64_t capacity;  /* 0: not known */
    bool disputed;      /* users claim different capacities */
    uint64_t blocks;    /* live */
    uint32_t processes; /* that hold something in it */
};

/* What lives in L1, in the order in which it is stacked. */
enum devices_part {
    DEVICES_L1_BUFFERS,
    DEVICES_L1_CBS,
    DEVICES_L1_KERNELS,
    DEVICES_L1_SMALL,
    DEVICES_L1_PARTS,
};
_Static_assert((int)DEVICES_L1_PARTS <= (int)BAR_PARTS_MAX, "each part has a texture");

/* A process on a device. At least one of `process` and `fact` is there. */
struct devices_owner {
    const struct ledger_process *process; /* NULL: it keeps no book */
    const struct nvml_process *fact;      /* what the driver says of it; NULL: nothing */
    uint64_t bytes,
        blocks; /* by its books, on this device, without host memory that belongs to it */
    uint64_t by_space[MEMOIR_SPACE_MAX + 1];
};

struct devices_row {
    const struct ledger_device *device;
    struct devices_space spaces[MEMOIR_SPACE_MAX + 1]; /* those in use or told of, by number */
    size_t n_spaces;
    bool has_l1;
    struct devices_space l1; /* the sum of parts; its capacity is that of space L1 */
    struct devices_space l1_parts[DEVICES_L1_PARTS];
    uint64_t used, blocks;        /* of the device's own memory, all spaces but SYSTEM */
    struct devices_owner *owners; /* the largest first */
    size_t n_owners, room_owners;
    const struct nvml_device *driver; /* NULL: nothing is known */
    bool has_unattributed;
    uint64_t unattributed; /* what the driver counts beyond the accounts */
};

struct devices_view {
    struct devices_row *rows; /* by number of the device, then name */
    size_t n;
    size_t processes;           /* that hold something on one of them */
    size_t gone;                /* whose books are still there, but who no longer count */
    uint64_t gone_bytes;        /* on the devices shown */
    const char *driver_version; /* "": not known */
};

/* From the ledger as of its last refresh; the view borrows its rows until it changes. `device` picks by
 * number, uid, bus or name (NULL: all). */
int devices_view_take(const struct ledger *ledger, const char *device,
                      struct devices_view *ret_view);
void devices_view_release(struct devices_view *view);

/* Does a device answer to what the user typed? */
bool devices_match(const struct ledger_device *device, const char *text);

/* "0 Tensor card", as other commands call it too. */
enum { DEVICES_LABEL_MAX = 128 };
const char *devices_label(char text[static DEVICES_LABEL_MAX], const struct ledger_device *device);

/* "DRAM" for "dram", "L1" for "l1". */
enum { DEVICES_SPACE_MAX = 32 };
const char *devices_space_label(char text[static DEVICES_SPACE_MAX], const char *name);

/* What the driver counts as one more memory; all 0 where it tells nothing. */
struct devices_space devices_driver_space(const struct devices_row *row);

/* The fullest space with a known capacity, in percent, by the accounts or by the driver; 0 when there is none. */
double devices_fullest(const struct devices_view *view);

/* ---- printing ---- */

struct devices_style {
    bool owners; /* a line of who holds it */
    unsigned indent;
};

/* For people, `term->width` wide (80 where that is not known). */
void devices_print(const struct devices_view *view, const struct devices_style *style,
                   const struct term *term, struct buffer *out);

#endif
