/* Inside the watch over processes without a book: what its files share. See climbing.h. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/climbing.h"
#include "explain/outside.h"

struct chores;
struct explain;
struct loop_source;

enum { CLIMBER_NAME_BYTES = 64 };

struct climber {
    struct outside watch;
    uint64_t start_ticks; /* with watch.pid the identity */
    uint32_t uid;         /* UINT32_MAX: not known */
    uint32_t payer;       /* the user whose places it takes (base/accountable.h) */
    char program[CLIMBER_NAME_BYTES];
    uint64_t top_bytes, grown_ns; /* the most it had, and when that rose */
    bool refused;                 /* its mappings may not be read */
};

/* What a process had at the last look at all of them. */
struct seen {
    pid_t pid;
    uint64_t start_ticks, rss_bytes;
    bool left_out; /* it is counted as such */
};

/* An explanation that is taken on the thread; the thread's until `done`. */
struct errand {
    struct daemon *daemon;
    bool open;
    pid_t pid;
    uint64_t start_ticks, begin_ns, cost_ns;
    uint32_t uid, payer;
    struct explain *explain;
    int result;
    atomic_bool done;
};

/* A user whose process did not answer in time. */
struct climbing_rest {
    uint32_t payer;
    uint64_t until_ns;  /* its processes are not explained before; 0: a free place */
    uint64_t length_ns; /* of this rest */
};

struct climbing {
    struct daemon *daemon;
    struct loop_source *timer;
    struct chores *chores;
    uint64_t needs_ns, interval_ns;
    uint64_t rounds, host_ns; /* of the table that was looked at last */
    struct seen *seen;        /* by pid */
    size_t n_seen;
    struct climber *climbers[CLIMBING_MAX];
    size_t n;
    struct errand errand;
    int64_t credit_ns; /* time that explanations may take; below 0: none begins */
    uint64_t credited_ns;
    struct climbing_rest rests[CLIMBING_MAX];
    struct climbing_facts facts;
};

/* NULL: it is not watched. */
struct climber *climbing_find(const struct climbing *climbing, pid_t pid, uint64_t start_ticks);

/* climbing_explain.c: take what an explanation found, and begin the next one that is due and fits into the time for them. */
void climbing_explain(struct climbing *climbing, uint64_t now_ns);

uint64_t climber_bytes(const struct climber *climber); /* resident, as of the last look */
bool climber_is_large(const struct climber *climber);  /* too large to be explained */
unsigned climber_known(const struct climber *climber); /* explanations: none, one, or two */
