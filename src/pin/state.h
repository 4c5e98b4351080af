/*
 * state.h: the file in which a process shows what is pinned, and why.
 *
 * A shared mapping beside the book of the process, named pin-PID, made when the process first
 * copies served memory. The library stores into it what it decided; `memoir pin explain` and
 * memoird read it. A child of fork does not have the mapping and makes a file of its own. Readers
 * trust nothing in it (state_read.h).
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#define PIN_STATE_MAGIC   UINT64_C(0x314e49504d454d00) /* "\0MEMPIN1" */
#define PIN_STATE_VERSION 3
#define PIN_STATE_PREFIX  "pin-"

enum {
    PIN_STATE_BLOCKS = 4096,
    PIN_STATE_SITES = 1024,
    PIN_STATE_MODULES = 256,
    PIN_STATE_FRAMES = 12,
    PIN_STATE_PATH = 224,
    PIN_STATE_SCRIPT = 128,
};

struct pin_state_block {
    uint64_t address; /* 0: none here */
    uint64_t bytes, registered_bytes;
    uint64_t copies[2];
    uint64_t worth_ns, missed_ns, saved_ns, cost_ns;
    uint32_t site;  /* number in `sites`; 0: none */
    uint8_t reason; /* enum pin_reason */
    uint8_t pinned;
    uint8_t unused[2];
};
static_assert(sizeof(struct pin_state_block) == 80, "read by other programs");

struct pin_state_site {
    uint64_t key; /* 0: none here */
    uint64_t blocks, bytes, live_bytes, pinned_bytes;
    uint64_t copies[2], copied_bytes[2];
    uint64_t worth_ns_mib, missed_ns, saved_ns, cost_ns, promotions, wasted;
    int64_t credit_ns;
    uint32_t n_frames, unused;
    struct {
        uint64_t offset;
        uint32_t module, unused;
    } frame[PIN_STATE_FRAMES];
    char script[PIN_STATE_SCRIPT]; /* "train.py:41 load_batch"; "": no Python */
};
static_assert(sizeof(struct pin_state_site) == 136 + 16 * 12 + 128, "read by other programs");

struct pin_state_module {
    char path[PIN_STATE_PATH];
    uint8_t build_id[20];
    uint32_t build_id_len;
};
static_assert(sizeof(struct pin_state_module) == 248, "read by other programs");

struct pin_state {
    uint64_t magic; /* stored last */
    uint32_t version, bytes;
    int32_t pid;
    uint32_t mode;                   /* enum pin_mode */
    uint64_t started_ns, updated_ns; /* CLOCK_REALTIME */
    uint64_t budget_bytes, headroom_bytes, price_ns_mib;
    uint64_t registered_bytes, registered_peak, idle_bytes, warm_bytes, own_bytes;
    uint64_t live_bytes, live_blocks, live_peak, served, served_bytes;
    uint64_t copies[2], copied_bytes[2], pinned_copies, pinned_bytes, other_copies, other_bytes;
    uint64_t missed_ns, saved_ns, cost_ns;
    uint64_t registers, unregisters, register_ns, unregister_ns;
    uint64_t promotions, evictions, denied, failures, unregister_failed, pool_hits, waits;
    uint64_t forks, taken_over, lock_lost, bad_frees, unwrapped, not_shown;
    uint64_t checked_copies, checked_bytes, mismatches, checksum;
    uint64_t staged_copies, staged_bytes, staged_saved_ns, stage_busy, stage_failed;
    uint64_t touched_bytes, touched_blocks, touch_stopped;
    int64_t observed_ns; /* mode shadow: measured instead of calibrated, see memoir/pin.h */
    uint32_t calibrated, n_sites, n_modules, unused;
    struct pin_state_module module[PIN_STATE_MODULES];
    struct pin_state_site site[PIN_STATE_SITES];
    struct pin_state_block block[PIN_STATE_BLOCKS];
};

struct extent;

/* Show a block as it is now; hold the manager's lock. Makes the file at the first copy. */
void pin_state_block(const struct extent *extent);
void pin_state_gone(const struct extent *extent);
/* Copy all figures into the file, and remove it if `end`. */
void pin_state_flush(bool end);
/* In a child: the file is the parent's. */
void pin_state_forget(void);
