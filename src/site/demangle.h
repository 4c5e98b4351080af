/* Readable names: C++ (Itanium) and Rust (legacy and v0).
 *
 * libiberty does it: it is C, it knows all three, and its callback interface allocates nothing, so a
 * name that would expand without end (a few kilobytes can) is cut off. libstdc++ would bring a C++
 * runtime for one of the three. */
#pragma once

#include <stddef.h>

enum {
    DEMANGLE_INPUT_MAX = 8192,
    DEMANGLE_OUTPUT_MAX = 4096, /* longer ones end in "..." */
};

/* Write the readable form of `name` to `out` (at least 2 bytes), without the version that tables of symbols add
 * ("fopen@@GLIBC_2.2.5"). Returns its length, or 0 if the name has no version and is not mangled (or not validly
 * so): then show it as it is. */
size_t demangle(const char *name, char *out, size_t size);
