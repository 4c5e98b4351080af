/* From the books of a process, living or dead, to a profile. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct ledger_process;
struct profile;

/* What stands between a reader and the whole truth. */
struct gather_losses {
    uint64_t sites_full; /* blocks that have no site because the book had no room */
    size_t books_unread; /* books that could not be read */
    /* that have none: their writer keeps no sites, or nothing was reported */
    size_t books_no_sites;
    size_t books; /* looked at */
    size_t
        peaks_unknown; /* sites of accounts whose peak is not known by site, of a profile at the peak */
};

/* Add all sites of all books of the process that count; where two sources tell of the same memory, one of
 * them does (ledger.h). May be called for several processes. About 3 ms for 10,000 sites. 0 or -errno:
 * -ENOMEM, -E2BIG; a book that cannot be read is counted in `losses` and left out. */
int profile_gather(struct profile *profile, const struct ledger_process *process,
                   struct gather_losses *losses);
