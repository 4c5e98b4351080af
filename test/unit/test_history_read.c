/* Reading history: the same figures whatever tier they come from, added up by whom one asks for. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "check.h"
#include "history/merge.h"
#include "history/read.h"
#include "history/recorder.h"
#include "history/store.h"

enum { T0 = 1800000000 - 1800000000 % 7200, PROCESSES = 3 };

struct world {
    char dir[64], path[128];
    struct store *store;
    struct recorder *recorder;
    struct sample sample;
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    struct store_limits limits = {UINT64_C(1) << 30, {600, 4000, 30 * 86400}};
    strcpy(w->dir, "/dev/shm/memoir-history-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    snprintf(w->path, sizeof(w->path), "%s/%s", w->dir, HISTORY_FILE);
    sample_init(&w->sample);
    assert_int_equal(store_open(w->path, &limits, &w->store), 0);
    assert_int_equal(recorder_new(1, 10, &w->recorder), 0);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    char command[128];
    recorder_free(w->recorder);
    store_free(w->store);
    sample_release(&w->sample);
    snprintf(command, sizeof(command), "rm -rf %s", w->dir);
    assert_int_equal(system(command), 0);
    free(w);
    return 0;
}

/* What process `p` holds in second `i`: a peak in the middle of every minute. */
static uint64_t held(unsigned p, uint64_t i)
{
    return (p + 1) * 1000 + (i % 60 == 30 ? 500 : 0) + i / 60;
}

/* Three processes of two users and two programs on two devices. */
static void picture(struct world *w, uint64_t i)
{
    uint64_t sums[2] = {0};
    sample_reset(&w->sample, (T0 + i) * NS_PER_S);
    for (unsigned d = 0; d < 2; d++) {
        struct sample_device *device = sample_add_device(&w->sample);
        device->ordinal = (int32_t)d;
        snprintf(device->name, sizeof(device->name), "card%u", d);
        snprintf(device->uid, sizeof(device->uid), "uid-%u", d);
        snprintf(device->bus, sizeof(device->bus), "0000:0%u:00.0", d);
    }
    for (unsigned p = 0; p < PROCESSES; p++) {
        struct sample_process *process = sample_add_process(&w->sample);
        process->pid = (pid_t)(100 + p);
        process->uid = 1000 + p % 2;
        process->has_rss = true;
        process->rss_bytes = 4096 * (p + 1);
        strcpy(process->program, p == 2 ? "serve" : "train.py");
        sample_add_value(&w->sample, 1 + p % 2, MEMOIR_SPACE_DRAM, HISTORY_BYTES, held(p, i));
        sample_add_value(&w->sample, 0, MEMOIR_SPACE_HEAP, HISTORY_BYTES, 10 * (p + 1));
        sample_add_value(&w->sample, 0, 0, HISTORY_BLOCKS, p + 5);
        sums[p % 2] += held(p, i);
    }
    sample_totals(&w->sample);
    for (uint32_t d = 0; d < 2; d++) {
        sample_add_value(&w->sample, d + 1, MEMOIR_SPACE_DRAM, HISTORY_BYTES, sums[d]);
        sample_add_value(&w->sample, d + 1, MEMOIR_SPACE_DRAM, HISTORY_BLOCKS, 3);
        sample_add_value(&w->sample, d + 1, MEMOIR_SPACE_DRAM, HISTORY_CAPACITY, 100000);
    }
    sample_add_value(&w->sample, 0, MEMOIR_SPACE_HEAP, HISTORY_BYTES, 60);
    sample_add_value(&w->sample, 0, MEMOIR_SPACE_HEAP, HISTORY_BLOCKS, 18);
}

static void run_for(struct world *w, uint64_t seconds)
{
    for (uint64_t i = 0; i < seconds; i++) {
        picture(w, i);
        int r = recorder_add(w->recorder, &w->sample);
        if (r == -EAGAIN && (r = recorder_flush(w->recorder, w->store, T0 + i)) == 0)
            r = recorder_add(w->recorder, &w->sample);
        assert_int_equal(r, 0);
    }
    assert_int_equal(recorder_flush(w->recorder, w->store, T0 + seconds), 0);
}

