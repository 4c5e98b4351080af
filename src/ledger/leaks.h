/* Suspects: the series of growth.h, judged by detect.h, with the process, the memory and the place in the code that they
 * are of. The one list behind `memoir leaks`, memoird's table `leaks`, and alerts on it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ledger/detect.h"
#include "ledger/headroom.h"

struct growth;
struct ledger;
struct ledger_account;
struct ledger_book;
struct ledger_process;

enum {
    LEAK_SPARK = 24,                  /* points of the small chart */
    LEAKS_SITES_BYTES_MAX = 32 << 20, /* of one book's sites: about 10 ms to read */
    /* growth outside the sites of less than one part in so many of theirs is what their blocks cost */
    LEAKS_OVERHEAD_SHARE = 4,
};

struct leak {
    const struct ledger_process *process; /* the ledger's */
    const struct ledger_account *account;
    const struct ledger_book *book;
    uint32_t site;
    /* What grows is resident beyond what the book counts: no site; the account is the heap's, for want of another. */
    bool outside;
    bool overhead;   /* of leaks_drop_overhead() */
    bool fell;       /* it has given back much at once, in the time watched */
    uint64_t key;    /* the same in every run of the same binaries */
    char *frame;     /* "PATH+0xOFFSET" of the innermost frame; NULL: not known */
    uint64_t age_ns; /* of the site, at the last point; 0: not known */
    struct detect_result result;
    uint64_t live_bytes, live_blocks;
    uint64_t growing_ns;        /* how long it has been growing for, as far as it was watched */
    uint64_t spark[LEAK_SPARK]; /* live bytes over the time watched, each the last of its part */
    unsigned n_spark;
    struct headroom headroom; /* what it grows into, with */
    /* until it is full at this rate; UINT64_MAX: not known, or it does not grow */
    uint64_t left_ns;
};

struct leaks_options {
    uint64_t needs_ns;    /* see detect.h; 0: the default */
    bool all;             /* also what is steady, warming up or not known yet */
    bool ages;            /* look at the blocks of suspects, too: about 2 ms for 100,000 */
    uint64_t deadline_ns; /* CLOCK_MONOTONIC; 0: none */
    /* Which processes; NULL: all. */
    bool (*wanted)(const struct ledger_process *process, void *context);
    void *context;
};

struct leaks {
    struct leak *rows; /* leaks before what only grows, the fastest first */
    size_t n;
    size_t judged;                    /* sites looked at, shown or not */
    size_t verdicts[DETECT_VERDICTS]; /* how many of them were what */
    uint64_t span_ns;                 /* the longest time that any was watched */
    bool incomplete;                  /* the deadline came first, or a book could not be read */
};

/* Is growth of a resident size, of which only the level is known, worth a row: as unlikely by chance as a leak has to be, and large
 * enough? Pages of libraries that come in, and what an allocator keeps, are not. */
bool leaks_level_tells(const struct detect_result *result);

/* Judge every series. 0 or -ENOMEM. About 5 µs a site, and the reading of sites for books with a suspect. */
int leaks_take(struct growth *growth, const struct ledger *ledger,
               const struct leaks_options *options, struct leaks *ret_leaks);
void leaks_release(struct leaks *leaks); /* fine after zeroing */

/* Drop rows outside malloc that grow by a small part of what the suspects of their book do: blocks that pile up bring
 * rounding, fragmentation and records of their own along, which is no growth of its own. A step of leaks_take(). */
void leaks_drop_overhead(struct leaks *leaks);

/* How old a site is that was first seen at `time`, in the unit of a book's times. 0: not known; later than can be told, of a
 * book of another machine, or not yet. */
struct book_identity;
uint64_t leaks_site_age(const struct book_identity *id, uint32_t time, uint64_t now_ns);

/* Which of the DETECT_AGES parts of the life of its site a block of that age is from, the first being the oldest. A block
 * may seem older than its site: times of books are untrusted. */
size_t leaks_age_part(uint64_t site_age_ns, uint64_t age_ns);

/* Is this the file of a runtime that frees blocks of its own when it collects garbage? */
bool leaks_file_is_collected(const char *path);
