/* See chain_watch.h. */
#include "malloc/chain_watch.h"

#include "malloc/chain_walk.h"

const struct chain_watch *chain_watcher;

void chain_watch_begin(const struct chain_watch *watch)
{
    store_release(&chain_watcher, watch);
    mapped_may_all();
}

static int drop(void *user, struct memoir_chain *c, uint64_t *b, uint64_t header)
{
    const struct chain_watch *watch = user;
    struct chain_note note;
    if (header_is_live(header))
        watch->drop(block_payload(b), &note);
    return 0;
}

void chain_watch_drop_all(struct memoir_chain *c)
{
    const struct chain_watch *watch = chain_watch_of(c);
    const char *what;
    if (watch)
        chain_walk(c, drop, (void *)(uintptr_t)watch, &what);
}