static struct read_result ask(struct world *w, struct read_query query, size_t lines)
{
    struct read_result result = {0};
    query.step_s = query.step_s ? query.step_s : 60;
    assert_int_equal(read_history(w->path, &query, &result), 0);
    assert_int_equal(result.damaged, 0);
    assert_int_equal(result.n_lines, lines);
    return result;
}

static void every_step_has_its_last_and_largest_value_in_every_tier(void **state)
{
    struct world *w = *state;
    /* Far enough that seconds, tens and minutes each have a part of their own, and some only in `recent`. */
    enum { SECONDS = 2 * 7200 + 1800 + 50 };
    run_for(w, SECONDS);
    static const uint64_t steps[] = {1, 10, 60, 300, 7, 3600};
    for (size_t k = 0; k < sizeof(steps) / sizeof(*steps); k++) {
        struct read_query query = {.since_s = T0,
                                   .until_s = T0 + SECONDS,
                                   .step_s = steps[k],
                                   .by = READ_BY_PROCESS,
                                   .pid = 101,
                                   .by_space = true,
                                   .space = MEMOIR_SPACE_DRAM};
        struct read_result result = ask(w, query, 1);
        struct read_line *line = &result.lines[0];
        assert_int_equal(line->max, held(1, 30) + (SECONDS - 30) / 60);
        assert_int_equal(line->last, held(1, SECONDS - 1));
        uint64_t known = 0, least = UINT64_MAX;
        for (size_t i = 0; i < result.n_steps; i++) {
            uint64_t from = result.since_s + i * result.step_s - T0;
            uint64_t end = from + result.step_s < SECONDS ? from + result.step_s : SECONDS;
            if (!line->points[i].present)
                continue; /* old and finer than what is kept */
            known++;
            least = line->points[i].last < least ? line->points[i].last : least;
            if (result.step_s % 60 == 0) {
                uint64_t peak =
                    (end - 1) % 60 >= 30 ? held(1, (end - 1) / 60 * 60 + 30) : held(1, end - 1);
                if (end - from > 60 && held(1, (end - 1) / 60 * 60 - 30) > peak)
                    peak = held(1, (end - 1) / 60 * 60 - 30);
                assert_int_equal(line->points[i].last, held(1, end - 1));
                assert_int_equal(line->points[i].max, peak);
            }
        }
        /* The least value at the end of a step, not within one. */
        assert_int_equal(line->min, least);
        assert_true(result.step_s <= 60 || least > held(1, 0));
        /* Each minute is there at least once. */
        assert_in_range(known, steps[k] < 60 ? SECONDS / 60 : result.n_steps, result.n_steps);
        read_release(&result);
    }
}

static void seconds_are_exact_while_they_are_kept(void **state)
{
    struct world *w = *state;
    run_for(w, 400);
    struct read_query query = {.since_s = T0 + 17,
                               .until_s = T0 + 390,
                               .step_s = 1,
                               .by = READ_BY_PROCESS,
                               .pid = 100,
                               .by_space = true,
                               .space = MEMOIR_SPACE_DRAM};
    struct read_result result = ask(w, query, 1);
    assert_int_equal(result.n_steps, 373);
    for (size_t i = 0; i < result.n_steps; i++) {
        assert_true(result.lines[0].points[i].present);
        assert_int_equal(result.lines[0].points[i].last, held(0, 17 + i));
        assert_int_equal(result.lines[0].points[i].max, held(0, 17 + i));
    }
    read_release(&result);
}

