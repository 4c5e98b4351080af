/*
 * ask.h: one question to memoird, over its native socket (doc/native-protocol.md).
 */
#ifndef MEMOIR_CLI_ASK_H
#define MEMOIR_CLI_ASK_H

struct buffer;

#define ASK_MACHINE_PATH "/run/memoird/memoir.sock" /* where the machine's daemon listens */

/* Where the user's own does; "" where there is no place for it. */
enum { ASK_PATH_MAX = 512 };
void ask_own_path(char ret_path[static ASK_PATH_MAX]);

/* A connection to the daemon at `path`; NULL: the user's own, else the machine's. -ENOENT or -ECONNREFUSED: none
 * runs there. Close the descriptor. */
int ask_connect(const char *path);

/* The same at one path, where sending and receiving wait for so long. */
int ask_connect_within(const char *path, unsigned patience_s);

/* Send a line (without its newline) and wait for the answer's. -ETIMEDOUT after ASK_PATIENCE_S without a byte; -errno of
 * the buffer when the answer is longer than its limit. */
enum { ASK_PATIENCE_S = 10 };
int ask_line(int fd, const char *question, struct buffer *ret_answer);

#endif
