/* Makes the first inputs of fuzz_trace_dump and fuzz_trace_stream anew: seed_trace CORPUS_DUMP CORPUS_STREAM */
#include <memoir/memoir.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/fs.h"
#include "trace/dump.h"
#include "trace/stream.h"

enum { LIMIT = 16 << 20 };

static void save(const char *folder, const char *name, const struct buffer *b)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (fs_write_file_atomic(path, b->data, b->len, 0644) < 0)
        perror(path);
}

static struct trace_event event_make(unsigned i)
{
    static const uint16_t kinds[] = {TRACE_ALLOC,  TRACE_COPY,   TRACE_COPY,  TRACE_FOUND,
                                     TRACE_SYSTEM, TRACE_SET,    TRACE_FREE,  TRACE_RESTORE,
                                     TRACE_GAP,    TRACE_FAILED, TRACE_RESET, TRACE_PREFETCH};
    return (struct trace_event){
        .time_ns = 1000 + i * 900000,
        .address = 0x7f0000000000 + i % 9 * 4096,
        .size = 100 + i,
        .source = 0x550000000000 + i % 4 * 512,
        .call = i,
        .context = 1,
        .pid = 7,
        .tid = 8,
        .site = i % 4 + 1,
        .kind = kinds[i * 7 % 12],
        .device = (int32_t)(i % 2),
        .result = i * 7 % 12 == 9 ? 2 : 0,
        .space = MEMOIR_SPACE_DRAM,
        .direction = (uint8_t)(i % 5),
        .detail = (uint8_t)(i % 10),
        .flags = i % 16 == 5   ? TRACE_FLAG_SYSTEM
                 : i % 16 == 9 ? TRACE_FLAG_HANDLE
                               : 0,
    };
}

int main(int argc, char **argv)
{
    struct trace_identity identity = {
        .pid = 7, .uid = 1, .start_ticks = 3, .start_ns = 5, .name = "seed"};
    struct trace_module module = {.path = "/lib/a.so", .build_id = {1, 2, 3}, .build_id_len = 3};
    struct trace_line line = {"f", "a.py", 3};
    struct trace_frame frames[] = {
        {.module = &module, .offset = 16}, {.lines = &line, .n_lines = 1}, {.offset = 1}};
    struct trace_history *h = NULL;
    struct trace_stream_writer w;
    if (argc != 3 || trace_history_new(&identity, NULL, &h) < 0 ||
        trace_stream_writer_init(&w, LIMIT) < 0)
        return 2;
    trace_stream_process(&w, &identity);
    for (uint32_t i = 1; i <= 4; i++) {
        struct trace_site site = {
            .number = i, .n_frames = (uint16_t)(i % 4), .key = i * 77, .frames = frames};
        trace_sites_define(trace_history_sites(h), &site);
        trace_stream_site(&w, 7, &site);
    }
    for (unsigned i = 0; i < 60; i++) {
        struct trace_event e = event_make(i);
        trace_history_event(h, &e);
        trace_stream_event(&w, &e);
    }
    trace_stream_error(&w, 1, "an error");
    trace_stream_ended(&w, 7);
    struct buffer out = BUFFER_INIT(LIMIT);
    trace_dump_encode(h, TRACE_DUMP_BINARY, &out);
    save(argv[1], "binary", &out);
    buffer_reset(&out);
    trace_dump_encode_plain(h, &out);
    save(argv[1], "plain", &out);
    buffer_reset(&out);
    trace_dump_encode(h, TRACE_DUMP_JSON, &out);
    save(argv[1], "json", &out);
    buffer_reset(&out);
    buffer_append_char(&out, 40); /* pieces of 41 bytes */
    buffer_append(&out, w.pending.data, w.pending.len);
    save(argv[2], "stream", &out);
    buffer_release(&out);
    trace_stream_writer_release(&w);
    trace_history_free(h);
    return 0;
}