static void groups_are_added_up(void **state)
{
    struct world *w = *state;
    run_for(w, 300);
    struct read_query query = {.since_s = T0, .until_s = T0 + 300};
    /* By device: two devices, and rss and heap of the host. */
    struct read_result result = ask(w, query, 4);
    assert_string_equal(result.lines[0].device, "card0");
    assert_int_equal(result.lines[0].last, held(0, 299) + held(2, 299));
    assert_true(result.lines[0].has_capacity);
    assert_int_equal(result.lines[0].capacity, 100000);
    assert_int_equal(result.lines[1].last, held(1, 299));
    assert_false(result.lines[2].on_device);
    assert_int_equal(result.lines[2].space, 0);
    assert_int_equal(result.lines[2].last, 4096 * 6);
    assert_int_equal(result.lines[2].processes, 0); /* a sum that was noted */
    assert_int_equal(result.lines[3].space, MEMOIR_SPACE_HEAP);
    assert_int_equal(result.lines[3].last, 60);
    read_release(&result);

    query.by = READ_BY_USER;
    query.by_space = true;
    query.space = MEMOIR_SPACE_HEAP;
    result = ask(w, query, 2);
    assert_int_equal(result.lines[0].uid, 1000);
    assert_int_equal(result.lines[0].processes, 2);
    assert_int_equal(result.lines[0].last, 10 + 30);
    assert_int_equal(result.lines[1].last, 20);
    read_release(&result);

    query.by = READ_BY_PROGRAM;
    result = ask(w, query, 2);
    assert_string_equal(result.lines[0].program, "serve");
    assert_int_equal(result.lines[1].last, 30);
    read_release(&result);
}

/* Two devices that programs both call number 0. */
static void a_device_is_asked_for_by_its_identity(void **state)
{
    struct world *w = *state;
    static const char *const uids[] = {"GPU-a", ""}, *const ids[] = {"GPU-a", "0000:02:00.0@here"};
    sample_reset(&w->sample, T0 * NS_PER_S);
    for (unsigned d = 0; d < 2; d++) {
        struct sample_device *device = sample_add_device(&w->sample);
        strcpy(device->name, "card");
        strcpy(device->uid, uids[d]);
        snprintf(device->bus, sizeof(device->bus), "0000:0%u:00.0", d + 1);
    }
    sample_totals(&w->sample);
    for (uint32_t d = 0; d < 2; d++)
        sample_add_value(&w->sample, d + 1, MEMOIR_SPACE_DRAM, HISTORY_BYTES, 1000 + d);
    assert_int_equal(recorder_add(w->recorder, &w->sample), 0);
    assert_int_equal(recorder_flush(w->recorder, w->store, T0 + 1), 0);
    struct read_query query = {.since_s = T0, .until_s = T0 + 10, .device = "0", .node = "here"};
    struct read_result result = ask(w, query, 2); /* the number is of both */
    read_release(&result);
    query.device = NULL;
    for (unsigned d = 0; d < 2; d++) {
        char text[LEDGER_DEVICE_ID_MAX];
        query.device_id = ids[d];
        result = ask(w, query, 1);
        assert_int_equal(result.lines[0].last, 1000 + d);
        assert_string_equal(read_line_device_id(&result.lines[0], "here", text), ids[d]);
        read_release(&result);
    }
    query.device_id = "0";
    result = ask(w, query, 0);
    read_release(&result);
}

static void one_second_of(struct world *w, uint64_t i, pid_t pid, uint64_t start, uint64_t exec_id,
                          uint64_t rss)
{
    sample_reset(&w->sample, (T0 + i) * NS_PER_S);
    struct sample_process *p = sample_add_process(&w->sample);
    p->pid = pid;
    p->start_ticks = start;
    p->exec_id = exec_id;
    p->pid_ns = exec_id ? 77 : 0;
    p->began_ns = (T0 - 100 + start) * NS_PER_S;
    p->has_rss = true;
    p->rss_bytes = rss;
    strcpy(p->program, exec_id ? "tracked" : "sh");
    sample_totals(&w->sample);
    int r = recorder_add(w->recorder, &w->sample);
    if (r == -EAGAIN && (r = recorder_flush(w->recorder, w->store, T0 + i)) == 0)
        r = recorder_add(w->recorder, &w->sample);
    assert_int_equal(r, 0);
}

