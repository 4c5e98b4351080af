/* Event streams. See stream.h.
 *
 * What is published is a frame, rendered once; the last ones are in a ring with a number each, and a stream is a
 * number: what it is to send next. So a thousand streams cost a thousand copies into their sockets and nothing
 * else, and one that does not read costs nothing: when the ring has gone round, it is told how much it missed. */
#include "http/stream.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/accountable.h"
#include "base/clock.h"

enum {
    FRAMES_MAX = 256,           /* in the ring, */
    FRAMES_BYTES_MAX = 8 << 20, /* and their size */
    LETTERS_MAX = 1024,         /* on their way to the server */
    CLASSES_MAX = 256,          /* of viewers, that are told apart */
    FRAME_MAX = 1 << 20,
    BLOCK_BYTES = 1, /* of a buffer that MHD makes for each, and does not use for chunks */
};

static const uint64_t beat_ns = 15 * NS_PER_S, check_ns = 2 * NS_PER_S;
static const char beat[] = ": still here\n\n";

struct frame {
    struct letter letter; /* first */
    struct http_audience audience;
    uint64_t number; /* in the order in which they were published */
    size_t len;
    char bytes[];
};

struct stream {
    struct streams *streams;
    struct exchange *exchange;
    struct buffer first; /* what it starts with, or what it missed */
    size_t first_sent;
    uint64_t next;       /* frame that it is to send, */
    size_t sent;         /* and how much of it went already */
    uint64_t written_ns; /* when it last took something, */
    uint64_t checked_ns; /* and when it was last looked whether its client may still ask */
    uint64_t viewer;     /* see viewer_key() */
    bool asleep, ended, beats;
    LIST_ENTRY(stream) link;
};

struct class
{
    struct http_audience audience;
    size_t n; /* streams; 0: unused */
};

struct streams {
    struct http *http;
    LIST_HEAD(, stream) list;
    size_t n;
    struct frame *ring[FRAMES_MAX];
    uint64_t begin, end; /* numbers of the oldest one that is there, and of the next one */
    size_t bytes;
    bool fresh; /* frames came since the last flush */

    pthread_mutex_t lock; /* for what follows */
    struct class classes[CLASSES_MAX];
};

/* ---- who listens ---- */

static uint64_t viewer_key(const struct http_viewer *viewer)
{
    return viewer->sees_all ? UINT64_MAX : viewer->uid;
}

static bool is_for(const struct http_audience *audience, uint64_t viewer)
{
    switch (audience->to) {
    case HTTP_TO_ALL:
        return true;
    case HTTP_TO_SEES_ALL:
        return viewer == UINT64_MAX;
    case HTTP_TO_UID:
        return viewer == audience->uid;
    case HTTP_TO_OTHERS:
        return viewer != UINT64_MAX && viewer != audience->uid;
    }
    return false;
}

static void class_count(struct streams *streams, uint64_t viewer, int change)
{
    struct http_audience audience = {.to = viewer == UINT64_MAX ? HTTP_TO_SEES_ALL : HTTP_TO_UID,
                                     .uid = viewer == UINT64_MAX ? 0 : (uint32_t)viewer};
    struct class *unused = NULL, *found = NULL;
    pthread_mutex_lock(&streams->lock);
    for (size_t i = 0; i < CLASSES_MAX; i++) {
        struct class *class = &streams->classes[i];
        if (class->n == 0)
            unused = unused ? unused : class;
        else if (class->audience.to == audience.to && class->audience.uid == audience.uid)
            found = class;
    }
    if (!found && unused && change > 0) {
        found = unused;
        found->audience = audience;
    }
    if (found)
        found->n = (size_t)((ssize_t)found->n + change);
    pthread_mutex_unlock(&streams->lock);
}

size_t http_stream_classes(struct http *http, struct http_audience *ret_classes, size_t max)
{
    struct streams *streams = http->streams;
    size_t n = 0;
    if (atomic_load_explicit(&http->figures.streams, memory_order_relaxed) == 0)
        return 0;
    pthread_mutex_lock(&streams->lock);
    for (size_t i = 0; i < CLASSES_MAX; i++)
        if (streams->classes[i].n > 0) {
            if (n < max)
                ret_classes[n] = streams->classes[i].audience;
            n++;
        }
    pthread_mutex_unlock(&streams->lock);
    return n;
}

/* By the user who answers for the viewer; all who see everything count together. */
static uint64_t payer_of(uint64_t viewer)
{
    return viewer == UINT64_MAX ? viewer : accountable_uid((uint32_t)viewer);
}

static size_t viewer_streams(const struct streams *streams, uint64_t viewer)
{
    const struct stream *stream;
    size_t n = 0;
    uint64_t payer = payer_of(viewer);
    LIST_FOREACH(stream, &streams->list, link)
    n += payer_of(stream->viewer) == payer;
    return n;
}

