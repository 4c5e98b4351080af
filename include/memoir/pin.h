/*
 * pin.h: host memory that is pinned when that pays.
 *
 * Link with -lmemoir-cuda, or run an unchanged program by `memoir pin run`. The library serves
 * large allocations from memory of its own, watches how they are copied to and from CUDA devices,
 * and registers (pins) those whose copies have cost as much as registering them. doc/pinning.md
 * describes the policy. CUDA itself is not needed to link, nor at run time: without it, this is an
 * ordinary allocator.
 *
 *     float *batch = memoir_pin_alloc(bytes);
 *     memoir_pin_hint(batch, MEMOIR_PIN_HOT);      // optional: pin it at its first copy
 *     cudaMemcpy(device, batch, bytes, cudaMemcpyHostToDevice);
 *     memoir_pin_free(batch);
 *
 * All functions may be called by any thread. None prints or ends the program. A copy of such
 * memory means what it means for memory of malloc(), whether it is pinned or not: when
 * cudaMemcpyAsync() returns, the source may be changed. Programs that wait for their copies
 * themselves set MEMOIR_PIN_ASYNC=1 and get asynchronous copies.
 *
 * In the environment: MEMOIR_PIN=auto|use|profile|shadow|off, MEMOIR_PIN_BUDGET=BYTES|unlimited,
 * MEMOIR_PIN_THRESHOLD=BYTES, MEMOIR_PIN_HISTORY=FILE; MEMOIR_OFF=1 switches everything off.
 */
#ifndef MEMOIR_PIN_H
#define MEMOIR_PIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef MEMOIR_API
#define MEMOIR_API __attribute__((visibility("default")))
#endif

enum memoir_pin_mode {
    MEMOIR_PIN_AUTO = 0,    /* learns while the program runs */
    MEMOIR_PIN_USE = 1,     /* decides by a saved history alone */
    MEMOIR_PIN_PROFILE = 2, /* pins everything, and records */
    MEMOIR_PIN_SHADOW = 3,  /* pins nothing, and reports what `auto` would have done */
    MEMOIR_PIN_OFF = 4,
};

enum memoir_pin_hint {
    MEMOIR_PIN_COLD = -1, /* never pin it */
    MEMOIR_PIN_NO_HINT = 0,
    MEMOIR_PIN_HOT = 1, /* pin it at its first copy */
};

/* As malloc(), free() and realloc(). Requests below 64 KiB are served by malloc(). A block may also
 * be given to free() where the library is linked or preloaded. */
MEMOIR_API void *memoir_pin_alloc(size_t bytes);
MEMOIR_API void memoir_pin_free(void *block);
MEMOIR_API void *memoir_pin_realloc(void *block, size_t bytes);

/* What the program knows about a block. 0; -ENOENT: not a block of this library; -EINVAL. */
MEMOIR_API int memoir_pin_hint(void *block, int hint);

/* Why a block is pinned or not. */
struct memoir_pin_why {
    size_t struct_size; /* set it: only what fits is stored */
    int pinned;         /* 0 or 1 */
    int reason;         /* a number; `text` says it */
    uint64_t copies;    /* over the bus, both ways */
    uint64_t missed_ns; /* what pinned copies would have saved so far */
    uint64_t saved_ns;  /* what pinned copies saved */
    uint64_t
        cost_ns; /* of pinning it: register, unregister, and the price of memory that cannot be reclaimed */
    char text[96]; /* for people */
};
/* 0; -ENOENT; -EINVAL: bad size. */
MEMOIR_API int memoir_pin_why(const void *block, struct memoir_pin_why *ret_why);

struct memoir_pin_stats {
    size_t struct_size; /* set it: only what fits is stored */
    int mode;           /* enum memoir_pin_mode */
    int calibrated;     /* 1: costs were measured on this machine */
    uint64_t live_bytes, live_blocks, served_bytes, served_blocks;
    uint64_t pinned_bytes, pinned_bytes_peak; /* registered by the library, idle ones included */
    uint64_t idle_bytes;                      /* of these, free for the next allocations */
    uint64_t own_bytes;                       /* pinned by the program itself */
    uint64_t budget_bytes;
    uint64_t copies, copied_bytes, pinned_copies, pinned_copied_bytes;
    uint64_t missed_ns, saved_ns,
        cost_ns; /* by the calibrated costs; `cost` without the price of memory */
    uint64_t registers, unregisters, failures, evictions, denied, pool_hits;
    uint64_t mismatches; /* of checksum mode */
    /* Copies of memory that is not pinned, through the staging ring; what these took less. */
    uint64_t staged_copies, staged_bytes, staged_saved_ns;
    uint64_t touched_bytes;              /* fresh memory that was touched ahead of the program */
    uint64_t register_ns, unregister_ns; /* that the driver's calls took */
    /* Mode shadow: what copies that would have been pinned or staged took longer than these take by
     * the calibration. Measured on one side, so better than saved_ns and staged_saved_ns. */
    int64_t observed_ns;
};
/* 0, or -EINVAL for a bad size. */
MEMOIR_API int memoir_pin_stats(struct memoir_pin_stats *ret_stats);

/* Pin at most so many bytes, and never more than the machine and the cgroup allow. UINT64_MAX: no
 * limit of its own. */
MEMOIR_API void memoir_pin_budget(uint64_t bytes);

/* Write the history now; NULL: to the file of MEMOIR_PIN_HISTORY. 0 or -errno. */
MEMOIR_API int memoir_pin_save(const char *path);

/* Measure the costs of this machine again and save them. Needs a current CUDA context, and takes
 * about a tenth of a second. The path of the file in `ret_path`. 0 or -errno. */
MEMOIR_API int memoir_pin_calibrate(char *ret_path, size_t path_size);

#ifdef __cplusplus
}
#endif

#endif
