/* What libmemoir-malloc knows of a process, read from outside while it goes on: see malloc/root.h. Everything that is read is a
 * stranger's and changes meanwhile: figures are of one moment each, not of one for all, and what makes no sense is counted as such
 * and left out. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "malloc/root.h"

struct scan_memory;
struct scan_regions;

enum {
    SCAN_HEAP_MACROS_MAX = 1 << 20, /* 2 TiB; what comes behind is not looked at, and told */
    SCAN_HEAP_CHAINS_MAX = 1 << 16,
    SCAN_HEAP_NODES_MAX = 64,
    SCAN_HEAP_LOTS_MAX = 1 << 17, /* of words: 128 GiB */
};

/* Slabs of one size. */
struct scan_heap_class {
    uint64_t slabs, owned, full, pooled;
    uint64_t slices;
    uint64_t used;   /* blocks that the program has, */
    uint64_t free;   /* that were cut and it has not, */
    uint64_t remote; /* of these, freed by others than the owner and not collected yet, */
    uint64_t uncut;  /* and that fit besides */
};

/* The chain of a thread. */
struct scan_heap_chain {
    uint64_t address;
    int32_t tid; /* 0: of none; waits for the next */
    bool on_node;
    uint32_t node;
    uint64_t slabs, used_blocks, used_bytes, free_bytes;
    uint64_t spares;     /* empty slices that it keeps */
    uint64_t slow_calls; /* that found no block at hand */
    uint64_t large_allocs;
};

struct scan_heap_node {
    uint32_t node;
    uint64_t macros, used_slices, kept_slices;
    uint64_t purges, purged_slices, refaulted_slices, macros_mapped, macros_unmapped;
};

struct scan_heap {
    struct malloc_settings settings;
    struct os_counts os;
    struct huge_counts huge;
    struct huge_cache huge_cache;
    struct scan_heap_class classes[SIZE_CLASSES];
    struct scan_heap_chain *chains; /* by address */
    size_t n_chains;
    struct scan_heap_node *nodes;
    size_t n_nodes;
    uint64_t *macros; /* addresses, in order */
    size_t n_macros;
    uint64_t *lots; /* of words (malloc/words.h): addresses, in order */
    size_t n_lots;
    uint64_t lot_bytes; /* of their parts, those that are in use or kept */
    uint64_t large_blocks, large_asked, large_slices;
    uint64_t spare_slices; /* of slabs that are empty, and a chain's */
    uint64_t kept_slices;  /* free, with memory that was not given back */
    uint64_t given_slices; /* free, without */
    uint64_t chain_bytes;  /* that chains themselves take */
    uint64_t broken;       /* descriptors that make no sense */
    bool cut;              /* there is more than we look at, or a list is broken */
};

/* 0; -ENOENT: the process has no allocator of ours; -EPROTO: it is of another version; -ESRCH, -EACCES, -ENOMEM. */
int scan_heap_read(pid_t pid, struct scan_heap **ret_heap);
/* The same by a child, whatever the process has done to its memory: else -ETIME. See base/apart.h. */
int scan_heap_read_apart(pid_t pid, uint64_t timeout_ms, struct scan_heap **ret_heap);
/* The same for who has its mappings already. `macros_only`: no more than where they are, and lots, and what is kept of huge blocks. */
int scan_heap_read_from(struct scan_memory *memory, const struct scan_regions *regions,
                        bool macros_only, struct scan_heap **ret_heap);
void scan_heap_free(struct scan_heap *heap); /* NULL is fine */
void scan_heap_freep(struct scan_heap **heap);

/* Does a descriptor make sense, as far as it tells by itself? */
bool scan_heap_sensible(const struct slab *s);

/* The macro-block around an address; 0: there is none. */
uint64_t scan_heap_macro(const struct scan_heap *heap, uint64_t address);

/* Does memory of the allocator's lie at an address, in which nothing is a root of the program's? Gives where that ends, or where the next such begins:
 * *ret_own tells which. */
uint64_t scan_heap_stretch(const struct scan_heap *heap, uint64_t address, bool *ret_own);
