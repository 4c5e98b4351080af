/*
 * cluster.h: what the files of `memoir cluster` share.
 */
#ifndef MEMOIR_CLI_CLUSTER_H
#define MEMOIR_CLI_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/command.h"
#include "cli/ps.h"

struct buffer;
struct json_t; /* jansson's */

struct cluster_values {
    struct command_common common;
    const char *socket, *token_file, *state;
    const char *listen, *advertise;
    const char *tls_cert, *tls_key, *tls_ca;
    const char *name;
    bool json, csv, remove, outliers;
    const char *where;
    int measure;
    uint64_t limit;
    int color;
};
extern const struct cluster_values cluster_defaults;

#define OPTION_CLUSTER_SOCKET                                                        \
    {                                                                                \
        "socket", 0, OPTION_STRING, offsetof(struct cluster_values, socket), "PATH", \
            "memoird's socket (default: your own daemon's, else the machine's)"      \
    }

extern const struct command cmd_cluster_init, cmd_cluster_invite, cmd_cluster_join,
    cmd_cluster_leave, cmd_cluster_trust, cmd_cluster_tracking, cmd_cluster_tracing,
    cmd_cluster_scan, cmd_cluster_programs;

void cluster_decrefp(struct json_t **json);

/* A question, and the member "cluster" of the answer, for json_decref(). Says what is wrong. */
int cluster_request(const char *socket, const char *question, struct json_t **ret_cluster);

/* memoird's state directory, made where it is missing. Says what is wrong. */
int cluster_state_find(const struct cluster_values *values, char path[static PS_STATE_PATH_MAX]);
/* A file for its owner alone: whole, or not at all. Says what is wrong. */
int cluster_file_write(const char *path, const struct buffer *text);
/* memoird takes up what was written at once, where it runs. */
int cluster_reload(const struct cluster_values *values);

/* A call to another node as one line of JSON. */
int cluster_call_question(const char *node, const char *target, const char *body,
                          const char *token_file, struct buffer *out);

/* The document of status --json. */
int cluster_print_json(const char *text);

#endif
