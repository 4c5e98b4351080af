/* Can a library be preloaded into this program? Told from the bytes of its file, which are a stranger's:
 * every length and offset is checked, and nothing is read but the head of the file, its program headers, the
 * name of its loader, its notes, and the names of the libraries that it needs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum {
    ELF_PROGRAM_LOADER_MAX = 256,
    ELF_PROGRAM_DEPTH_MAX = 5, /* scripts whose interpreter is a script, as the kernel has it */
};

enum elf_program_kind {
    ELF_PROGRAM_DYNAMIC,   /* a library of ours can be preloaded */
    ELF_PROGRAM_STATIC,    /* has no dynamic loader */
    ELF_PROGRAM_GO,        /* the same, made by Go: its memory is not malloc's either */
    ELF_PROGRAM_CLASS,     /* 32-bit where we are 64-bit, or the other way */
    ELF_PROGRAM_MACHINE,   /* of another processor */
    ELF_PROGRAM_LIBC,      /* its loader is another C library's (musl) */
    ELF_PROGRAM_SANITIZED, /* made with -fsanitize, its runtime a library: that has to come first */
    ELF_PROGRAM_SETID,     /* set-uid or set-gid for somebody else, */
    ELF_PROGRAM_CAPABLE,   /* or with file capabilities: the loader preloads nothing */
    ELF_PROGRAM_NEITHER,   /* neither ELF nor script: the kernel will say what it thinks of it */
    ELF_PROGRAM_NO_ACCESS  /* we may not read it, so nobody knows */
};

/* Fits what elf_program_kind says: "it is linked statically", small first letter, no full stop. NULL for
 * ELF_PROGRAM_DYNAMIC. */
const char *elf_program_why_not(enum elf_program_kind kind);

/* May LD_PRELOAD be set for it and its children? Where the loader would complain about our library or fail over
 * it, no. */
bool elf_program_takes_preload(enum elf_program_kind kind);

/* The kind of the bytes behind `fd`, which is not moved; its owner and mode are not looked at. A script is
 * ELF_PROGRAM_NEITHER with its interpreter in `ret_interpreter` ("" otherwise). */
enum elf_program_kind elf_program_read(int fd, char ret_interpreter[static ELF_PROGRAM_LOADER_MAX]);

/* The kind of the program at `path`, or of the interpreter that will run it. */
enum elf_program_kind elf_program_inspect(const char *path);

/* Does the program, or the interpreter that will run it, need a library that is an allocator? Then it may call more of
 * it than malloc() and free(). */
bool elf_program_has_allocator(const char *path);
extern const char *const elf_program_allocators[]; /* how their names begin, NULL at the end */

/* Where execvp() would find `name`: a path in `ret_path`, or -errno. */
int elf_program_find(const char *name, const char *search, char *ret_path, size_t size);
