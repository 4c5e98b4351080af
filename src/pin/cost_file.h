/*
 * cost_file.h: calibrations on disk, one file for each GPU and driver.
 *
 * Text: a version, the machine, and a line for each table. Found in $MEMOIR_PIN_CACHE, else in
 * $XDG_CACHE_HOME/memoir or ~/.cache/memoir, or in /var/lib/memoir, where an administrator may put
 * one for all users. What is read is validated whole, and an invalid file counts as none. Without
 * malloc or stdio.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pin/cost.h"

struct cost_machine {
    unsigned char uuid[16];
    uint64_t driver; /* cost_file_driver() */
};

enum { COST_FILE_MAX = 8192 };
#define COST_FILE_HEAD "memoir-pin-cost 3\n" /* the first line: format and version */

/* A number for the driver: of its interface's version and, where it can be read, of the text that
 * names its release. */
uint64_t cost_file_driver(uint64_t version);

bool cost_file_load(const struct cost_machine *machine, struct pin_cost *ret);
/* 0 or -errno; the path in `ret_path` (NULL is fine). */
int cost_file_save(const struct cost_machine *machine, const struct pin_cost *cost, char *ret_path,
                   size_t path_size);

/* Between text and figures. The length of the text, or 0 if it does not fit; false: not of this
 * machine, or invalid. */
size_t cost_file_format(const struct cost_machine *machine, const struct pin_cost *cost, char *text,
                        size_t size);
bool cost_file_parse(const struct cost_machine *machine, const char *text, size_t n,
                     struct pin_cost *ret);
