/*
 * exited_source.h: where `memoir exited` gets its rows: from the daemon's files, or from the daemon itself.
 *
 * Root reads the files, which also have what happened before the daemon was started. Others may not, and ask
 * at the socket, where the daemon decides what they see.
 */
#ifndef MEMOIR_CLI_EXITED_SOURCE_H
#define MEMOIR_CLI_EXITED_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

struct buffer;
struct query;
struct query_result;
struct query_spec;

enum { EXITED_SOURCE_PATH_MAX = 512, EXITED_WHY_MAX = 256 };

struct exited_source {
    bool by_socket;
    char path[EXITED_SOURCE_PATH_MAX]; /* of the socket, or of the state directory */
    int fd;                            /* of the socket, -1: not connected */

    /* As of the last answer. */
    enum { EXITED_UNWATCHED, EXITED_WATCHED, EXITED_FAILED } state;
    char why[EXITED_WHY_MAX]; /* with FAILED */
    uint64_t seen, lost;
    uint64_t gap_from_ns,
        gap_to_ns; /* the last time without a watcher, since 1970; 0: none is known */
};

/* `state` and `socket` as the options say, NULL for the usual ones. 0; -ENOENT when neither files nor a socket
 * are there; else -errno with `path` set. */
int exited_source_open(const char *state, const char *socket, struct exited_source *ret_source);
void exited_source_close(struct exited_source *source);

/* Ask `query`, made of `spec`, into `result`, which is emptied before and finished after. -errno; what a daemon
 * said no to is in `why`. */
int exited_source_ask(struct exited_source *source, const struct query_spec *spec,
                      const struct query *query, struct query_result *result);

/* Only what is known of the watching: `state` and what follows it. -errno. */
int exited_source_look(struct exited_source *source);

/* The question as a line of the native protocol, with its newline. 0 or the buffer's error. */
int exited_request_write(const struct query_spec *spec, struct buffer *out);

/* Has a process ended since the last answer? True also when that cannot be told. */
bool exited_source_changed(const struct exited_source *source);

#endif
