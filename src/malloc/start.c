/*
 * start.c: what has to be done once, as soon as there is an environment: settings and modes. Every program pays for what is done here, so
 * where nothing is set it is one system call, and touches neither memory that nobody else does nor the C library. The rest waits for the
 * first heap (heap_borrow).
 */
#include <sys/single_threaded.h>

#include "malloc/account.h"
#include "malloc/account_chain.h"
#include "malloc/atfork.h"
#include "malloc/grind.h"
#include "malloc/harden.h"
#include "malloc/lock.h"
#include "malloc/node.h"
#include "malloc/nursery.h"
#include "malloc/policy.h"
#include "malloc/pressure.h"
#include "malloc/range.h"
#include "malloc/settings.h"
#include "malloc/thread.h"

__attribute__((section(".text.startup"))) void start_modes(void)
{
    settings_read();
    if (!malloc_settings.read || malloc_settings.begun)
        return;
    malloc_settings.begun = true;
    node_begin();
    if (malloc_settings.given) {
        range_begin();
        policy_begin();
    }
    hard_begin();
    if (hard_level > 0 || grind_on) {
        thread_modes |=
            MODE_HARDEN; /* a block has one record, and that is its: nothing is accounted */
    } else if (malloc_settings.account) {
        heap_empty(&heap_accounted);
        (void)lock_process(); /* sandbox.c asks whose book it would make */
        account_begin();
        thread_modes |= MODE_ACCOUNT;
        account_chain_begin();
    }
    if (thread_modes != 0)
        nursery_close();
    heap_fast_set();
}

__attribute__((constructor)) static void start(void)
{
    atfork_watch();
    start_modes();
    pressure_init();
    if (heap_all && !__libc_single_threaded)
        atfork_begin(); /* somebody was here before us */
}
