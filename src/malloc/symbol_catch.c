/*
 * symbol_catch.c: dlsym() and dlvsym(), in the shared library alone, for a program that asks a library for libc's functions.
 *
 * dlsym(handle, "free") finds that of libc, by any handle of a library that needs libc: so ctypes in Python calls free() of blocks which
 * others allocated, and they are ours. Before the first such look-up libc's names are redirected (track/redirect.h). RTLD_DEFAULT and
 * RTLD_NEXT find ours anyway.
 */
#include <dlfcn.h>
#include <stddef.h>

#include "base/atomic.h"
#include "site/module.h"
#include "site/module_symbol.h"
#include "track/redirect.h"
#include "track/tail_call.h"

#ifdef DLFO_EH_SEGMENT_TYPE /* or module_object_find() finds nothing */

static uintptr_t next_dlsym, next_dlvsym;

static void *find_nothing(void)
{
    return NULL;
}

/* That of libc, since dlsym() cannot be asked. */
static uintptr_t next_find(const char *name)
{
    struct module_object libc;
    struct module_symbol symbol;
    if (redirect_libc_find(&libc) && module_symbol_find(&libc, name, &symbol) == 0)
        return symbol.addr;
    return (uintptr_t)find_nothing;
}

/* Handle and name are the first two arguments of both functions. */
static uintptr_t prepare(const uintptr_t arguments[3], uintptr_t *next, const char *function)
{
    void *handle = (void *)arguments[0];
    const char *name = (const char *)arguments[1];
    if (handle != RTLD_DEFAULT && handle != RTLD_NEXT && name && redirect_has(name))
        (void)redirect_libc();
    if (!load_relaxed(next))
        store_relaxed(next, next_find(function));
    return load_relaxed(next);
}

TAIL_CALL(dlsym, symbol_prepare);
uintptr_t symbol_prepare(uintptr_t arguments[3])
{
    return prepare(arguments, &next_dlsym, "dlsym");
}

TAIL_CALL(dlvsym, symbol_version_prepare);
uintptr_t symbol_version_prepare(uintptr_t arguments[3])
{
    return prepare(arguments, &next_dlvsym, "dlvsym");
}

#endif
