/* See chain_default.h. */
#include "malloc/chain_default.h"

static __thread struct memoir_chain *current;

/* Threads are told apart by where this lies: no two living ones share it, and whoever gets the
 * place of a thread that ended may as well own what that one owned. */
const void *chain_thread(void)
{
    return &current;
}

struct memoir_chain *chain_default_suspend(void)
{
    struct memoir_chain *outer = current;
    current = NULL;
    return outer;
}

void chain_default_resume(struct memoir_chain *chain)
{
    current = chain;
}
