/* Which live heap blocks of a process can still be reached, and which are lost.
 *
 *     struct scan_threads *threads = NULL;
 *     int r = scan_threads_stop(pid, &threads);          // the process stands still from here
 *     r = scan_run(&(struct scan_options){.pid = pid, .key = key, .sites = n}, threads, &scan);
 *     scan_threads_release(threads);                     // to here
 *     ... scan->blocks, each with its state ...
 *
 * Everything is read from outside, also what the program has protected from itself: blocks are found by the trailers that libmemoir-track leaves in them
 * or beside them (book/trailer.h), and by the words that libmemoir-malloc keeps (malloc/words.h), so the process takes no part and needs no room. A block is reachable if any aligned word
 * of a root, or of a block that is reachable, could be an address inside it. Roots are registers, stacks from
 * the stack pointer up, thread-local storage, and every other page that a process can write or has written: data and
 * bss, mappings of its own, shared memory. (glibc's own pointers to free memory are none: arena.h.) The test is conservative: a number that looks like an address keeps
 * a block reachable, so what is told as lost is lost, but for programs that hide their pointers (files,
 * XORed lists, compressed to 32 bits).
 *
 * Not roots, because they hold what was once there: stacks below the stack pointer, and free memory of the
 * allocator, which is all of glibc's heap that is no live block. In other mappings that hold blocks too (large
 * blocks, other allocators), pieces below a page between blocks count as free, larger ones as roots: a mapping of
 * the program's own may lie beside them.
 *
 * All bytes and all lines of /proc are a stranger's. One thread at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "book/trailer.h"

enum {
    SCAN_BLOCKS_MAX = 100000000, /* 4 GB of ours; the rest is not looked at, and told */
};

enum scan_state {
    SCAN_LOST,      /* nothing that is reachable, and no other lost block, points into it */
    SCAN_INDIRECT,  /* only lost blocks do: it goes with them */
    SCAN_REACHABLE, /* somebody could still free it */
    SCAN_STATES,
};
const char *scan_state_name(enum scan_state state); /* "lost", "indirectly lost", "reachable" */

struct scan_block {
    uint64_t start, bytes;
    uint32_t site;     /* of the book; 0: not known, or an ancestor's */
    uint32_t time;     /* in units of 2^BOOK_TRAILER_TIME_SHIFT ns */
    uint8_t state;     /* enum scan_state */
    uint8_t inherited; /* made before fork, by an ancestor */
    uint8_t is_short;  /* its trailer */
};

struct scan_sum {
    uint64_t blocks, bytes;
};

struct scan {
    struct scan_block *blocks; /* by address */
    size_t n;
    struct scan_sum sums[SCAN_STATES];
    uint64_t left_out; /* blocks past SCAN_BLOCKS_MAX */
    uint64_t overlaps; /* trailers that another block covers: of memory that was freed unseen */
    uint64_t searched_bytes; /* read to find blocks, */
    uint64_t root_bytes;     /* as roots, */
    uint64_t block_bytes;    /* and inside blocks */
    uint64_t unread_bytes;   /* that could not be read, and could have held a pointer or a block */
    bool damaged;            /* lists of our allocator lead nowhere: blocks are missing */
    bool whole;              /* nothing is missing: "lost" is a proof */
};

/* Where the words of small blocks are: as in the header of the book; span 0: there are none. */
struct scan_beside {
    uint64_t heap, words, span;
};

struct scan_options {
    pid_t pid;
    struct book_trailer_key key;
    bool glibc; /* book_trailer_glibc() */
    struct scan_beside beside;
    bool words;          /* book_trailer_words() */
    uint64_t sites;      /* entries of the book's table of sites */
    uint32_t time_max;   /* scan_time_max(); 0: not known */
    int memory_file;     /* /proc/PID/mem, where who scans may not read by PID; 0: none */
    bool gaps_are_roots; /* there are live blocks without a trailer (tracking was suspended) */
    void (*progress)(const char *what, uint64_t done, uint64_t all, void *context); /* or NULL */
    void *context;
};

/* What a trailer can tell at most, with a second to spare for clocks that are looked at now and then. */
static inline uint32_t scan_time_max(uint64_t created_monotonic_ns, uint64_t now_ns)
{
    uint64_t age_ns = now_ns > created_monotonic_ns ? now_ns - created_monotonic_ns : 0;
    uint64_t time = (age_ns >> BOOK_TRAILER_TIME_SHIFT) + 8;
    return time < BOOK_TRAILER_TIME_MAX ? (uint32_t)time : BOOK_TRAILER_TIME_MAX;
}

/* ---- standing still ---- */

struct scan_threads;

/* Stop all threads of a process by ptrace. -EPERM: not allowed, or somebody traces it already; -ESRCH;
 * -ETIMEDOUT: a thread hangs in the kernel. On failure everything goes on as before. Calls that wait in the
 * kernel go on afterwards; a few (epoll_wait, and others of signal(7)) return EINTR, as under a debugger. */
int scan_threads_stop(pid_t pid, struct scan_threads **ret_threads);

/* The caller traces `tid` already and it stands still: at its exit, for instance. Its registers are taken now, so that
 * a child of the caller's can scan, too. */
int scan_threads_borrow(pid_t tid, struct scan_threads **ret_threads);

/* Let them go on; NULL is fine. */
void scan_threads_release(struct scan_threads *threads);
size_t scan_threads_count(const struct scan_threads *threads);

/* ---- looking ---- */

/* 0, -ENOMEM, -ESRCH when the process is gone, -EACCES when its memory may not be read, -EPROTO when it has an allocator of ours of another
 * version, whose blocks have words. */
int scan_run(const struct scan_options *options, const struct scan_threads *threads,
             struct scan **ret_scan);
/* The same where the mappings are known already, and stay the caller's. */
struct scan_regions;
int scan_run_in(const struct scan_options *options, const struct scan_threads *threads,
                struct scan_regions *regions, struct scan **ret_scan);
void scan_free(struct scan *scan); /* NULL is fine */

/* All live blocks by their addresses, while the process goes on: blocks that come or go meanwhile may be told of or
 * not, and `state` says nothing. Holds a megabyte, however many there are; about a second for 2 GB. 0; -ETIME when
 * `deadline_ns` (CLOCK_MONOTONIC) came first; -ENOMEM, -ESRCH, -EACCES. */
int scan_each(const struct scan_options *options, uint64_t deadline_ns,
              void (*each)(const struct scan_block *block, void *context), void *context,
              uint64_t *ret_searched);
void scan_freep(struct scan **scan);
