/* public.c: memoir/pin.h. */
#undef MEMOIR_API
#include <memoir/pin.h>

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "pin/book.h"
#include "pin/calibrate.h"
#include "pin/history.h"
#include "pin/manager.h"
#include "pin/next.h"
#include "pin/reason.h"
#include "pin/state.h"

enum { SERVED_MIN = 64 << 10 };

/* Smaller requests than those of malloc() that are served, because the program asked for it. */
static void *allocate(size_t bytes, const struct unwind_state *from)
{
    return bytes >= SERVED_MIN ? pin_allocate_any(bytes, 1, false, from) : NULL;
}

void *memoir_pin_alloc(size_t bytes)
{
    struct unwind_state from = UNWIND_STATE_CALLER();
    void *block = allocate(bytes, &from);
    return block ? block : pin_next_find() ? pin_next.malloc(bytes) : NULL;
}

void memoir_pin_free(void *block)
{
    if (pin_owns(block))
        pin_release(block);
    else if (block && pin_next_find())
        pin_next.free(block);
}

void *memoir_pin_realloc(void *block, size_t bytes)
{
    struct unwind_state from = UNWIND_STATE_CALLER();
    if (!block)
        return memoir_pin_alloc(bytes);
    if (pin_owns(block))
        return pin_reallocate(block, bytes, &from);
    return pin_next_find() ? pin_next.realloc(block, bytes) : NULL;
}

int memoir_pin_hint(void *block, int hint)
{
    return hint < MEMOIR_PIN_COLD || hint > MEMOIR_PIN_HOT ? -EINVAL : pin_hint(block, hint);
}

/* Structures that start with their size may be shorter or longer than ours. */
static int give(void *to, size_t size, const void *from, size_t whole)
{
    if (size < sizeof(size_t) || size > 4096)
        return -EINVAL;
    memcpy((char *)to + sizeof(size_t), (const char *)from + sizeof(size_t),
           (size < whole ? size : whole) - sizeof(size_t));
    return 0;
}

int memoir_pin_why(const void *block, struct memoir_pin_why *ret)
{
    struct memoir_pin_why why = {0};
    const struct extent *e = pin_owns(block) ? region_find(&pin_manager.region, block) : NULL;
    if (!ret)
        return -EINVAL;
    if (!e || !e->size || !pin_lock())
        return -ENOENT;
    const struct pin_account *a = &e->account;
    why.pinned = e->registered_bytes > 0 && pin_settings.mode != PIN_SHADOW;
    why.reason = a->reason;
    why.copies = a->copies[0] + a->copies[1];
    why.missed_ns = a->missed_ns;
    why.saved_ns = a->saved_ns;
    why.cost_ns = a->cost_ns;
    pin_unlock();
    strncpy(why.text, pin_reason_text((enum pin_reason)why.reason), sizeof(why.text) - 1);
    return give(ret, ret->struct_size, &why, sizeof(why));
}

int memoir_pin_stats(struct memoir_pin_stats *ret)
{
    const struct pin_manager *m = &pin_manager;
    const struct pin_counts *c = &m->counts;
    if (!ret)
        return -EINVAL;
    bool locked = pin_lock();
    struct memoir_pin_stats stats = {
        .mode = (int)pin_settings.mode,
        .calibrated = m->calibrated,
        .live_bytes = m->region.live_bytes,
        .live_blocks = m->region.live_blocks,
        .served_bytes = c->served_bytes,
        .served_blocks = c->served,
        .pinned_bytes = c->registered_bytes,
        .pinned_bytes_peak = c->registered_bytes_peak,
        .idle_bytes = m->region.idle_bytes,
        .own_bytes = pin_book_own_bytes(),
        .budget_bytes = c->budget_bytes,
        .copies = c->copies[0] + c->copies[1],
        .copied_bytes = c->copied_bytes[0] + c->copied_bytes[1],
        .pinned_copies = c->pinned_copies,
        .pinned_copied_bytes = c->pinned_copied_bytes,
        .missed_ns = m->policy.missed_ns,
        .saved_ns = m->policy.saved_ns,
        .cost_ns = c->pinning_ns,
        .registers = c->registers,
        .unregisters = c->unregisters,
        .failures = c->register_failed + c->unregister_failed,
        .evictions = m->policy.evictions,
        .denied = m->policy.denied,
        .pool_hits = c->pool_hits,
        .mismatches = c->mismatches,
        .staged_copies = c->staged_copies,
        .staged_bytes = c->staged_bytes,
        .staged_saved_ns = m->policy.staged_saved_ns,
        .touched_bytes = c->touched_bytes,
        .register_ns = c->register_ns,
        .unregister_ns = c->unregister_ns,
        .observed_ns = m->policy.observed_ns,
    };
    if (locked)
        pin_unlock();
    return give(ret, ret->struct_size, &stats, sizeof(stats));
}

void memoir_pin_budget(uint64_t bytes)
{
    pin_settings.budget_bytes = bytes;
    if (pin_ready() && pin_lock()) {
        pin_manager.headroom_at_ns = 0;
        /* What is registered may have to go; else the next copy is early enough. */
        if (pin_manager.counts.registered_bytes)
            pin_budget_refresh(pin_now_ns());
        pin_unlock();
    }
}

int memoir_pin_save(const char *path)
{
    if (!pin_ready())
        return -EOPNOTSUPP;
    return pin_history_save(path ? path : pin_settings.history);
}

int memoir_pin_calibrate(char *ret_path, size_t path_size)
{
    struct pin_cost cost;
    if (ret_path && path_size)
        *ret_path = '\0';
    return pin_calibrate_now(&cost, ret_path, path_size);
}

/* ---- the end ---- */

__attribute__((destructor)) static void end(void)
{
    int saved = errno;
    if (load_relaxed(&pin_manager.on)) {
        if (pin_settings.mode != PIN_USE && !pin_manager.dead)
            (void)pin_history_save(pin_settings.history);
        pin_state_flush(!pin_settings.keep);
    }
    errno = saved;
}
