/* The process at the other end of a socket, and the processes that it may report for.
 *
 * The kernel tells pid and uid of the peer (SO_PEERCRED, and SO_PEERPIDFD where there is one, so that the reuse of a pid is
 * noticed). A peer may report for
 *   - itself, by its pid as we see it or by any of its pids in its own namespaces (NSpid), unless another user's
 *     program (a setuid one) runs there by now,
 *   - a descendant with the same uid (a child that inherited the socket),
 *   - as root, any process.
 * A pid that a client of another pid namespace sends is one of its namespace and is translated. Answers are
 * kept per connection by (pid, start time), since messages repeat one pid a million times. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ledger/proc.h"

enum {
    PEER_KNOWN_MAX = 16,  /* processes that one connection may speak for at a time */
    PEER_LOOKUPS_MAX = 8, /* of one connection at once, then one every PEER_LOOKUP_MS */
    PEER_LOOKUP_MS = 100,
    PEER_LOOKUP_LOOKS = 4,     /* at /proc, about 10 µs each, and one for each ancestor */
    PEER_LOOKS_MAX = 2000,     /* of one user in half a second, about others than themselves, */
    PEER_LOOKS_ALL_MAX = 8000, /* and of all users in a second */
    PEER_ANCESTORS_MAX = 64,
};

/* An answer of peer_resolve(). */
struct peer_known {
    pid_t claimed; /* as the client says; 0: unused */
    pid_t pid;     /* as we see it; 0: not allowed, or no such process */
    uint64_t start_ticks;
    uint64_t looked_ns; /* CLOCK_MONOTONIC, of a refusal, */
    int error;          /* and which: -EPERM, -ESRCH or -EAGAIN */
};

struct peer {
    bool remote; /* of another machine, over TCP: the fields below up to `host` say nothing */
    pid_t pid;   /* as we see it */
    uint32_t uid, gid;
    uint64_t start_ticks;        /* 0: it was gone already */
    int pidfd;                   /* -1: none; the peer owns it */
    uint64_t pid_ns;             /* inode */
    bool foreign_ns;             /* its pid namespace is not ours */
    pid_t pids[PROC_LEVELS_MAX]; /* NSpid: ours first, its own last */
    uint32_t n_pids;
    char host[64]; /* with `remote`: its numeric address */

    struct peer_known own;    /* answer about itself, */
    struct peer_known *known; /* and about PEER_KNOWN_MAX others, once it reports for any */
    uint32_t next_known;      /* to be replaced */
    uint32_t lookups;         /* left */
    uint64_t lookups_ns;
};

/* Of a connected socket, which stays the caller's. -errno when the kernel tells nothing. */
int peer_init(struct peer *peer, int fd);
void peer_release(struct peer *peer);

/* A process of this machine: a pid alone may be reused by the time it is used. */
struct peer_process {
    pid_t pid; /* as we see it */
    uint64_t start_ticks;
};

/* The process, in our namespace, that the client means by `claimed`, if it may report for it. 0 and the
 * process; -EPERM: it may not; -ESRCH: no such process; -EAGAIN: too many different ones at once, none was
 * looked up. No system call for one that was asked for before, so it may have ended, or have become
 * another user's by exec: behalf_get() looks again. */
int peer_resolve(struct peer *peer, pid_t claimed, struct peer_process *ret_process);

/* That process has ended: ask anew next time. */
void peer_forget(struct peer *peer, pid_t claimed);

/* Without a lookup: is it one of the client's own pids, or one that was allowed before? Tells messages from
 * garbage. */
bool peer_is_own(const struct peer *peer, pid_t claimed);

/* The client's own pid as the client sees it; 0 for a client of another machine. */
pid_t peer_own_pid(const struct peer *peer);
bool peer_is_known(const struct peer *peer, pid_t claimed);

/* May the client see details of processes of `uid`, or report for them? Root and that user may. */
bool peer_may_see(const struct peer *peer, uint32_t uid);
