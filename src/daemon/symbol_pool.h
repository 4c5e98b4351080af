/* Symbolizers for several threads. A symbolizer belongs to one thread at a time, and its worker reads files of one user: so each thread
 * that names call sites holds one, and gives it back when it has no more questions for the moment. There are never more than threads
 * that held one at the same time. One whose last questions were about the same user is preferred, since it knows answers. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct daemon;
struct symbol_pool;
struct symbolizer;

enum {
    SYMBOL_POOL_MAX = 8,      /* symbolizers of a pool */
    SYMBOL_POOL_RETRY_S = 60, /* after one could not be started, none is tried for so long */
};

/* How each of them is made: time for one answer of its worker, and bytes of answers that are kept. Borrows `daemon`, which opens files and
 * starts workers as symbol_hosting() says where it is root's. */
int symbol_pool_new(struct daemon *daemon, unsigned timeout_ms, size_t results_bytes_max,
                    struct symbol_pool **ret_pool);
void symbol_pool_free(struct symbol_pool *pool); /* NULL is fine; no thread holds one any more */

/* Any thread: its symbolizer, until symbol_pool_rest(), made when it is first needed. From now on it opens files with the rights of
 * `owner`, or none for SYMBOL_OWNER_NONE. NULL: it cannot be had, which is logged. */
struct symbolizer *symbol_pool_get(struct symbol_pool *pool, uint32_t owner);

/* Give it back; no effect where this thread holds none. NULL is fine. */
void symbol_pool_rest(struct symbol_pool *pool);
