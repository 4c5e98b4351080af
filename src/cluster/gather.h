/* One question to several nodes, and what came back. Pure: messages and time come from the caller. It
 * belongs to one thread at a time.
 *
 * A node that is expected is
 *     WAITING   nothing has come. It is given up GATHER_STALL_MS after the question or, while answers of other nodes keep coming,
 *               when none came for GATHER_FLOW_MS: the asker needs time for a thousand answers. Where more than GATHER_CROWD
 *               nodes and a hundredth of all are waiting, the network or a machine is congested rather than so many nodes dead:
 *               then the pause has to last GATHER_STALL_MS, and none is given up before GATHER_CROWD_MS
 *     WORKING   it acknowledged: given up at the deadline
 *     ANSWERED  its answer is part of the result
 *     REFUSED   it said why it does not answer
 *     MISSING   given up, known to be unreachable, or its answer was invalid
 * and an answer that comes after its node was given up, but before the whole is done, counts. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "cluster/member.h"
#include "cluster/message.h"

struct gather;
struct json;
struct query;
struct query_result;

enum {
    GATHER_STALL_MS = 100,
    GATHER_FLOW_MS = 50,
    GATHER_CROWD = 16,
    GATHER_CROWD_MS = 500,
    GATHER_DEADLINE_MS = 2000,
    GATHER_REPLY_MAX = 8 << 20, /* bytes of one node's answer, all parts */
    GATHER_ROWS_MAX = 200000,   /* of the merged result; the rest is counted */
};

enum gather_state {
    GATHER_WAITING,
    GATHER_WORKING,
    GATHER_ANSWERED,
    GATHER_REFUSED,
    GATHER_MISSING
};

struct gather_node {
    char id[SUBJECT_ID_CHARS + 1];
    char label[MEMBER_LABEL_MAX];
    char version[MESSAGE_NAME_MAX + 1];
    enum gather_state state;
    char why[MESSAGE_REASON_MAX + 1]; /* of REFUSED and MISSING */
    uint64_t took_ns;                 /* of ANSWERED */
    uint64_t lacks;                   /* bits of outputs that its version does not have */
    int64_t clock_offset_ns;
    struct buffer body; /* of several parts, until it is whole; of a call: the answer */
    uint32_t parts_got;
    bool rejected; /* something that it sent was invalid */
};

struct gather_options {
    struct message_nonce nonce;
    struct query *query;            /* taken; NULL: the answer is bytes (gather_body()) */
    uint64_t now_ns;                /* CLOCK_MONOTONIC */
    uint64_t stall_ns, deadline_ns; /* after now_ns; 0: the above */
};

/* -ENOMEM; then the query is freed all the same. */
int gather_new(const struct gather_options *options, struct gather **ret_gather);
void gather_free(struct gather *gather); /* NULL is fine */

/* Before the question is sent: an answer of this member is expected. -ENOMEM. */
int gather_expect(struct gather *gather, const struct member *member, uint64_t now_ns);

/* The question is sent, perhaps later than it began: nodes have their whole time from now on. */
void gather_sent(struct gather *gather, uint64_t now_ns);

/* What came. Messages of nodes that are not expected, and second answers, are ignored: false. */
bool gather_ack(struct gather *gather, const char *id);
bool gather_reply(struct gather *gather, const char *id, const struct message_reply *reply,
                  uint64_t now_ns);
bool gather_refuse(struct gather *gather, const char *id, const char *reason);

/* The question could not be sent: all but `self` are missing. */
void gather_unsent(struct gather *gather, const char *self, const char *why);

/* Time passed: true once nothing more will be waited for. Else `ret_next_ns` is when to call again. */
bool gather_tick(struct gather *gather, uint64_t now_ns, uint64_t *ret_next_ns);

const struct message_nonce *gather_nonce(const struct gather *gather);
const struct gather_node *gather_nodes(const struct gather *gather, size_t *ret_n);
size_t gather_answered(const struct gather *gather);

/* The merged result, unfinished until gather_finish(); NULL for calls. */
int gather_finish(struct gather *gather);
const struct query *gather_query(const struct gather *gather);
struct query_result *gather_result(struct gather *gather);

/* Of a call: the bytes of the one node that answered; NULL: none did. */
const struct buffer *gather_body(const struct gather *gather);

/* The member "cluster" of an answer: {"expected", "answered", "missing": [{"node","id","why"}],
 * "lacking": [{"node","version","columns"}], "clocks": [{"node","clock_offset"}], "took"}. */
void gather_json(const struct gather *gather, struct json *json);
