/*
 * ask.h: one question to memoird, over its native socket (doc/native-protocol.md).
 */
#ifndef MEMOIR_CLI_ASK_H
#define MEMOIR_CLI_ASK_H

struct buffer;

/* A connection to the daemon at `path`; NULL: the user's own, else the machine's. -ENOENT or -ECONNREFUSED: none
 * runs there. Close the descriptor. */
int ask_connect(const char *path);

/* Send a line (without its newline) and wait for the answer's. -ETIMEDOUT after ASK_PATIENCE_S without a byte; -errno of
 * the buffer when the answer is longer than its limit. */
enum { ASK_PATIENCE_S = 10 };
int ask_line(int fd, const char *question, struct buffer *ret_answer);

#endif
