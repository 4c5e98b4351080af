/* Which blocks of a process's heap can no longer be reached: a scan of its memory, during which it stands still, with the rights of
 * the process that calls. */
#pragma once

#include <stdint.h>

#include "daemon/heap_ages.h"
#include "scan/scan.h"

enum {
    HEAP_SCAN_MS_MAX = 8000, /* after which the scan is given up and the process goes on */
    HEAP_SCAN_SITES = 50,    /* in an answer: those that lost most */
};

/* Flat, since both cross the broker's socket. */
struct heap_scan_wish {
    struct heap_ages_wish heap;
    uint32_t sites;          /* entries of the book's table of sites */
    uint32_t gaps_are_roots; /* as in scan_options */
};

struct heap_scan_site {
    uint32_t site, state; /* enum scan_state: lost or indirectly lost */
    uint64_t blocks, bytes, oldest_ns;
};

struct heap_scan_found {
    struct scan_sum sums[SCAN_STATES];
    struct scan_sum inherited; /* lost, but an ancestor's: not in `sites` */
    uint64_t stood_ns, threads, unread_bytes, left_out;
    uint32_t whole; /* nothing was missed: what is lost is proved to be */
    uint32_t n_sites;
    uint64_t sites_more; /* that are not in the list */
    struct heap_scan_site sites[HEAP_SCAN_SITES];
};

/* May hang with the memory that it reads; when this process is killed, the scanned one goes on. 0, or what scan_threads_stop() and
 * scan_run() say. */
int heap_scan_look(const struct heap_scan_wish *wish, struct heap_scan_found *ret_found);
