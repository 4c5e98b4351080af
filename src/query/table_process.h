/* Inside the query core: columns of a process, which other tables have as well. */
#pragma once

#include "query/plan.h"

typedef void query_getter(const struct query_world *world, const struct query_row *row,
                          const struct query_field *field, struct query_value *ret);

query_getter process_pid, process_program, process_user, process_uid, process_node, process_state,
    process_command, process_exe, process_holds;

#define PROCESS_COLUMNS                                                                       \
    {"pid", "process id", QUERY_NUMBER, QUERY_SAME, .get = process_pid},                      \
        {"program", "name of the program, or of the script that it runs", QUERY_TEXT,         \
         .get = process_program},                                                             \
        {"user", "who owns the process", QUERY_TEXT, .get = process_user},                    \
        {"uid", "the same as a number", QUERY_NUMBER, QUERY_SAME, .get = process_uid},        \
        {"node", "name of the machine", QUERY_TEXT, .get = process_node}, QUERY_COLUMN_NODES, \
        {"state", "running, stopped, closed, exited, replaced or unknown", QUERY_TEXT,        \
         .get = process_state},                                                               \
        {"command", "the command line", QUERY_TEXT, .flags = QUERY_PRIVATE,                   \
         .get = process_command},                                                             \
    {                                                                                         \
        "exe", "path of the program", QUERY_TEXT, .flags = QUERY_PRIVATE, .get = process_exe  \
    }

/* What its books say. */
query_getter process_notes, process_watchers, process_other;
query_getter process_device, process_peak, process_space, process_total, process_driver;
enum process_figure {
    PROCESS_LIVE_BYTES,
    PROCESS_LIVE_BLOCKS,
    PROCESS_PEAK_BYTES,
    PROCESS_ALLOCATED,
    PROCESS_FREED
};

#define DEVICE_SPACE(name, space, help)                                        \
    {                                                                          \
        "device." name, help, QUERY_BYTES, .arg = space, .get = process_device \
    }
#define HOST_SPACE(name, space, help)                               \
    {                                                               \
        name, help, QUERY_BYTES, .arg = space, .get = process_space \
    }

/* clang-format off */
#define ACCOUNT_COLUMNS                                                                            \
    {"device", "memory that it holds on all devices; device.0 on the one with number 0",           \
     QUERY_BYTES, .get = process_device},                                                          \
    DEVICE_SPACE("dram", MEMOIR_SPACE_DRAM, "of it, DRAM; device.0.dram on one device"),           \
    DEVICE_SPACE("l1", MEMOIR_SPACE_L1, "of it, buffers in L1"),                                   \
    DEVICE_SPACE("l1_small", MEMOIR_SPACE_L1_SMALL, "of it, small buffers in L1"),                 \
    DEVICE_SPACE("trace", MEMOIR_SPACE_TRACE, "of it, recorded traces"),                           \
    DEVICE_SPACE("cb", MEMOIR_SPACE_CB, "of it, circular buffers"),                                \
    DEVICE_SPACE("kernel", MEMOIR_SPACE_KERNEL, "of it, kernel binaries"),                         \
    DEVICE_SPACE("system", MEMOIR_SPACE_SYSTEM,                                                    \
                 "host memory that belongs to devices; no part of device"),                        \
    {"device.driver", "memory that the driver counts for it on all devices (NVIDIA)", QUERY_BYTES, \
     .needs = QUERY_NEEDS_DRIVER, .get = process_driver},                                                \
    {"peak", "the most that device can have been", QUERY_BYTES, .get = process_peak},              \
    HOST_SPACE("host", 0, "host memory that it reported, all spaces but chain and registered"),                   \
    HOST_SPACE("heap", MEMOIR_SPACE_HEAP, "of it, heap"),                                          \
    HOST_SPACE("pinned", MEMOIR_SPACE_PINNED, "of it, pinned for transfers"),                      \
    HOST_SPACE("registered", MEMOIR_SPACE_REGISTERED,                                              \
               "pinned in place; no part of host: it counts where it was allocated"),              \
    HOST_SPACE("mapped", MEMOIR_SPACE_MAPPED, "of it, mapped"),                                    \
    HOST_SPACE("managed", MEMOIR_SPACE_MANAGED,                                                    \
               "of it, managed: moves between host and device by itself"),                         \
    HOST_SPACE("host.shared", MEMOIR_SPACE_SHARED, "of it, shared between processes"),             \
    HOST_SPACE("chain", MEMOIR_SPACE_CHAIN, "blocks in user chains; no part of host: their buffers are other memory"), \
    {"blocks", "blocks allocated and not freed, in all spaces", QUERY_NUMBER, .arg = PROCESS_LIVE_BLOCKS,  \
     .get = process_total},                                                                        \
    {"allocated", "bytes allocated since the start, in all spaces", QUERY_BYTES, .arg = PROCESS_ALLOCATED, \
     .get = process_total},                                                                        \
    {"freed", "bytes freed since the start, in all spaces", QUERY_BYTES, .arg = PROCESS_FREED,             \
     .get = process_total}
/* clang-format on */

/* "device.1" and "device.1.dram", in a table that has the column `device`. */
bool process_resolve(const struct query_column *columns_of, const char *name, size_t len,
                     struct query_field *ret_field);

/* place.c: of an account, or of a space of a device. */
query_getter place_device, place_device_id, place_ordinal, place_space, place_text, place_kind;
enum { PLACE_NAME, PLACE_UID, PLACE_BUS };

#define DEVICE_ID_HELP "identity of the device: its uid, else its PCI address and node"
#define DEVICE_COLUMNS(detail)                                                              \
    {"device", "number and name of the device, or host", QUERY_TEXT, .flags = detail,       \
     .get = place_device},                                                                  \
        {"ordinal",       "the number that programs use for the device",                    \
         QUERY_NUMBER,    QUERY_SAME,                                                       \
         .flags = detail, .get = place_ordinal},                                            \
        {"space", "kind of memory: dram, l1, cb, heap, ...", QUERY_TEXT, .flags = detail,   \
         .get = place_space},                                                               \
        {"device_name",   "name of the device alone", QUERY_TEXT,                           \
         .flags = detail, .arg = PLACE_NAME,          .get = place_text},                   \
        {"device_id", DEVICE_ID_HELP, QUERY_TEXT, .flags = detail, .get = place_device_id}, \
        {"device_uid",     "what makes it the same device for all programs",                \
         QUERY_TEXT,       .flags = detail,                                                 \
         .arg = PLACE_UID, .get = place_text},                                              \
        {"device_bus",     "PCI address of the device",                                     \
         QUERY_TEXT,       .flags = detail,                                                 \
         .arg = PLACE_BUS, .get = place_text},                                              \
    {                                                                                       \
        "device_kind", "gpu, npu, fpga, simulated or other", QUERY_TEXT, .flags = detail,   \
                                                                         .get = place_kind  \
    }

bool process_owner(const struct query_row *row, uint32_t *ret_uid);

/* Does it hold what its books say? A process that is gone does not, and must not be part of sums. */
bool process_lives(const struct query_row *row);

/* The number of the space with this name; 0 when there is none. */
uint32_t space_find(const char *name, size_t len);

/* "estimate" and "at least" of an account's figures. */
struct ledger_account;
uint8_t account_marks(const struct ledger_account *account);
