/* traces.h: what the observer knows of traced processes, for the API and for native clients.
 *
 * A dump costs the observer a fork and us its loading, so one is kept per process for
 * TRACES_FRESH_MS: many viewers cost one. The observer may be gone or hang. All questions to it
 * are therefore asked in lanes of their own (chores.h), one question at a time, each within TRACES_WAIT_MS, and nothing
 * else of memoird waits for it. Names in a dump are looked up with the rights of its user, who can make that slow: so
 * each dump has a lock for it, which holds up the questions about that process only.
 *
 * Rights: the trace of a process is for its user and for viewers who see all. asking_may_see()
 * is the rule; it is applied to the user that the dump itself names, since a PID may have been
 * given to another process meanwhile. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "daemon/chores.h"
#include "trace/ask.h"
#include "trace/history.h"

struct asking_viewer;
struct daemon;
struct symbolizer;
struct traces;

enum {
    TRACES_FRESH_MS = 1000,
    TRACES_WAIT_MS = 5000,
    TRACES_LANES = 4,
    TRACES_KEPT = 8,              /* dumps, beside those in use by a lane; the oldest goes */
    TRACES_DUMP_MAX = 64 << 20,   /* bytes of a dump */
    TRACES_PLAIN_MAX = 256 << 20, /* the same unpacked */
    TRACES_LIST_MAX = 8 << 20,
    TRACES_IDLE_S = 5,               /* until kept dumps are freed */
    TRACES_SYMBOLS_MS = 5000,        /* for one answer of the symbol helper */
    TRACES_SYMBOLS_BYTES = 16 << 20, /* of answers that are kept */
};

int traces_new(struct daemon *daemon, struct traces **ret_traces);

/* Ends the thread: a question at hand is given up, chores that wait are dropped. Again is fine,
 * NULL too. */
void traces_stop(struct traces *traces);
void traces_free(struct traces *traces); /* NULL is fine */

/* As chores_add(); for the loop's thread. */
int traces_add(struct traces *traces, uint32_t user, chore_fn *run, chore_fn *drop, void *context);

/* ---- in chores only ---- */

/* Where to ask: tracing_socket() as it was when the chore was made. */
enum { TRACES_SOCKET_MAX = 108 };

struct traces_dump {
    atomic_uint refs;
    /* Constant. */
    pid_t pid;
    uint64_t taken_ns; /* CLOCK_MONOTONIC */
    struct buffer bytes;
    struct trace_identity identity;
    /* Names are put into it as they are found: under the lock. */
    pthread_mutex_t lock;
    struct trace_history *history;
};

/* The dump of a process, at most TRACES_FRESH_MS old, for traces_dump_unref().
 * Errors:
 *   -ENOTCONN   there is no observer, or it ended meanwhile
 *   -ETIMEDOUT  it does not answer
 *   -ESRCH      it does not trace the process
 *   -E2BIG      the dump is larger than the limits above
 *   -EBADMSG, -ENOMEM */
int traces_dump(struct traces *traces, const char *socket, pid_t pid,
                struct traces_dump **ret_dump);
void traces_dump_unref(struct traces_dump **dump); /* NULL there is fine; sets it */

/* Begin or go on to record what a process calls, or stop. The same errors, and -EPERM: the viewer may not, since the process is
 * not one that its user could trace (observe/plain_user.h). */
int traces_switch(struct traces *traces, const char *socket, pid_t pid, bool on,
                  const struct asking_viewer *viewer);

/* One row of the observer's list that the viewer may see. */
enum { TRACES_SPACES = 8, TRACES_LOSSES = 12 };
struct traces_row {
    pid_t pid;
    uint32_t uid;
    char program[TRACE_NAME_MAX];
    uint64_t calls, live_blocks;
    bool off; /* its tracing is switched off */
    /* What the driver counts beyond blocks, all devices together; absent where the observer does
     * not know. */
    bool has_context, has_before, estimate;
    uint64_t context_bytes, before_bytes;
    struct {
        char name[16];
        uint64_t live_bytes, live_blocks, allocated_bytes, allocated_blocks;
    } spaces[TRACES_SPACES];
    size_t n_spaces;
    struct trace_flow copies[TRACE_DIRECTIONS];
    struct {
        char name[24];
        uint64_t n;
    } lost[TRACES_LOSSES];
    size_t n_lost;
};
/* Rows for free(), by PID; the list is at most TRACES_FRESH_MS old. The same errors. */
int traces_list(struct traces *traces, const char *socket, const struct asking_viewer *viewer,
                struct traces_row **ret_rows, size_t *ret_n);
/* The same from the observer's answer to "list". -EBADMSG, -ENOMEM. */
int traces_rows(const struct buffer *json, const struct asking_viewer *viewer,
                struct traces_row **ret_rows, size_t *ret_n);

/* The fields of a row but pid, uid and program, into an open object. */
struct json;
void traces_row_json(const struct traces_row *row, struct json *json);

extern const char *const traces_directions[TRACE_DIRECTIONS];

/* Reads debug information with the rights of user `uid`, whose process is traced; NULL: it
 * cannot be had. This thread's until traces_rest(). */
struct symbolizer *traces_symbols(struct traces *traces, uint32_t uid);
void traces_rest(struct traces *traces); /* NULL is fine */

/* What such an error means, for people. */
const char *traces_error(int error);
