/* Whose code a line is. One place decides for every view which line of a stack is the program's own, and so the headline of a
 * call site: the line that the developer of the program would name.
 *
 * The decision is by names alone (paths of modules and source files, functions) and costs a few string comparisons. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* From the best headline to the worst. */
enum own_kind {
    OWN_CODE,      /* the program's own */
    OWN_WRAPPER,   /* the program's own, but it only forwards to the allocator: xmalloc */
    OWN_LIBRARY,   /* of a library that the system or a package manager installed */
    OWN_STANDARD,  /* standard libraries of C, C++, Rust, Go; inside of an interpreter */
    OWN_ALLOCATOR, /* of those, functions that only forward to the allocator: os::malloc */
};

/* One line of a stack. Strings are untrusted; NULL or "" where not known. */
struct own_line {
    const char *module; /* path of the ELF file */
    const char *function, *file;
    bool script; /* a line of a script, in `file` */
    bool code;   /* no file, but code made at run time whose function is known */
};

enum own_kind own_kind(const struct own_line *line);

/* Which of the calls compiled into each other at one address speaks for it, given the kinds of all, innermost first: the
 * innermost of the program's own code; where there is none, the outermost of the best kind, since what it calls is its inside. */
size_t own_choose(const enum own_kind *kinds, size_t n);

/* Is a frame further out a better headline of its stack than the best one so far? Frames are looked at from the innermost
 * outwards. A line of a script comes before native code of the same kind inside of it: extension modules work for the script. */
static inline bool own_is_better(enum own_kind best, bool best_script, enum own_kind kind,
                                 bool script)
{
    return kind != best ? kind < best : script && !best_script;
}

/* By the path of the module alone. False: none of its lines can be OWN_CODE, so names need not be looked up to choose. */
bool own_module(const char *path);

/* A function that is known to forward to the allocator, by its name. */
bool own_is_wrapper(const char *function);
