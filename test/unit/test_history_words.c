/* Names of lines, which process a PID means, and whether a process has ended. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "base/clock.h"
#include "check.h"
#include "history/read.h"
#include "history/recorder.h"
#include "ledger/host.h"
#include "ledger/proc.h"

static uint64_t fake_ns = 5 * NS_PER_S;

/* A clock that stands still. */
int clock_gettime(clockid_t id, struct timespec *ts)
{
    *ts = (struct timespec){(time_t)(fake_ns / NS_PER_S), (long)(fake_ns % NS_PER_S)};
    return 0;
}

static void lines_are_called_as_columns_are(void **unused)
{
    static const struct {
        struct read_line line;
        bool blocks;
        const char *word;
    } cases[] = {
        {{.what = READ_SYSTEM, .space = HISTORY_SYSTEM_TOTAL}, false, "total"},
        {{.what = READ_SYSTEM, .space = HISTORY_SYSTEM_AVAILABLE}, false, "available"},
        {{.what = READ_SYSTEM, .space = HISTORY_SYSTEM_USED}, false, "used"},
        {{.what = READ_SYSTEM, .space = HISTORY_SYSTEM_SWAP}, false, "swap"},
        {{.what = READ_SYSTEM, .space = 0}, false, "other"},
        {{.what = READ_SYSTEM, .space = 100000}, false, "other"},
        {{.what = READ_PRESSURE, .space = HISTORY_PRESSURE_SOME}, false, "pressure"},
        {{.what = READ_PRESSURE, .space = HISTORY_PRESSURE_FULL}, false, "stall"},
        {{.what = READ_PRESSURE, .space = 3}, false, "other"},
        {{.what = READ_PSS}, false, "pss"},
        {{.what = READ_ACCOUNT}, false, "rss"},
        {{.what = READ_ACCOUNT}, true, "all"},
        {{.what = READ_ACCOUNT, .space = MEMOIR_SPACE_HEAP}, true, "heap"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_string_equal(read_line_word(&cases[i].line, cases[i].blocks), cases[i].word);
    for (uint32_t part = 0; part <= HOST_PARTS; part++) {
        struct read_line line = {.what = READ_SYSTEM, .space = HISTORY_SYSTEM_PARTS + part};
        assert_string_equal(read_line_word(&line, false),
                            part < HOST_PARTS ? host_part_name((enum host_part)part) : "other");
    }
}

/* ---- which process of a PID ---- */

struct who {
    int64_t boot, start, began;
    const char *node;
};

/* Two lines of each, and then those that are left: `expected` is which one stays. */
static void check_choice(const struct who *who, size_t n, uint64_t start_s, size_t expected)
{
    struct read_line lines[16] = {0};
    for (size_t i = 0; i < 2 * n; i++) {
        lines[i] = (struct read_line){.pid = 7,
                                      .boot = who[i % n].boot,
                                      .start_ticks = who[i % n].start,
                                      .began_s = (uint64_t)who[i % n].began,
                                      .space = (uint32_t)(i / n),
                                      .ordinal = (int32_t)(i % n)};
        strcpy(lines[i].node, who[i % n].node ? who[i % n].node : "");
    }
    struct read_result result = {.lines = lines, .n_lines = 2 * n};
    read_choose_process(&result, start_s);
    assert_int_equal(result.n_lines, 2);
    assert_int_equal(result.n_earlier, n - 1);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(lines[i].ordinal, expected);
        assert_int_equal(lines[i].space, i);
    }
}

static void of_a_pid_the_latest_process_is_told_or_the_one_that_is_meant(void **unused)
{
    static const struct who who[] = {{1, 40, 100}, {1, 50, 300}, {2, 40, 200}};
    static const struct {
        uint64_t start_s;
        size_t expected;
    } cases[] = {
        {0, 1},   {1, 0},   {100, 0}, {140, 0}, {150, 2}, /* start times are known roughly */
        {160, 2}, {200, 2}, {240, 2}, {260, 1}, {300, 1}, {1000, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        check_choice(who, 3, cases[i].start_s, cases[i].expected);
    check_choice(who, 1, 0, 0);
    check_choice(who, 1, 5, 0);
    /* Unknown begins, and processes that differ in one thing only. */
    check_choice((struct who[]){{1, 40, 0}}, 1, 0, 0);
    check_choice((struct who[]){{1, 40, 9}, {2, 40, 0}}, 2, 0, 0);
    check_choice((struct who[]){{1, 40, 5}, {1, 41, 4}}, 2, 0, 0);
    check_choice((struct who[]){{1, 40, 5}, {1, 40, 6, "far"}}, 2, 0, 1);
    check_choice((struct who[]){{1, 40, 5}, {1, 40, 5, "far"}}, 2, 0, 1);
    struct read_result none = {.n_earlier = 3};
    read_choose_process(&none, 5);
    assert_int_equal(none.n_lines, 0);
    assert_int_equal(none.n_earlier, 0);
}

static void other_pids_are_other_processes(void **unused)
{
    struct read_line lines[] = {{.pid = 7, .began_s = 5}, {.pid = 8, .began_s = 4}};
    struct read_result result = {.lines = lines, .n_lines = 2};
    read_choose_process(&result, 0);
    assert_int_equal(result.n_lines, 1);
    assert_int_equal(result.n_earlier, 1);
    assert_int_equal(lines[0].pid, 7);
}

/* ---- has it ended? ---- */

static struct read_line line_of(pid_t pid)
{
    struct proc_stat stat;
    assert_int_equal(proc_stat_read(pid, &stat), 0);
    return (struct read_line){
        .pid = pid, .boot = (int64_t)history_boot(), .start_ticks = (int64_t)stat.start_ticks};
}

static pid_t child_new(void)
{
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    assert_true(child > 0);
    return child;
}

static void a_process_has_ended_unless_it_runs_here(void **unused)
{
    struct read_line self = line_of(getpid()), other;
    assert_false(read_line_ended(&self));
    other = self;
    strcpy(other.node, "far");
    assert_true(read_line_ended(&other));
    assert_false(read_line_ended(&self));
    other = self;
    other.boot++;
    assert_true(read_line_ended(&other));
    assert_false(read_line_ended(&self));
    other = self;
    other.start_ticks += 1000;
    assert_true(read_line_ended(&other));
    assert_false(read_line_ended(&self));
    other = self;
    other.pid = getppid();
    other.start_ticks = -1;
    assert_true(read_line_ended(&other));
    other.pid = 0;
    assert_true(read_line_ended(&other));
}

static void end_of_a_process_is_seen_after_a_second_at_most(void **unused)
{
    struct read_line self = line_of(getpid());
    pid_t child = child_new();
    struct read_line line = line_of(child);
    assert_false(read_line_ended(&line));
    kill(child, SIGKILL);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    assert_false(
        read_line_ended(&line)); /* lines of one process come together: not looked at again */
    assert_false(read_line_ended(&self));
    assert_true(read_line_ended(&line)); /* not waited for yet, but dead */
    assert_int_equal(waitpid(child, NULL, 0), child);

    child = child_new();
    line = line_of(child);
    assert_false(read_line_ended(&line));
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    fake_ns += NS_PER_S - 1;
    assert_false(read_line_ended(&line));
    fake_ns++;
    assert_true(read_line_ended(&line));
}

static void a_device_of_another_machine_has_its_name(void **unused)
{
    struct read_line line = {.on_device = true, .ordinal = 3, .device = "card"};
    char text[LEDGER_DEVICE_ID_MAX];
    assert_string_equal(read_line_device_id(&line, "here", text), "3 card@here");
    strcpy(line.device_node, "far");
    assert_string_equal(read_line_device_id(&line, "here", text), "3 card@far");
    strcpy(line.bus, "0000:01:00.0");
    assert_string_equal(read_line_device_id(&line, "here", text), "0000:01:00.0@far");
    strcpy(line.device_uid, "UID");
    assert_string_equal(read_line_device_id(&line, "here", text), "UID");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_called_as_columns_are),
        cmocka_unit_test(of_a_pid_the_latest_process_is_told_or_the_one_that_is_meant),
        cmocka_unit_test(other_pids_are_other_processes),
        cmocka_unit_test(a_process_has_ended_unless_it_runs_here),
        cmocka_unit_test(end_of_a_process_is_seen_after_a_second_at_most),
        cmocka_unit_test(a_device_of_another_machine_has_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
