/*
 * account_chain.h: blocks of user chains in the book, where the process is accounted.
 *
 * They lie in memory of the program's own, and shall lie there as they do without accounting: so what is known of them is in the book's
 * table of blocks, by their addresses, in an account of its own (MEMOIR_SPACE_CHAIN). Their buffer may be the heap's and count there, too.
 */
#pragma once

/* From start_modes(), where blocks are to be accounted. */
void account_chain_begin(void);
