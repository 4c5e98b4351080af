/* The messages between nodes: their bytes, bounded and validated. They do not name their sender: the last
 * token of its subject is the sender's ID, which the server's permissions enforce (subject.h).
 *
 * A message begins with "MC", the version and its kind. Further fields follow; bytes after the last one
 * that a reader knows are ignored, so that later versions can add some. All integers are varints.
 *
 * Decoded texts and bodies borrow from the bytes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buffer;

enum {
    MESSAGE_VERSION = 1,
    MESSAGE_TEXT_MAX = 4096,            /* bytes of one part of a question */
    MESSAGE_NAME_MAX = 63,              /* of a node, a version, a user */
    MESSAGE_MAX = 900 << 10,            /* bytes of a message; NATS allows 1 MB by default */
    MESSAGE_PARTS_MAX = 16,             /* of one reply */
    MESSAGE_REASON_MAX = 255,           /* why a question was refused */
    MESSAGE_MAC_BYTES = 32,             /* HMAC-SHA256 */
    MESSAGE_KEY_BYTES = 8,              /* which token */
    MESSAGE_SIGNATURE_BYTES = 64,       /* Ed25519: sign.h */
    MESSAGE_NODE_DEADLINE_MAX = 600000, /* ms */
    MESSAGE_WATCH_END = 1,              /* value of message_hello.watch_ms */
    MESSAGE_ID_CHARS = 32,              /* of a node's ID: see subject.h */
};

enum message_kind {
    MESSAGE_HELLO = 1, /* I am here: on joining, as a heartbeat, and as an answer to a newcomer's */
    MESSAGE_BYE,       /* I leave in order */
    MESSAGE_ASK,       /* a question */
    MESSAGE_ACK,       /* it came, and is being answered */
    MESSAGE_REPLY,     /* a part of the answer */
    MESSAGE_REFUSE,    /* no answer, and why */
    MESSAGE_LOST,      /* a node that the sender watches fell silent */
};

/* Identifies a question: random, and never used again. */
struct message_nonce {
    uint64_t high, low;
};

struct message_hello {
    const char *name, *version; /* ended by NUL in `texts` */
    uint64_t started_ns;        /* of memoird, since 1970 */
    uint64_t now_ns;            /* the sender's clock, since 1970 */
    uint32_t interval_ms;       /* the next one comes within this time */
    bool first;                 /* the sender has just come, and wants to hear of all others */
    uint32_t
        watch_ms; /* > MESSAGE_WATCH_END: the receiver watches the sender, which sends the next such hello
                        * within this time; MESSAGE_WATCH_END: no longer; 0: nothing changes */
};

enum message_what {
    MESSAGE_QUERY =
        1, /* body: table, by, where, show and sort, each ended by NUL, limit, others; the reply is a partial result (query/partial.h) */
    MESSAGE_CALL, /* body: method and target of an HTTP call, each ended by NUL, and its body; the reply: status, type, file name, answer */
};

/* Who asks: proved by a token of the target (key and mac), or a user for whom the asking node vouches (user and signature). */
struct message_rights {
    const char *user;    /* name on the asking node, or "" */
    uint64_t expires_ns; /* of the proof, since 1970 */
    const uint8_t *key;  /* MESSAGE_KEY_BYTES that name the token; NULL: no proof */
    const uint8_t *mac;  /* MESSAGE_MAC_BYTES over message_ask_signed() */
    const uint8_t
        *signature; /* MESSAGE_SIGNATURE_BYTES of the asking node over the same; NULL: none */
};

struct message_ask {
    struct message_nonce nonce;
    uint32_t deadline_ms; /* after which the asker no longer waits */
    enum message_what what;
    struct message_rights rights;
    const uint8_t *body;
    size_t body_len;
};

struct message_reply {
    struct message_nonce nonce;
    uint32_t part, parts; /* from 0 */
    const uint8_t *body;
    size_t body_len;
};

struct message_refuse {
    struct message_nonce nonce;
    const char *reason;
};

struct message {
    enum message_kind kind;
    union {
        struct message_hello hello;
        struct message_ask ask;
        struct message_nonce ack;
        struct message_reply reply;
        struct message_refuse refuse;
        const char *lost; /* the ID of a node */
    };
    char texts[MESSAGE_REASON_MAX + 1 + 3 * (MESSAGE_NAME_MAX + 1)];
};

/* Untrusted bytes. -EBADMSG when they are malformed, -EPROTO when they are of another version or kind.
 * `ret` borrows from `bytes`. */
int message_read(const void *bytes, size_t len, struct message *ret);

void message_write_hello(const struct message_hello *hello, struct buffer *out);
void message_write_bye(struct buffer *out);
void message_write_ask(const struct message_ask *ask, struct buffer *out);
void message_write_ack(const struct message_nonce *nonce, struct buffer *out);
void message_write_reply(const struct message_reply *reply, struct buffer *out);
void message_write_refuse(const struct message_refuse *refuse, struct buffer *out);
void message_write_lost(const char *id, struct buffer *out);

/* What a proof covers: everything that decides what is done, and between which nodes. `target`: "" for a question to all. */
void message_ask_signed(const struct message_ask *ask, const char *asker, const char *target,
                        struct buffer *out);

static inline bool message_nonce_equal(const struct message_nonce *a, const struct message_nonce *b)
{
    return a->high == b->high && a->low == b->low;
}
