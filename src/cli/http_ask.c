/* See http_ask.h. */
#include "cli/http_ask.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/json_read.h"
#include "cli/ask.h"

enum { HEAD_MAX = 512, PIECE = 4096 };

static int send_whole(int fd, const char *text, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = send(fd, text + done, len - done, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            return -errno;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* To the end of the connection, which the request asks for. */
static int receive(int fd, struct buffer *out)
{
    char piece[PIECE];
    for (;;) {
        ssize_t n = recv(fd, piece, sizeof(piece), 0);
        if (n == 0)
            return 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? -ETIMEDOUT : -errno;
        int r = buffer_append(out, piece, (size_t)n);
        if (r < 0)
            return r;
    }
}

int http_ask_post(const char *socket, const char *target, const char *body, int *ret_status,
                  struct buffer *ret_body)
{
    char head[HEAD_MAX];
    MEMOIR_CLEANUP(buffer_release)
    struct buffer answer = BUFFER_INIT(ret_body->limit);
    MEMOIR_CLEANUP(closep)
    int fd = ask_connect_within(socket, HTTP_ASK_PATIENCE_S);
    if (fd < 0)
        return fd;
    int len = snprintf(head, sizeof(head),
                       "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                       "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                       target, strlen(body));
    if (len >= (int)sizeof(head))
        return -ENAMETOOLONG;
    int r = send_whole(fd, head, (size_t)len);
    if (r == 0)
        r = send_whole(fd, body, strlen(body));
    if (r == 0)
        r = receive(fd, &answer);
    if (r < 0)
        return r;
    const char *text = buffer_string(&answer), *end = strstr(text, "\r\n\r\n");
    if (strncmp(text, "HTTP/1.", 7) != 0 || strlen(text) < 12 || !end)
        return -EBADMSG;
    *ret_status = atoi(text + 9);
    end += 4;
    return buffer_append(ret_body, end, answer.len - (size_t)(end - text));
}

void http_ask_problem(const struct buffer *body, char *ret_text, size_t size)
{
    struct json_read read;
    struct json_text key, text;
    snprintf(ret_text, size, "memoird refused it");
    json_read_init(&read, body->data ? body->data : "", body->len);
    json_read_object(&read);
    while (json_read_key(&read, &key))
        if ((json_text_is(&key, "detail") || json_text_is(&key, "title")) &&
            json_read_string(&read, &text)) {
            if (json_text_is(&key, "detail") || strcmp(ret_text, "memoird refused it") == 0)
                json_text_copy(&text, ret_text, size);
        } else {
            json_read_skip(&read);
        }
    (void)json_read_finish(&read);
}
