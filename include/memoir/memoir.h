/*
 * memoir.h: tell Memoir what memory your program holds, and ask for your own totals.
 *
 * Link with -lmemoir. Every report costs nanoseconds: it is stored in a shared-memory file (the
 * "book" of this process), never sent. No call blocks, fails, prints, starts a thread or touches
 * errno, and all may be made from any thread, from a signal handler and after fork. When the
 * accounting cannot work (no tmpfs, a limit, a full file system), reports are dropped and counted,
 * and memoir_status() says why.
 *
 * In the environment: MEMOIR_OFF=1 switches it off, MEMOIR_DIR=DIR says where books go,
 * MEMOIR_STACKS=all makes whole stacks the call sites (off: none; default: the caller), and
 * MEMOIR_RESERVE=large makes room for 17 million live blocks (default: 2 million).
 *
 *     int gpu = memoir_device(&(struct memoir_device_options){
 *         .struct_size = sizeof(struct memoir_device_options),
 *         .kind = MEMOIR_DEVICE_GPU, .ordinal = 0, .name = "My accelerator",
 *         .capacity = {{MEMOIR_SPACE_DRAM, 16ull << 30}},
 *     });
 *     memoir_alloc(gpu, MEMOIR_SPACE_DRAM, address, bytes);
 *     memoir_free(gpu, MEMOIR_SPACE_DRAM, address);
 *
 * Report an allocation after it was made and a free before it happens; then an address that is
 * given to another thread at once cannot be mistaken.
 */
#ifndef MEMOIR_MEMOIR_H
#define MEMOIR_MEMOIR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef MEMOIR_API
#define MEMOIR_API __attribute__((visibility("default")))
#endif

/* Kinds of memory. The first group belongs to the host (device MEMOIR_HOST), the second to a
 * device. Numbers are part of the file format and never change. */
enum memoir_space {
    MEMOIR_SPACE_HEAP = 1,    /* malloc and friends */
    MEMOIR_SPACE_MAPPED = 2,  /* mmap */
    MEMOIR_SPACE_PINNED = 3,  /* page-locked for transfers */
    MEMOIR_SPACE_MANAGED = 4, /* moves between host and device by itself */
    MEMOIR_SPACE_SHARED = 5,  /* shared between processes */
    MEMOIR_SPACE_CHAIN = 6,   /* blocks in chains of malloc.h */
    /* host memory that was pinned in place for transfers; it counts where it was allocated, too, and so in no sum */
    MEMOIR_SPACE_REGISTERED = 7,

    MEMOIR_SPACE_DRAM = 16,     /* the device's main memory: HBM, GDDR */
    MEMOIR_SPACE_L1 = 17,       /* on-chip memory */
    MEMOIR_SPACE_L1_SMALL = 18, /* a part of L1 set aside for small buffers */
    MEMOIR_SPACE_TRACE = 19,    /* recorded command traces */
    MEMOIR_SPACE_CB = 20,       /* circular buffers, in L1 */
    MEMOIR_SPACE_KERNEL = 21,   /* kernel binaries, in L1 */
    MEMOIR_SPACE_SYSTEM = 22,   /* host memory that belongs to the device */

    MEMOIR_SPACE_MAX = 31, /* numbers up to here are set aside */
};

enum memoir_device_kind {
    MEMOIR_DEVICE_OTHER = 0,
    MEMOIR_DEVICE_GPU = 1,
    MEMOIR_DEVICE_NPU = 2, /* tensor processors such as Tenstorrent's */
    MEMOIR_DEVICE_FPGA = 3,
    MEMOIR_DEVICE_SIMULATED = 4,
};

#define MEMOIR_HOST 0

/* ---- devices ---- */

struct memoir_capacity {
    int space; /* enum memoir_space; 0 ends the list */
    uint64_t bytes;
};

struct memoir_device_options {
    size_t struct_size; /* sizeof(struct memoir_device_options): lets the struct grow */
    int kind;           /* enum memoir_device_kind */
    int ordinal;        /* the number your program uses for it */
    const char *name;   /* for people, up to 63 bytes */
    const char *uid;    /* UUID, serial, ASIC or MIG id: what makes it the same device in every
                           process. Without one, `bus` or kind and ordinal must do. */
    const char *bus;    /* PCI address, or NULL */
    struct memoir_capacity capacity[16];
};

