/* STATE/exits.ring: processes that ended, as the kernel told memoird, in a file of fixed size.
 *
 * memoird keeps it mapped and writes to it in place, so that a daemon that is killed loses nothing; others
 * read it at any time. There are slots for single processes, those that were killed apart from those that
 * exited by themselves, so that a build's thousands of compilers do not push out the one that ran out of
 * memory. What has to give way is added up by hour, user, program and cause: nothing that was seen is lost
 * from a count.
 *
 * Each record ends in a check sum over the rest. One that is being written, or was torn by a crash of the
 * machine, does not match and is left out. All numbers are little-endian as the machine has them; another
 * version begins the file anew. */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    EXIT_FILE_VERSION = 1,
    EXIT_FILE_ORDINARY = 4096, /* slots of those that exited */
    EXIT_FILE_KILLED = 1024,   /* and of those that a signal ended; these come after */
    EXIT_FILE_SLOTS = EXIT_FILE_ORDINARY + EXIT_FILE_KILLED,
    EXIT_FILE_SUMS = 2048,
    EXIT_FILE_WHY_MAX = 256,
    EXIT_CAUSE_TEXT_MAX = 48,
    EXIT_PROGRAM_MAX = 48,
};

#define EXIT_FILE_MAGIC UINT64_C(0x31676e7274697865) /* "exitrng1" */
#define EXIT_FILE_NAME  "exits.ring"

enum exit_watch_state {
    EXIT_WATCH_NEVER,  /* off: it was not asked for */
    EXIT_WATCH_ON,     /* by memoird `watcher`, since `since_ns` */
    EXIT_WATCH_CANNOT, /* `why` tells */
};

struct exit_file_header {
    uint64_t magic;
    uint32_t version, slots, sums;
    uint32_t state; /* enum exit_watch_state */
    uint64_t since_ns;
    int32_t watcher;
    uint32_t unused;
    uint64_t seen;                   /* ever, in this file */
    uint64_t lost;                   /* not recorded: the kernel's ring was full */
    uint64_t forgotten;              /* in sums that had to give way */
    uint64_t last_ns;                /* when a watcher was last known to run, or when it ended */
    uint64_t gap_from_ns, gap_to_ns; /* the last time without a watcher; 0: there was none yet */
    char why[EXIT_FILE_WHY_MAX];
    uint8_t reserved[3752];
};
static_assert(sizeof(struct exit_file_header) == 4096, "the layout is a file's");

enum exit_record_flags {
    EXIT_RECORD_OOM = 1u << 0, /* the OOM killer had chosen it */
    EXIT_RECORD_PEAK_FORK =
        1u << 1, /* the peak may be that of its parent, of which it was a copy */
    EXIT_RECORD_CGROUP_LEAF = 1u << 2 /* only the last part of the path is known */
};

struct exit_record {
    uint64_t sequence;         /* 0: an empty slot; larger ones came later */
    uint64_t end_ns, start_ns; /* since 1970 */
    uint64_t cpu_ns;
    uint64_t peak_bytes;
    uint64_t start_ticks; /* as /proc/PID/stat has it */
    int32_t pid, inner_pid, parent;
    uint32_t uid;
    int32_t status; /* as wait() gives it */
    uint32_t flags; /* enum exit_record_flags */
    char program[EXIT_PROGRAM_MAX];
    char cgroup[128];
    uint64_t check;
};
static_assert(sizeof(struct exit_record) == 256, "the layout is a file's");

struct exit_sum {
    uint64_t count;                /* 0: empty */
    uint64_t start_ns, end_ns;     /* of the first, of the last */
    uint64_t cpu_ns;               /* of all */
    uint64_t peak_bytes, lived_ns; /* of the largest, of the oldest */
    /* sequence of the last one that was added: all of its kind before are in here */
    uint64_t folded_to;
    uint32_t hour; /* since 1970, in which they ended */
    uint32_t uid;
    int32_t status;
    uint32_t flags;
    char program[EXIT_PROGRAM_MAX];
    uint64_t check;
};
static_assert(sizeof(struct exit_sum) == 128, "the layout is a file's");

struct exit_file {
    struct exit_file_header header;
    struct exit_record records[EXIT_FILE_SLOTS];
    struct exit_sum sums[EXIT_FILE_SUMS];
};

uint64_t exit_record_check(const struct exit_record *record);
uint64_t exit_sum_check(const struct exit_sum *sum);
bool exit_header_valid(const struct exit_file_header *header);

/* Neither empty nor torn, and its texts end. */
bool exit_record_valid(const struct exit_record *record);
bool exit_sum_valid(const struct exit_sum *sum);

/* What makes two exits of one kind: the hour in which they ended, user, program and cause. */
uint32_t exit_hour(uint64_t end_ns);
uint64_t exit_record_kind(const struct exit_record *record);
uint64_t exit_sum_kind(const struct exit_sum *sum);
bool exit_sum_is(const struct exit_sum *sum, const struct exit_record *record);

/* A copy of `state`/exits.ring for free(); what is not valid in it has sequence or count 0. -ENOENT when there
 * is none, -EINVAL for a file of another version. Tries again what is being written. */
int exit_file_read(const char *state, struct exit_file **ret_file);

/* Its header alone, with the same results. */
int exit_file_header_read(const char *state, struct exit_file_header *ret_header);

/* "exited with 1", "killed by SIGKILL", "killed by SIGSEGV (core dumped)", "OOM kill". Returns `text`. */
const char *exit_status_text(int status, bool oom, char text[static EXIT_CAUSE_TEXT_MAX]);
