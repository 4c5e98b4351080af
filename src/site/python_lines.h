/* From an instruction to its line: the three tables that CPython has used since 3.8.
 *
 * Plain functions over bytes. Whatever the bytes are, nothing outside [table, table + len) is read and the
 * work is bounded by `len`. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The line of the instruction `at` (in bytes of code; before the first: negative). `kind` is enum
 * python_lines. Instructions without a line have the last line before them; without a table the answer is
 * `first_line`. *ret_used is how many bytes of the table were looked at: the line is a function of these,
 * of first_line and of `at` alone. */
uint32_t python_line(unsigned kind, const uint8_t *table, size_t len, int64_t at,
                     uint32_t first_line, size_t *ret_used);
