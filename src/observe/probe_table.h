/* probe_table.h: which functions of which libraries are probed, and what their arguments mean.
 *
 * A table is data: another driver is another table. Functions of all tables share one range of
 * numbers, which travel as the cookies of probes and as `function` in events; number 0 is none.
 * Names that a library does not export are left out when probes are attached, so one table
 * serves all versions of a driver: a changed signature has a name of its own there. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observe/wire.h"

struct probe_function {
    const char *name; /* of the symbol */
    const char *
        twins; /* further suffixes with the same arguments, separated by blanks: "_ptds"; or NULL */
    struct wire_function wire;
};

struct probe_table {
    const char *title;                      /* "CUDA" */
    const char *library;                    /* begin of the file's name: "libcuda.so" */
    uint32_t device_kind;                   /* enum memoir_device_kind */
    int32_t out_of_memory;                  /* the result that means it */
    const struct probe_function *functions; /* ended by a row without name */
};

extern const struct probe_table probe_table_cuda;

/* All of them, ended by NULL. */
extern const struct probe_table *const probe_tables[];

/* One probed symbol. */
struct probe_symbol {
    const char *name; /* with its suffix: good until the next call with the same buffer */
    const struct probe_function *function;
    uint32_t number; /* from 1 */
};

enum { PROBE_NAME_MAX = 64 };

/* Calls `each` for every symbol of a table, twins included, until it returns other than 0;
 * returns that. */
int probe_table_each(const struct probe_table *table,
                     int (*each)(void *context, const struct probe_symbol *symbol), void *context);

/* The row of a function; NULL for a number that is none. O(1). */
const struct probe_function *probe_function_get(uint32_t number);

/* How a function is called, for people; NULL for a number that is none. */
const char *probe_function_name(uint32_t number);
const struct probe_table *probe_function_table(uint32_t number);

/* Is this the file name of a library that there is a table for? */
const struct probe_table *probe_table_for(const char *file_name);