/* ---- frames ---- */

void http_frame(struct buffer *out, const char *event, uint64_t id, const char *json, size_t len)
{
    if (id)
        buffer_printf(out, "id: %" PRIu64 "\n", id);
    buffer_printf(out, "event: %s\ndata: ", event);
    while (len > 0 && json[len - 1] == '\n')
        len--;
    assert(!memchr(json, '\n', len));
    buffer_append(out, json, len);
    buffer_append_str(out, "\n\n");
}

static bool nobody_listens(struct http *http)
{
    return atomic_load_explicit(&http->figures.streams, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&http->streams_coming, memory_order_relaxed) == 0;
}

int http_stream_publish(struct http *http, const struct http_audience *audience, const char *event,
                        uint64_t id, const char *json, size_t len)
{
    struct buffer out = BUFFER_INIT(FRAME_MAX);
    if (nobody_listens(http))
        return 0;
    http_frame(&out, event, id, json, len);
    struct frame *frame = out.error ? NULL : malloc(sizeof(*frame) + out.len);
    int r = out.error ? out.error : frame ? 0 : -ENOMEM;
    if (r == 0 && mailbox_count(&http->back) >= LETTERS_MAX)
        r = -ENOBUFS;
    if (r == 0) {
        *frame = (struct frame){
            .letter.kind = LETTER_FRAME,
            .audience = *audience,
            .number = atomic_fetch_add_explicit(&http->published, 1, memory_order_relaxed),
            .len = out.len,
        };
        memcpy(frame->bytes, out.data, out.len);
        if (mailbox_put(&http->back, &frame->letter))
            http_wake_self(http);
    } else {
        free(frame);
    }
    buffer_release(&out);
    return r;
}

static void frame_drop(struct streams *streams)
{
    struct frame **slot = &streams->ring[streams->begin++ % FRAMES_MAX];
    streams->bytes -= (*slot)->len;
    free(*slot);
    *slot = NULL;
}

void streams_take(struct streams *streams, struct letter *letter)
{
    struct frame *frame = (struct frame *)letter;
    COUNT(streams->http, events);
    while (streams->end - streams->begin >= FRAMES_MAX ||
           (streams->end > streams->begin && streams->bytes + frame->len > FRAMES_BYTES_MAX))
        frame_drop(streams);
    streams->ring[streams->end++ % FRAMES_MAX] = frame;
    streams->bytes += frame->len;
    streams->fresh = true;
}

/* ---- one stream ---- */

void stream_begin(struct exchange *exchange, struct http_call *call)
{
    struct http *http = exchange->http;
    struct streams *streams = http->streams;
    uint64_t viewer = viewer_key(&call->viewer);
    size_t viewer_max =
        call->viewer.sees_all ? http->limits.streams_max : http->limits.streams_viewer_max;
    struct stream *stream = NULL;
    if (streams->n < http->limits.streams_max && viewer_streams(streams, viewer) < viewer_max)
        stream = calloc(1, sizeof(*stream));
    if (!stream) {
        COUNT(http, refused_streams);
        exchange->answer = answer_problem(429, "streams", call->path,
                                          "you listen to %zu streams already: close some",
                                          viewer_streams(streams, viewer));
        if (exchange->answer)
            exchange->answer->retry_s = 10;
        return;
    }
    stream->streams = streams;
    stream->exchange = exchange;
    stream->first = call->out;
    call->out = (struct buffer){.limit = 1};
    stream->next = streams->end;
    /* What was published since the handler said so came before its call did. */
    while (stream->next > streams->begin &&
           streams->ring[(stream->next - 1) % FRAMES_MAX]->number >= call->stream_from)
        stream->next--;
    stream->viewer = viewer;
    stream->written_ns = stream->checked_ns = clock_monotonic_ns();
    exchange->stream = stream;
    exchange->conn->phase = CONN_STREAMING;
    LIST_INSERT_HEAD(&streams->list, stream, link);
    streams->n++;
    class_count(streams, viewer, 1);
    COUNT_SET(http, streams, streams->n);
}

void stream_end(struct exchange *exchange)
{
    struct stream *stream = exchange->stream;
    if (!stream)
        return;
    struct streams *streams = stream->streams;
    LIST_REMOVE(stream, link);
    streams->n--;
    class_count(streams, stream->viewer, -1);
    COUNT_SET(streams->http, streams, streams->n);
    buffer_release(&stream->first);
    free(stream);
    exchange->stream = NULL;
}

