/*
 * devices.h: the bars of `memoir devices`, over rows of the query core.
 *
 * The layout has one entry per device: its spaces with what all living processes hold there, the on-chip memory (L1) as
 * one sum of what lives in it (buffers, circular buffers, kernels), and the processes that hold it. Processes that
 * are gone do not count, whether or not a daemon has retired their books yet; how much they held is counted apart.
 */
#ifndef MEMOIR_CLI_DEVICES_H
#define MEMOIR_CLI_DEVICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <memoir/memoir.h>

#include "cli/bar.h"
#include "cli/table.h"
#include "cli/term.h"
#include "ledger/ledger.h"

struct buffer;
struct ledger;

enum { DEVICES_LABEL_MAX = 128, DEVICES_SPACE_MAX = 32 };

struct devices_space {
    uint32_t space;    /* enum memoir_space; 0 for the sum of L1 */
    char name[32];     /* as the books call it */
    uint64_t used;     /* bytes, of living processes */
    uint64_t capacity; /* 0: not known */
    bool disputed;     /* users claim different capacities */
    uint64_t blocks;   /* live */
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

/* A process on a device: of the table accounts, of device_processes, or of both. */
struct devices_owner {
    bool has_book;
    pid_t pid;           /* 0: not known */
    uint32_t driver_pid; /* 0: the driver does not list it */
    char program[64];    /* "": not known */
    /* By its books, on this device, without host memory that belongs to it. */
    uint64_t bytes, blocks;
    uint64_t by_space[MEMOIR_SPACE_MAX + 1];
    bool has_driver;
    uint64_t driver;     /* bytes that the driver counts */
    const void *process; /* tells one from the next while rows are taken */
};

/* What the driver says of a device. */
struct devices_driver {
    bool present, has_used, has_reserved, has_unattributed;
    uint64_t used, capacity, reserved;
    uint64_t unattributed; /* what it counts beyond the accounts */
};

struct devices_row {
    char id[LEDGER_DEVICE_ID_MAX];
    char label[DEVICES_LABEL_MAX]; /* "0 Tensor card" */
    char name[64];
    char node[64]; /* "": this machine */
    int32_t ordinal;
    bool gpu;
    struct devices_space spaces[MEMOIR_SPACE_MAX + 1]; /* those in use or reported */
    size_t n_spaces;
    bool has_l1;
    struct devices_space l1; /* the sum of parts; its capacity is that of space L1 */
    struct devices_space l1_parts[DEVICES_L1_PARTS];
    uint64_t used, blocks;        /* of the device's own memory, all spaces but SYSTEM */
    struct devices_owner *owners; /* the largest first */
    size_t n_owners, room_owners;
    struct devices_driver driver;
};

struct devices_view {
    struct devices_row *rows; /* by number of the device, then name */
    size_t n;
    size_t processes;    /* that hold something on one of them */
    size_t gone;         /* whose books are still there, but no longer count */
    uint64_t gone_bytes; /* on the devices shown */
};

/* Rows of the tables devices, accounts and device_processes over a ledger as of its last refresh. `device` picks by number,
 * uid, bus or name (NULL: all). 0 or -errno. */
int devices_view_take(struct ledger *ledger, const char *device, struct devices_view *ret_view);
void devices_view_release(struct devices_view *view);

/* "DRAM" for "dram", "L1" for "l1". */
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
