/* site.c: from return addresses to site numbers, with a small cache per thread. */
#include <errno.h>

#include "base/hash.h"
#include "client/client.h"

/* A cached site holds while the code at its addresses is the same: always, for modules loaded with
 * the program; else the loader is asked. */
static uint32_t cached(struct client_thread *t, uint64_t key, uint64_t identity,
                       struct site_cache_entry **ret_entry)
{
    struct site_cache_entry *entry = client_site_entry(t, key);
    *ret_entry = entry;
    return entry->key == key && entry->identity == identity ? entry->site : BOOK_SITE_NONE;
}

uint32_t client_site_slowly(struct client *c, struct client_thread *t, uint32_t account,
                            uintptr_t pc)
{
    if (c->stacks == CLIENT_STACKS_OFF)
        return BOOK_SITE_NONE;
    int saved = errno;
    struct site_cache_entry *entry;
    /* Sealed: what is loaded stays loaded, and to ask would take a system call. */
    uint64_t identity = c->writer.sealed ? 0 : unwind_identity(&c->unwind, pc);
    uint64_t key = client_site_key(account, pc);
    uint32_t site = cached(t, key, identity, &entry);
    if (site != BOOK_SITE_NONE)
        return site;
    site = book_site_add(&c->writer, &t->book, account, &pc, 1, BOOK_SITE_CALLER_ONLY);
    errno = saved;
    if (identity != UINT64_MAX)
        *entry = (struct site_cache_entry){key, identity, site};
    return site;
}

static size_t stack_take(struct client *c, struct client_thread *t,
                         const struct unwind_state *state, uintptr_t *pcs,
                         struct unwind_trace *trace)
{
    return script_stack(&c->writer, &t->book, &t->script, &c->python, &c->unwind, state, pcs,
                        BOOK_SITE_FRAMES_MAX, trace);
}

uint32_t client_stack_site(struct client *c, struct client_thread *t, uint32_t account,
                           const struct unwind_state *state)
{
    if (c->writer.sealed)
        return client_site(c, t, account, unwind_state_caller(state));
    uintptr_t pcs[BOOK_SITE_FRAMES_MAX];
    struct unwind_trace trace = {0};
    size_t n = stack_take(c, t, state, pcs, &trace);
    if (n == 0)
        return client_site(c, t, account, unwind_state_caller(state));
    uint64_t key = hash_bytes(pcs, n * sizeof(pcs[0]), account);
    struct site_cache_entry *entry;
    uint32_t site = cached(t, key, trace.identity, &entry);
    if (site != BOOK_SITE_NONE)
        return site;
    if (!python_ready(&c->python)) {
        /* A new stack, so perhaps the first of an interpreter. */
        python_find(&c->python, pcs, n);
        if (python_ready(&c->python))
            return client_stack_site(c, t, account, state);
    }
    site = book_site_add(&c->writer, &t->book, account, pcs, n,
                         trace.flags & UNWIND_CUT ? BOOK_SITE_CUT : 0);
    if (!(trace.flags & UNWIND_UNSTABLE))
        *entry = (struct site_cache_entry){key, trace.identity, site};
    return site;
}
