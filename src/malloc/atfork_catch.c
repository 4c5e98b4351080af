/* atfork_catch.c: whoever registers fork handlers comes by here: see atfork.h. */
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

#include "malloc/atfork.h"
#include "malloc/entry.h"

/* Never called from inside malloc, but where there is no other way and the program starts: the loader's lock may be held by somebody
 * who waits for us. */
EXPORT int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                             void *library)
{
    atfork_register *next = NULL;
    atfork_begin();
    *(void **)&next = dlsym(RTLD_NEXT, "__register_atfork");
    return next ? next(prepare, parent, child, library) : ENOMEM;
}

/* The compiler's files have it, which are left out (meson.build): the library that handlers are forgotten with. Ours is never unloaded. */
extern void *const __dso_handle;
void *const __dso_handle __attribute__((visibility("hidden"))) = NULL;

int atfork_catch(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *library)
    __attribute__((alias("__register_atfork")));

#if defined(__x86_64__)
/* The C library's own pthread_atfork(), which only programs from before 2002 still call. */
int atfork_old(void (*prepare)(void), void (*parent)(void), void (*child)(void))
    __attribute__((weak));
__asm__(".symver atfork_old, pthread_atfork@GLIBC_2.2.5");

static int register_old(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                        void *library)
{
    return atfork_old(prepare, parent, child);
}

__attribute__((section(".text.startup"))) atfork_register *atfork_aside(void)
{
    return atfork_old ? register_old : NULL;
}
#else
atfork_register *atfork_aside(void)
{
    return NULL;
}
#endif
