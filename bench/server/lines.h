/* lines.h: the native protocol as a client writes it: reports in batches, one JSON object a line. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "wire.h"

enum { LINES_BATCH = 500 }; /* reports in one line */

/* Text that grows; zeroed is empty. */
struct lines {
    char *text;
    size_t len, room;
    unsigned in_line; /* reports of the line at the end, which is not closed yet */
};

void lines_alloc(struct lines *lines, uint64_t id, enum wire_space space, uint64_t size);
void lines_free(struct lines *lines, uint64_t id, enum wire_space space);

/* Close the last line. */
void lines_end(struct lines *lines);

/* Close, send all of it and begin anew. */
void lines_send(struct lines *lines, int fd);
void lines_release(struct lines *lines);

/* Declare the device that the Tenstorrent socket calls 0, as this connection's 0; and for libmemoir, which
 * gives it a number. */
void lines_begin(int fd);
int lines_device_of_libmemoir(void);

/* Wait until all that was sent is applied. Ends the program when an error comes instead. */
void lines_ping(int fd);

/* Totals of all processes on device 0. */
void lines_query(int fd, struct wire_totals *ret_totals);
