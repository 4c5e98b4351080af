/* Dumps: both formats hold everything, come back the same, and what is damaged is refused. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "fault.h"
#include "trace/dump.h"
#include "trace_fixture.h"

enum { LIMIT = 256 << 20 };

static struct buffer plain_of(struct trace_history *h)
{
    struct buffer b = BUFFER_INIT(LIMIT);
    assert_int_equal(trace_dump_encode_plain(h, &b), 0);
    return b;
}

static void same_history(struct trace_history *a, struct trace_history *b)
{
    struct buffer x = plain_of(a), y = plain_of(b);
    assert_int_equal(x.len, y.len);
    assert_memory_equal(x.data, y.data, x.len);
    buffer_release(&x);
    buffer_release(&y);
}

static void both_formats_come_back_the_same(void **state)
{
    (void)state;
    struct trace_history *h = rich_history(1);
    for (unsigned format = TRACE_DUMP_BINARY; format <= TRACE_DUMP_JSON; format++) {
        struct buffer out = BUFFER_INIT(LIMIT), again = BUFFER_INIT(LIMIT);
        struct trace_history *back = NULL;
        assert_int_equal(trace_dump_encode(h, format, &out), 0);
        assert_int_equal(trace_dump_decode(out.data, out.len, &back), 0);
        assert_true(trace_history_frozen(back));
        assert_int_equal(trace_history_check(back), 0);
        same_history(h, back);
        assert_int_equal(trace_dump_encode(back, format, &again), 0);
        assert_int_equal(out.len, again.len);
        assert_memory_equal(out.data, again.data, out.len);
        buffer_release(&out);
        buffer_release(&again);
        trace_history_free(back);
    }
    trace_history_free(h);
}

static void a_loaded_history_answers_as_the_live_one(void **state)
{
    (void)state;
    enum { K = 30 };
    struct trace_history *h = rich_history(2), *back = NULL;
    struct buffer out = BUFFER_INIT(LIMIT);
    static struct trace_block a[K], b[K];
    assert_int_equal(trace_dump_encode(h, TRACE_DUMP_BINARY, &out), 0);
    assert_int_equal(trace_dump_decode(out.data, out.len, &back), 0);
    for (unsigned by = 0; by < 2; by++) {
        assert_int_equal(trace_history_hot(h, by, NULL, a, K),
                         trace_history_hot(back, by, NULL, b, K));
        for (unsigned i = 0; i < K; i++)
            assert_int_equal(trace_block_value(&a[i], by), trace_block_value(&b[i], by));
    }
    for (uint64_t i = 0; i < 120; i++) {
        int r = trace_history_find(h, DEVICE_AT + i * 65536, a);
        assert_int_equal(trace_history_find(back, DEVICE_AT + i * 65536, b), r);
        if (r < 0)
            continue;
        struct trace_moment m[16], n[16];
        ptrdiff_t k = trace_history_moments(h, a->id, m, 16);
        assert_int_equal(trace_history_moments(back, b->id, n, 16), k);
        assert_memory_equal(m, n, (size_t)k * sizeof(*m));
        a->id = b->id = 0;
        assert_memory_equal(a, b, sizeof(*a));
    }
    struct trace_totals t = trace_history_totals(h), u = trace_history_totals(back);
    t.memory_bytes = u.memory_bytes = 0;
    assert_memory_equal(&t, &u, sizeof(t));
    struct trace_timeline x, y;
    assert_int_equal(trace_history_timeline(h, &x), 0);
    assert_int_equal(trace_history_timeline(back, &y), 0);
    assert_int_equal(x.n_lines, y.n_lines);
    assert_int_equal(x.n_slots, y.n_slots);
    assert_memory_equal(x.lines[0].last, y.lines[0].last, x.n_slots * 8);
    trace_timeline_release(&x);
    trace_timeline_release(&y);
    /* It takes no events. */
    alloc_at(back, 1, 0x1000, 10, 1);
    assert_int_equal(trace_history_totals(back).events, t.events);
    buffer_release(&out);
    trace_history_free(h);
    trace_history_free(back);
}

static void an_empty_history_and_one_that_ended_come_back(void **state)
{
    (void)state;
    for (unsigned ended = 0; ended < 2; ended++)
        for (unsigned format = 0; format < 2; format++) {
            struct trace_history *h = history_with(NULL), *back = NULL;
            struct buffer out = BUFFER_INIT(LIMIT);
            if (ended) {
                alloc_at(h, 5, DEVICE_AT, 100, 1);
                feed(h, event_of(TRACE_EXIT, 6, 0, 0));
            }
            assert_int_equal(trace_dump_encode(h, format, &out), 0);
            assert_int_equal(trace_dump_decode(out.data, out.len, &back), 0);
            same_history(h, back);
            struct trace_identity identity = trace_history_identity(back);
            assert_string_equal(identity.name, "train");
            assert_int_equal(identity.start_ticks, 99);
            assert_int_equal(trace_history_totals(back).exit_ns, ended ? 6 : 0);
            buffer_release(&out);
            trace_history_free(h);
            trace_history_free(back);
        }
}

