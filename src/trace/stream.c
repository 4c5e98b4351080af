/* Records on their way. See stream.h. */
#include "trace/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

enum { FRAME_NATIVE = 0, FRAME_SCRIPT = 1, FRAME_NOWHERE = 2, PENDING_KEEP = 1 << 16 };

struct hello {
    uint32_t version, event_bytes;
    uint64_t monotonic_ns, real_ns;
};

struct process {
    int32_t pid;
    uint32_t uid;
    uint64_t start_ticks;
    uint16_t name_len;
} __attribute__((packed));

struct site_head {
    int32_t pid;
    uint32_t number;
    uint64_t key;
    uint16_t n_frames, cut;
} __attribute__((packed));

struct frame_head {
    uint8_t kind, build_id_len;
    uint16_t path_len, function_len;
    uint32_t line;
    uint64_t offset;
} __attribute__((packed));

struct error_head {
    int32_t error;
    uint16_t text_len;
} __attribute__((packed));

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "records are little-endian");

/* ---- writing ---- */

static void batch_close(struct trace_stream_writer *w)
{
    w->batch_at = SIZE_MAX;
    w->batch_n = 0;
}

/* Append a record of several parts, all or nothing. */
static int record_add(struct trace_stream_writer *w, uint32_t type, const struct buffer *body)
{
    struct trace_stream_head head = {type, (uint32_t)body->len};
    if (body->error)
        return body->error;
    if (body->len > TRACE_STREAM_RECORD_MAX - sizeof(head))
        return -EMSGSIZE;
    char *to = buffer_reserve(&w->pending, sizeof(head) + body->len);
    if (!to) {
        int r = w->pending.error;
        w->pending.error = 0; /* what waits is still good */
        return r;
    }
    memcpy(to, &head, sizeof(head));
    memcpy(to + sizeof(head), body->data, body->len);
    buffer_commit(&w->pending, sizeof(head) + body->len);
    batch_close(w);
    return 0;
}

int trace_stream_writer_init(struct trace_stream_writer *w, size_t limit_bytes)
{
    struct hello hello = {TRACE_STREAM_VERSION, sizeof(struct trace_event), clock_monotonic_ns(),
                          clock_real_ns()};
    struct buffer body = BUFFER_INIT(sizeof(hello));
    *w = (struct trace_stream_writer){.batch_at = SIZE_MAX};
    buffer_init(&w->pending, limit_bytes);
    buffer_append(&body, &hello, sizeof(hello));
    int r = record_add(w, TRACE_STREAM_HELLO, &body);
    buffer_release(&body);
    return r;
}

void trace_stream_writer_release(struct trace_stream_writer *w)
{
    buffer_release(&w->pending);
}

int trace_stream_process(struct trace_stream_writer *w, const struct trace_identity *id)
{
    struct process head = {id->pid, id->uid, id->start_ticks,
                           (uint16_t)strnlen(id->name, TRACE_NAME_MAX)};
    struct buffer body = BUFFER_INIT(TRACE_STREAM_RECORD_MAX);
    buffer_append(&body, &head, sizeof(head));
    buffer_append(&body, id->name, head.name_len);
    int r = record_add(w, TRACE_STREAM_PROCESS, &body);
    buffer_release(&body);
    return r;
}

static void frame_put(struct buffer *body, const struct trace_frame *f)
{
    const struct trace_line *lines;
    size_t n = trace_frame_lines(f, &lines);
    const char *path = f->module ? f->module->path : n ? lines[0].file : "";
    const char *function = n ? lines[0].function : "";
    struct frame_head head = {
        .kind = f->module ? FRAME_NATIVE
                : n       ? FRAME_SCRIPT
                          : FRAME_NOWHERE,
        .build_id_len = f->module ? f->module->build_id_len : 0,
        .path_len = (uint16_t)strnlen(path, TRACE_STRING_MAX),
        .function_len = f->module ? 0 : (uint16_t)strnlen(function, TRACE_STRING_MAX),
        .line = !f->module && n ? lines[0].line : 0,
        .offset = f->offset,
    };
    buffer_append(body, &head, sizeof(head));
    if (f->module)
        buffer_append(body, f->module->build_id, head.build_id_len);
    buffer_append(body, path, head.path_len);
    buffer_append(body, function, head.function_len);
}

int trace_stream_site(struct trace_stream_writer *w, int32_t pid, const struct trace_site *site)
{
    struct site_head head = {pid, site->number, site->key, site->n_frames, site->cut};
    struct buffer body = BUFFER_INIT(TRACE_STREAM_RECORD_MAX);
    if (head.n_frames > TRACE_FRAMES_MAX)
        return -EINVAL;
    buffer_append(&body, &head, sizeof(head));
    for (unsigned i = 0; i < site->n_frames; i++)
        frame_put(&body, &site->frames[i]);
    int r = record_add(w, TRACE_STREAM_SITE, &body);
    buffer_release(&body);
    return r;
}

