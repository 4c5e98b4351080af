/* The mappings of a process, and what each of them means for a scan. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct scan_region {
    uint64_t start, end;
    bool readable, writable, shared;
    bool anonymous; /* no file: [heap], [stack], [anon:...] or nothing */
    bool
        heap; /* memory of glibc's malloc: the brk heap or, as far as its address tells, an arena */
    bool brk; /* the former */
    bool root;                    /* may hold pointers that count, whether it can be read or not */
    bool altered;                 /* only in pages that are no longer those of its file */
    bool libc;                    /* data of the C library: where its malloc keeps its pointers */
    bool guarded;                 /* what lies right below cannot be touched: a stack ends here */
    size_t first_block, n_blocks; /* of the scan, that lie here, if only in part */
};

/* Mappings without a gap that may hold blocks. A program may protect, lock or advise pages of its heap: these are mappings of their own then, and a
 * block may begin in one and end in another. */
struct scan_run {
    uint64_t start, end;
    size_t first_block, n_blocks; /* of the scan, found here, */
    uint64_t first_page;          /* and where they begin, as number of the page: */
    uint32_t *page_first;         /* the first block that ends behind the start of each; or NULL */
    size_t n_pages;
};

struct scan_regions {
    struct scan_region *regions; /* by address */
    size_t n;
    struct scan_run *runs; /* by address; made by scan_find() */
    size_t n_runs;
};

/* glibc's arenas begin at multiples of this: HEAP_MAX_SIZE, twice the largest mmap threshold. */
#define SCAN_ARENA_BYTES (UINT64_C(64) << 20)

/* /proc/PID/maps. -errno, -EBADMSG for lines that make no sense. */
int scan_regions_read(pid_t pid, struct scan_regions *ret_regions);
void scan_regions_release(struct scan_regions *regions);

/* The text of such a file, for tests and fuzzing. */
int scan_regions_parse(const char *text, size_t len, struct scan_regions *ret_regions);

/* The region around an address, or NULL. */
struct scan_region *scan_region_of(const struct scan_regions *regions, uint64_t address);
