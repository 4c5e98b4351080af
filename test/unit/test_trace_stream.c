/* The stream between the observer and the library: what goes in comes out, in pieces of any size, and what does not fit is told. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "fault.h"
#include "trace/stream.h"
#include "trace_fixture.h"

struct heard {
    unsigned hellos, processes, sites, errors, ended, synced, batches;
    uint64_t events, gaps, lost, last_call;
    bool order; /* calls of events rise by one */
};

static int on_hello(void *user, uint32_t version, uint64_t monotonic_ns, uint64_t real_ns)
{
    struct heard *h = user;
    assert_int_equal(version, TRACE_STREAM_VERSION);
    assert_true(monotonic_ns > 0 && real_ns > monotonic_ns);
    h->hellos++;
    return 0;
}

static int on_process(void *user, const struct trace_identity *identity)
{
    assert_int_equal(identity->pid, 4711);
    assert_int_equal(identity->uid, 1000);
    assert_int_equal(identity->start_ticks, 99);
    assert_string_equal(identity->name, "train");
    ((struct heard *)user)->processes++;
    return 0;
}

static int on_site(void *user, int32_t pid, const struct trace_site *site)
{
    assert_int_equal(pid, 4711);
    assert_int_equal(site->number, 9);
    assert_int_equal(site->key, UINT64_MAX);
    assert_int_equal(site->cut, 3);
    assert_int_equal(site->n_frames, 3);
    assert_string_equal(site->frames[0].module->path, "/lib/torch.so");
    assert_int_equal(site->frames[0].module->build_id_len, 2);
    assert_int_equal(site->frames[0].module->build_id[1], 8);
    assert_int_equal(site->frames[0].offset, 0x1234);
    assert_null(site->frames[1].module);
    assert_string_equal(site->frames[1].lines[0].function, "forward");
    assert_string_equal(site->frames[1].lines[0].file, "model.py");
    assert_int_equal(site->frames[1].lines[0].line, 42);
    assert_null(site->frames[2].module);
    assert_int_equal(site->frames[2].n_lines, 0);
    ((struct heard *)user)->sites++;
    return 0;
}

static int on_events(void *user, const struct trace_event *events, size_t n)
{
    struct heard *h = user;
    h->batches++;
    for (size_t i = 0; i < n; i++) {
        if (events[i].kind == TRACE_GAP) {
            h->gaps++;
            h->lost += events[i].size;
            h->last_call += events[i].size;
            continue;
        }
        assert_int_equal(events[i].call, ++h->last_call);
        h->events++;
    }
    return 0;
}

static int on_error(void *user, int error, const char *text)
{
    assert_int_equal(error, EPERM);
    assert_string_equal(text, "no");
    ((struct heard *)user)->errors++;
    return 0;
}

static int on_ended(void *user, int32_t pid)
{
    assert_int_equal(pid, 4711);
    ((struct heard *)user)->ended++;
    return 0;
}

static int on_synced(void *user, int32_t pid)
{
    assert_int_equal(pid, 4711);
    ((struct heard *)user)->synced++;
    return 0;
}

static const struct trace_stream_calls calls = {
    .hello = on_hello,
    .process = on_process,
    .site = on_site,
    .events = on_events,
    .error = on_error,
    .ended = on_ended,
    .synced = on_synced,
};

static int tell(struct trace_stream_writer *w, uint64_t events)
{
    struct trace_identity identity = {.pid = 4711, .uid = 1000, .start_ticks = 99, .name = "train"};
    struct trace_module module = {.path = "/lib/torch.so", .build_id = {7, 8}, .build_id_len = 2};
    struct trace_line line = {"forward", "model.py", 42};
    struct trace_frame frames[] = {
        {.module = &module, .offset = 0x1234}, {.lines = &line, .n_lines = 1}, {.offset = 5}};
    struct trace_site site = {
        .number = 9, .n_frames = 3, .cut = 3, .key = UINT64_MAX, .frames = frames};
    int r = trace_stream_process(w, &identity);
    r = r ? r : trace_stream_site(w, 4711, &site);
    for (uint64_t i = 1; i <= events && r == 0; i++) {
        struct trace_event e = event_of(TRACE_ALLOC, i, i << 20, 100);
        e.call = i;
        r = trace_stream_event(w, &e);
    }
    r = r ? r : trace_stream_error(w, EPERM, "no");
    r = r ? r : trace_stream_synced(w, 4711);
    return r ? r : trace_stream_ended(w, 4711);
}

static void what_is_told_is_heard_in_pieces_of_any_size(void **state)
{
    (void)state;
    struct trace_stream_writer w;
    assert_int_equal(trace_stream_writer_init(&w, 1 << 20), 0);
    assert_int_equal(tell(&w, 3000), 0);
    static const size_t pieces[] = {1, 7, 8, 9, 100, 4096, 1 << 20};
    for (unsigned i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        struct heard heard = {0};
        struct trace_stream_reader r;
        trace_stream_reader_init(&r, &calls, &heard);
        for (size_t at = 0; at < w.pending.len; at += pieces[i])
            assert_int_equal(
                trace_stream_feed(&r, w.pending.data + at,
                                  w.pending.len - at < pieces[i] ? w.pending.len - at : pieces[i]),
                0);
        trace_stream_reader_release(&r);
        assert_int_equal(heard.hellos + heard.processes + heard.sites + heard.errors +
                             heard.synced + heard.ended,
                         6);
        assert_int_equal(heard.events, 3000);
        assert_int_equal(heard.gaps, 0);
    }
    trace_stream_writer_release(&w);
}

