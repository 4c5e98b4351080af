/* One line of the native protocol (doc/native-protocol.md) as a struct. No connection, no book: bytes in, a
 * request or an error out, so that a fuzzer can do it all.
 *
 * A line is read whole before anything is done with it, since a message with one bad report must
 * change nothing. Reports become an array of the parser, which all connections share. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <memoir/memoir.h>

#include "base/json_read.h"

struct json;

enum {
    NATIVE_VERSION = 1,
    NATIVE_DEVICES_MAX = 256, /* numbers of one connection */
    NATIVE_ID_MAX = 64,       /* bytes of "id" */
    NATIVE_SESSION_CHARS = 32,
    NATIVE_TOKEN_MAX = 256,
    NATIVE_NODE_MAX = 80,
    NATIVE_TAG_MAX = 63,
    NATIVE_QUERY_PART_MAX = 4096,
    NATIVE_ERROR_MAX = 320,
    NATIVE_INTERVAL_MS_MIN = 10,
    NATIVE_INTERVAL_MS_MAX = 3600000,
    NATIVE_INTERVAL_MS = 1000,
};

enum native_kind {
    NATIVE_NONE,
    NATIVE_HELLO,
    NATIVE_DEVICE,
    NATIVE_REPORT, /* also the forms in words: alloc, free, realloc, transfer */
    NATIVE_RESET,
    NATIVE_QUERY,
    NATIVE_SUBSCRIBE,
    NATIVE_UNSUBSCRIBE,
    NATIVE_PING,
    NATIVE_LOGIN,
    NATIVE_TRACE, /* `pid`; 0: the list of traced processes */
    NATIVE_CLUSTER,
    NATIVE_CALL, /* an HTTP call that another node answers */
};

enum native_op { NATIVE_ALLOC, NATIVE_FREE, NATIVE_REALLOC, NATIVE_TRANSFER };

/* Ids: of the block; realloc: `id` is the new and `from.id` the old one; transfer: from `from` to `at`. */
struct native_place {
    int16_t device; /* the client's number, or -1: none, for the host's spaces */
    uint8_t space;  /* enum memoir_space */
    uint64_t id;
};

struct native_report {
    enum native_op op;
    struct native_place at, from;
    uint64_t bytes;
    struct json_text tag; /* in the line; .data is NULL without one */
};

/* What may be subscribed to, as bits. */
enum native_topic {
    NATIVE_PROCESSES = 1u << 0,
    NATIVE_DEVICES = 1u << 1,
    NATIVE_REPORTS = 1u << 2,
};

struct native_hello {
    uint64_t version;
    bool has_session, has_token;
    char session[NATIVE_SESSION_CHARS + 1];
    char token[NATIVE_TOKEN_MAX + 1];
    char host[64], program[64], command[512];
};

struct native_device {
    uint32_t number, kind;
    bool has_ordinal;
    int32_t ordinal;
    char name[64], uid[64], bus[32];
    struct memoir_capacity capacity[16]; /* ended by space 0 where shorter */
    size_t n_capacity;
};

struct native_query {
    char table[64];
    char by[NATIVE_QUERY_PART_MAX + 1], where[NATIVE_QUERY_PART_MAX + 1];
    char show[NATIVE_QUERY_PART_MAX + 1], sort[NATIVE_QUERY_PART_MAX + 1];
    uint64_t limit;
    bool partial; /* the answer is to be merged with others: see query_partial_read() */
    bool cluster; /* asks all nodes */
    uint64_t since_s, until_s, step_s; /* seconds since 1970, seconds; 0: not given */
    char node[NATIVE_NODE_MAX + 1];    /* asks this one; "": it does not */
    char token[NATIVE_TOKEN_MAX + 1];  /* of that node, or "" */
};

/* A call to another node. */
struct native_call {
    char node[NATIVE_NODE_MAX + 1], token[NATIVE_TOKEN_MAX + 1], method[8];
    char target[NATIVE_QUERY_PART_MAX + 1], body[NATIVE_QUERY_PART_MAX + 1];
};

/* Slices point into the line. */
struct native_request {
    enum native_kind kind;
    const char *id; /* the JSON value of "id" as it was written, or NULL */
    size_t id_len;
    const char *ping; /* the same of "ping" */
    size_t ping_len;
    bool has_pid, has_seq, ack;
    bool login_control; /* of a login: may act, too */
    uint64_t pid, seq;
    uint32_t topics; /* enum native_topic */
    uint64_t interval_ms;
    struct native_hello hello;
    struct native_device device;
    struct native_query query;
    struct native_call call;
    bool cluster_reload;                 /* of NATIVE_CLUSTER */
    const struct native_report *reports; /* the parser's, until the next line */
    size_t n_reports;
};

struct native_error {
    const char *code; /* "bad-json" ...: doc/native-protocol.md has the list */
    char message[NATIVE_ERROR_MAX];
    int64_t at;       /* byte of the line, or of the part of a query; -1: none */
    int64_t len;      /* -1: none */
    int64_t index;    /* of a report, or -1 */
    const char *part; /* of a query, or NULL */
};

struct native_parser {
    struct native_report *reports; /* owned */
    size_t capacity;
    struct native_request request; /* the last one */
};

void native_parser_release(struct native_parser *parser); /* fine after zeroing */

/* Read a line (without its newline). 0 and parser->request, or -errno with *ret_error filled in; then
 * parser->request has the id and seq as far as they were seen, for the answer. */
int native_parse(struct native_parser *parser, const char *line, size_t len,
                 struct native_error *ret_error);

void native_error_set(struct native_error *error, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The error as a line of its own, without the newline. */
void native_error_write(const struct native_error *error, const struct native_request *request,
                        struct json *json);
