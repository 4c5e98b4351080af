/*
 * chain_default.h: the chain that serves a thread's malloc().
 */
#pragma once

#include "malloc/chain.h"

/* No default for a while, and as before again: around calls of code that is not ours. */
struct memoir_chain *chain_default_suspend(void);
void chain_default_resume(struct memoir_chain *chain);
