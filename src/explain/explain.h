/* Where the resident memory of a process goes, in parts that sum to its RSS.
 *
 * Everything rests on one read of /proc/PID/smaps: rss_bytes is the sum of its mappings, and each mapping is divided into parts,
 * so the parts sum to rss_bytes exactly. What nothing explains is the part EXPLAIN_REST. Mappings that hold memory of several
 * owners are divided by pagemap. Whose memory an anonymous mapping is, is told by its name, by what lies in it (the headers of
 * allocators and runtimes) where the memory may be read, else by size and alignment; such parts are marked.
 *
 * explain_take() reads the memory of another process, which may hang: call it in a child (explain_take_apart(), or the broker of
 * memoird). Everything that it finds is flat, so that it crosses a socket. Names are bytes that the process chose. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct json;

enum {
    EXPLAIN_PARTS_MAX = 240, /* beyond it a part is added to "other ..." of its kind */
    EXPLAIN_NAME_MAX = 120,  /* longer ones lose their beginning */
    EXPLAIN_MS_MAX = 10000,
};

enum explain_kind {
    EXPLAIN_HEAP,  /* malloc's: blocks in use; in use or free where no book tells */
    EXPLAIN_SLACK, /* malloc's: free, lost to rounding, and its own records */
    EXPLAIN_OLDER, /* malloc's, of an attached process: blocks that are older than the attach, and free memory */
    EXPLAIN_RUNTIME, /* heap and code of a language's runtime: CPython, V8, JVM, Go, PHP */
    EXPLAIN_ANONYMOUS, /* mappings that the program named (prctl PR_SET_VMA), and code made at run time */
    EXPLAIN_STACK,
    EXPLAIN_FILE,   /* by file: code, data, bss, and what the program maps */
    EXPLAIN_SHARED, /* shared memory: tmpfs, memfd, System V, MAP_SHARED */
    EXPLAIN_DEVICE, /* memory of drivers */
    EXPLAIN_MEMOIR, /* our own cost: the book and what accounting takes */
    EXPLAIN_REST,   /* unexplained */
    EXPLAIN_KINDS,
};

enum {
    EXPLAIN_ESTIMATE = 1 << 0, /* divided by a model, not measured */
    EXPLAIN_BY_SHAPE = 1 << 1, /* told by size, alignment or the libraries that are loaded */
};

struct explain_part {
    uint32_t kind;     /* enum explain_kind */
    uint32_t marks;    /* EXPLAIN_ESTIMATE ... */
    uint32_t mappings; /* that have some of it */
    uint32_t others;   /* names that were folded into it; 0: it is one */
    uint64_t bytes;    /* resident */
    uint64_t private_bytes, huge_bytes, swap_bytes;
    char name[EXPLAIN_NAME_MAX];
};

/* Zeroed it is empty. */
struct explain {
    int32_t pid;
    uint32_t n_mappings, n_threads, n_parts;
    uint64_t rss_bytes;
    uint64_t swap_bytes, hugetlb_bytes; /* outside the sum */
    uint64_t heap_served; /* blocks in use with their rounding, resident or not; 0: not known */
    uint64_t live_bytes, absent_bytes; /* explain_live(): in use, and of that not resident */
    uint8_t memory_read; /* what lies in the memory was looked at; else only its shape */
    uint8_t memoir_heap; /* it has libmemoir-malloc */
    uint8_t live_known;
    uint8_t spare[5];
    struct explain_part
        parts[EXPLAIN_PARTS_MAX]; /* by kind, the largest first, after explain_take() */
};

/* About 15 ms for a GB. -ESRCH, -EACCES: smaps may not be read; -E2BIG: too many mappings; -ENOMEM. */
int explain_take(pid_t pid, struct explain *ret_explain);

/* The same in a child, with a time limit: also -ETIME, -EBUSY. `owner`: the user of the process (base/apart.h). */
int explain_take_apart(pid_t pid, uint32_t owner, uint32_t timeout_ms, struct explain *ret_explain);

/* What the book says is in use: divides what was found of malloc into blocks in use and slack, an estimate. `partial`: the book
 * began later than the process, so what it does not count are older blocks and free memory (EXPLAIN_OLDER). Call it at most
 * once. */
void explain_live(struct explain *explain, uint64_t live_bytes, bool partial);

/* Is it sane, as sent by a child: kinds, counts, strings that end, parts that sum to rss_bytes? */
bool explain_valid(const struct explain *explain);

/* Add to the part of this kind and name. */
struct explain_share {
    enum explain_kind kind;
    uint32_t marks;
    const char *name;
    uint64_t bytes, private_bytes, huge_bytes, swap_bytes;
};
void explain_add(struct explain *explain, const struct explain_share *share);

/* By kind, the largest first. */
void explain_sort(struct explain *explain);

uint64_t explain_sum(const struct explain *explain, enum explain_kind kind);

/* Is it malloc's: in use, free, or older than the attach? */
bool explain_is_malloc(enum explain_kind kind);
uint64_t explain_sum_malloc(const struct explain *explain);

/* The parts of a kind to show one by one, at most `top`: the first, and those that are at least a 500th of all. The rest
 * is one sum. */
size_t explain_shown(const struct explain *explain, enum explain_kind kind, size_t top,
                     size_t *ret_first, uint64_t *ret_hidden_bytes, size_t *ret_hidden);

const char *explain_kind_key(enum explain_kind kind);   /* "heap", for programs */
const char *explain_kind_title(enum explain_kind kind); /* "heap, in use", for people */

/* Fields of an open object: "rss", "parts" ... as doc/explain.md has them. */
void explain_json(const struct explain *explain, struct json *json);