/* Declare a device and get the number that the calls below take (1 and up). Declaring the same
 * device again (equal uid; without one equal bus; else equal kind, ordinal and name) gives the same
 * number and updates its capacities. Below 0 (-errno) when it could not be entered: reports that
 * name such a number are dropped and counted, so there is no need to look. */
MEMOIR_API int memoir_device(const struct memoir_device_options *options);

/* ---- reports ---- */

/* `id` is your name for the block: its address or a handle, unique among the live blocks of that
 * device and space. A size of 2^48 bytes or more is refused and counted. Reporting a live id again
 * replaces it. The call site is the caller of these functions. The host's spaces (below
 * MEMOIR_SPACE_DRAM) belong to MEMOIR_HOST, whatever device is named.
 *
 * memoir_realloc() counts as a free and an allocation with a new age. Where other threads may get
 * the old address in between, report memoir_free() before the block moves and memoir_alloc() after. */
MEMOIR_API void memoir_alloc(int device, int space, uint64_t id, uint64_t bytes);
MEMOIR_API void memoir_free(int device, int space, uint64_t id);
MEMOIR_API void memoir_realloc(int device, int space, uint64_t old_id, uint64_t new_id,
                               uint64_t new_bytes);

struct memoir_alloc_options {
    size_t struct_size;
    int device, space;
    uint64_t id, bytes;
    const char *tag;    /* overrides the thread's tag; NULL for none given */
    const void *caller; /* return address to charge instead of this call's; NULL for this call's */
};
MEMOIR_API void memoir_alloc_with(const struct memoir_alloc_options *options);

/* Bytes moved between two places. An id is that of a reported block, not an address inside one; 0
 * means a place without a reported block. Unknown ids are counted. */
struct memoir_transfer_options {
    size_t struct_size;
    int from_device, from_space;
    uint64_t from_id;
    int to_device, to_space;
    uint64_t to_id;
    uint64_t bytes;
};
MEMOIR_API void memoir_transfer(const struct memoir_transfer_options *options);

/* Allocations of this thread carry the innermost tag (up to 63 bytes, copied) until it is popped.
 * Nests 16 deep; deeper pushes count as the 16th. */
MEMOIR_API void memoir_tag_push(const char *tag);
MEMOIR_API void memoir_tag_pop(void);

/* ---- questions about oneself ---- */

struct memoir_totals {
    size_t struct_size;
    uint64_t live_bytes, live_blocks;
    uint64_t alloc_bytes, alloc_blocks; /* since the start */
    uint64_t freed_bytes, freed_blocks;
    uint64_t peak_bytes; /* wrong by memoir_status's peak_error at most: too low, or with several
                            threads too high */
};

/* Totals of this process. Set struct_size before the call. Returns 0, -ENOENT if nothing was ever
 * reported there, -EINVAL for a bad size. Costs tens of nanoseconds. */
MEMOIR_API int memoir_totals(int device, int space, struct memoir_totals *ret_totals);

enum memoir_state {
    MEMOIR_STATE_IDLE = 0,  /* nothing reported yet */
    MEMOIR_STATE_EARLY = 1, /* counting in private memory: too little yet to make a book */
    MEMOIR_STATE_OPEN = 2,  /* the book is there for all to read */
    MEMOIR_STATE_OFF = 3,   /* not accounting: `error` and `reason` say why */
};

struct memoir_status {
    size_t struct_size;
    int state;        /* enum memoir_state */
    int error;        /* errno value behind MEMOIR_STATE_OFF, or 0 */
    char reason[128]; /* for people */
    char path[256];   /* of the book, or "" */
    uint64_t lost;    /* reports not fully accounted, all causes */
    uint64_t peak_error;
};
MEMOIR_API int memoir_status(struct memoir_status *ret_status);

/* ---- control ---- */

/* Make the book now rather than at the first report worth one, with pages ready for `blocks` live
 * blocks. For programs that will drop privileges or enter a sandbox. Returns 0 or -errno. */
MEMOIR_API int memoir_open(uint64_t blocks);

/* From now on make no system call at all: for seccomp filters that kill. What does not fit into
 * the pages already open is dropped and counted. Cannot be undone, except by exec. */
MEMOIR_API void memoir_seal(void);

#ifdef __cplusplus
}

namespace memoir
{
/* Tags the allocations of this thread while it is in scope. */
class tag
{
  public:
    explicit tag(const char *name)
    {
        memoir_tag_push(name);
    }
    ~tag()
    {
        memoir_tag_pop();
    }
    tag(const tag &) = delete;
    tag &operator=(const tag &) = delete;
};
} // namespace memoir
#endif

#endif