/* It missed what is not in the ring any more. */
static void stream_catch_up(struct stream *stream)
{
    struct streams *streams = stream->streams;
    if (stream->next >= streams->begin)
        return;
    uint64_t missed = streams->begin - stream->next;
    char json[64];
    int len = snprintf(json, sizeof(json), "{\"events\":%" PRIu64 "}", missed);
    /* What is gone cannot be finished: a stream that stood in the middle of an event is cut, and its client comes back. */
    if (stream->sent > 0) {
        stream->ended = true;
        return;
    }
    /* What it begins with is its own, and still whole: it is told after that. */
    stream->first.limit = stream->first.len + FRAME_MAX;
    http_frame(&stream->first, "lost", 0, json, (size_t)len);
    COUNT_ADD(streams->http, events_lost, missed);
    stream->next = streams->begin;
}

static size_t copy_some(char *to, size_t max, const char *from, size_t len, size_t *sent)
{
    size_t n = len - *sent < max ? len - *sent : max;
    memcpy(to, from + *sent, n);
    *sent += n;
    return n;
}

/* MHD wants bytes: as many as there are. */
static ssize_t on_read(void *context, uint64_t position, char *to, size_t max)
{
    struct stream *stream = context;
    struct streams *streams = stream->streams;
    size_t n = 0;
    (void)position;
    stream_catch_up(stream);
    if (stream->ended)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (stream->first_sent < stream->first.len)
        n += copy_some(to, max, stream->first.data, stream->first.len, &stream->first_sent);
    if (stream->first.len && stream->first_sent == stream->first.len) {
        buffer_release(&stream->first);
        stream->first_sent = 0;
    }
    while (!stream->first.len && n < max && stream->next < streams->end) {
        const struct frame *frame = streams->ring[stream->next % FRAMES_MAX];
        if (is_for(&frame->audience, stream->viewer))
            n += copy_some(to + n, max - n, frame->bytes, frame->len, &stream->sent);
        else
            stream->sent = frame->len;
        if (stream->sent < frame->len)
            break;
        stream->sent = 0;
        stream->next++;
    }
    if (n == 0 && stream->beats) {
        size_t zero = 0;
        stream->beats = false;
        n = copy_some(to, max, beat, sizeof(beat) - 1, &zero);
    }
    if (n > 0) {
        stream->written_ns = clock_monotonic_coarse_ns();
        COUNT_ADD(streams->http, bytes_out, n);
        return (ssize_t)n;
    }
    stream->asleep = true;
    MHD_suspend_connection(stream->exchange->mhd);
    return 0;
}

enum MHD_Result stream_queue(struct exchange *exchange)
{
    static const struct answer form = {.status = 200, .type = "text/event-stream"};
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, BLOCK_BYTES, on_read, exchange->stream, NULL);
    enum MHD_Result r = MHD_NO;
    if (response && answer_headers(response, &form, false) &&
        MHD_add_response_header(response, "X-Accel-Buffering", "no") == MHD_YES)
        r = MHD_queue_response(exchange->mhd, 200, response);
    if (response)
        MHD_destroy_response(response);
    return r;
}

/* ---- all of them ---- */

static void stream_rouse(struct stream *stream)
{
    if (!stream->asleep)
        return;
    stream->asleep = false;
    MHD_resume_connection(stream->exchange->mhd);
}

static bool has_frames(const struct stream *stream)
{
    const struct streams *streams = stream->streams;
    if (stream->next < streams->begin)
        return true;
    for (uint64_t i = stream->next; i < streams->end; i++)
        if (is_for(&streams->ring[i % FRAMES_MAX]->audience, stream->viewer))
            return true;
    return false;
}

void streams_flush(struct streams *streams)
{
    struct stream *stream;
    if (!streams->fresh)
        return;
    streams->fresh = false;
    LIST_FOREACH(stream, &streams->list, link)
    if (stream->asleep && has_frames(stream))
        stream_rouse(stream);
}

void streams_tick(struct streams *streams, uint64_t now_ns)
{
    struct stream *stream;
    LIST_FOREACH(stream, &streams->list, link)
    {
        if (now_ns - stream->checked_ns >= check_ns && now_ns > stream->checked_ns) {
            stream->checked_ns = now_ns;
            stream->ended = stream->ended || !exchange_still_known(stream->exchange);
        }
        if (stream->asleep && (stream->ended || now_ns - stream->written_ns >= beat_ns)) {
            stream->beats = true;
            stream_rouse(stream);
        }
    }
}

void streams_end_all(struct streams *streams)
{
    struct stream *stream;
    LIST_FOREACH(stream, &streams->list, link)
    {
        stream->ended = true;
        stream_rouse(stream);
    }
}

int streams_new(struct http *http, struct streams **ret_streams)
{
    struct streams *streams = calloc(1, sizeof(*streams));
    if (!streams)
        return -ENOMEM;
    streams->http = http;
    LIST_INIT(&streams->list);
    pthread_mutex_init(&streams->lock, NULL);
    *ret_streams = streams;
    return 0;
}

void streams_free(struct streams *streams)
{
    if (!streams)
        return;
    while (streams->begin < streams->end)
        frame_drop(streams);
    pthread_mutex_destroy(&streams->lock);
    free(streams);
}
