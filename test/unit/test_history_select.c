/* Which series of a file an answer is made of: lines, their order and names, and what is added up in each. */
#include "base/clock.h"
#include "history_file.h"
#include <memoir/memoir.h>

enum { T0 = FILE_T0 };

/* Every series has one value, a power of two of its own: a sum tells what is in it. */
enum {
    A_DRAM = 1 << 0,
    A_L1 = 1 << 1,
    B_DRAM = 1 << 2,
    C_DRAM = 1 << 3,
    HOST_RSS = 1 << 4,
    HOST_PSS = 1 << 5,
    HOST_HEAP = 1 << 6,
    TRAIN_RSS = 1 << 7,
    TRAIN_HEAP = 1 << 8,
    TRAIN_DRAM = 1 << 9,
    SERVE_RSS = 1 << 10,
    SERVE_PSS = 1 << 11,
    SERVE_DRAM = 1 << 12,
    LATER_RSS = 1 << 13,
    FAR_RSS = 1 << 14,
    EXEC_RSS = 1 << 15,
    BOOT_RSS = 1 << 16,
    TOTAL = 1 << 17,
    USED = 1 << 18,
    SOME = 1 << 19,
    FULL = 1 << 20,
    A_BLOCKS = 1 << 21,
    HOST_BLOCKS = 1 << 22,
    TRAIN_BLOCKS = 1 << 23,
    TRAIN_HEAP_BLOCKS = 1 << 24,
    D_DRAM = 1 << 25,
};

static void put(struct file *f, int64_t process, int64_t device, uint32_t space,
                enum history_metric metric, uint64_t value)
{
    file_put(f, 0, file_series(f, process, device, space, metric), T0, value, value);
}

static void fill_machine(struct file *f, const int64_t d[static 4])
{
    /* Not in the order of the answer. */
    put(f, 0, 0, HISTORY_PRESSURE_FULL, HISTORY_PRESSURE, FULL);
    put(f, 0, 0, HISTORY_PRESSURE_SOME, HISTORY_PRESSURE, SOME);
    put(f, 0, 0, HISTORY_SYSTEM_USED, HISTORY_SYSTEM, USED);
    put(f, 0, 0, HISTORY_SYSTEM_TOTAL, HISTORY_SYSTEM, TOTAL);
    put(f, 0, 0, MEMOIR_SPACE_HEAP, HISTORY_BYTES, HOST_HEAP);
    put(f, 0, 0, MEMOIR_SPACE_HEAP, HISTORY_BLOCKS, HOST_BLOCKS);
    put(f, 0, 0, 0, HISTORY_PSS, HOST_PSS);
    put(f, 0, 0, 0, HISTORY_RSS, HOST_RSS);
    put(f, 0, d[0], MEMOIR_SPACE_L1, HISTORY_BYTES, A_L1);
    put(f, 0, d[0], MEMOIR_SPACE_DRAM, HISTORY_CAPACITY, 1000);
    put(f, 0, d[0], MEMOIR_SPACE_DRAM, HISTORY_BYTES, A_DRAM);
    put(f, 0, d[0], MEMOIR_SPACE_DRAM, HISTORY_BLOCKS, A_BLOCKS);
    put(f, 0, d[1], MEMOIR_SPACE_DRAM, HISTORY_BYTES, B_DRAM);
    put(f, 0, d[2], MEMOIR_SPACE_DRAM, HISTORY_BYTES, C_DRAM);
    put(f, 0, d[3], MEMOIR_SPACE_DRAM, HISTORY_BYTES, D_DRAM);
    put(f, 0, 0, MEMOIR_SPACE_MAX + 1, HISTORY_BYTES, 1); /* of a later version */
}

