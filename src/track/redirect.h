/*
 * redirect.h: one allocator for the whole program, where the loader would give it two.
 *
 * Our library replaces malloc() because it comes before libc in the global scope. Two things go past that scope: a library that is
 * loaded with RTLD_DEEPBIND looks into its own dependencies first, and dlsym() with a handle into those of the handle. Both find the
 * functions of libc, while the rest of the program has ours, so a block of one allocator comes to the free() of the other.
 *
 * redirect_libc() makes libc's own names lead to us: it stores the addresses of our functions in the symbol table of libc, as it lies
 * in memory. All later look-ups in libc then find ours, and RTLD_DEEPBIND keeps its meaning for all other names. What was bound
 * before keeps its address, as do libc's internal names (__libc_malloc). Other namespaces (dlmopen) have a libc of their own, which
 * is not changed: they allocate and free there.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct module_object;

enum redirect {
    REDIRECT_DONE,   /* libc's names lead to us */
    REDIRECT_OTHERS, /* the program's malloc() is not ours: there is nothing to do */
    REDIRECT_FAILED, /* not possible here */
};

/* Once; later calls return the same. Any thread, not in a signal handler. Some microseconds, and the private pages of libc's symbol
 * table: for programs that need it, not for all. */
enum redirect redirect_libc(void);

/* Is it the name of a function that redirect_libc() may redirect? */
bool redirect_has(const char *name);

/* The module of libc (site/module.h); false if it cannot be found. */
bool redirect_libc_find(struct module_object *ret_libc);
