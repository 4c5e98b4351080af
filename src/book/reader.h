/*
 * reader.h: read a book that somebody else writes.
 *
 * The bytes are a stranger's: he may lie, write while we look, or cut the file short. So the shape
 * of the book (section offsets, sizes) is copied and checked once when it is opened and never
 * looked at again; header, registry and counter pages stay mapped and are read under a SIGBUS
 * guard; everything large (sites, blocks) is copied with pread() and then checked. A reader never
 * touches bytes beyond section.open, since a mapped read of a hole makes tmpfs allocate a page.
 *
 * A reader takes up to four mappings (header, registry, counter index, counters) and no descriptor;
 * the kernel's usual limit of 65,530 mappings allows 16,000 readers in one process.
 *
 * A reader belongs to one thread at a time. No call blocks. All return -errno on failure; -EBADMSG
 * means that the bytes make no sense, -EPROTONOSUPPORT that they are a later version's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "book/layout.h"

struct book_reader;

/* Limits on what one hostile book can make us do. */
enum {
    BOOK_READER_ACCOUNTS_MAX = BOOK_RECORDS_MAX,
    BOOK_READER_COUNTER_PAGES_MAX = 65536,
    BOOK_READER_FRAMES_MAX = 1 << 24,
    BOOK_READER_SITE_FRAMES_MAX = 1024,    /* of one site; more than a writer of version 1 keeps */
    BOOK_READER_BLOCKS_HELD_MAX = 1 << 24, /* in memory at a time, of 32 bytes */
    /* Bytes of holes in what gets mapped: a mapped read of one makes tmpfs give us a page. A writer has
     * none there, but a copy of a small book has, if cp left out its zeros. */
    BOOK_READER_HOLES_MAX = 128 << 10,
};
#define BOOK_READER_FILE_MAX (UINT64_C(1) << 48)

/* Who the book is about: a checked copy, strings terminated and free of control bytes. */
struct book_identity {
    uint8_t boot_id[16];
    uint64_t pid_ns, time_ns;
    uint64_t start_ticks, exec_id; /* as the initial time namespace counts ticks */
    uint64_t exec_random;
    int32_t pid, parent_pid, writer_pid;
    uint32_t uid; /* as the header says; st_uid below is the file's owner, which counts */
    uint32_t st_uid;
    uint32_t exec_count;
    uint32_t source; /* enum book_source */
    uint32_t compat; /* enum book_compat */
    uint32_t time_shift;
    uint64_t created_realtime_ns, created_monotonic_ns;
    uint64_t st_dev, st_ino;
    uint64_t trailer_key; /* see trailer.h */
    uint32_t trailer_generation, trailer_format;
    uint64_t beside_heap, beside_words, beside_span;
    char comm[16], host[64];
    char *exe, *command; /* never NULL; as long as they are, since readers come by the thousand */
};

/* Open NAME in the directory `dirfd` (not following links; regular files only). -EAGAIN: the book
 * is still being made, try again. -ENODATA: it has no pages where it says that figures are. The reader
 * keeps no descriptor. */
int book_reader_open(int dirfd, const char *name, struct book_reader **ret_reader);

/* The same for a descriptor that the caller keeps, such as one from /proc/PID/map_files. */
int book_reader_open_fd(int fd, struct book_reader **ret_reader);

/* NULL is fine. */
void book_reader_free(struct book_reader *reader);
void book_reader_freep(struct book_reader **reader);

const struct book_identity *book_reader_identity(const struct book_reader *reader);

/* What changes while the book lives. */
struct book_status {
    uint32_t state;       /* enum book_state */
    uint32_t stop_reason; /* enum book_stop_reason */
    uint64_t peak_error;
    uint64_t losses[BOOK_LOSSES_MAX];
    uint64_t file_bytes; /* pages taken, about; the file's st_blocks is exact */
};
int book_reader_status(struct book_reader *reader, struct book_status *ret_status);

/* Does the writer still map the book? It holds flock() on the open file that its mapping keeps
 * alive, so this is true exactly until it exits or calls exec, whatever its PID namespace. Needs a
 * descriptor of the book (a fresh one is fine). 1, 0 or -errno; -EAGAIN while the book is still being
 * made, since the test would disturb its maker. */
int book_writer_alive_fd(int fd);
int book_writer_alive(int dirfd, const char *name);