static int setup(void **state)
{
    file_setup(state);
    struct file *f = *state;
    const int64_t d[4] = {
        file_device(
            f,
            (struct file_device){
                .ordinal = 1, .name = "a", .uid = "UID-a", .bus = "0000:01:00.0", .kind = 7}),
        file_device(f, (struct file_device){.ordinal = 0, .name = "b", .bus = "0000:0b:00.0"}),
        file_device(f, (struct file_device){.ordinal = 0, .name = "c", .node = "far"}),
        file_device(f, (struct file_device){.ordinal = -1, .name = "host"})};
    int64_t later = file_process(
        f,
        (struct file_process){.pid = 20, .start = 9, .boot = 5, .uid = 1001, .program = "later"});
    int64_t train = file_process(
        f,
        (struct file_process){
            .pid = 20, .start = 3, .boot = 5, .uid = 1001, .program = "train", .began = T0 - 77});
    int64_t serve = file_process(
        f,
        (struct file_process){.pid = 10, .start = 9, .boot = 6, .uid = 1000, .program = "serve"});
    int64_t far = file_process(
        f, (struct file_process){
               .pid = 10, .start = 9, .boot = 6, .uid = 1000, .program = "serve", .node = "far"});
    int64_t boot = file_process(
        f,
        (struct file_process){.pid = 20, .start = 3, .boot = 4, .uid = 1001, .program = "train"});
    int64_t exec = file_process(
        f, (struct file_process){
               .pid = 20, .start = 3, .boot = 5, .uid = 1001, .exec = 1, .program = "trained"});
    fill_machine(f, d);
    put(f, later, 0, 0, HISTORY_RSS, LATER_RSS);
    put(f, train, 0, MEMOIR_SPACE_HEAP, HISTORY_BYTES, TRAIN_HEAP);
    put(f, train, 0, 0, HISTORY_BLOCKS, TRAIN_BLOCKS);
    put(f, train, 0, MEMOIR_SPACE_HEAP, HISTORY_BLOCKS, TRAIN_HEAP_BLOCKS);
    put(f, train, d[0], MEMOIR_SPACE_DRAM, HISTORY_BYTES, TRAIN_DRAM);
    put(f, train, 0, 0, HISTORY_RSS, TRAIN_RSS);
    put(f, serve, d[2], MEMOIR_SPACE_DRAM, HISTORY_BYTES, SERVE_DRAM);
    put(f, serve, 0, 0, HISTORY_PSS, SERVE_PSS);
    put(f, serve, 0, 0, HISTORY_RSS, SERVE_RSS);
    put(f, far, 0, 0, HISTORY_RSS, FAR_RSS);
    put(f, boot, 0, 0, HISTORY_RSS, BOOT_RSS);
    put(f, exec, 0, 0, HISTORY_RSS, EXEC_RSS);
    return 0;
}

/* One line of text for each line of the answer. */
static void check(struct file *f, struct read_query query, const char *expected)
{
    struct buffer out = BUFFER_INIT(1 << 16);
    struct read_result result = {0};
    query.since_s = T0;
    query.until_s = T0 + 10;
    query.step_s = query.step_s ? query.step_s : 1;
    assert_int_equal(read_history(f->path, &query, &result), 0);
    assert_int_equal(result.by, query.by);
    for (size_t i = 0; i < result.n_lines; i++) {
        const struct read_line *line = &result.lines[i];
        if (line->on_device)
            buffer_printf(&out, "%d/%s ", line->ordinal, line->device);
        buffer_append_str(&out, read_line_word(line, query.blocks));
        if (line->pid)
            buffer_printf(&out, " pid %d.%d.%d", (int)line->pid, (int)line->boot,
                          (int)line->start_ticks);
        if (line->uid)
            buffer_printf(&out, " uid %u", line->uid);
        if (line->program[0])
            buffer_printf(&out, " %s", line->program);
        if (line->node[0])
            buffer_printf(&out, " at %s", line->node);
        if (line->has_capacity)
            buffer_printf(&out, " of %d", (int)line->capacity);
        if (line->processes)
            buffer_printf(&out, " x%u", line->processes);
        assert_int_equal(line->points[0].last, line->last);
        assert_int_equal(line->points[0].max, line->max);
        buffer_printf(&out, " = %#llx\n", (unsigned long long)line->last);
    }
    assert_string_equal(buffer_string(&out), expected);
    buffer_release(&out);
    read_release(&result);
}

#define DEVICES                  \
    "-1/host dram = 0x2000000\n" \
    "0/b dram = 0x4\n"           \
    "0/c dram at far = 0x8\n"    \
    "1/a dram of 1000 = 0x1\n"   \
    "1/a l1 = 0x2\n"

