/* Strings of CPython: where their characters are, and the characters as UTF-8.
 *
 * Plain functions over bytes that are known to be readable: in the process itself, or copied from another one. Async-signal-safe. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "site/python_layout.h"

/* In the state of a string. */
enum {
    PYTHON_TEXT_KIND_SHIFT = 2, /* bytes of a character */
    PYTHON_TEXT_KIND_MASK = 7,
    PYTHON_TEXT_ASCII = 1u << 6,
};

/* The characters of a str object. */
struct python_text {
    uintptr_t chars;
    size_t length;
    unsigned width; /* bytes of a character: 1, 2 or 4 */
};

/* From the state and the length of a str object: all but the address of its characters, which begin *ret_start bytes into it.
 * False if they are elsewhere or make no sense. */
bool python_text_shape(const struct python_layout *layout, uint32_t state, size_t length,
                       struct python_text *ret_text, size_t *ret_start);

/* As many characters as fit, from the front or from the end. True: some do not. */
bool python_text_copy(const struct python_text *text, char *out, size_t size, bool from_end);
