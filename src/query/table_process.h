/* Inside the query core: columns of a process, which other tables have as well. */
#pragma once

#include "query/plan.h"

typedef void query_getter(const struct query_world *world, const struct query_row *row,
                          const struct query_field *field, struct query_value *ret);

query_getter process_pid, process_program, process_user, process_uid, process_node, process_state,
    process_command, process_exe;

#define PROCESS_COLUMNS                                                                      \
    {"pid", "process id", QUERY_NUMBER, QUERY_SAME, .get = process_pid},                     \
        {"program", "name of the program, or of the script that it runs", QUERY_TEXT,        \
         .get = process_program},                                                            \
        {"user", "who owns the process", QUERY_TEXT, .get = process_user},                   \
        {"uid", "the same as a number", QUERY_NUMBER, QUERY_SAME, .get = process_uid},       \
        {"node", "name of the machine", QUERY_TEXT, .get = process_node},                    \
        {"state", "running, stopped, closed, exited, replaced or unknown", QUERY_TEXT,       \
         .get = process_state},                                                              \
        {"command", "the command line", QUERY_TEXT, .flags = QUERY_PRIVATE,                  \
         .get = process_command},                                                            \
    {                                                                                        \
        "exe", "path of the program", QUERY_TEXT, .flags = QUERY_PRIVATE, .get = process_exe \
    }

/* place.c: of an account, or of a space of a device. */
query_getter place_device, place_ordinal, place_space, place_text, place_kind;
enum { PLACE_NAME, PLACE_UID, PLACE_BUS };

#define DEVICE_COLUMNS(detail)                                                             \
    {"device", "number and name of the device, or host", QUERY_TEXT, .flags = detail,      \
     .get = place_device},                                                                 \
        {"ordinal",       "the number that programs use for the device",                   \
         QUERY_NUMBER,    QUERY_SAME,                                                      \
         .flags = detail, .get = place_ordinal},                                           \
        {"space", "kind of memory: dram, l1, cb, heap, ...", QUERY_TEXT, .flags = detail,  \
         .get = place_space},                                                              \
        {"device_name",   "name of the device alone", QUERY_TEXT,                          \
         .flags = detail, .arg = PLACE_NAME,          .get = place_text},                  \
        {"device_uid",     "what makes it the same device for all programs",               \
         QUERY_TEXT,       .flags = detail,                                                \
         .arg = PLACE_UID, .get = place_text},                                             \
        {"device_bus",     "PCI address of the device",                                    \
         QUERY_TEXT,       .flags = detail,                                                \
         .arg = PLACE_BUS, .get = place_text},                                             \
    {                                                                                      \
        "device_kind", "gpu, npu, fpga, simulated or other", QUERY_TEXT, .flags = detail,  \
                                                                         .get = place_kind \
    }

bool process_owner(const struct query_row *row, uint32_t *ret_uid);

/* Does it hold what its books say? Else it is gone, and sums would count memory that nobody has. */
bool process_lives(const struct query_row *row);

/* The number of the space with this name; 0 when there is none. */
uint32_t space_find(const char *name, size_t len);

/* "estimate" and "at least" of an account's figures. */
struct ledger_account;
uint8_t account_marks(const struct ledger_account *account);