static void sums_of_the_machine_are_ordered_by_device_and_space(void **state)
{
    check(*state, (struct read_query){.by = READ_BY_DEVICE},
          DEVICES "rss = 0x10\npss = 0x20\nheap = 0x40\n");
    check(*state, (struct read_query){.blocks = true}, "1/a dram = 0x200000\nheap = 0x400000\n");
    check(*state, (struct read_query){.system = true},
          "total = 0x20000\nused = 0x40000\npressure = 0x80000\nstall = 0x100000\n");
}

static void processes_are_told_by_pid_boot_start_and_node(void **state)
{
    check(*state, (struct read_query){.by = READ_BY_PROCESS},
          "0/c dram pid 10.6.9 uid 1000 serve x1 = 0x1000\n"
          "1/a dram pid 20.5.3 uid 1001 train x1 = 0x200\n"
          "rss pid 10.6.9 uid 1000 serve x1 = 0x400\n"
          "rss pid 10.6.9 uid 1000 serve at far x1 = 0x4000\n"
          "rss pid 20.4.3 uid 1001 train x1 = 0x10000\n"
          "rss pid 20.5.3 uid 1001 trained x1 = 0x8000\n"
          "rss pid 20.5.9 uid 1001 later x1 = 0x2000\n"
          "pss pid 10.6.9 uid 1000 serve x1 = 0x800\n"
          "heap pid 20.5.3 uid 1001 train x1 = 0x100\n");
    check(*state, (struct read_query){.by = READ_BY_PROCESS, .blocks = true},
          "all pid 20.5.3 uid 1001 train x1 = 0x800000\n"
          "heap pid 20.5.3 uid 1001 train x1 = 0x1000000\n");
}

/* The two rows of one process, before and after exec, are not added up, nor counted twice. */
static void users_and_programs_have_the_sums_of_their_processes(void **state)
{
    check(*state, (struct read_query){.by = READ_BY_USER},
          "0/c dram uid 1000 at far x1 = 0x1000\n"
          "1/a dram uid 1001 x1 = 0x200\n"
          "rss uid 1000 x2 = 0x4400\n"
          "rss uid 1001 x3 = 0x1a000\n"
          "pss uid 1000 x1 = 0x800\n"
          "heap uid 1001 x1 = 0x100\n");
    check(*state, (struct read_query){.by = READ_BY_PROGRAM, .by_space = true},
          "rss later x1 = 0x2000\n"
          "rss serve x2 = 0x4400\n"
          "rss train x2 = 0x10080\n"
          "rss trained x1 = 0x8000\n");
    check(*state, (struct read_query){.by_uid = true, .uid = 1001, .by_space = true},
          "rss x3 = 0x1a000\n");
}

static void filters_leave_out_what_does_not_match(void **state)
{
    struct read_query p = {.by = READ_BY_PROCESS, .by_space = true};
    struct read_query q = p;
    q.pid = 10;
    check(*state, q,
          "rss pid 10.6.9 uid 1000 serve x1 = 0x400\n"
          "rss pid 10.6.9 uid 1000 serve at far x1 = 0x4000\n");
    q.pss = true;
    check(*state, q, "pss pid 10.6.9 uid 1000 serve x1 = 0x800\n");
    q = p;
    q.program = "?ater";
    check(*state, q, "rss pid 20.5.9 uid 1001 later x1 = 0x2000\n");
    q.program = "ater";
    check(*state, q, "");
    q = p;
    q.space = MEMOIR_SPACE_HEAP;
    check(*state, q, "heap pid 20.5.3 uid 1001 train x1 = 0x100\n");
    q.blocks = true;
    check(*state, q, "heap pid 20.5.3 uid 1001 train x1 = 0x1000000\n");
    q.space = 0; /* blocks of all spaces are of none */
    check(*state, q, "");
    q = (struct read_query){.by_space = true, .space = MEMOIR_SPACE_DRAM};
    check(*state, q,
          "-1/host dram = 0x2000000\n0/b dram = 0x4\n0/c dram at far = 0x8\n"
          "1/a dram of 1000 = 0x1\n");
    /* Without --by, what asks for processes is a sum over these. */
    check(*state, (struct read_query){.pid = 20},
          "1/a dram x1 = 0x200\n"
          "rss x3 = 0x1a000\nheap x1 = 0x100\n");
    check(*state, (struct read_query){.program = "train"},
          "1/a dram x1 = 0x200\nrss x2 = 0x10080\nheap x1 = 0x100\n");
}