int trace_stream_error(struct trace_stream_writer *w, int error, const char *text)
{
    struct error_head head = {error, (uint16_t)strnlen(text, TRACE_STRING_MAX)};
    struct buffer body = BUFFER_INIT(TRACE_STREAM_RECORD_MAX);
    buffer_append(&body, &head, sizeof(head));
    buffer_append(&body, text, head.text_len);
    int r = record_add(w, TRACE_STREAM_ERROR, &body);
    buffer_release(&body);
    return r;
}

static int pid_record(struct trace_stream_writer *w, uint32_t type, int32_t pid)
{
    int32_t words[2] = {pid, 0};
    struct buffer body = BUFFER_INIT(sizeof(words));
    buffer_append(&body, words, sizeof(words));
    int r = record_add(w, type, &body);
    buffer_release(&body);
    return r;
}

int trace_stream_synced(struct trace_stream_writer *w, int32_t pid)
{
    return pid_record(w, TRACE_STREAM_SYNCED, pid);
}

int trace_stream_ended(struct trace_stream_writer *w, int32_t pid)
{
    return pid_record(w, TRACE_STREAM_ENDED, pid);
}

/* A batch stays open until it is full, written, or followed by another record: its head is then brought up to date. */
static int event_add(struct trace_stream_writer *w, const struct trace_event *event)
{
    bool open = w->batch_at != SIZE_MAX && w->batch_n < TRACE_STREAM_BATCH;
    struct trace_stream_head head = {.type = TRACE_STREAM_EVENTS};
    uint32_t counts[2] = {0};
    size_t more = sizeof(*event) + (open ? 0 : sizeof(head) + sizeof(counts));
    char *to = buffer_reserve(&w->pending, more);
    if (!to) {
        int r = w->pending.error;
        w->pending.error = 0;
        return r;
    }
    if (!open) {
        w->batch_at = w->pending.len;
        w->batch_n = 0;
        to += sizeof(head) + sizeof(counts);
    }
    memcpy(to, event, sizeof(*event));
    buffer_commit(&w->pending, more);
    w->batch_n++;
    head.bytes = (uint32_t)(sizeof(counts) + w->batch_n * sizeof(*event));
    counts[0] = w->batch_n;
    memcpy(w->pending.data + w->batch_at, &head, sizeof(head));
    memcpy(w->pending.data + w->batch_at + sizeof(head), counts, sizeof(counts));
    return 0;
}

int trace_stream_event(struct trace_stream_writer *w, const struct trace_event *event)
{
    int r = 0;
    if (w->dropped > 0) {
        struct trace_event gap = {.time_ns = event->time_ns,
                                  .kind = TRACE_GAP,
                                  .size = w->dropped,
                                  .pid = event->pid,
                                  .device = -1};
        r = event_add(w, &gap);
        if (r == 0)
            w->dropped = 0;
    }
    if (r == 0)
        r = event_add(w, event);
    if (r < 0) {
        w->dropped++;
        w->dropped_all++;
    }
    return r;
}

