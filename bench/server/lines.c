/* See lines.h. */
#include "lines.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <memoir/memoir.h>

#include "../book/harness.h"

enum { REPORT_MAX = 96, ANSWER_MAX = 1 << 20 };

/* What makes it the same device as the Tenstorrent socket's 0, which comes without a uid. */
#define DEVICE_NAME "Tenstorrent"

static void grow(struct lines *lines)
{
    if (lines->room - lines->len >= REPORT_MAX)
        return;
    lines->room = lines->room ? lines->room * 2 : 65536;
    lines->text = realloc(lines->text, lines->room);
    if (!lines->text)
        bench_fail("out of memory");
}

__attribute__((format(printf, 2, 3))) static void add(struct lines *lines, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    lines->len +=
        (size_t)vsnprintf(lines->text + lines->len, lines->room - lines->len, format, args);
    va_end(args);
}

static void next(struct lines *lines)
{
    if (lines->in_line == LINES_BATCH)
        lines_end(lines);
    grow(lines);
    add(lines, lines->in_line++ == 0 ? "{\"report\":[" : ",");
}

void lines_alloc(struct lines *lines, uint64_t id, enum wire_space space, uint64_t size)
{
    next(lines);
    add(lines, "[\"a\",0,\"%s\",%llu,%llu]", wire_space_names[space], (unsigned long long)id,
        (unsigned long long)size);
}

void lines_free(struct lines *lines, uint64_t id, enum wire_space space)
{
    next(lines);
    add(lines, "[\"f\",0,\"%s\",%llu]", wire_space_names[space], (unsigned long long)id);
}

void lines_end(struct lines *lines)
{
    if (lines->in_line == 0)
        return;
    grow(lines);
    add(lines, "]}\n");
    lines->in_line = 0;
}

void lines_send(struct lines *lines, int fd)
{
    lines_end(lines);
    wire_send(fd, lines->text, lines->len);
    lines->len = 0;
}

void lines_release(struct lines *lines)
{
    free(lines->text);
    *lines = (struct lines){0};
}

/* One line from the server. A client that waits for each answer never reads beyond it. */
static void read_answer(int fd, char *answer, size_t room)
{
    size_t len = 0;
    while (len == 0 || answer[len - 1] != '\n') {
        ssize_t n = recv(fd, answer + len, room - 1 - len, 0);
        if (n <= 0)
            bench_fail("the server hung up after: %.*s", (int)len, answer);
        len += (size_t)n;
    }
    answer[len] = '\0';
}

static void ask(int fd, const char *question, const char *wanted, char *answer, size_t room)
{
    wire_send(fd, question, strlen(question));
    read_answer(fd, answer, room);
    if (!strstr(answer, wanted))
        bench_fail("asked %s, the server says: %s", question, answer);
}

void lines_begin(int fd)
{
    char answer[1024];
    ask(fd, "{\"device\":0,\"kind\":\"npu\",\"ordinal\":0,\"name\":\"" DEVICE_NAME "\"}\n",
        "{\"device\":0", answer, sizeof(answer));
}

int lines_device_of_libmemoir(void)
{
    int device = memoir_device(&(struct memoir_device_options){
        .struct_size = sizeof(struct memoir_device_options),
        .kind = MEMOIR_DEVICE_NPU,
        .ordinal = 0,
        .name = DEVICE_NAME,
    });
    if (device <= 0)
        bench_fail("cannot declare a device");
    return device;
}

void lines_ping(int fd)
{
    char answer[1024];
    ask(fd, "{\"ping\":1}\n", "\"pong\"", answer, sizeof(answer));
}

void lines_query(int fd, struct wire_totals *ret_totals)
{
    char *answer = malloc(ANSWER_MAX);
    if (!answer)
        bench_fail("out of memory");
    ask(fd,
        "{\"query\":{\"table\":\"devices\",\"where\":\"ordinal=0\",\"show\":[\"space\",\"used\"]}}\n",
        "\"rows\":", answer, ANSWER_MAX);
    *ret_totals = (struct wire_totals){0};
    for (int i = 0; i < WIRE_SPACES; i++) {
        char key[64];
        snprintf(key, sizeof(key), "\"space\":\"%s\",\"used\":", wire_space_names[i]);
        for (char *at = answer; (at = strstr(at, key)); at += strlen(key))
            ret_totals->bytes[i] += strtoull(at + strlen(key), NULL, 10);
    }
    free(answer);
}