/* It keeps a book from the 15th second on, calls exec in the 25th; 200 is another process with that PID later. */
static void a_process_is_one_line_whatever_it_becomes(void **state)
{
    struct world *w = *state;
    for (uint64_t i = 0; i < 40; i++)
        one_second_of(w, i, 100, 5, i < 15 ? 0 : i < 25 ? 8 : 9, 1000 + i);
    for (uint64_t i = 50; i < 3000; i++) /* until tens are made */
        one_second_of(w, i, 100, 50, 8, 7);
    assert_int_equal(recorder_flush(w->recorder, w->store, T0 + 3000), 0);
    for (unsigned step = 1; step <= 10; step += 9) {
        struct read_query query = {
            .since_s = T0, .until_s = T0 + 100, .step_s = step, .by = READ_BY_PROCESS, .pid = 100};
        struct read_result result = ask(w, query, 2); /* of two processes */
        assert_int_equal(result.lines[0].boot, result.lines[1].boot);
        assert_int_equal(result.lines[0].start_ticks, 5);
        assert_int_equal(result.lines[1].start_ticks, 50);
        assert_int_equal(result.lines[0].processes, 1);
        read_choose_process(&result, T0 - 95);
        assert_int_equal(result.n_lines, 1);
        assert_int_equal(result.n_earlier, 1);
        assert_string_equal(result.lines[0].program, "tracked");
        for (size_t k = 0; k < result.n_steps; k++) {
            uint64_t from_s = result.since_s + k * result.step_s - T0;
            const struct read_point *point = &result.lines[0].points[k];
            assert_int_equal(point->present, from_s < 40);
            if (point->present)
                assert_int_equal(point->last, 1000 + from_s + result.step_s - 1);
        }
        read_release(&result);
        result = ask(w, query, 2);
        read_choose_process(&result, 0); /* the last one */
        assert_int_equal(result.lines[0].last, 7);
        read_release(&result);
    }
}

static void a_pid_is_known_at_whatever_time_it_was(void **state)
{
    struct world *w = *state;
    run_for(w, 100);
    struct read_query query = {
        .since_s = T0 + 90000, .until_s = T0 + 90010, .by = READ_BY_PROCESS, .pid = 101};
    struct read_result result = ask(w, query, 0);
    assert_true(result.pid_known);
    read_release(&result);
    query.pid = 4711;
    result = ask(w, query, 0);
    assert_false(result.pid_known);
    read_release(&result);
}

static void filters_leave_out_the_rest(void **state)
{
    struct world *w = *state;
    run_for(w, 100);
    struct read_query base = {.since_s = T0, .until_s = T0 + 100, .by = READ_BY_PROCESS};
    struct read_query query = base;
    query.program = "train*";
    query.by_space = true; /* rss */
    struct read_result result = ask(w, query, 2);
    assert_int_equal(result.lines[1].pid, 101);
    read_release(&result);
    static const char *const names[] = {"1", "card1", "uid-1", "0000:01:00.0", "*1"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        query = base;
        query.device = names[i];
        result = ask(w, query, 1);
        assert_int_equal(result.lines[0].pid, 101);
        read_release(&result);
    }
    query = base;
    query.by_uid = true;
    query.uid = 1000;
    query.device = "host";
    result = ask(w, query, 4); /* rss and heap of two */
    read_release(&result);
    query = base;
    query.blocks = true;
    result = ask(w, query, 3);
    assert_int_equal(result.lines[0].last, 5);
    read_release(&result);
    query.by = READ_BY_DEVICE;
    result = ask(w, query, 3); /* of two devices, and of the host */
    assert_int_equal(result.lines[0].last, 3);
    read_release(&result);
    query = base;
    query.pid = 4711;
    result = ask(w, query, 0);
    assert_int_equal(result.oldest_s, T0);
    read_release(&result);
}

/* A filter on who asks for the sums of those, not for the sum of all. */
static void sums_of_devices_are_of_those_that_are_asked_for(void **state)
{
    struct world *w = *state;
    run_for(w, 100);
    struct read_query base = {.since_s = T0,
                              .until_s = T0 + 100,
                              .by_space = true,
                              .space = MEMOIR_SPACE_HEAP,
                              .device = "host"};
    static const struct {
        int64_t pid;
        const char *program;
        bool by_uid;
        uint64_t heap, processes;
    } cases[] = {{0, NULL, false, 60, 0},
                 {101, NULL, false, 20, 1},
                 {0, "train*", false, 30, 2},
                 {0, NULL, true, 40, 2}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct read_query query = base;
        query.pid = cases[i].pid;
        query.program = cases[i].program;
        query.by_uid = cases[i].by_uid;
        query.uid = 1000;
        struct read_result result = ask(w, query, 1);
        assert_int_equal(result.lines[0].last, cases[i].heap);
        assert_int_equal(result.lines[0].processes, cases[i].processes);
        assert_false(result.lines[0].on_device);
        read_release(&result);
    }
    /* Blocks of all spaces together are no space's. */
    struct read_query query = {.since_s = T0,
                               .until_s = T0 + 100,
                               .by = READ_BY_PROCESS,
                               .blocks = true,
                               .by_space = true};
    struct read_result result = ask(w, query, 0);
    read_release(&result);
    query.by = READ_BY_DEVICE;
    query.space = MEMOIR_SPACE_HEAP;
    result = ask(w, query, 1);
    assert_int_equal(result.lines[0].last, 18);
    read_release(&result);
}

