/* What the files of memoird's part in a cluster share. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/buffer.h"
#include "cluster/cluster.h"
#include "cluster/sign.h"
#include "daemon/asking.h"
#include "daemon/clustering.h"
#include "daemon/clustering_settings.h"
#include "daemon/turns.h"
#include "query/query.h"

struct clustering_server;
struct loop_source;
struct tokens;
struct users;

enum { CLUSTERING_WORDS = 5 }; /* of a question: table, by, where, show, sort */

/* A question that the query core has to answer here: the own part of one of ours, or one of another node. */
struct clustering_work {
    TAILQ_ENTRY(clustering_work) link;
    struct clustering_ask *ask; /* of ours, or NULL and: */
    struct cluster_question *question;
    char *words[CLUSTERING_WORDS];
    uint64_t limit;
    bool others;
    struct past_window window;
    struct asking_viewer viewer;
    struct turn turn;
    uint32_t who; /* shares turns */
};
TAILQ_HEAD(clustering_works, clustering_work);

/* A question of ours. */
struct clustering_ask {
    struct clustering *clustering;
    struct cluster_ask *out;
    clustering_done *done;
    void *context;
    char *token; /* of the target, or NULL */
    LIST_ENTRY(clustering_ask) link;
};
LIST_HEAD(clustering_asks, clustering_ask);

/* A call of another node that one of our routes answers. */
struct clustering_visit {
    struct clustering *clustering;
    struct cluster_question *question; /* NULL: memoird exits */
    LIST_ENTRY(clustering_visit) link;
};
LIST_HEAD(clustering_visits, clustering_visit);

struct clustering_past;
LIST_HEAD(clustering_pasts, clustering_past);

enum { NONCES_KEPT = 4096, NONCES_USER = 512 };

struct clustering {
    struct daemon *daemon;
    struct clustering_settings settings;
    struct cluster *cluster;          /* NULL: in none */
    struct clustering_server *server; /* that we run, or NULL */
    struct loop_source *wake, *timer;
    struct clustering_works works;
    struct clustering_asks asks;
    pthread_mutex_t visits_lock; /* for what follows: answers come on other threads */
    struct clustering_visits visits;
    struct clustering_pasts pasts;
    struct tokens *tokens; /* of this node; NULL: it cannot be had */
    bool has_key;
    struct sign_key key; /* of this node */
    struct users *users;
    struct buffer scratch;
    uint64_t
        begun_ns; /* since 1970: of proofs that are older it is not known whether they were used */
    struct {      /* of proofs that were accepted: each serves once */
        struct message_nonce nonce;
        uint64_t expires_ns;
        uint32_t who;
    } nonces[NONCES_KEPT];
};

/* ---- clustering_rights.c ---- */

/* The local identity of a question of another node, and what it allows. */
struct clustering_rights {
    struct asking_viewer viewer;
    bool control;
    char who[MESSAGE_NAME_MAX + MEMBER_LABEL_MAX + 16]; /* for the audit: "ann of web" */
};

/* False, with a reason: the proof is wrong, and the question is refused. Without any right the viewer sees
 * totals only. */
bool clustering_rights(struct clustering *clustering, const struct cluster_question *question,
                       struct clustering_rights *ret, const char **ret_why);

/* The proof that a question of ours carries. For cluster_wish.sign; `context` is the clustering_ask. */
void clustering_sign(void *context, const struct message_ask *ask, const char *target,
                     struct cluster_proof *ret_proof);

/* ---- clustering_key.c ---- */

/* This node's key, from STATE/cluster.key, which is made where it is missing. Says in the log why there is none: -errno. */
int clustering_key_load(const char *state, struct sign_key *ret_key);

/* The first word of a list of trusted nodes ("ID+KEY:ann=bob ...") that is about `asker`. */
struct clustering_trust {
    bool found;
    bool has_key;
    uint8_t key[SIGN_KEY_BYTES];
    char local[MESSAGE_NAME_MAX + 1]; /* the local user for `user`; "": none */
};
void clustering_trust(const char *list, const char *asker, const char *user,
                      struct clustering_trust *ret);

/* ---- clustering_call.c ---- */

/* A call of another node: asks our own routes for it. */
void clustering_take_call(struct clustering *clustering, struct cluster_question *question,
                          const struct clustering_rights *rights);
/* Refuses those that wait for their answers. */
void clustering_calls_stop(struct clustering *clustering);

/* ---- clustering_past.c ---- */

/* Answer from the history, on another thread; the question or ask of `work` is taken over. NULL, or why it cannot: then it is
 * not. */
const char *clustering_past_begin(struct clustering *clustering,
                                  const struct clustering_work *work);
/* The same for a question about the mappings of processes. *ret_again with a reason: not yet, ask again in a moment. */
const char *clustering_explain_begin(struct clustering *clustering,
                                     const struct clustering_work *work, bool *ret_again);
void clustering_past_forget(struct clustering *clustering, const struct clustering_ask *ask);
void clustering_past_stop(struct clustering *clustering);

/* ---- clustering.c ---- */

/* `wish` with its query, body and node: the rest is filled in. */
int clustering_ask_begin(struct clustering *clustering, struct cluster_wish *wish,
                         const struct clustering_viewer *viewer, clustering_done *done,
                         void *context, struct clustering_ask **ret_ask);

/* ---- clustering_work.c ---- */

/* Do what can be done; the rest waits for its turn. */
void clustering_work(struct clustering *clustering);
/* The words of the question; borrowed. */
struct query_spec clustering_work_spec(const struct clustering_work *work);
void clustering_work_free(struct clustering *clustering, struct clustering_work *work);

/* A query of another node: decodes it and puts it among the works, or refuses it. */
void clustering_take_query(struct clustering *clustering, struct cluster_question *question,
                           const struct clustering_rights *rights);
