/* elf_exports.h: where exported functions lie in a library file. The file may be anything: every read is bounded and checked. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A driver has about a thousand; a user's own file that claims more may not keep the observer busy. */
enum { ELF_EXPORTS_SYMBOLS_MAX = 1 << 16, ELF_EXPORTS_STRINGS_MAX = 8 << 20 };

/* Calls `each` for every function that the file `fd` exports, with its offset in the file. 0; -ENOEXEC: no 64-bit ELF library
 * of this machine, or a damaged one; other -errno from reading. */
int elf_exports(int fd, void (*each)(void *context, const char *name, uint64_t offset),
                void *context);

/* Of one process, a program may be large. */
enum { ELF_FUNCTIONS_SYMBOLS_MAX = 1 << 21, ELF_FUNCTIONS_STRINGS_MAX = 128 << 20 };

struct elf_function {
    const char *name;
    uint64_t offset, address; /* in the file; as the file numbers addresses */
    uint64_t bytes;           /* 0: not told */
    bool exported;            /* other files may use it */
    bool global;              /* not of one source file alone */
};

/* The same for programs and libraries, with functions that are in the symbol table only. One function may come twice. */
int elf_functions(int fd, void (*each)(void *context, const struct elf_function *function),
                  void *context);