static void every_damaged_byte_is_noticed(void **state)
{
    (void)state;
    struct trace_history *h = rich_history(3), *back = NULL;
    struct buffer out = BUFFER_INIT(LIMIT);
    assert_int_equal(trace_dump_encode(h, TRACE_DUMP_BINARY, &out), 0);
    for (size_t i = 0; i < out.len; i += 1 + i / 64) {
        out.data[i] ^= 0x10;
        assert_true(trace_dump_decode(out.data, out.len, &back) < 0);
        out.data[i] ^= 0x10;
    }
    for (size_t len = 0; len < out.len; len += 1 + len / 16)
        assert_int_equal(trace_dump_decode(out.data, len, &back), -EBADMSG);
    out.data[8] = 2; /* a later version */
    assert_int_equal(trace_dump_decode(out.data, out.len, &back), -EPROTONOSUPPORT);
    buffer_release(&out);
    trace_history_free(h);
}

static int decode_text(const char *text, struct trace_history **ret)
{
    return trace_dump_decode(text, strlen(text), ret);
}

static void json_sections_may_come_in_any_order(void **state)
{
    (void)state;
    struct trace_history *h = NULL;
    assert_int_equal(
        decode_text(
            "{\"blocks\":[{\"holder\":1,\"address\":4096,\"size\":10,\"state\":\"allocated\",\"active\":true,\"site\":3,"
            "\"later\":[1,{}],\"class\":\"own\",\"space\":\"dram\",\"device\":0}],"
            "\"holders\":[{\"site\":3,\"device\":0,\"space\":\"dram\",\"class\":\"own\",\"live_blocks\":1,\"live_bytes\":10,"
            "\"allocated_blocks\":1,\"allocated_bytes\":10}],\"unknown\":1,"
            "\"version\":1,\"format\":\"memoir-trace\",\"process\":{\"pid\":5,\"name\":\"x\"}}",
            &h),
        0);
    assert_int_equal(block_at(h, 4100).site, 3);
    assert_int_equal(trace_history_identity(h).pid, 5);
    trace_history_free(h);
}

static void json_that_is_no_history_is_refused(void **state)
{
    (void)state;
#define HEAD   "{\"format\":\"memoir-trace\",\"version\":1"
#define HOLDER ",\"holders\":[{\"site\":3}]"
#define BLOCK  "{\"holder\":1,\"address\":4096,\"size\":10,\"state\":\"allocated\",\"active\":true}"
    static const struct {
        const char *text;
        int error;
    } cases[] = {
        {"{}", -EBADMSG},
        {"{\"format\":\"other\",\"version\":1}", -EBADMSG},
        {"{\"format\":\"memoir-trace\",\"version\":2}", -EPROTONOSUPPORT},
        {HEAD, -EBADMSG},
        {HEAD "} x", -EBADMSG},
        {HEAD ",\"blocks\":[" BLOCK "]}", -EBADMSG}, /* its holder is missing */
        {HEAD HOLDER ",\"blocks\":[" BLOCK "," BLOCK "]}",
         -EBADMSG}, /* two active blocks in one place */
        {HEAD ",\"holders\":[{\"site\":3},{\"site\":3}]}", -EBADMSG}, /* twice */
        {HEAD ",\"holders\":[{\"site\":4294967296}]}", -EBADMSG},     /* out of range */
        {HEAD ",\"holders\":[{\"space\":\"moon\"}]}", -EBADMSG},
        {HEAD ",\"sites\":[{\"number\":1,\"key\":\"xyz\",\"frames\":[]}]}", -EBADMSG},
        {HEAD ",\"sites\":[{\"number\":0}]}", -EBADMSG},
        {HEAD ",\"sites\":[{\"number\":1},{\"number\":1}]}", -EBADMSG},
        {HEAD ",\"gaps\":[{\"time_ns\":1,\"lost\":2}]}", -EBADMSG}, /* more than the totals say */
        {HEAD ",\"timeline\":{\"start_ns\":1,\"step_ns\":1,\"slots\":513}}", -EBADMSG},
        {HEAD
         ",\"timeline\":{\"start_ns\":1,\"step_ns\":1,\"slots\":2,\"device\":{\"last\":[1],\"peak\":[1,1]}}}",
         -EBADMSG},
        {HEAD ",\"failures\":[{\"number\":0}]}", -EBADMSG},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct trace_history *h = NULL;
        int r = decode_text(cases[i].text, &h);
        if (r != cases[i].error)
            fail_msg("%s: %d", cases[i].text, r);
    }
    struct trace_history *h = NULL;
    assert_int_equal(decode_text(HEAD HOLDER ",\"blocks\":[" BLOCK "]}", &h), 0);
    trace_history_free(h);
}

