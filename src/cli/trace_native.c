/* Traces from memoird. See trace_native.h. */
#include "cli/trace_native.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/json_read.h"
#include "cli/ask.h"

enum { HEAD_MAX = 1 << 20, PIECE = 1 << 16, CODE_MAX = 32 };

struct answer {
    uint64_t bytes;
    bool has_bytes;
    char code[CODE_MAX]; /* of an error; "": none */
};

static void error_read(struct json_read *read, struct answer *answer, char *why, size_t why_size)
{
    struct json_text key, text;
    json_read_object(read);
    while (json_read_key(read, &key))
        if (json_text_is(&key, "code") && json_read_string(read, &text))
            json_text_copy(&text, answer->code, sizeof(answer->code));
        else if (json_text_is(&key, "message") && json_read_string(read, &text))
            json_text_copy(&text, why, why_size);
        else
            json_read_skip(read);
}

static int head_parse(const char *line, size_t len, struct answer *ret_answer, char *why,
                      size_t why_size)
{
    struct json_read read;
    struct json_text key;
    *ret_answer = (struct answer){0};
    json_read_init(&read, line, len);
    json_read_object(&read);
    while (json_read_key(&read, &key))
        if (json_text_is(&key, "bytes"))
            ret_answer->has_bytes = json_read_u64(&read, &ret_answer->bytes);
        else if (json_text_is(&key, "error"))
            error_read(&read, ret_answer, why, why_size);
        else
            json_read_skip(&read);
    return json_read_finish(&read) < 0 ? -EBADMSG : 0;
}

static int code_error(const char *code)
{
    if (strcmp(code, "not-traced") == 0 || strcmp(code, "not-tracing") == 0)
        return -ESRCH;
    return strcmp(code, "forbidden") == 0 ? -EACCES : -EREMOTEIO;
}

/* The bytes of the dump, of which `head` may have the first ones. */
static int dump_read(int fd, const char *first, size_t n_first, uint64_t bytes, struct buffer *out)
{
    char piece[PIECE];
    if (n_first > bytes)
        return -EBADMSG;
    int r = buffer_append(out, first, n_first);
    for (uint64_t left = bytes - n_first; r == 0 && left > 0;) {
        ssize_t n = recv(fd, piece, left < PIECE ? (size_t)left : PIECE, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0 ? -ECONNRESET : errno == EAGAIN ? -ETIMEDOUT : -errno;
        r = buffer_append(out, piece, (size_t)n);
        left -= (uint64_t)n;
    }
    return r;
}

int trace_native_fetch(const char *path, pid_t pid, struct buffer *out, char *ret_why,
                       size_t why_size)
{
    char question[48];
    struct answer answer;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer head = BUFFER_INIT(HEAD_MAX);
    MEMOIR_CLEANUP(closep)
    int fd = ask_connect(path);
    if (fd < 0)
        return fd == -ENOENT || fd == -ECONNREFUSED ? -ESRCH : fd;
    snprintf(question, sizeof(question), "{\"trace\":%d}", (int)pid);
    int r = ask_line(fd, question, &head);
    if (r < 0)
        return r;
    const char *end = memchr(head.data, '\n', head.len);
    size_t len = (size_t)(end - head.data);
    r = head_parse(head.data, len, &answer, ret_why, why_size);
    if (r < 0)
        return r;
    if (answer.code[0])
        return code_error(answer.code);
    if (!answer.has_bytes)
        return -EBADMSG;
    return dump_read(fd, end + 1, head.len - len - 1, answer.bytes, out);
}

int trace_native_list(const char *path, struct buffer *out)
{
    char why[CODE_MAX];
    struct answer answer;
    MEMOIR_CLEANUP(closep)
    int fd = ask_connect(path);
    if (fd < 0)
        return fd == -ENOENT || fd == -ECONNREFUSED ? -ESRCH : fd;
    int r = ask_line(fd, "{\"trace\":\"list\"}", out);
    if (r == 0)
        r = head_parse(out->data, out->len, &answer, why, sizeof(why));
    if (r == 0 && answer.code[0])
        r = code_error(answer.code);
    return r;
}
