/* dump.h: a history as bytes, and back.
 *
 * Two formats with the same content: binary (a head of 40 bytes, then one zstd frame of variable-length integers) for files, sockets
 * and the library, and JSON for people and scripts. doc/trace-dump.md describes both. A dump is of one moment, needs no file of the
 * traced machine, and loads into a history that takes no events but answers every question.
 *
 * Dumps travel: whatever is in one, loading it fails cleanly or gives a history within the limits below. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "trace/history.h"

struct buffer;

#define TRACE_DUMP_MAGIC "MEMOIRTR" /* 8 bytes */
enum {
    TRACE_DUMP_VERSION = 1,
    TRACE_DUMP_HEAD_BYTES = 40,
    TRACE_DUMP_FILE_MAX = 1 << 30,
    TRACE_DUMP_BLOCKS_MAX = 8 << 20,
};
#define TRACE_DUMP_PLAIN_MAX (UINT64_C(4) << 30) /* unpacked */

enum trace_dump_format { TRACE_DUMP_BINARY = 0, TRACE_DUMP_JSON = 1 };

/* Append a dump to `out`. Readers of the history wait for about 1 us a block, its feeder does not wait. 0, -ENOMEM, or -ENOBUFS:
 * past the limit of `out` or of dumps. */
int trace_dump_encode(struct trace_history *history, enum trace_dump_format format,
                      struct buffer *out);

/* Load either format. -EBADMSG: damaged, cut short or no dump; -EPROTONOSUPPORT: of a later version; -E2BIG: past a limit;
 * -ENOMEM. */
int trace_dump_decode(const void *data, size_t len, struct trace_history **ret_history);

/* How many bytes a binary dump says that it holds unpacked, before it is believed; 0: it is no binary dump. */
uint64_t trace_dump_plain_bytes(const void *data, size_t len);

/* What a binary dump holds unpacked; for tests and fuzzers. */
int trace_dump_encode_plain(struct trace_history *history, struct buffer *out);
int trace_dump_decode_plain(const void *data, size_t len, struct trace_history **ret_history);

/* To a descriptor, which the caller keeps: all bytes are written, or -errno (-ENOSPC, -EPIPE, ...). */
int trace_dump_write(struct trace_history *history, enum trace_dump_format format, int fd);

/* To a file of mode 0600, whole or not at all. A file that is there is replaced. */
int trace_dump_save(struct trace_history *history, enum trace_dump_format format, const char *path);

/* The errors of trace_dump_decode(), and of open(). */
int trace_dump_load(const char *path, struct trace_history **ret_history);
