/* The end of the daemon's list. See retired_tail.h. */
#include "cli/retired_tail.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "cli/ps.h"
#include "query/retired_lines.h"

enum {
    ENTRIES = 1024, /* the last ones are remembered: they are asked for within moments */
    CHUNK = 64 << 10,
    LINE_MAX_BYTES = 8 << 20,
};

struct entry {
    pid_t pid;
    char cause[RETIRED_CAUSE_MAX];
};

struct retired_tail {
    char path[PS_STATE_PATH_MAX + 32];
    uint64_t ino;
    off_t offset; /* read up to here */
    struct entry entries[ENTRIES];
    size_t n;           /* in all; entry i is at i % ENTRIES */
    struct buffer part; /* of a line that is being written */
};

struct retired_tail *retired_tail_new(const char *state)
{
    struct retired_tail *t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    snprintf(t->path, sizeof(t->path), "%s/retired.jsonl", ps_state_find(state));
    buffer_init(&t->part, LINE_MAX_BYTES);
    struct stat st;
    if (stat(t->path, &st) == 0) {
        t->ino = st.st_ino;
        t->offset = st.st_size;
    }
    return t;
}

void retired_tail_freep(struct retired_tail **tail)
{
    if (!*tail)
        return;
    buffer_release(&(*tail)->part);
    free(*tail);
}

bool retired_tail_exists(const struct retired_tail *tail)
{
    return access(tail->path, R_OK) == 0;
}

static void line_add(struct retired_tail *t, const char *text, size_t len)
{
    json_t *line = retired_line_parse(text, len);
    uint64_t pid = retired_line_number(line, "pid");
    const char *cause = json_string_value(json_object_get(line, "cause"));
    if (pid > 0 && cause) {
        struct entry *e = &t->entries[t->n++ % ENTRIES];
        e->pid = (pid_t)pid;
        snprintf(e->cause, sizeof(e->cause), "%s", cause);
    }
    json_decref(line);
}

static void take(struct retired_tail *t, const char *bytes, size_t n)
{
    while (n > 0) {
        const char *end = memchr(bytes, '\n', n);
        size_t len = end ? (size_t)(end - bytes) : n;
        buffer_append(&t->part, bytes, len);
        if (end) {
            if (!t->part.error)
                line_add(t, buffer_string(&t->part), t->part.len);
            buffer_reset(&t->part);
            len++;
        }
        bytes += len;
        n -= len;
    }
}

static void read_on(struct retired_tail *t)
{
    MEMOIR_CLEANUP(closep)
    int fd = open(t->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return;
    if (st.st_ino != t->ino || st.st_size < t->offset) {
        t->ino = st.st_ino; /* begun anew */
        t->offset = 0;
        buffer_reset(&t->part);
    }
    MEMOIR_CLEANUP(freep)
    char *chunk = malloc(CHUNK);
    ssize_t n;
    while (chunk && (n = pread(fd, chunk, CHUNK, t->offset)) > 0) {
        take(t, chunk, (size_t)n);
        t->offset += n;
    }
}

bool retired_tail_cause(struct retired_tail *t, pid_t pid, char cause[static RETIRED_CAUSE_MAX])
{
    read_on(t);
    for (size_t i = t->n; i > 0 && i + ENTRIES > t->n; i--) {
        const struct entry *e = &t->entries[(i - 1) % ENTRIES];
        if (e->pid != pid)
            continue;
        memcpy(cause, e->cause, sizeof(e->cause));
        return true;
    }
    return false;
}