static void the_machine_is_asked_for_by_itself(void **state)
{
    struct world *w = *state;
    sample_reset(&w->sample, T0 * NS_PER_S);
    struct sample_device *device = sample_add_device(&w->sample);
    strcpy(device->name, "card");
    sample_totals(&w->sample);
    sample_add_value(&w->sample, 0, HISTORY_SYSTEM_TOTAL, HISTORY_SYSTEM, 1000);
    sample_add_value(&w->sample, 0, HISTORY_SYSTEM_USED, HISTORY_SYSTEM, 400);
    sample_add_value(&w->sample, 0, HISTORY_PRESSURE_SOME, HISTORY_PRESSURE, 7);
    sample_add_value(&w->sample, 1, MEMOIR_SPACE_DRAM, HISTORY_BYTES, 5);
    assert_int_equal(recorder_add(w->recorder, &w->sample), 0);
    assert_int_equal(recorder_flush(w->recorder, w->store, T0 + 1), 0);
    struct read_query query = {.since_s = T0, .until_s = T0 + 10, .system = true};
    struct read_result result = ask(w, query, 3);
    static const struct {
        const char *word;
        uint64_t value;
    } lines[] = {{"total", 1000}, {"used", 400}, {"pressure", 7}};
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(read_line_word(&result.lines[i], false), lines[i].word);
        assert_int_equal(result.lines[i].last, lines[i].value);
    }
    read_release(&result);
    query.system = false;
    result = ask(w, query, 1);
    assert_int_equal(result.lines[0].last, 5);
    assert_string_equal(read_line_word(&result.lines[0], false), "dram");
    read_release(&result);
}

static void a_gap_is_a_gap(void **state)
{
    struct world *w = *state;
    run_for(w, 100);
    for (uint64_t i = 500; i < 510; i++) {
        picture(w, i);
        if (recorder_add(w->recorder, &w->sample) == -EAGAIN)
            fail();
    }
    assert_int_equal(recorder_flush(w->recorder, w->store, T0 + 510), 0);
    struct read_query query = {.since_s = T0, .until_s = T0 + 600, .step_s = 100, .device = "0"};
    struct read_result result = ask(w, query, 1);
    static const bool there[] = {true, false, false, false, false, true};
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(result.lines[0].points[i].present, there[i]);
    read_release(&result);
}