/* ---- devices and accounts ---- */

struct book_device_view {
    uint32_t record; /* registry number, what accounts refer to */
    uint32_t kind;
    int32_t ordinal;
    char name[64], uid[64], bus[32];
};

struct book_account_view {
    uint32_t record; /* registry number, what blocks refer to */
    uint32_t space;  /* enum memoir_space */
    /* registry number of the device, or BOOK_DEVICE_HOST: always in spaces below DRAM */
    uint32_t device;
    uint32_t flags; /* enum book_account_flags */
    uint64_t capacity;
    uint64_t inherited_bytes, inherited_blocks;
    char name[32];
};

/* How much of the book is mapped, and how much of it ever may be (0: no limit but those above). */
size_t book_reader_mapped(const struct book_reader *reader);
void book_reader_set_mapped_max(struct book_reader *reader, size_t bytes);

/* Look for new devices, accounts and counter pages. Cheap when there are none (two loads). -EDQUOT when
 * they do not fit into what may be mapped, -ENODATA when they have no pages; the lists are then out of
 * date, and totals fail until a later refresh succeeds. */
int book_reader_refresh(struct book_reader *reader);

/* Arrays owned by the reader, valid until the next refresh. */
const struct book_device_view *book_reader_devices(const struct book_reader *reader, size_t *ret_n);
const struct book_account_view *book_reader_accounts(const struct book_reader *reader,
                                                     size_t *ret_n);

/* Accounts that are not in the array because their device is no record of a device. */
size_t book_reader_left_out(const struct book_reader *reader);

struct book_totals {
    uint64_t live_bytes, live_blocks;
    uint64_t alloc_bytes, alloc_blocks;
    uint64_t freed_bytes, freed_blocks;
    uint64_t alloc_served, freed_served;
    uint64_t reallocs;
    uint64_t moved_in_bytes, moved_in, moved_out_bytes, moved_out;
    uint64_t peak_bytes; /* at least live_bytes */
};

/* Totals of account number `index` of the array above. Sums its shards, also those that came since the
 * last refresh; no system call but for these. */
int book_reader_totals(struct book_reader *reader, size_t index, struct book_totals *ret_totals);

/* Totals of all accounts at once, under one guard; `n` is the length of the array above. After a
 * failure the array holds nothing of use. */
int book_reader_totals_all(struct book_reader *reader, struct book_totals *ret_totals, size_t n);

/* A refresh and all totals in one, for the usual case that there is nothing new: then 0. Else 1, nothing
 * is read, and the two calls have to be made. */
int book_reader_totals_same(struct book_reader *reader, struct book_totals *ret_totals, size_t n);

/* Where the account with this registry number stands in the array above, or -ENOENT: a block may be
 * newer than the last refresh, or its number a lie. */
ssize_t book_reader_account_index(const struct book_reader *reader, uint32_t record);

/* ---- sites, tags and blocks: copies ----
 * These need a descriptor of the same file (checked by device and inode, else -ESTALE), because a
 * mapping would make pages where the file has none. They move its file offset. */

struct book_sites {
    struct book_module *modules; /* [0] is empty */
    size_t n_modules;
    struct book_script *scripts; /* [0] is empty; strings terminated */
    size_t n_scripts;
    uint64_t *frames; /* of any module or script: see book_sites_module(), book_sites_script() */
    size_t n_frames;
    struct book_site *sites; /* [0] is empty; frame ranges are checked, accounts below 4,096 */
    size_t n_sites;
    /* n_sites, summed over shards. Those of sites with BOOK_SITE_SAMPLED are estimates of what other sites
     * count exactly: add up the ones or the others. */
    struct book_site_counters *counters;
    /* n_sites: what each held when its account was at its peak. Of an account whose peak is not known by site it is
     * BOOK_SITES_AT_PEAK_UNKNOWN. */
    struct book_site_held *at_peak;
    struct book_tag *tags; /* [0] is empty; names terminated */
    size_t n_tags;
};
struct book_site_held {
    uint64_t bytes, blocks;
};
#define BOOK_SITES_AT_PEAK_UNKNOWN UINT64_MAX

int book_reader_sites(struct book_reader *reader, int fd, struct book_sites *ret_sites);

