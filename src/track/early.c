/* early.c: see early.h. */
#include "track/early.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "book/lock.h"

enum { SPINS = 100, YIELDS = 1000, INDEX = 2048 };

/* Whoever makes the book holds the lock, and on a busy machine it may be long before he gets on with it. After that his
 * thread must be gone: then each further wait is half as long, so that nobody is slowed down for good. */
static const uint64_t patience_ns = 4000000000;
static uint32_t waits_in_vain;

struct early early;
static uintptr_t holder_frame; /* of the lock; 0 while it is being taken or given back */

void early_reset(struct book_trailer_key key, struct track_live inherited)
{
    memset(early.index, 0, sizeof(early.index));
    memset(early.site, 0, early.n_sites * sizeof(early.site[0]));
    early.key = key;
    early.inherited = inherited;
    early.begun_ns = clock_monotonic_coarse_ns();
    early.calls = early.bytes = early.reallocs = early.unknown_frees = early.reentries = 0;
    early.n_sites = 1;
    waits_in_vain = 0;
    holder_frame = 0;
}

bool early_lock(void)
{
    struct track_root *root = &track_page.root;
    uint64_t self = (uintptr_t)&track_self, held = 0, until_ns = 0;
    for (unsigned yields = 0;; yields++) {
        for (unsigned i = 0; i < SPINS; i++) {
            held = 0;
            if (cas_acquire(&root->lock, &held, self) ||
                (held == self && holder_frame && !track_under_way(holder_frame))) {
                holder_frame = (uintptr_t)__builtin_frame_address(0);
                fence_signal();
                return true;
            }
            if (held == self)
                return false;
            cpu_relax();
        }
        if (yields < YIELDS) {
            sched_yield();
            continue;
        }
        uint64_t now_ns = clock_monotonic_ns();
        if (until_ns == 0)
            until_ns = now_ns + (patience_ns >> load_relaxed(&waits_in_vain) % 64);
        if (now_ns >= until_ns)
            break;
        book_lock_rest(&root->lock, held);
    }
    if (load_relaxed(&waits_in_vain) < 63)
        fetch_add_relaxed(&waits_in_vain, 1);
    return false;
}

void early_unlock(void)
{
    holder_frame = 0;
    fence_signal();
    store_release(&track_page.root.lock, 0);
}

uint32_t early_site_of(uintptr_t caller)
{
    uint32_t at = (uint32_t)(caller * UINT64_C(0x9e3779b97f4a7c15) >> 53);
    for (;; at = (at + 1) % INDEX) {
        uint32_t number = early.index[at];
        if (number == 0)
            break;
        if (early.site[number].caller == caller)
            return number;
    }
    if (early.n_sites == EARLY_SITES)
        return BOOK_SITE_NONE;
    early.site[early.n_sites].caller = caller;
    early.index[at] = (uint16_t)early.n_sites;
    return early.n_sites++;
}

bool early_is_over(size_t bytes)
{
    return early.calls + 1 >= EARLY_CALLS || bytes >= EARLY_BYTES ||
           early.bytes + bytes >= EARLY_BYTES || track_settings.stacks == TRACK_STACKS_ALL ||
           track_settings.suspended ||
           (track_settings.keep_pid && track_settings.keep_pid == getpid());
}

void early_count_alloc(uint32_t site, size_t bytes)
{
    early.calls++;
    early.bytes += bytes;
    early.site[site].alloc_bytes += bytes;
    early.site[site].alloc_blocks++;
}

void early_count_free(uint32_t site, size_t bytes)
{
    if (site < early.n_sites) {
        early.site[site].freed_bytes += bytes;
        early.site[site].freed_blocks++;
    }
}

struct track_live early_live(void)
{
    struct track_live live = early.inherited;
    for (uint32_t i = 0; i < early.n_sites; i++) {
        live.bytes += early.site[i].alloc_bytes - early.site[i].freed_bytes;
        live.blocks += early.site[i].alloc_blocks - early.site[i].freed_blocks;
    }
    return live;
}

uint32_t early_time(void)
{
    uint64_t time = (clock_monotonic_coarse_ns() - early.begun_ns) >> BOOK_TRAILER_TIME_SHIFT;
    return time < BOOK_TRAILER_TIME_MAX ? (uint32_t)time : BOOK_TRAILER_TIME_MAX;
}