static void bad_questions_and_bad_files_are_errors(void **state)
{
    struct world *w = *state;
    struct read_result result = {0};
    struct read_query query = {.since_s = T0, .until_s = T0, .step_s = 1};
    assert_int_equal(read_history(w->path, &query, &result), -EINVAL);
    query.until_s = T0 + 10;
    query.step_s = 0;
    assert_int_equal(read_history(w->path, &query, &result), -EINVAL);
    query.step_s = 1;
    query.since_s = 0;
    assert_int_equal(read_history(w->path, &query, &result), -E2BIG);
    query.since_s = T0;
    assert_int_equal(read_history("/dev/shm/memoir-no-such-file", &query, &result), -ENOENT);
    char path[128];
    snprintf(path, sizeof(path), "%s/other", w->dir);
    FILE *file = fopen(path, "we");
    for (int i = 0; i < 2000; i++)
        fputc('x', file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(read_history(path, &query, &result), -EBADMSG);
    assert_null(result.lines);
}

/* ---- many lists as one ---- */

/* One list in memory: `n` points of each series in [first, last], value = series * 1000 + base + slot. */
static void list_add(struct merge *merge, uint64_t start_s, uint32_t step_s, uint64_t first,
                     uint64_t last, unsigned slot, unsigned n, uint64_t base)
{
    struct buffer row = BUFFER_INIT(1 << 20);
    for (uint64_t series = first, before = 0; series <= last; before = series++) {
        struct pack_points points = {.n = n, .has_max = true};
        uint8_t bytes[PACK_BYTES_MAX];
        for (unsigned i = 0; i < n; i++) {
            points.slot[i] = (uint8_t)(slot + i);
            points.last[i] = series * 1000 + base + slot + i;
            points.max[i] = points.last[i] + 7;
        }
        assert_int_equal(recent_append(&row, before, series, bytes, pack_encode(&points, bytes)),
                         0);
    }
    struct merge_source source = {.start_s = start_s, .step_s = step_s, .series = first};
    source.cursor.len = row.len;
    source.row = (uint8_t *)buffer_take(&row);
    source.cursor.data = source.row;
    assert_int_equal(recent_next(&source.cursor), 1);
    source.chunk = source.cursor.chunk;
    source.len = source.cursor.chunk_len;
    merge->sources = reallocarray(merge->sources, merge->n + 1, sizeof(*merge->sources));
    merge->sources[merge->n++] = source;
}

static void lists_merge_by_series_and_the_later_one_counts(void **unused)
{
    struct merge merge = {0};
    struct merge_points got;
    list_add(&merge, 1000, 1, 3, 4, 0, 10, 0);
    list_add(&merge, 1000, 1, 4, 5, 5, 10, 100); /* tells of some moments again */
    assert_int_equal(merge_next(&merge, 1000, 1, &got), 1);
    assert_int_equal(got.series, 3);
    assert_int_equal(got.points.n, 10);
    assert_int_equal(merge_next(&merge, 1000, 1, &got), 1);
    assert_int_equal(got.series, 4);
    assert_int_equal(got.points.n, 15);
    assert_true(got.points.has_max);
    for (unsigned i = 0; i < 15; i++) {
        assert_int_equal(got.points.slot[i], i);
        assert_int_equal(got.points.last[i], 4000 + (i < 5 ? 0 : 100) + i);
        assert_int_equal(got.points.max[i], got.points.last[i] + 7);
    }
    assert_int_equal(merge_next(&merge, 1000, 1, &got), 1);
    assert_int_equal(got.series, 5);
    assert_int_equal(got.points.slot[0], 5);
    assert_int_equal(merge_next(&merge, 1000, 1, &got), 0);
    assert_int_equal(merge.damaged, 0);
    merge_release(&merge);
}

/* In seconds the later list replaces what an earlier one said, even if that was larger. */
static void later_value_of_a_second_replaces_the_larger_one(void **unused)
{
    struct merge merge = {0};
    struct merge_points got;
    list_add(&merge, 1000, 1, 1, 1, 0, 1, 500);
    list_add(&merge, 1000, 1, 1, 1, 0, 1, 0);
    assert_int_equal(merge_next(&merge, 1000, 1, &got), 1);
    assert_int_equal(got.points.last[0], 1000);
    assert_int_equal(got.points.max[0], 1007);
    merge_release(&merge);
}

static void steps_have_the_last_and_the_largest_value(void **unused)
{
    struct merge merge = {0};
    struct merge_points got;
    list_add(&merge, 1000, 1, 1, 1, 0, 30, 0);
    list_add(&merge, 1100, 1, 1, 1, 0, 10, 5000);
    assert_int_equal(merge_next(&merge, 1000, 10, &got), 1);
    assert_int_equal(got.points.n, 4);
    static const unsigned slots[] = {0, 1, 2, 10};
    static const uint64_t last[] = {1009, 1019, 1029, 6009};
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(got.points.slot[i], slots[i]);
        assert_int_equal(got.points.last[i], last[i]);
        assert_int_equal(got.points.max[i], last[i] + 7);
    }
    merge_release(&merge);
    /* The largest may come first. */
    merge = (struct merge){0};
    list_add(&merge, 1000, 1, 1, 1, 0, 1, 500);
    list_add(&merge, 1000, 1, 1, 1, 1, 1, 0);
    assert_int_equal(merge_next(&merge, 1000, 10, &got), 1);
    assert_int_equal(got.points.n, 1);
    assert_int_equal(got.points.last[0], 1001);
    assert_int_equal(got.points.max[0], 1507);
    merge_release(&merge);
}

