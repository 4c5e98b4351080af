/* Processes that ended: their last figures and largest blocks, the last ones in memory and all of them
 * in STATE/retired.jsonl, one JSON object a line (doc/retired.md).
 *
 * The file never grows past its limit: it is renamed to retired.jsonl.1 and begun again. A full disk
 * costs the lines of that time, which are counted, and never the daemon. Each user but root has a share of
 * the list and of the file: what a user adds beyond it evicts its own entries, or is not written. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "book/reader.h"
#include "daemon/cause.h"

enum {
    RETIRED_LIST_SHARE = 4,           /* a quarter of the list, before a user evicts others */
    RETIRED_FILE_SHARE = 8,           /* an eighth of retired-file-max at once */
    RETIRED_FILE_REFILL_S = 1800,     /* and then as much again in half an hour */
    RETIRED_FILE_BURST_MIN = 1 << 20, /* but no less than this */
    RETIRED_MEMORY_MAX = 64 << 20,    /* of the whole list */
};

struct retired_device {
    uint32_t kind;
    int32_t ordinal;
    char name[64], uid[64], bus[32];
};

struct retired_account {
    uint32_t space, source;
    int32_t device; /* in retired_process.devices, -1: the host's memory */
    char name[32];
    bool partial; /* counted from some moment on, not from the start */
    bool sampled; /* an estimate */
    struct book_totals totals;
};

struct retired_block {
    uint64_t id, bytes;
    uint64_t age_ns;  /* at the end of its process */
    uint32_t account; /* in retired_process.accounts */
    int32_t site;     /* in retired_process.sites, -1: unknown */
    int32_t tag;      /* offset in retired_process.text, -1: none */
    uint32_t moves;
};

struct retired_site {
    uint64_t key;
    int32_t frames; /* offset in text of its frames, "MODULE+0xOFFSET" or "FILE:LINE in FUNCTION",
                       innermost first, one a line */
};

struct retired_process {
    pid_t pid, book_pid; /* pid is 0 if it was never known */
    uint64_t pid_ns;
    uint32_t uid;
    struct cause cause;
    uint64_t start_realtime_ns, end_realtime_ns; /* start: 0 if unknown */
    char name[64], comm[16], exe[512], command[512], host[64];
    bool exit_seen; /* the kernel told of its end: the next ones are known */
    pid_t parent;
    uint64_t peak_rss_bytes, cpu_ns;
    char cgroup[128]; /* "": not known */
    bool figures_complete;
    bool blocks_complete; /* the largest are among `blocks`: every live block was found */
    uint64_t losses[BOOK_LOSSES_MAX];
    struct retired_device *devices; /* all arrays are owned */
    size_t n_devices;
    struct retired_account *accounts;
    size_t n_accounts;
    struct retired_block *blocks; /* largest first */
    size_t n_blocks;
    struct retired_site *sites;
    size_t n_sites;
    char *text; /* strings, each ended by NUL */
    size_t text_len;
};

void retired_process_free(struct retired_process *process); /* NULL is fine */

struct retired;

/* `state_fd` is the state directory (borrowed), or -1 to keep no file. */
int retired_new(int state_fd, size_t keep, uint64_t file_max, struct retired **ret_retired);
void retired_free(struct retired *retired); /* NULL is fine */
void retired_set_limits(struct retired *retired, size_t keep, uint64_t file_max);

/* Takes the record, also on failure. -errno when the file could not be written; it is then in memory
 * only and counted in retired_lost(). */
int retired_add(struct retired *retired, struct retired_process *process);

/* Who could not write lines for want of a share: see allowance_tell(). */
void retired_tell(struct retired *retired, uint64_t now_ns,
                  void (*each)(uint32_t uid, uint64_t refused, void *context), void *context);

/* Number `i` from the latest (0) to the oldest kept; NULL past the end. */
const struct retired_process *retired_get(const struct retired *retired, size_t i);
size_t retired_count(const struct retired *retired);
uint64_t retired_total(const struct retired *retired); /* ever added */
uint64_t retired_lost(const struct retired *retired);  /* lines that did not reach the file */

/* One record as one line of JSON with its newline. */
struct buffer;
int retired_json(const struct retired_process *process, struct buffer *out);
