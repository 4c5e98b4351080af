/* elf_exports.h: where functions lie in an ELF file. The file may be anything: every read is bounded and checked. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observe/elf_image.h" /* elf_read_fn */

/* A driver has about a thousand; a user's own file that claims more may not keep the observer busy. */
enum { ELF_EXPORTS_SYMBOLS_MAX = 1 << 16, ELF_EXPORTS_STRINGS_MAX = 8 << 20 };

/* Of one process, a program may be large. */
enum { ELF_FUNCTIONS_SYMBOLS_MAX = 1 << 21, ELF_FUNCTIONS_STRINGS_MAX = 128 << 20 };

enum { ELF_FUNCTION_NAME_MAX = 1024 };

struct elf_function {
    const char *name;
    uint64_t offset, address; /* in the file; as the file numbers addresses */
    uint64_t bytes;           /* 0: not told */
    bool exported;            /* other files may use it */
    bool global;              /* not of one source file alone */
};
typedef void elf_function_fn(void *context, const struct elf_function *function);

/* Calls `each` for every function that a library exports. 0; -ENOEXEC: no 64-bit ELF library of this machine, or a damaged
 * one; other -errno from reading. */
int elf_exports(elf_read_fn *read, void *read_context, elf_function_fn *each, void *context);

/* The same for programs and libraries, with functions that are in the symbol table only. One function may come twice. */
int elf_functions(elf_read_fn *read, void *read_context, elf_function_fn *each, void *context);