static void points_of_another_window_are_left_out(void **unused)
{
    struct merge merge = {0};
    struct merge_points got;
    list_add(&merge, 1000, 1, 1, 1, 0, PACK_SLOTS_MAX, 0);
    list_add(&merge, 2000, 1, 2, 2, 0, 1, 0); /* nothing of it is in the window */
    assert_int_equal(merge_next(&merge, 1010, 1, &got), 1);
    assert_int_equal(got.points.n, PACK_SLOTS_MAX - 10);
    assert_int_equal(got.points.slot[0], 0);
    assert_int_equal(got.points.last[0], 1010);
    assert_int_equal(merge_next(&merge, 1010, 1, &got), 0);
    merge_release(&merge);
    list_add(&merge, 1000, 1, 1, 1, 0, PACK_SLOTS_MAX, 0);
    assert_int_equal(merge_next(&merge, 990, 1, &got), 1);
    assert_int_equal(got.points.n, PACK_SLOTS_MAX - 10);
    assert_int_equal(got.points.slot[0], 10);
    merge_release(&merge);
}

/* The first second after the window would be its slot 120. */
static void the_second_after_a_window_is_not_part_of_it(void **unused)
{
    struct merge merge = {0};
    struct merge_points got;
    list_add(&merge, 999, 1, 1, 1, 0, 1, 500);
    list_add(&merge, 1000, 1, 1, 1, 0, PACK_SLOTS_MAX, 0);
    assert_int_equal(merge_next(&merge, 999, 1, &got), 1);
    assert_int_equal(got.points.n, PACK_SLOTS_MAX);
    for (unsigned i = 0; i < PACK_SLOTS_MAX; i++) {
        assert_int_equal(got.points.slot[i], i);
        assert_int_equal(got.points.last[i], i ? 1000 + i - 1 : 1500);
        assert_int_equal(got.points.max[i], got.points.last[i] + 7);
    }
    merge_release(&merge);
}

static void damaged_chunks_are_left_out_and_counted(void **unused)
{
    struct merge merge = {0};
    struct merge_points got;
    list_add(&merge, 1000, 1, 1, 2, 0, 3, 0);
    merge.sources[0].len = 0; /* the chunk of series 1 */
    assert_int_equal(merge_next(&merge, 1000, 1, &got), 1);
    assert_int_equal(got.series, 2);
    assert_int_equal(merge.damaged, 1);
    assert_int_equal(merge_next(&merge, 1000, 1, &got), 0);
    merge_release(&merge);
    list_add(&merge, 1000, 1, 1, 2, 0, 3, 0);
    merge.sources[0].cursor.len--; /* the entry of series 2 */
    assert_int_equal(merge_next(&merge, 1000, 1, &got), 1);
    assert_int_equal(got.series, 1);
    assert_int_equal(merge_next(&merge, 1000, 1, &got), 0);
    assert_int_equal(merge.damaged, 1);
    merge_release(&merge);
    assert_int_equal(merge.n, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_step_has_its_last_and_largest_value_in_every_tier),
        TEST(seconds_are_exact_while_they_are_kept),
        TEST(groups_are_added_up),
        TEST(a_device_is_asked_for_by_its_identity),
        TEST(a_process_is_one_line_whatever_it_becomes),
        TEST(a_pid_is_known_at_whatever_time_it_was),
        TEST(filters_leave_out_the_rest),
        TEST(sums_of_devices_are_of_those_that_are_asked_for),
        TEST(the_machine_is_asked_for_by_itself),
        TEST(a_gap_is_a_gap),
        cmocka_unit_test(lists_merge_by_series_and_the_later_one_counts),
        cmocka_unit_test(later_value_of_a_second_replaces_the_larger_one),
        cmocka_unit_test(steps_have_the_last_and_the_largest_value),
        cmocka_unit_test(points_of_another_window_are_left_out),
        cmocka_unit_test(the_second_after_a_window_is_not_part_of_it),
        cmocka_unit_test(damaged_chunks_are_left_out_and_counted),
        TEST(bad_questions_and_bad_files_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
