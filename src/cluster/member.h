/* The members of the cluster: a soft list from heartbeats. It is never stored or configured. Pure: time comes from the caller,
 * so that tests run it on virtual time. One thread.
 *
 * Heartbeats to all cost N * N messages per interval, so the interval grows with the number of members. Once it is longer
 * than MEMBER_WATCH_MS, each node also sends a hello every MEMBER_WATCH_MS to MEMBER_WATCHERS members: those that follow it in the
 * order of IDs. A watcher that no longer hears it reports it to all. A report is only a doubt: the node that it is about hears
 * it too and answers with a heartbeat; if none comes within MEMBER_DOUBT_MS the node is unreachable. So a false report costs one
 * heartbeat and changes nothing.
 *
 * A member is
 *     ALIVE        its last heartbeat is not older than two of its intervals and MEMBER_GRACE_MS, it is not overdue where
 *                  this node watches it, and no report about it is older than MEMBER_DOUBT_MS
 *     UNREACHABLE  it fell silent, or the server reported its disconnection; it is still expected to
 *                  answer, so that it is missed by name and never counted as zero
 *     LEFT         it said goodbye: not expected any more
 * and is forgotten MEMBER_FORGET_S after it fell silent, or MEMBER_LEFT_S after it left. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cluster/message.h"
#include "cluster/subject.h"

struct members;

enum {
    MEMBER_INTERVAL_MS = 2000,   /* least time between two heartbeats to all */
    MEMBER_INTERVAL_NODE_MS = 8, /* the interval is at least this times the number of members */
    MEMBER_GRACE_MS = 400, /* a silent member is unreachable 2 * interval + this later: 4.4 s */
    MEMBER_WATCHERS = 3,
    MEMBER_WATCH_MS = 2000,
    MEMBER_DOUBT_MS = 400, /* 2 * MEMBER_WATCH_MS + MEMBER_GRACE_MS + this: 4.8 s */
    MEMBER_FORGET_S = 3600,
    MEMBER_LEFT_S = 60,
    MEMBERS_MAX = 4096, /* further ones are counted and left out */
    MEMBER_LABEL_MAX = MESSAGE_NAME_MAX + 1 + 8 + 1,
    MEMBER_CLOCK_SHOWN_MS = 1000, /* differences of clocks from here on are shown */
};

enum member_state { MEMBER_ALIVE, MEMBER_UNREACHABLE, MEMBER_LEFT };

struct member {
    char id[SUBJECT_ID_CHARS + 1];
    char name[MESSAGE_NAME_MAX + 1], version[MESSAGE_NAME_MAX + 1];
    enum member_state state;
    bool self;
    bool shared_name;    /* another member has the same: the label tells them apart */
    uint64_t started_ns; /* of its memoird, since 1970 */
    uint64_t heard_ns;   /* CLOCK_MONOTONIC, as are the next ones; 0: never */
    uint64_t since_ns;   /* of its state */
    uint64_t interval_ns;
    uint64_t watch_due_ns;   /* when it is overdue at this node as its watcher; 0: not watched */
    uint64_t doubt_due_ns;   /* when a report about it takes effect; 0: none */
    int64_t clock_offset_ns; /* its clock less ours, with the time that the message took */
    uint64_t answered_ns;    /* its last answer; 0: none yet */
    uint64_t answer_took_ns;
    uint64_t answers, missed, rejected;
    uint64_t told_since_ns; /* lines in the log about its coming and going: since when, */
    unsigned told;          /* and how many */
};

int members_new(struct members **ret_members);
void members_free(struct members *members); /* NULL is fine */

/* Itself, always alive. -ENOMEM. */
int members_add_self(struct members *members, const char *id, const char *name, const char *version,
                     uint64_t started_ns, uint64_t now_ns);

/* What became of the list. */
enum members_change { MEMBERS_SAME, MEMBERS_JOINED, MEMBERS_BACK, MEMBERS_FULL };

/* A hello came. MEMBERS_FULL: no room, it was counted. */
enum members_change members_hello(struct members *members, const char *id,
                                  const struct message_hello *hello, uint64_t now_ns,
                                  uint64_t now_real_ns);

/* It left in order; or its connection broke, as the server says. True if that changed anything. */
bool members_bye(struct members *members, const char *id, uint64_t now_ns);
bool members_lost(struct members *members, const char *id, uint64_t now_ns);

/* Another node reports that it fell silent. Ignored if it was heard within the last MEMBER_WATCH_MS, or is not known to be alive:
 * false. */
bool members_doubt(struct members *members, const char *id, uint64_t now_ns);

/* The IDs of the members that have to watch this node: how many, at most MEMBER_WATCHERS. */
size_t members_watchers(const struct members *members,
                        char ret_ids[static MEMBER_WATCHERS][SUBJECT_ID_CHARS + 1]);

/* This node was cut off: it knows nothing of the members that it watched until they speak again. */
void members_unwatch(struct members *members);

/* Was it overdue at this node as its watcher? For `died` below. */
static inline bool member_overdue(const struct member *member, uint64_t now_ns)
{
    return member->watch_due_ns && member->watch_due_ns <= now_ns;
}

/* Time passed. Calls `died` (may be NULL) for each that became unreachable; returns when to call again. */
uint64_t members_tick(struct members *members, uint64_t now_ns,
                      void (*died)(const struct member *member, void *context), void *context);

/* All, by ID; and one, or NULL. Borrowed until the list changes. */
const struct member *members_list(const struct members *members, size_t *ret_n);
struct member *members_find(struct members *members, const char *id);

/* The member that people mean by a name, a label or the first digits of an ID (at least 4). NULL: none.
 * `ret_several` (may be NULL): the name fits more than one. */
const struct member *members_named(const struct members *members, const char *word,
                                   bool *ret_several);

/* The time between two heartbeats of this node to all, with as many members as are alive. */
uint32_t members_interval_ms(const struct members *members);

/* Its name, with the first digits of its ID where another has the same name: "web~3fa9". Returns `label`. */
const char *member_label(const struct member *member, char label[static MEMBER_LABEL_MAX]);

const char *member_state_word(enum member_state state);
uint64_t members_left_out(const struct members *members);
