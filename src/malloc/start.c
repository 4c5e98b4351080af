/* start.c: what has to be done once the C library is there: settings, modes, fork handlers. */
#include <pthread.h>

#include "malloc/grind.h"
#include "malloc/harden.h"
#include "malloc/node.h"
#include "malloc/policy.h"
#include "malloc/pressure.h"
#include "malloc/settings.h"
#include "malloc/thread.h"

static bool begun;

/* What pthread_atfork() calls, which is linked into each library, far from here. NULL: this library is never unloaded. */
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *dso);

void start_modes(void)
{
    settings_read();
    if (!malloc_settings.read || begun)
        return;
    begun = true;
    /* As early as can be: handlers of others that are registered later run while we hold no lock. */
    __register_atfork(thread_fork_prepare, thread_fork_parent, thread_fork_child, NULL);
    node_begin();
    policy_begin();
    hard_begin();
    if (hard_level > 0 || grind_on)
        thread_modes |=
            MODE_HARDEN; /* a block has one record, and that is its: nothing is accounted */
    else if (malloc_settings.account)
        thread_modes |= MODE_ACCOUNT;
    heap_fast_set();
}

__attribute__((constructor)) static void start(void)
{
    start_modes();
    pressure_init();
}
