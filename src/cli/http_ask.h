/*
 * http_ask.h: one request to memoird's API over its Unix socket, with the rights of our user.
 */
#ifndef MEMOIR_CLI_HTTP_ASK_H
#define MEMOIR_CLI_HTTP_ASK_H

#include <stddef.h>

struct buffer;

#define HTTP_ASK_PATH "/run/memoird/memoir-http.sock" /* where the machine's daemon listens */

enum { HTTP_ASK_PATIENCE_S = 40 }; /* memoird gives up on an answer after 30 s */

/* Post a JSON body and take the answer's. -errno where none came: -ENOENT, -ECONNREFUSED: no memoird there; -EBADMSG: not HTTP. */
int http_ask_post(const char *socket, const char *target, const char *body, int *ret_status,
                  struct buffer *ret_body);

/* What is wrong, from a problem's body (RFC 9457). */
void http_ask_problem(const struct buffer *body, char *ret_text, size_t size);

#endif
