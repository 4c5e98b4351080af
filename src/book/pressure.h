/*
 * pressure.h: the memory pressure word, which memoird publishes for everybody.
 *
 * One file for the machine, DIR/pressure, where DIR holds the directories of the users (/run/memoir, or memoird's
 * --dir): mode 0644, of memoird's user, one page, never truncated and never removed. A later memoird goes on with
 * the same file, so that who has mapped it keeps seeing the truth. See doc/pressure.md.
 *
 * Layout only: usable from C and C++, inside any process.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PRESSURE_FILE_NAME "pressure"
#define PRESSURE_MAGIC     "memPRESS" /* 8 bytes, without the 0 */

enum {
    PRESSURE_VERSION = 1,
    PRESSURE_FILE_BYTES = 4096,
    PRESSURE_TICK_MS = 1000, /* memoird writes the word at least so often, */
    PRESSURE_STALE_MS = 5000 /* and who finds it older takes memoird for dead */
};

enum pressure_level {
    PRESSURE_PLENTY,   /* keep what may be of use again */
    PRESSURE_SOME,     /* give back what was not used for a while */
    PRESSURE_HIGH,     /* give back what is not in use, soon */
    PRESSURE_CRITICAL, /* at once */
    PRESSURE_LEVELS
};

/* Bits of pressure_page.valid and pressure_inputs.valid: what could be read. */
enum pressure_valid {
    PRESSURE_HAS_MEMORY = 1u << 0, /* total, available */
    PRESSURE_HAS_STALL = 1u << 1,  /* the kernel measures pressure (PSI) */
    PRESSURE_HAS_LIMIT = 1u << 2   /* a memory limit of a cgroup */
};

/* What a level is made of. Shares are hundredths of a per cent. */
struct pressure_inputs {
    uint64_t total_bytes, available_bytes; /* MemTotal, MemAvailable */
    uint64_t limit_bytes;                  /* of the cgroup that has the least left, */
    uint64_t headroom_bytes; /* and how much that is; files that can go count as left */
    uint32_t some_avg10;     /* of the last 10 s in which some program waited for memory, */
    uint32_t full_avg10;     /* and all of them did */
    uint32_t some_last;      /* as some_avg10, but of the last second or so */
    uint32_t valid;          /* enum pressure_valid */
};

struct pressure_page {
    char magic[8];
    uint32_t version;      /* of all of this; readers refuse what they do not know */
    uint32_t bytes;        /* of this structure: later versions may add to its end */
    uint64_t word;         /* the level and its time; one atomic load gives both */
    uint64_t sequence;     /* odd while what follows is being written */
    uint64_t since_ns;     /* CLOCK_MONOTONIC of the last change of the level */
    uint64_t changes;      /* of the level, since this memoird began */
    uint64_t daemon_pid;   /* in memoird's own namespace */
    uint64_t daemon_start; /* CLOCK_MONOTONIC of its first word, in ns */
    struct pressure_inputs inputs;
};

static_assert(sizeof(struct pressure_inputs) == 48, "shared by programs of different builds");
static_assert(sizeof(struct pressure_page) == 112, "shared by programs of different builds");
static_assert(offsetof(struct pressure_page, word) == 16 &&
                  offsetof(struct pressure_page, sequence) == 24 &&
                  offsetof(struct pressure_page, inputs) == 64,
              "shared by programs of different builds");
static_assert(sizeof(struct pressure_page) <= PRESSURE_FILE_BYTES, "one page");

/* The word: the level in its low 8 bits, above them the time in ms of CLOCK_MONOTONIC. 0: nobody publishes. */
static inline uint64_t pressure_word(unsigned level, uint64_t now_ns)
{
    return now_ns / 1000000 << 8 | level;
}

/* The level of a word that somebody keeps up to date; false: nobody does. A time to come, but for what clocks of
 * different resolution differ, is none of this machine's. */
static inline bool pressure_word_level(uint64_t word, uint64_t now_ns, unsigned *ret_level)
{
    int64_t age_ms = (int64_t)(now_ns / 1000000) - (int64_t)(word >> 8);
    unsigned level = (unsigned)(word & 0xff);
    if (word >> 8 == 0 || age_ms > PRESSURE_STALE_MS || age_ms < -PRESSURE_TICK_MS ||
        level >= PRESSURE_LEVELS)
        return false;
    *ret_level = level;
    return true;
}

static inline const char *pressure_level_name(unsigned level)
{
    static const char *const names[PRESSURE_LEVELS] = {"plenty", "some", "high", "critical"};
    return level < PRESSURE_LEVELS ? names[level] : "unknown";
}