/* A slow reader on a socket: the writer never waits, and what it dropped is told as a gap of the right size. */
static void what_does_not_fit_is_told_as_a_gap(void **state)
{
    (void)state;
    enum { EVENTS = 40000 };
    int ends[2];
    char bytes[4096];
    struct heard heard = {0};
    struct trace_stream_writer w;
    struct trace_stream_reader r;
    uint64_t dropped = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    assert_int_equal(trace_stream_writer_init(&w, 64 << 10), 0);
    trace_stream_reader_init(&r, &calls, &heard);
    bool wait = false;
    for (uint64_t i = 1; i <= EVENTS; i++) {
        struct trace_event e = event_of(TRACE_ALLOC, i, i << 20, 100);
        e.call = i;
        dropped += trace_stream_event(&w, &e) < 0;
        if (i % 100 == 0)
            wait = trace_stream_flush(&w, ends[0]) == 1 || wait;
        if (i % 8000 == 0) {
            ssize_t n;
            while ((n = read(ends[1], bytes, sizeof(bytes))) > 0)
                assert_int_equal(trace_stream_feed(&r, bytes, (size_t)n), 0);
            trace_stream_flush(&w, ends[0]);
        }
    }
    ssize_t n = 0;
    do {
        trace_stream_flush(&w, ends[0]);
        while ((n = read(ends[1], bytes, sizeof(bytes))) > 0)
            assert_int_equal(trace_stream_feed(&r, bytes, (size_t)n), 0);
    } while (w.written < w.pending.len);
    assert_true(wait && dropped > 0);
    assert_int_equal(w.dropped_all, dropped);
    assert_int_equal(heard.events, EVENTS - dropped);
    assert_int_equal(heard.lost + w.dropped, dropped);
    assert_true(heard.gaps > 0);
    close(ends[1]);
    struct trace_event e = event_of(TRACE_ALLOC, 1, 1, 1);
    assert_int_equal(trace_stream_event(&w, &e), 0);
    assert_int_equal(trace_stream_flush(&w, ends[0]), -EPIPE);
    close(ends[0]);
    trace_stream_reader_release(&r);
    trace_stream_writer_release(&w);
}

static int feed_record(uint32_t type, const void *body, uint32_t len, bool hello)
{
    struct trace_stream_writer w;
    struct trace_stream_reader r;
    struct trace_stream_head head = {type, len};
    static const struct trace_stream_calls none = {0};
    assert_int_equal(trace_stream_writer_init(&w, 1 << 20), 0);
    trace_stream_reader_init(&r, &none, NULL);
    int e = hello ? trace_stream_feed(&r, w.pending.data, w.pending.len) : 0;
    e = e ? e : trace_stream_feed(&r, &head, sizeof(head));
    e = e ? e : trace_stream_feed(&r, body, len);
    trace_stream_reader_release(&r);
    trace_stream_writer_release(&w);
    return e;
}

static void bad_records_end_the_stream(void **state)
{
    (void)state;
    char zeroes[256] = {0};
    uint32_t many[64] = {1000000};
    assert_int_equal(feed_record(TRACE_STREAM_ENDED, zeroes, 8, false), -EBADMSG); /* no hello */
    assert_int_equal(feed_record(TRACE_STREAM_HELLO, zeroes, 24, false), -EPROTONOSUPPORT);
    assert_int_equal(feed_record(TRACE_STREAM_HELLO, zeroes, 24, true), -EBADMSG); /* twice */
    assert_int_equal(feed_record(TRACE_STREAM_EVENTS, many, sizeof(many), true), -EBADMSG);
    assert_int_equal(feed_record(TRACE_STREAM_EVENTS, zeroes, 4, true), -EBADMSG);
    assert_int_equal(feed_record(TRACE_STREAM_SITE, zeroes, 20, true), -EBADMSG);
    assert_int_equal(feed_record(TRACE_STREAM_PROCESS, zeroes, 3, true), -EBADMSG);
    assert_int_equal(feed_record(TRACE_STREAM_ERROR, zeroes, 2, true), -EBADMSG);
    assert_int_equal(feed_record(TRACE_STREAM_ENDED, zeroes, 4, true), -EBADMSG);
    assert_int_equal(feed_record(999, zeroes, 100, true), 0); /* of a later version */
    assert_int_equal(feed_record(1, NULL, TRACE_STREAM_RECORD_MAX, true), -EBADMSG);
}

static void the_writer_survives_without_memory(void **state)
{
    (void)state;
    for (int nth = 0; fault_arm(nth); nth++) {
        struct trace_stream_writer w;
        int r = trace_stream_writer_init(&w, 1 << 20);
        r = r ? r : tell(&w, 500);
        fault_disarm();
        assert_true(r == 0 || fault_fired());
        trace_stream_writer_release(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_told_is_heard_in_pieces_of_any_size),
        cmocka_unit_test(what_does_not_fit_is_told_as_a_gap),
        cmocka_unit_test(bad_records_end_the_stream),
        cmocka_unit_test(the_writer_survives_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