/* The exact counters alone, for who looks again and again: of the first `max` sites, number 0 included, into `counters`
 * (0 for those with BOOK_SITE_SAMPLED);
 * ret_n is how many there are of them. Needs no descriptor and makes no system call. About 1 µs for 128
 * sites in one shard. -ESTALE: refresh first. */
int book_reader_site_counters(struct book_reader *reader, struct book_site_counters *counters,
                              size_t max, size_t *ret_n);

/* About how many bytes such a copy takes. -ENODATA when the file has fewer: then the book lies. */
int book_reader_sites_bytes(struct book_reader *reader, int fd, uint64_t *ret_bytes);
void book_sites_release(struct book_sites *sites);

/* The module of a frame. NULL for an address in no module (BOOK_MODULE_NONE), but also for numbers set
 * aside for other sorts of code, and for lies: where these come from is unknown, and their offset is no
 * address. */
static inline const struct book_module *book_sites_module(const struct book_sites *sites,
                                                          uint64_t frame)
{
    uint32_t module = BOOK_FRAME_MODULE(frame);
    return module != BOOK_MODULE_NONE && module < sites->n_modules ? &sites->modules[module] : NULL;
}

/* The function of a script that a frame is a line of, BOOK_FRAME_LINE(); NULL for all others, and where it
 * is unknown. */
static inline const struct book_script *book_sites_script(const struct book_sites *sites,
                                                          uint64_t frame)
{
    uint32_t script = BOOK_FRAME_SCRIPT(frame);
    return BOOK_FRAME_MODULE(frame) == BOOK_MODULE_SCRIPT && script > 0 && script < sites->n_scripts
               ? &sites->scripts[script]
               : NULL;
}

/* The one frame that tells most to people, of a site that has any: the innermost line of a script, since who
 * writes scripts knows those and not the interpreter's inside; else the innermost frame. */
static inline uint64_t book_sites_frame(const struct book_sites *sites,
                                        const struct book_site *site)
{
    const uint64_t *frames = sites->frames + site->first_frame;
    for (uint32_t i = 0; i < site->frames; i++)
        if (book_sites_script(sites, frames[i]))
            return frames[i];
    return frames[0];
}

/* One live block, decoded. */
struct book_block_view {
    uint64_t id, bytes;
    uint64_t time_ns; /* CLOCK_MONOTONIC of the writer's machine when it was made */
    uint32_t account; /* registry record; see book_reader_account_index() */
    uint32_t site,
        tag;        /* may be newer than a copy of the sites, or a lie: compare with its n_sites */
    uint32_t moves; /* transfers it was part of */
};

/* Call `each` for every live block, in no order, until it returns non-zero (which is returned).
 * While the writer is busy moving entries the scan is retried a few times; ret_exact (may be NULL)
 * tells whether the picture is a clean one. Blocks come once each. After an error some may have come
 * already. Costs what the file's pages cost (about 2 ms for 100,000 blocks): holes are skipped. */
int book_reader_blocks(struct book_reader *reader, int fd,
                       int (*each)(const struct book_block_view *block, void *context),
                       void *context, bool *ret_exact);

/* The same within limits. -ETIME when the time was over: what was found until then has come. */
struct book_scan_limits {
    uint64_t deadline_ns; /* CLOCK_MONOTONIC; 0: none */
    size_t held_max;      /* blocks kept in memory; beyond it some may come twice; 0: as above */
    unsigned tries;       /* scans while the writer moves entries; 0: as above */
    /* For who wants sums of all and only some of them: BOOK_RECORDS_MAX of these, by account, to which each block is added;
     * and `each` gets those of at least `*bytes_min`, which it may raise. NULL: all come, and nothing is added up. */
    struct book_tally *tally;
    const uint64_t *bytes_min;
};
struct book_tally {
    uint64_t blocks, bytes; /* 2^64 - 1 for more */
};
int book_reader_blocks_within(struct book_reader *reader, int fd,
                              const struct book_scan_limits *limits,
                              int (*each)(const struct book_block_view *block, void *context),
                              void *context, bool *ret_exact);

/* ---- SIGBUS guard ---- */

/* Install the process-wide SIGBUS handler that lets reads of mapped books fail with -EIO instead of
 * ending us. Opening the first book does it; programs with a SIGBUS handler of their own call it
 * after setting that one. Signals that are not ours go on to the previous handler. */
int book_guard_install(void);
