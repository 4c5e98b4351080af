/* atfork.c: see atfork.h. */
#include "malloc/atfork.h"

#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"
#include "malloc/thread.h"

static uint32_t registered;

/* Do others find ours? */
static bool is_first(void)
{
    return atfork_catch && __register_atfork == atfork_catch;
}

__attribute__((section(".text.startup"))) void atfork_watch(void)
{
    if (!is_first() || !atfork_aside())
        atfork_begin();
}

/* NULL for the library: this one is never unloaded. */
void atfork_begin(void)
{
    uint32_t none = 0;
    if (load_relaxed(&registered) || !cas_relaxed(&registered, &none, 1))
        return;
    atfork_register *add = is_first() ? atfork_aside() : NULL;
    if (!add)
        add = __register_atfork; /* ours finds the C library's */
    add(thread_fork_prepare, thread_fork_parent, thread_fork_child, NULL);
}
