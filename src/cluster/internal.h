/* What the files of the cluster share. See cluster.h for ownership. */
#pragma once

#include <sys/queue.h>

#include "base/buffer.h"
#include "base/worker.h"
#include "cluster/cluster.h"

/* A message that came, as libnats handed it over. */
struct letter {
    STAILQ_ENTRY(letter) link;
    char subject[SUBJECT_MAX], reply[SUBJECT_MAX];
    size_t len;
    uint8_t data[];
};
STAILQ_HEAD(letters, letter);

/* A question of another node. Of the thread until `question` is called, then of the owner until it is
 * answered, then of the thread again; `open_link`, `ack_ns` and `acked` are the thread's alone. */
struct question_box {
    struct cluster_question question; /* first */
    struct message message;           /* that question.ask borrows from, as it does from */
    struct letter *letter;
    STAILQ_ENTRY(question_box) link; /* of the list on its way */
    LIST_ENTRY(question_box) open_link;
    uint64_t ack_ns;
    bool acked;
    struct buffer out;                    /* the answer */
    char refused[MESSAGE_REASON_MAX + 1]; /* or why there is none; "": there is one */
};
STAILQ_HEAD(question_boxes, question_box);
LIST_HEAD(open_questions, question_box);

/* A question of our own. */
struct cluster_ask {
    struct cluster *cluster;
    struct gather *gather; /* the thread's until `done` */
    struct buffer body;
    struct message_ask ask;
    char user[MESSAGE_NAME_MAX + 1];
    char target[SUBJECT_ID_CHARS + 1]; /* "": all */
    bool wants_self, others;           /* constant */
    uint32_t who;                      /* constant */
    struct cluster_proof proof;
    void *of;

    /* Under the lock: */
    bool dropped;      /* by the owner: the thread frees it */
    bool done;         /* the owner's again */
    bool has_self;     /* the own part is in `own` */
    struct buffer own; /* or why there is none: */
    char own_why[MESSAGE_REASON_MAX + 1];

    bool self_taken;                    /* thread only */
    TAILQ_ENTRY(cluster_ask) link;      /* thread only: of those that are out */
    STAILQ_ENTRY(cluster_ask) way_link; /* under the lock: new, or done */
};
TAILQ_HEAD(asks_out, cluster_ask);
STAILQ_HEAD(asks_way, cluster_ask);

/* A newcomer that has to be greeted. */
struct greeting {
    char id[SUBJECT_ID_CHARS + 1];
    uint64_t due_ns;
};
enum {
    GREETINGS_MAX = 1024,
    LOST_MAX = 256, /* reports at one time; other watchers report the rest */
};

struct cluster {
    struct worker worker; /* its lock is for all that says so */

    /* Constant. */
    struct cluster_options options; /* with strings of our own */
    char id[SUBJECT_ID_CHARS + 1], name[MESSAGE_NAME_MAX + 1], version[MESSAGE_NAME_MAX + 1];
    char *texts[16]; /* the strings of options.bus, for free() */

    /* Under the lock. */
    struct letters inbox;
    size_t inbox_n, inbox_bytes;
    uint64_t inbox_dropped;
    struct asks_way asks_new, asks_done;
    struct question_boxes questions_ready, questions_answered;
    size_t
        asks_n; /* that are out, or done and not freed; one that was dropped is out until its end */
    struct {
        uint32_t who;
        uint32_t n;             /* 0: unused */
    } askers[CLUSTER_ASKS_MAX]; /* of those, by user */
    bool self_came;             /* some ask got its own part */
    struct members *members;
    struct cluster_figures figures;
    struct bus *bus;       /* written by the thread under the lock: the thread reads it without */
    char why[BUS_WHY_MAX]; /* why there is no bus */
    char server[CLUSTER_URL_MAX]; /* that we are connected to, or "" */

    /* The thread's. */
    struct asks_out out;
    struct open_questions open;
    size_t open_n;
    struct greeting greetings[GREETINGS_MAX];
    size_t n_greetings;
    uint32_t interval_ms;  /* between heartbeats, as last announced */
    uint64_t beat_ns;      /* when the next heartbeat is due */
    uint64_t beat_sent_ns; /* the last one */
    uint64_t watch_ns;     /* when the watchers of this node hear it next */
    char watchers[MEMBER_WATCHERS][SUBJECT_ID_CHARS + 1]; /* that heard it last */
    size_t n_watchers;
    uint64_t dropped_ns; /* when to ask libnats next how many messages it dropped */
    uint64_t reopen_ns;  /* when to try again to open the bus */
    uint64_t reopen_wait_ns;
    uint64_t silence_ns; /* when to tell that no server answers; UINT64_MAX: that was told */
    uint64_t came_up_ns, flap_ns; /* the last time; when counting began */
    unsigned flap_generation;     /* then */
    unsigned generation;          /* of the connection that we said hello on */
    uint64_t members_due_ns;
    struct buffer scratch;
    uint64_t busy_ns; /* time that answers took, for the service's statistics */
};

/* thread.c */
void cluster_thread_run(void *context);
void cluster_heard(void *context, const char *subject, const char *reply, const void *data,
                   size_t len);
void cluster_changed(void *context);
void question_box_free(struct question_box *box);
void ask_free(struct cluster_ask *ask);
void asks_give_back(struct cluster *cluster, const struct cluster_ask *ask); /* locked */
/* Publish on memoir.1.WORD[.TARGET].SELF. -ENOTCONN, and others of bus_publish(). */
int cluster_send(struct cluster *cluster, const char *word, const char *target,
                 const struct buffer *message);
/* An empty buffer for one message. */
struct buffer *cluster_scratch(struct cluster *cluster);

/* presence.c. Those that return a moment want to be called again by then. */
void presence_begin(struct cluster *cluster, uint64_t now); /* connected, perhaps again */
uint64_t presence_beat(struct cluster *cluster, uint64_t now);
uint64_t presence_greet(struct cluster *cluster, uint64_t now);
uint64_t presence_tick(struct cluster *cluster, uint64_t now);
void presence_hello(struct cluster *cluster, const char *sender, const struct message_hello *hello,
                    uint64_t now);
/* `lost`: the server says that its connection broke. */
void presence_bye(struct cluster *cluster, const char *sender, bool lost, uint64_t now);
/* A node reports another one, or this one, as lost. */
void presence_lost(struct cluster *cluster, const char *id, uint64_t now);

/* service.c: NATS's service protocol ($SRV). True if the subject is one of it; then `out` is the answer, or
 * empty for a request that it does not know. */
bool service_answer(struct cluster *cluster, const char *subject, struct buffer *out);
/* The ID of the node that a $SYS disconnect event is about; false: of none that we know by its account. */
bool service_disconnected(const void *json, size_t len, char ret_id[static SUBJECT_ID_CHARS + 1]);