int trace_stream_flush(struct trace_stream_writer *w, int fd)
{
    while (w->written < w->pending.len) {
        const char *from = w->pending.data + w->written;
        size_t len = w->pending.len - w->written;
        ssize_t n = send(fd, from, len, MSG_NOSIGNAL);
        if (n < 0 && errno == ENOTSOCK)
            n = write(fd, from, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            return -errno;
        if (n < 0)
            break;
        /* Its head says how many events it has: it cannot grow once a byte of it is gone. */
        w->written += (size_t)n;
        batch_close(w);
    }
    int waits = w->written < w->pending.len;
    if (!waits || w->written > PENDING_KEEP) {
        memmove(w->pending.data, w->pending.data + w->written, w->pending.len - w->written);
        w->pending.len -= w->written;
        w->written = 0;
        if (w->batch_at != SIZE_MAX)
            batch_close(w);
    }
    return waits;
}

/* ---- reading ---- */

void trace_stream_reader_init(struct trace_stream_reader *r, const struct trace_stream_calls *calls,
                              void *user)
{
    *r = (struct trace_stream_reader){.calls = calls, .user = user};
    buffer_init(&r->partial, TRACE_STREAM_RECORD_MAX);
}

void trace_stream_reader_release(struct trace_stream_reader *r)
{
    buffer_release(&r->partial);
}

/* Bytes that are left; take() gives NULL once there are too few. */
struct cursor {
    const char *at;
    size_t left;
};

static const void *take(struct cursor *c, size_t len)
{
    const char *at = c->at;
    if (!at || len > c->left) {
        c->at = NULL;
        return NULL;
    }
    c->at += len;
    c->left -= len;
    return at;
}

static int on_hello(struct trace_stream_reader *r, struct cursor c)
{
    struct hello hello;
    const void *at = take(&c, sizeof(hello));
    if (!at)
        return -EBADMSG;
    memcpy(&hello, at, sizeof(hello));
    if (hello.version != TRACE_STREAM_VERSION || hello.event_bytes != sizeof(struct trace_event))
        return -EPROTONOSUPPORT;
    r->greeted = true;
    r->monotonic_ns = hello.monotonic_ns;
    r->real_ns = hello.real_ns;
    return r->calls->hello
               ? r->calls->hello(r->user, hello.version, hello.monotonic_ns, hello.real_ns)
               : 0;
}

static int on_process(struct trace_stream_reader *r, struct cursor c)
{
    struct process head;
    const void *at = take(&c, sizeof(head));
    if (!at)
        return -EBADMSG;
    memcpy(&head, at, sizeof(head));
    const char *name = take(&c, head.name_len);
    if (!name || head.name_len >= TRACE_NAME_MAX)
        return -EBADMSG;
    struct trace_identity id = {.pid = head.pid,
                                .uid = head.uid,
                                .start_ticks = head.start_ticks,
                                .start_ns = r->monotonic_ns,
                                .start_real_ns = r->real_ns};
    memcpy(id.name, name, head.name_len);
    return r->calls->process ? r->calls->process(r->user, &id) : 0;
}

/* What the parts of a site's frames are while they are told. */
struct site_parts {
    struct trace_frame frames[TRACE_FRAMES_MAX];
    struct trace_module modules[TRACE_FRAMES_MAX];
    struct trace_line lines[TRACE_FRAMES_MAX];
    char text[];
};

static int frame_take(struct cursor *c, struct site_parts *parts, unsigned i, char **text)
{
    struct frame_head head;
    const void *at = take(c, sizeof(head));
    if (!at)
        return -EBADMSG;
    memcpy(&head, at, sizeof(head));
    const void *build_id = take(c, head.build_id_len);
    const void *path = take(c, head.path_len), *function = take(c, head.function_len);
    if (!build_id || !path || !function || head.build_id_len > TRACE_BUILD_ID_MAX ||
        head.path_len > TRACE_STRING_MAX || head.function_len > TRACE_STRING_MAX ||
        head.kind > FRAME_NOWHERE)
        return -EBADMSG;
    char *path_text = *text, *function_text = *text + head.path_len + 1;
    memcpy(path_text, path, head.path_len);
    path_text[head.path_len] = '\0';
    memcpy(function_text, function, head.function_len);
    function_text[head.function_len] = '\0';
    *text = function_text + head.function_len + 1;
    parts->frames[i] = (struct trace_frame){.offset = head.offset};
    if (head.kind == FRAME_NATIVE) {
        parts->modules[i] =
            (struct trace_module){.path = path_text, .build_id_len = head.build_id_len};
        memcpy(parts->modules[i].build_id, build_id, head.build_id_len);
        parts->frames[i].module = &parts->modules[i];
    } else if (head.kind == FRAME_SCRIPT) {
        parts->lines[i] = (struct trace_line){function_text, path_text, head.line};
        parts->frames[i].lines = &parts->lines[i];
        parts->frames[i].n_lines = 1;
    }
    return 0;
}

static int on_site(struct trace_stream_reader *r, struct cursor c)
{
    struct site_head head;
    const void *at = take(&c, sizeof(head));
    if (!at)
        return -EBADMSG;
    memcpy(&head, at, sizeof(head));
    if (head.number == 0 || head.number > TRACE_SITES_MAX || head.n_frames > TRACE_FRAMES_MAX)
        return -EBADMSG;
    struct site_parts *parts = malloc(sizeof(*parts) + c.left + 2u * TRACE_FRAMES_MAX);
    if (!parts)
        return -ENOMEM;
    char *text = parts->text;
    int e = 0;
    for (unsigned i = 0; i < head.n_frames && e == 0; i++)
        e = frame_take(&c, parts, i, &text);
    struct trace_site site = {head.number, head.n_frames, head.cut, head.key, parts->frames};
    if (e == 0 && r->calls->site)
        e = r->calls->site(r->user, head.pid, &site);
    free(parts);
    return e;
}

static int on_events(struct trace_stream_reader *r, struct cursor c)
{
    struct trace_event chunk[64];
    uint32_t counts[2];
    const void *at = take(&c, sizeof(counts));
    if (!at)
        return -EBADMSG;
    memcpy(counts, at, sizeof(counts));
    if (counts[0] > TRACE_STREAM_BATCH || c.left != counts[0] * sizeof(struct trace_event))
        return -EBADMSG;
    /* In pieces: the bytes need not be aligned. */
    while (c.left > 0) {
        size_t n = c.left / sizeof(chunk[0]);
        n = n < 64 ? n : 64;
        memcpy(chunk, take(&c, n * sizeof(chunk[0])), n * sizeof(chunk[0]));
        int e = r->calls->events ? r->calls->events(r->user, chunk, n) : 0;
        if (e < 0)
            return e;
    }
    return 0;
}

static int on_error(struct trace_stream_reader *r, struct cursor c)
{
    struct error_head head;
    char text[TRACE_STRING_MAX + 1];
    const void *at = take(&c, sizeof(head));
    if (!at)
        return -EBADMSG;
    memcpy(&head, at, sizeof(head));
    const void *from = take(&c, head.text_len);
    if (!from || head.text_len > TRACE_STRING_MAX)
        return -EBADMSG;
    memcpy(text, from, head.text_len);
    text[head.text_len] = '\0';
    return r->calls->error ? r->calls->error(r->user, head.error, text) : 0;
}

static int on_pid(struct trace_stream_reader *r, struct cursor c,
                  int (*call)(void *user, int32_t pid))
{
    int32_t pid;
    const void *at = take(&c, 2 * sizeof(pid));
    if (!at)
        return -EBADMSG;
    memcpy(&pid, at, sizeof(pid));
    return call ? call(r->user, pid) : 0;
}

static int record_take(struct trace_stream_reader *r, uint32_t type, struct cursor c)
{
    if (!r->greeted && type != TRACE_STREAM_HELLO)
        return -EBADMSG;
    switch (type) {
    case TRACE_STREAM_HELLO:
        return r->greeted ? -EBADMSG : on_hello(r, c);
    case TRACE_STREAM_PROCESS:
        return on_process(r, c);
    case TRACE_STREAM_SITE:
        return on_site(r, c);
    case TRACE_STREAM_EVENTS:
        return on_events(r, c);
    case TRACE_STREAM_ERROR:
        return on_error(r, c);
    case TRACE_STREAM_ENDED:
        return on_pid(r, c, r->calls->ended);
    case TRACE_STREAM_SYNCED:
        return on_pid(r, c, r->calls->synced);
    default:
        return 0; /* of a later version */
    }
}

/* Take whole records from the bytes; how many bytes they were, or -errno. */
static ptrdiff_t records_take(struct trace_stream_reader *r, const char *data, size_t len)
{
    struct trace_stream_head head;
    size_t at = 0;
    while (len - at >= sizeof(head)) {
        memcpy(&head, data + at, sizeof(head));
        if (head.bytes > TRACE_STREAM_RECORD_MAX - sizeof(head))
            return -EBADMSG;
        if (len - at - sizeof(head) < head.bytes)
            break;
        int e = record_take(r, head.type, (struct cursor){data + at + sizeof(head), head.bytes});
        if (e < 0)
            return e;
        at += sizeof(head) + head.bytes;
    }
    return (ptrdiff_t)at;
}

/* How many bytes the partial record lacks, of the `len` that came. */
static size_t lacking(const struct buffer *partial, size_t len)
{
    struct trace_stream_head head;
    size_t whole = sizeof(head);
    if (partial->len >= sizeof(head)) {
        memcpy(&head, partial->data, sizeof(head));
        whole += head.bytes;
    }
    return whole - partial->len < len ? whole - partial->len : len;
}

int trace_stream_feed(struct trace_stream_reader *r, const void *data, size_t len)
{
    const char *at = data;
    while (r->error == 0 && len > 0) {
        if (r->partial.len == 0) {
            ptrdiff_t n = records_take(r, at, len);
            if (n < 0) {
                r->error = (int)n;
                break;
            }
            at += n;
            len -= (size_t)n;
            if (len == 0)
                break;
        }
        size_t n = lacking(&r->partial, len);
        r->error = buffer_append(&r->partial, at, n);
        at += n;
        len -= n;
        ptrdiff_t taken = r->error ? r->error : records_take(r, r->partial.data, r->partial.len);
        if (taken < 0)
            r->error = (int)taken;
        else if (taken > 0)
            r->partial.len = 0;
    }
    return r->error;
}
