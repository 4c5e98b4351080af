/* Sizes and durations as people write and read them.
 *
 * Printed sizes are decimal, as the rest of the industry labels them: "25.5 MB" is 25,500,000 bytes.
 * UNITS_BINARY prints "24.3 MiB". Read sizes follow GNU tools: K, M, G, T, P, E and KiB, MiB, ... are
 * powers of 1024; kB, MB, ... are powers of 1000. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Enough for anything the format functions print, terminator included. */
#define UNITS_TEXT_MAX 32

enum units_style {
    UNITS_DECIMAL, /* kB = 1000 */
    UNITS_BINARY,  /* KiB = 1024 */
};

/* "0 B", "999 B", "1.0 kB", "25.5 MB"; rounded half up, exact for every uint64_t. Returns `text`. */
const char *units_format_bytes(char text[static UNITS_TEXT_MAX], uint64_t bytes,
                               enum units_style style);

/* "0", "999", "1,204", "12,345,678". Returns `text`. */
const char *units_format_count(char text[static UNITS_TEXT_MAX], uint64_t n);

/* Two figures at most: "850 ns", "3.2 ms", "3.2 s", "4m12s", "5h", "2d3h". Returns `text`. */
const char *units_format_duration(char text[static UNITS_TEXT_MAX], uint64_t ns);

/* "64K", "25.5MB", "1 GiB", "4096". A fraction of a byte is dropped. -EINVAL when it is not a size,
 * -ERANGE when it does not fit. */
int units_parse_bytes(const char *text, uint64_t *ret_bytes);

/* "10s", "1.5h", "1h30m", "250ms", "7d"; units ns us ms s m (or min) h d w. A number without a unit is
 * refused, because nobody can tell which was meant; "0" is fine. -EINVAL, -ERANGE. */
int units_parse_duration(const char *text, uint64_t *ret_ns);
