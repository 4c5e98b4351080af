/* stream.h: events of traced processes on their way from memoir-observe to a reader, over a pipe or a socket.
 *
 * A stream is a sequence of records. Each begins with struct trace_stream_head; all numbers are little-endian, as on all
 * machines that are supported. The first record is a hello with the version. Then come, in any order, processes (before their
 * first event), sites (before the first event that names them) and batches of events. A record of unknown type is skipped, so
 * that later versions may add some. The end of the file ends the stream.
 *
 *   hello     u32 version, u32 size of an event, u64 CLOCK_MONOTONIC, u64 CLOCK_REALTIME (ns)
 *   process   i32 pid, u32 uid, u64 start ticks, u16 length, name
 *   site      i32 pid, u32 number, u64 key, u16 frames, u16 cut; for each frame: u8 kind (0 native, 1 script, 2 no module), u8 length of
 *             the build-id, u16 length of the path, u16 length of the function, u32 line, u64 offset; build-id, path, function.
 *             Of a script, the path is its file.
 *   events    u32 count, u32 0; struct trace_event each
 *   error     i32 errno, u16 length, text for people: the observer cannot go on, or goes on without a part
 *   synced    i32 pid, i32 0: all blocks that were live when tracing of this process began have been told (TRACE_FOUND)
 *   ended     i32 pid, i32 0: no more events of this process will come
 *
 * A writer ends when nobody reads any more: poll() tells POLLERR at its end of the pipe, also while there is nothing to write.
 *
 * The writer packs records into memory and writes them with one call; the reader takes bytes as they come. A record holds up to
 * TRACE_STREAM_RECORD_MAX bytes. A reader trusts no length: a bad record ends the stream with -EBADMSG. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "trace/history.h"

enum {
    TRACE_STREAM_VERSION = 1,
    TRACE_STREAM_RECORD_MAX = 1 << 20, /* bytes, with its head */
    TRACE_STREAM_BATCH = 1024,         /* events of one record at most */
};

enum trace_stream_type {
    TRACE_STREAM_HELLO = 1,
    TRACE_STREAM_PROCESS = 2,
    TRACE_STREAM_SITE = 3,
    TRACE_STREAM_EVENTS = 4,
    TRACE_STREAM_ERROR = 5,
    TRACE_STREAM_ENDED = 6,
    TRACE_STREAM_SYNCED = 7,
};

struct trace_stream_head {
    uint32_t type;  /* enum trace_stream_type */
    uint32_t bytes; /* that follow */
};

/* ---- writing ---- */

/* Packs records into `pending`; trace_stream_flush() writes them. One thread. */
struct trace_stream_writer {
    struct buffer pending;
    size_t written;   /* of `pending`, already taken by the descriptor */
    uint64_t dropped; /* events that found the buffer full, and have not been told as a gap yet */
    uint64_t dropped_all; /* all of them */
    uint64_t last_ns;     /* time of the last event */
    size_t batch_at;      /* where the open batch begins in `pending`; SIZE_MAX: none is open */
    uint32_t batch_n;
};

/* `limit_bytes` is what may wait for a slow reader (16 MiB is fine). Begins with the hello. */
int trace_stream_writer_init(struct trace_stream_writer *w, size_t limit_bytes);
void trace_stream_writer_release(struct trace_stream_writer *w);

/* 0, -ENOMEM, or -ENOBUFS: too much waits, nothing was added. An event that does not fit is dropped; as soon as there
 * is room, a TRACE_GAP with their number goes before the next event. */
int trace_stream_process(struct trace_stream_writer *w, const struct trace_identity *identity);
int trace_stream_site(struct trace_stream_writer *w, int32_t pid, const struct trace_site *site);
int trace_stream_event(struct trace_stream_writer *w, const struct trace_event *event);
int trace_stream_error(struct trace_stream_writer *w, int error, const char *text);
int trace_stream_synced(struct trace_stream_writer *w, int32_t pid);
int trace_stream_ended(struct trace_stream_writer *w, int32_t pid);

/* Write what waits. 0: all is written; 1: the descriptor (non-blocking) takes no more now; -errno: the reader is gone (-EPIPE;
 * no SIGPIPE is raised for sockets, others have to ignore it). */
int trace_stream_flush(struct trace_stream_writer *w, int fd);

/* ---- reading ---- */

/* What a reader is told. Data are borrowed during the call. A function that is NULL is not called. Return 0, or -errno to
 * end reading with it. */
struct trace_stream_calls {
    int (*hello)(void *user, uint32_t version, uint64_t monotonic_ns, uint64_t real_ns);
    int (*process)(void *user, const struct trace_identity *identity);
    int (*site)(void *user, int32_t pid, const struct trace_site *site);
    int (*events)(void *user, const struct trace_event *events, size_t n);
    int (*error)(void *user, int error, const char *text);
    int (*synced)(void *user, int32_t pid);
    int (*ended)(void *user, int32_t pid);
};

struct trace_stream_reader {
    const struct trace_stream_calls *calls;
    void *user;
    struct buffer partial; /* a record of which not all has come */
    uint64_t monotonic_ns, real_ns;
    bool greeted;
    int error; /* sticks */
};

void trace_stream_reader_init(struct trace_stream_reader *r, const struct trace_stream_calls *calls,
                              void *user);
void trace_stream_reader_release(struct trace_stream_reader *r);

/* Any bytes that came, in pieces of any size. 0; -EPROTONOSUPPORT: another version; -EBADMSG; -ENOMEM; what a call returned. */
int trace_stream_feed(struct trace_stream_reader *r, const void *data, size_t len);