static void devices_are_called_by_number_name_uid_bus_or_identity(void **state)
{
    static const struct {
        const char *device, *id, *node, *expected;
    } cases[] = {
        {"0", NULL, NULL, "0/b dram = 0x4\n0/c dram at far = 0x8\n"},
        {"-1", NULL, NULL, "-1/host dram = 0x2000000\n"},
        {"b", NULL, NULL, "0/b dram = 0x4\n"},
        {"[bc]", NULL, NULL, "0/b dram = 0x4\n0/c dram at far = 0x8\n"},
        {"UID-a", NULL, NULL, "1/a dram of 1000 = 0x1\n1/a l1 = 0x2\n"},
        {"uid-a", NULL, NULL, ""},
        {"0000:0B:00.0", NULL, NULL, "0/b dram = 0x4\n"},
        {"HOST", NULL, NULL, "rss = 0x10\npss = 0x20\nheap = 0x40\n"},
        {NULL, "UID-a", NULL, "1/a dram of 1000 = 0x1\n1/a l1 = 0x2\n"},
        {NULL, "0000:0b:00.0@here", "here", "0/b dram = 0x4\n"},
        {NULL, "0000:0b:00.0@", NULL, "0/b dram = 0x4\n"},
        {NULL, "0000:0b:00.0@", "here", ""},
        {NULL, "0 c@far", "here", "0/c dram at far = 0x8\n"},
        {NULL, "0 c@here", "here", ""},
        {NULL, "0 @here", "here", ""}, /* the host is no device */
        {"1", "UID-a", NULL, "1/a dram of 1000 = 0x1\n1/a l1 = 0x2\n"},
        {"0", "UID-a", NULL, ""},
        {"host", "UID-a", NULL, ""},
        {"host", NULL, NULL, "rss = 0x10\npss = 0x20\nheap = 0x40\n"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        check(*state,
              (struct read_query){
                  .device = cases[i].device, .device_id = cases[i].id, .node = cases[i].node},
              cases[i].expected);
}

static void a_line_has_what_the_file_says_of_its_device_and_process(void **state)
{
    struct file *f = *state;
    struct read_query query = {
        .since_s = T0, .until_s = T0 + 1, .step_s = 1, .by = READ_BY_PROCESS, .device = "a"};
    struct read_result result = {0};
    assert_int_equal(read_history(f->path, &query, &result), 0);
    assert_int_equal(result.n_lines, 1);
    const struct read_line *line = &result.lines[0];
    assert_true(line->on_device);
    assert_int_equal(line->kind, 7);
    assert_int_equal(line->ordinal, 1);
    assert_string_equal(line->device, "a");
    assert_string_equal(line->device_uid, "UID-a");
    assert_string_equal(line->bus, "0000:01:00.0");
    assert_string_equal(line->device_node, "");
    assert_int_equal(line->space, MEMOIR_SPACE_DRAM);
    assert_int_equal(line->began_s, T0 - 77);
    assert_int_equal(line->last_s, T0);
    read_release(&result);
    query.device = "c";
    assert_int_equal(read_history(f->path, &query, &result), 0);
    assert_int_equal(result.n_lines, 1);
    assert_string_equal(result.lines[0].device_node, "far");
    assert_string_equal(result.lines[0].node, ""); /* the process is of this machine */
    read_release(&result);
}

/* ---- one process in several rows ---- */

static void later_series_of_a_process_counts_in_every_group(void **state)
{
    struct file *f = *state;
    int64_t before = file_process(f, (struct file_process){.pid = 7, .program = "old"});
    int64_t after =
        file_process(f, (struct file_process){.pid = 7, .exec = 1, .program = "old", .uid = 0});
    int64_t other = file_process(f, (struct file_process){.pid = 8, .program = "old"});
    int64_t s[] = {file_series(f, before, 0, 0, HISTORY_RSS),
                   file_series(f, after, 0, 0, HISTORY_RSS),
                   file_series(f, other, 0, 0, HISTORY_RSS)};
    /* A minute in which the first row ends and the second begins, and one with the second alone. */
    file_put(f, 2, s[0], T0, 100, 900);
    file_put(f, 2, s[1], T0, 200, 300);
    file_put(f, 2, s[2], T0, 1000, 1000);
    file_put(f, 2, s[1], T0 + 60, 50, 60);
    file_put(f, 2, s[2], T0 + 60, 2000, 2000);
    static const enum read_by by[] = {READ_BY_USER, READ_BY_PROGRAM, READ_BY_DEVICE};
    for (size_t i = 0; i < 3; i++) {
        struct read_query query = {
            .since_s = T0, .until_s = T0 + 120, .step_s = 60, .by = by[i], .program = "old"};
        struct read_result result = {0};
        assert_int_equal(read_history(f->path, &query, &result), 0);
        assert_int_equal(result.n_lines, 1);
        const struct read_line *line = &result.lines[0];
        assert_int_equal(line->processes, 2);
        assert_int_equal(line->points[0].last, 1200);
        assert_int_equal(line->points[0].max, 1900);
        assert_int_equal(line->points[1].last, 2050);
        assert_int_equal(line->points[1].max, 2060);
        read_release(&result);
    }
}

static void a_process_has_its_latest_name_and_user(void **state)
{
    struct file *f = *state;
    static const char *const names[] = {"sh", "env", "python"};
    int64_t rows[3];
    for (int i = 0; i < 3; i++)
        rows[i] = file_process(
            f, (struct file_process){
                   .pid = 7, .exec = i, .program = names[i], .uid = (uint32_t)(100 - i)});
    for (int i = 2; i >= 0; i--)
        file_put(f, 0, file_series(f, rows[i], 0, 0, HISTORY_RSS), (uint64_t)(T0 + i), 1, 1);
    struct read_query query = {
        .since_s = T0, .until_s = T0 + 3, .step_s = 1, .by = READ_BY_PROCESS};
    struct read_result result = {0};
    assert_int_equal(read_history(f->path, &query, &result), 0);
    assert_int_equal(result.n_lines, 1);
    assert_string_equal(result.lines[0].program, "python");
    assert_int_equal(result.lines[0].uid, 98);
    assert_int_equal(result.lines[0].processes, 1);
    for (size_t i = 0; i < 3; i++)
        assert_true(result.lines[0].points[i].present);
    read_release(&result);
}

/* ---- marks of when a process was seen ---- */

static void marks_that_are_behind_hide_no_process(void **state)
{
    struct file *f = *state;
    enum { BEHIND_S = 3 * 120 };
    static const struct {
        uint64_t since, until, step; /* from T0 */
        unsigned tier;
        uint64_t point, other; /* other: a point of another process that makes the step longer */
        int64_t first, last;
    } cases[] = {
        {1000, 1100, 1, 0, 1000, 0, 1, 1000 - BEHIND_S},
        {1000, 1100, 1, 0, 1099, 0, 1099 + BEHIND_S, 5000},
        {1079, 1100, 60, 0, 1020, 0, 1, 1020 - BEHIND_S},
        {1000, 1021, 60, 0, 1079, 0, 1079 + BEHIND_S, 5000},
        /* The step becomes 120: the answer begins 119 s before the time asked for, or ends as much after. */
        {7200 + 119, 7200 + 120, 90, 2, 7200, 7200 + 60, 1, 7200 - BEHIND_S},
        {7200, 7200 + 1, 90, 2, 7200 + 60, 7200, 7260 + BEHIND_S, 9000},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        file_run(f, "DELETE FROM process; DELETE FROM series; DELETE FROM chunk0; "
                    "DELETE FROM chunk2; UPDATE tier SET closed=0");
        int64_t process = file_process(f, (struct file_process){.pid = 7,
                                                                .first = T0 + cases[i].first,
                                                                .last = T0 + cases[i].last});
        file_put(f, cases[i].tier, file_series(f, process, 0, 0, HISTORY_RSS), T0 + cases[i].point,
                 5, 5);
        int64_t other = file_process(f, (struct file_process){.pid = 8});
        if (cases[i].other)
            file_put(f, 2, file_series(f, other, 0, 0, HISTORY_RSS), T0 + cases[i].other, 5, 5);
        struct read_query query = {.since_s = T0 + cases[i].since,
                                   .until_s = T0 + cases[i].until,
                                   .step_s = cases[i].step,
                                   .by = READ_BY_PROCESS};
        struct read_result result = {0};
        assert_int_equal(read_history(f->path, &query, &result), 0);
        if (result.n_lines != 1u + (cases[i].other != 0) || result.lines[0].pid != 7)
            fail_msg("case %zu: not there", i);
        read_release(&result);
    }
}

static void lines_without_a_point_are_left_out(void **state)
{
    struct file *f = *state;
    for (int i = 0; i < 5; i++) {
        int64_t process = file_process(f, (struct file_process){.pid = 1 + i});
        file_put(f, 0, file_series(f, process, 0, 0, HISTORY_RSS), (uint64_t)(i % 2 ? T0 : T0 + 30),
                 (uint64_t)(i + 10), (uint64_t)(i + 20));
    }
    struct read_query query = {
        .since_s = T0, .until_s = T0 + 20, .step_s = 10, .by = READ_BY_PROCESS};
    struct read_result result = {0};
    assert_int_equal(read_history(f->path, &query, &result), 0);
    assert_int_equal(result.n_lines, 2);
    for (size_t i = 0; i < 2; i++) {
        const struct read_line *line = &result.lines[i];
        assert_int_equal(line->pid, 2 + 2 * i);
        assert_int_equal(line->min, 11 + 2 * i);
        assert_int_equal(line->last, 11 + 2 * i);
        assert_int_equal(line->max, 21 + 2 * i);
        assert_int_equal(line->points[0].last, 11 + 2 * i);
        assert_false(line->points[1].present);
    }
    read_release(&result);
}

static void many_series_are_all_found(void **state)
{
    struct file *f = *state;
    enum { MANY = 1100 };
    file_run(f, "BEGIN");
    for (int i = 0; i < MANY; i++) {
        int64_t process = file_process(f, (struct file_process){.pid = MANY - i});
        file_put(f, 0, file_series(f, process, 0, 0, HISTORY_RSS), T0, (uint64_t)(MANY - i), 5000);
    }
    file_run(f, "COMMIT");
    struct read_query query = {
        .since_s = T0, .until_s = T0 + 10, .step_s = 10, .by = READ_BY_PROCESS};
    struct read_result result = {0};
    assert_int_equal(read_history(f->path, &query, &result), 0);
    assert_int_equal(result.n_lines, MANY);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(result.lines[i].pid, i + 1);
        assert_int_equal(result.lines[i].points[0].last, i + 1);
    }
    read_release(&result);
    query.by = READ_BY_USER;
    assert_int_equal(read_history(f->path, &query, &result), 0);
    assert_int_equal(result.n_lines, 1);
    assert_int_equal(result.lines[0].processes, MANY);
    assert_int_equal(result.lines[0].last, MANY * (MANY + 1) / 2);
    assert_int_equal(result.lines[0].max, MANY * 5000);
    read_release(&result);
}

static void sums_stop_at_the_largest_number(void **state)
{
    struct file *f = *state;
    for (int i = 0; i < 2; i++) {
        int64_t process = file_process(f, (struct file_process){.pid = 7 + i, .program = "liar"});
        file_put(f, 0, file_series(f, process, 0, 0, HISTORY_RSS), T0, UINT64_MAX / 2 + 10,
                 UINT64_MAX / 2 + 10);
    }
    struct read_query query = {.since_s = T0, .until_s = T0 + 10, .step_s = 10, .program = "liar"};
    struct read_result result = {0};
    assert_int_equal(read_history(f->path, &query, &result), 0);
    assert_true(result.lines[0].last == UINT64_MAX);
    assert_true(result.lines[0].max == UINT64_MAX);
    read_release(&result);
}

#define TEST(name)  cmocka_unit_test_setup_teardown(name, setup, file_teardown)
#define EMPTY(name) cmocka_unit_test_setup_teardown(name, file_setup, file_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(sums_of_the_machine_are_ordered_by_device_and_space),
        TEST(processes_are_told_by_pid_boot_start_and_node),
        TEST(users_and_programs_have_the_sums_of_their_processes),
        TEST(filters_leave_out_what_does_not_match),
        TEST(devices_are_called_by_number_name_uid_bus_or_identity),
        TEST(a_line_has_what_the_file_says_of_its_device_and_process),
        EMPTY(later_series_of_a_process_counts_in_every_group),
        EMPTY(a_process_has_its_latest_name_and_user),
        EMPTY(marks_that_are_behind_hide_no_process),
        EMPTY(lines_without_a_point_are_left_out),
        EMPTY(many_series_are_all_found),
        EMPTY(sums_stop_at_the_largest_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
