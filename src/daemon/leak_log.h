/* Leaks that memoird has found since it started, with how each went on: a leak that stopped, or whose process ended,
 * is in no list of suspects any more. The latest LEAK_LOG_MAX are kept; one that has stopped makes room before one
 * that goes on. The loop's thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct leak_log;
struct leaks;

enum {
    LEAK_LOG_MAX = 256,
    LEAK_LOG_QUIET_LOOKS = 3, /* complete looks in a row without the verdict: then it has stopped */
};

struct leak_entry {
    uint64_t dev, ino; /* of its book's file, with */
    uint32_t site;     /* its number there */
    int32_t pid;
    uint32_t uid;
    char program[64], frame[128]; /* frame: "libx.so+0x1234", or "" */
    uint64_t found_ns, last_ns;   /* since 1970: when it was first and last called a leak */
    uint64_t live_bytes;          /* that it held then */
    unsigned quiet;               /* looks since, up to LEAK_LOG_QUIET_LOOKS */
    bool ended;                   /* its book is gone: the process ended, or called exec */
};

int leak_log_new(struct leak_log **ret_log);
void leak_log_free(struct leak_log *log); /* NULL is fine */

/* What one look found. `has_book` tells whether the book of an entry is still there. `found` is called for each leak
 * that was not known; it may be NULL. */
void leak_log_look(struct leak_log *log, const struct leaks *leaks, uint64_t now_real_ns,
                   bool (*has_book)(uint64_t dev, uint64_t ino, void *context),
                   void (*found)(const struct leak_entry *entry, size_t row, void *context),
                   void *context);

static inline bool leak_entry_stopped(const struct leak_entry *entry)
{
    return entry->ended || entry->quiet >= LEAK_LOG_QUIET_LOOKS;
}

/* In no order; borrowed until the next look. */
const struct leak_entry *leak_log_entries(const struct leak_log *log, size_t *ret_n);
