/* The cluster as memoird sees it: its members, questions to all of them, and questions of other nodes.
 *
 * A thread of the cluster's own holds the connection, the list of members and the questions that are out.
 * The owner's thread (memoird's loop) never waits for it: it hands questions and answers over, is woken by
 * `wake`, and fetches what is ready by cluster_turn(). Without a server everything local goes on; a question
 * to the cluster is then answered by this node alone, with all others missing.
 *
 *     owner:   cluster_ask() -> ask                 thread: sends it, merges what comes
 *     owner:   cluster_ask_self(ask, own partial)
 *     owner:   cluster_turn() -> done(ask)  <- wake
 *     owner:   gather_result(cluster_ask_gather(ask)), cluster_ask_free(ask)
 *
 *     other node's question -> thread -> wake -> owner: cluster_turn() -> question()
 *     owner:   cluster_answer(question, bytes) or cluster_refuse(question, reason) -> thread sends it */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cluster/bus.h"
#include "cluster/gather.h"
#include "cluster/member.h"
#include "cluster/message.h"

struct cluster;
struct cluster_ask;
struct query;
struct query_spec;

enum {
    CLUSTER_ACK_MS = 5,         /* an answer that comes sooner needs no acknowledgement */
    CLUSTER_QUESTIONS_MAX = 64, /* of other nodes that wait; further ones are refused and counted */
    CLUSTER_ASKS_MAX = 256,     /* of our own that are out; a user gets half of what others leave */
    CLUSTER_SPEAKER_WAITING = 16, /* questions of one node that may wait */
    CLUSTER_HI_MS = 200,          /* newcomers are greeted within this time, by chance */
    CLUSTER_URL_MAX = 256,
};

/* A question of another node. The owner's, until it is answered or refused. */
struct cluster_question {
    char asker[SUBJECT_ID_CHARS + 1];
    char asker_label[MEMBER_LABEL_MAX];
    bool to_all;                   /* and not to this node alone */
    struct message_ask ask;        /* texts and body live as long as the question */
    uint64_t came_ns, deadline_ns; /* CLOCK_MONOTONIC */
};

struct cluster_figures {
    uint64_t questions, refused, answers; /* of others */
    uint64_t asked;                       /* by us */
    uint64_t messages, rejected;          /* that came; that were malformed or not allowed */
    uint64_t late;                        /* replies to questions that are over */
    uint64_t dropped;                     /* by libnats or by us, since we were too slow */
};

struct cluster_options {
    struct bus_options bus; /* its callbacks are ours */
    const char *id, *name, *version;
    uint64_t started_ns; /* since 1970 */

    void (*wake)(void *context); /* any thread: cluster_turn() has something to do */
    /* From cluster_turn(): */
    void (*question)(void *context, struct cluster_question *question);
    void (*done)(void *context, struct cluster_ask *ask, void *of);
    void *context;
};

/* Starts the thread. The options' strings are copied. */
int cluster_new(const struct cluster_options *options, struct cluster **ret_cluster);

/* Says goodbye. Asks and questions that the owner still has are freed before, by the owner. */
void cluster_free(struct cluster *cluster); /* NULL is fine */

/* Calls question() and done() for all that is ready. */
void cluster_turn(struct cluster *cluster);

/* ---- asking ---- */

/* The proof of the asker's identity. */
struct cluster_proof {
    bool has_mac, has_signature;
    uint8_t key[MESSAGE_KEY_BYTES], mac[MESSAGE_MAC_BYTES];
    uint8_t signature[MESSAGE_SIGNATURE_BYTES];
};

struct cluster_wish {
    const char *node; /* name, label or ID of one; NULL: all */
    bool others_only; /* this node does not answer */
    enum message_what what;
    struct query *query; /* of MESSAGE_QUERY; taken, also on failure */
    const void *body;    /* copied */
    size_t body_len;
    struct message_rights rights; /* user and expiry; copied */
    /* Makes the proof; NULL: none. `target` is the ID of a node, or "" for a question to all. Called by cluster_ask(). */
    void (*sign)(void *context, const struct message_ask *ask, const char *target,
                 struct cluster_proof *ret_proof);
    void *sign_context;
    uint64_t deadline_ns; /* 0: GATHER_DEADLINE_MS */
    uint32_t who;         /* a number that all questions of one user share */
    void *of;             /* for done() */
};

/* -ENOENT: there is no such node; -ENOTUNIQ: the name fits several; -EBUSY: too many are out; -EUSERS: too many of this user
 * are; -ENOMEM. Else done() is called once for it. */
int cluster_ask(struct cluster *cluster, struct cluster_wish *wish, struct cluster_ask **ret_ask);

/* The own part of the answer: bytes of query_partial_write(); NULL: why there is none. */
void cluster_ask_self(struct cluster_ask *ask, const void *bytes, size_t len, const char *why);
bool cluster_ask_wants_self(const struct cluster_ask *ask);

/* After done(): what came. */
struct gather *cluster_ask_gather(struct cluster_ask *ask);

/* The owner is done with it: after done(), or before, and then done() is not called. NULL is fine. */
void cluster_ask_free(struct cluster_ask *ask);

/* ---- answering: each takes the question ---- */

void cluster_answer(struct cluster *cluster, struct cluster_question *question, const void *bytes,
                    size_t len);
void cluster_refuse(struct cluster *cluster, struct cluster_question *question, const char *reason);

/* ---- looking: owner's thread; short ---- */

/* A copy for free(). -ENOMEM. */
int cluster_members(struct cluster *cluster, struct member **ret_members, size_t *ret_n);
/* The ID of the one that people mean: see members_named(). -ENOENT, -ENOTUNIQ. */
int cluster_find(struct cluster *cluster, const char *word,
                 char ret_id[static SUBJECT_ID_CHARS + 1], bool *ret_self);
struct cluster_figures cluster_figures(struct cluster *cluster);
enum bus_state cluster_state(struct cluster *cluster, char ret_why[static BUS_WHY_MAX],
                             char ret_server[static CLUSTER_URL_MAX]);
const char *cluster_id(const struct cluster *cluster);
const char *cluster_name(const struct cluster *cluster);
