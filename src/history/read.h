/* Reading history: what the values were, between two moments, at steps of some length.
 *
 * Opens the file for reading only: while memoird writes, after it ended, after it was killed.
 *
 * The step of the answer is a multiple of the step of every tier that it is read from, and its steps are
 * aligned to 1970. So each point of a tier lies in exactly one step, and a step lacks a value only if nothing
 * was recorded in it. Where the selected series have points that only a coarser tier still has, the answer's
 * step is therefore longer than the one asked for: rounded up to a multiple of that tier's. The coarsest tier whose
 * step divides the answer's is read; where it has nothing (not rolled up yet), finer ones fill in.
 *
 * Of each step, `last` is the value at its end and `max` the largest in it, which coarser tiers
 * keep too. Values of several processes are added up at each moment of the tier; the sum of their `max` is then the most
 * that it can have been. What the file has of one process in several series, since it began to keep a book or called exec, is
 * one line: of a moment the later series counts. One thread; errors are -errno: -ENOENT without a file, -EBADMSG when it is none of
 * ours, -E2BIG when it would be too many points. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "history/tier.h"
#include "ledger/ledger.h"

enum {
    READ_STEPS_MAX = 200000,
    READ_POINTS_MAX = 20000000, /* of all lines */
};

enum read_by { READ_BY_DEVICE, READ_BY_PROCESS, READ_BY_PROGRAM, READ_BY_USER };

struct read_query {
    uint64_t since_s, until_s; /* since 1970; until is not included */
    uint64_t step_s; /* wanted, at least 1; both ends are moved to whole steps of the answer */
    enum read_by by;
    bool blocks;         /* blocks instead of bytes */
    int64_t pid;         /* 0: all; this and what follows leaves out what does not match */
    const char *program; /* NULL: all; else its name, with * and ? as in file names */
    bool by_uid;
    uint32_t uid;
    const char *device; /* NULL: all; "host", or a device's number, name, uid or bus address */
    const char
        *device_id;   /* NULL: all; else the one device of this identity (ledger_device_id()) */
    const char *node; /* name of this machine, for identities; NULL: "" */
    bool by_space;
    uint32_t space; /* enum memoir_space; 0: the resident size, or with */
    bool pss;       /* the proportional one */
    bool system;    /* the machine's memory and memory pressure instead, and nothing else */
};

struct read_point {
    bool present;
    uint32_t offset_s; /* of the last value, from the start of the step */
    uint64_t last, max;
};

/* What stands for a group of series. */
struct read_line {
    uint32_t processes;        /* how many are in it; 0: a sum of the machine's */
    int64_t pid;               /* by process */
    uint64_t began_s;          /* by process; 0: unknown */
    int64_t boot, start_ticks; /* by process: with the pid which one it was */
    uint32_t uid;              /* by process and by user */
    char program[64];          /* by process and by program */
    char node[64];
    bool on_device; /* else the host's */
    uint32_t kind;
    int32_t ordinal;
    char device[64], device_uid[64], bus[32];
    char device_node[64]; /* another machine's, or "" */
    enum { READ_ACCOUNT, READ_PSS, READ_SYSTEM, READ_PRESSURE } what;
    /* enum memoir_space; 0: the resident size, or blocks of all spaces; or, of the machine, enum
     * history_system or history_pressure */
    uint32_t space;
    bool has_capacity;
    uint64_t capacity;
    bool any;                        /* there is at least one point */
    uint64_t min, max, last, last_s; /* min is the least `last` */
    struct read_point *points;       /* read_result.n_steps */
};

struct read_result {
    enum read_by by;
    uint64_t since_s, until_s, step_s;
    size_t n_steps;
    struct read_line *lines; /* those with a point, ordered by device, space, then the rest */
    size_t n_lines;
    struct read_point *points; /* of all lines */
    uint64_t oldest_s;         /* of all that is in the file; 0: nothing */
    size_t n_earlier;          /* by read_choose_process(): further processes of this PID */
    bool pid_known;            /* the file has a process of the PID asked for, at whatever time */
    uint64_t damaged;          /* chunks that made no sense, left out */
};

/* The shortest step of a usual length (1 s, 2 s, 5 s, 10 s ...) that cuts a range into at most `points` steps. */
uint64_t read_step(uint64_t range_s, uint64_t points);

/* The identity of the device of a line that is on one; `node` is the name of this machine. Returns `text`. */
char *read_line_device_id(const struct read_line *line, const char *node,
                          char text[static LEDGER_DEVICE_ID_MAX]);

/* Has the process of this line ended by now, as far as this machine can tell? One of another machine counts as ended. Reads
 * /proc; of lines of one process that come together, once a second at most. */
bool read_line_ended(const struct read_line *line);

/* A PID may have been several processes in the time asked for. Keep the lines of the one that began nearest to `start_s`,
 * or of the last one where that is 0; of equally near ones, that of the last line. */
void read_choose_process(struct read_result *result, uint64_t start_s);

/* What a line is of, in one word: "rss", "pss", "heap", "available", "pressure"; blocks of all spaces are "all". */
const char *read_line_word(const struct read_line *line, bool blocks);

/* The step that read_history() would answer this query in. */
int read_history_step(const char *path, const struct read_query *query, uint64_t *ret_step_s);

/* Costs about 3 us a series and window. */
int read_history(const char *path, const struct read_query *query, struct read_result *ret_result);
void read_release(struct read_result *result);
