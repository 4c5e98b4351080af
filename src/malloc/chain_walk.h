/*
 * chain_walk.h: walks over all blocks: checking, mending, counting. Under the chain's lock.
 */
#pragma once

#include "malloc/chain.h"

/* Call visit() for each block, which must not change any. Stops at other than 0 and gives that.
 * -EUCLEAN and *ret_what when the headers do not lead from the start to the end of each region. */
typedef int chain_visit(void *user, struct memoir_chain *c, uint64_t *b, uint64_t header);
int chain_walk(struct memoir_chain *c, chain_visit *visit, void *user, const char **ret_what);

/* Compare all that is stored twice. 0, or -EUCLEAN and *ret_what. */
int chain_verify(struct memoir_chain *c, const char **ret_what);

/* Make everything anew that follows from the headers. -EUCLEAN: they are wrong; nothing was changed
 * then. May be torn at any store and begun again. */
int chain_rebuild(struct memoir_chain *c);

/* As if no block had ever been allocated; regions stay. */
int chain_clear(struct memoir_chain *c);
