/*
 * open.c: dlopen() and dlmopen(), for libraries that are loaded with RTLD_DEEPBIND, as PHP's extensions are.
 *
 * Such a library would have libc's malloc() beside the program's, which is ours: see redirect.h. Where libc's names cannot be
 * redirected the flag is dropped: the library then binds as others do. Nothing happens without the flag.
 */
#include <dlfcn.h>
#include <stddef.h>

#include "base/atomic.h"
#include "track/open.h"
#include "track/redirect.h"
#include "track/tail_call.h"

uint32_t open_globals;
static void *next_dlopen, *next_dlmopen;

static void *open_nothing(void)
{
    return NULL;
}

static uintptr_t next_of(void **next, const char *name)
{
    if (!load_relaxed(next)) {
        void *found = dlsym(RTLD_NEXT, name);
        store_relaxed(next, found ? found : (void *)open_nothing);
    }
    return (uintptr_t)load_relaxed(next);
}

static void mode_prepare(uintptr_t *mode)
{
    if (*mode & RTLD_GLOBAL)
        fetch_add_relaxed(&open_globals, 1);
    if ((*mode & RTLD_DEEPBIND) && redirect_libc() == REDIRECT_FAILED)
        *mode &= ~(uintptr_t)RTLD_DEEPBIND;
}

TAIL_CALL(dlopen, open_prepare);
uintptr_t open_prepare(uintptr_t arguments[3])
{
    mode_prepare(&arguments[1]);
    return next_of(&next_dlopen, "dlopen");
}

/* Another namespace has no library of ours, and a libc of its own. */
TAIL_CALL(dlmopen, open_space_prepare);
uintptr_t open_space_prepare(uintptr_t arguments[3])
{
    if ((Lmid_t)arguments[0] == LM_ID_BASE)
        mode_prepare(&arguments[2]);
    return next_of(&next_dlmopen, "dlmopen");
}