static char folder[] = "/tmp/memoir-trace-XXXXXX";

static void files_are_whole_private_and_replaced(void **state)
{
    (void)state;
    char path[256];
    struct stat st;
    struct trace_history *h = rich_history(4), *back = NULL;
    snprintf(path, sizeof(path), "%s/dump", folder);
    for (unsigned format = 0; format < 2; format++) {
        assert_int_equal(trace_dump_save(h, format, path), 0);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        assert_int_equal(trace_dump_load(path, &back), 0);
        same_history(h, back);
        trace_history_free(back);
    }
    unlink(path);
    assert_int_equal(trace_dump_load(path, &back), -ENOENT);
    assert_int_equal(trace_dump_load(folder, &back), -EISDIR);
    trace_history_free(h);
}

static void a_full_disk_is_reported(void **state)
{
    (void)state;
    struct trace_history *h = rich_history(5);
    int fd = open("/dev/full", O_WRONLY);
    assert_int_equal(trace_dump_write(h, TRACE_DUMP_BINARY, fd), -ENOSPC);
    assert_int_equal(trace_dump_write(h, TRACE_DUMP_JSON, fd), -ENOSPC);
    close(fd);
    trace_history_free(h);
}

/* Whichever allocation or call fails: an error is returned, the old file stays, and nothing leaks (the sanitizers look). */
static void each_failure_on_the_way_is_reported(void **state)
{
    (void)state;
    char path[256];
    struct trace_history *h = rich_history(6);
    snprintf(path, sizeof(path), "%s/faults", folder);
    assert_int_equal(trace_dump_save(h, TRACE_DUMP_BINARY, path), 0);
    for (unsigned format = 0; format < 2; format++)
        for (int nth = 0; fault_arm(nth); nth += 1 + nth / 24) {
            struct trace_history *back = NULL;
            int r = trace_dump_save(h, format, path);
            int e = r == 0 ? trace_dump_load(path, &back) : 0;
            fault_disarm();
            assert_true((r == 0 && e == 0) || fault_fired());
            if (back)
                same_history(h, back);
            trace_history_free(back);
            if (r < 0) {
                assert_int_equal(trace_dump_load(path, &back), 0);
                trace_history_free(back);
            }
        }
    unlink(path);
    trace_history_free(h);
}

/* A history whose allocations fail keeps its sums: whatever was not kept is counted. */
static void a_history_without_memory_stays_right(void **state)
{
    (void)state;
    for (int nth = 0; fault_arm(nth); nth += 1 + nth / 8) {
        struct trace_history *h = NULL;
        struct trace_identity identity = {.pid = 1};
        int r = trace_history_new(&identity, NULL, &h);
        for (uint64_t i = 0; r == 0 && i < 400; i++) {
            alloc_at(h, i + 1, DEVICE_AT + i * 4096, 4096, (uint32_t)i % 50);
            copy_to(h, i + 1, DEVICE_AT + i * 4096, HOST_AT + i * 8192, 100, TRACE_TO_DEVICE);
            if (i % 2)
                free_at(h, i + 1, DEVICE_AT + i * 4096);
        }
        fault_disarm();
        assert_true(r == 0 || fault_fired());
        if (r == 0) {
            assert_int_equal(trace_history_check(h), 0);
            struct trace_totals t = trace_history_totals(h);
            assert_int_equal(t.allocated_blocks, 400);
            assert_int_equal(t.flow[TRACE_TO_DEVICE].copies, 400);
        }
        trace_history_free(h);
    }
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_formats_come_back_the_same),
        cmocka_unit_test(a_loaded_history_answers_as_the_live_one),
        cmocka_unit_test(an_empty_history_and_one_that_ended_come_back),
        cmocka_unit_test(every_damaged_byte_is_noticed),
        cmocka_unit_test(json_sections_may_come_in_any_order),
        cmocka_unit_test(json_that_is_no_history_is_refused),
        cmocka_unit_test(files_are_whole_private_and_replaced),
        cmocka_unit_test(a_full_disk_is_reported),
        cmocka_unit_test(each_failure_on_the_way_is_reported),
        cmocka_unit_test(a_history_without_memory_stays_right),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
