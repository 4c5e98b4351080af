/* Formats of /proc/PID, as kernels write them and as nobody should. */
#include <stdio.h>
#include <string.h>

#include "base/procfs.h"
#include "check.h"

/* ---- stat and statm ---- */

static void statm_gives_pages(void **state)
{
    struct procfs_statm statm = {0};
    assert_true(procfs_statm_parse("5061 1713 1234 9 0 512 0\n", &statm));
    assert_int_equal(statm.vms, 5061);
    assert_int_equal(statm.rss, 1713);
    assert_int_equal(statm.shared, 1234);
    assert_int_equal(statm.text, 9);
    assert_int_equal(statm.data, 512);
    assert_false(procfs_statm_parse("5061 1713 1234", &statm));
    assert_false(procfs_statm_parse("", &statm));
    assert_false(procfs_statm_parse("-1 2 3 4 5 6 7", &statm));
}

#define STAT_TAIL " S 7 1 1 0 -1 4194560 101 0 202 0 1 2 0 0 20 0 3 0 4242 409600 55 1 0 0\n"

static void a_name_may_hold_anything(void **state)
{
    static const char *const names[] = {"plain", "two words", ") S 1 1", "a)b(c",
                                        "x\ny",  "\x1b[31m",  ""};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char text[256];
        struct procfs_stat stat = {0};
        snprintf(text, sizeof(text), "9 (%s)" STAT_TAIL, names[i]);
        assert_true(procfs_stat_parse(text, &stat));
        assert_string_equal(stat.comm, names[i]);
        assert_int_equal(stat.state, 'S');
        assert_int_equal(stat.parent, 7);
        assert_int_equal(stat.minor_faults, 101);
        assert_int_equal(stat.major_faults, 202);
        assert_int_equal(stat.threads, 3);
        assert_int_equal(stat.start_ticks, 4242);
        assert_int_equal(stat.vms_bytes, 409600);
        assert_int_equal(stat.rss_pages, 55);
        assert_false(stat.flags & PROCFS_KERNEL_THREAD);
    }
}

static void stat_that_is_cut_makes_no_sense(void **state)
{
    static const char whole[] = "9 (name)" STAT_TAIL;
    struct procfs_stat stat = {0};
    for (size_t len = 0; len < sizeof(whole) - 12; len++) {
        char text[sizeof(whole)];
        memcpy(text, whole, len);
        text[len] = '\0';
        assert_false(procfs_stat_parse(text, &stat));
    }
}

static void threads_of_the_kernel_are_told_apart(void **state)
{
    struct procfs_stat stat = {0};
    assert_true(procfs_stat_parse(
        "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 3 0 0 1\n", &stat));
    assert_true(stat.flags & PROCFS_KERNEL_THREAD);
}

static void exit_status_is_field_52(void **state)
{
    struct procfs_stat stat = {0};
    char text[512];
    int len =
        snprintf(text, sizeof(text), "9 (x) Z 7 1 1 0 -1 4 101 0 202 0 1 2 0 0 20 0 1 0 4242 0 0");
    for (int field = 25; field <= 51; field++)
        len += snprintf(text + len, sizeof(text) - (size_t)len, " %d", field == 30 ? -1 : field);
    snprintf(text + len, sizeof(text) - (size_t)len, " 139\n");
    assert_true(procfs_stat_parse(text, &stat));
    assert_int_equal(procfs_stat_exit_status(&stat), 139);
    assert_true(stat.flags & PROCFS_EXITING);
    text[len] = '\0'; /* a kernel that does not tell */
    assert_true(procfs_stat_parse(text, &stat));
    assert_int_equal(procfs_stat_exit_status(&stat), 0);
}

/* ---- status ---- */

static void ids_are_four_numbers(void **state)
{
    static const char text[] =
        "Name:\tx\\nUid:\t7\nUid:\t1000\t1001\t1002\t1003\nGid:\t5\t5\t5\t5\n"
        "NSpid:\t4242\t17\t1\nCapPrm:\t0000000000000000\n";
    struct procfs_ids ids = {0};
    assert_true(procfs_status_ids(text, "\nUid:", &ids));
    assert_int_equal(ids.real, 1000);
    assert_int_equal(ids.effective, 1001);
    assert_int_equal(ids.saved, 1002);
    assert_int_equal(ids.fs, 1003);
    assert_false(procfs_ids_are(&ids, 1000));
    assert_true(procfs_status_ids(text, "\nGid:", &ids));
    assert_true(procfs_ids_are(&ids, 5));
    assert_false(procfs_ids_are(&ids, 6));
    assert_false(procfs_status_ids("x\nUid:\t1\t2\t3\nGid:\t4\n", "\nUid:", &ids));
    assert_false(procfs_status_ids("x\nUid:\t1\t2\t3\t4294967296\n", "\nUid:", &ids));
    assert_false(procfs_status_ids(text, "\nPid:", &ids));
    assert_int_equal(ids.real, 5); /* unchanged */
}

static void pids_are_those_of_each_namespace(void **state)
{
    pid_t pids[2] = {0}, inner = 9;
    assert_int_equal(procfs_status_pids("x\nNSpid:\t4242\t17\t1\nNSpgid:\t5\n", pids, 2, &inner),
                     3);
    assert_int_equal(pids[0], 4242);
    assert_int_equal(pids[1], 17);
    assert_int_equal(inner, 1);
    inner = 9;
    assert_int_equal(procfs_status_pids("Name:\tx\n", pids, 2, &inner), 0);
    assert_int_equal(inner, 9);
}

/* ---- maps ---- */

static bool mapping_parse(const char *line, struct procfs_mapping *m)
{
    return procfs_mapping_parse(line, line + strlen(line), m);
}

static void mapping_is_read_whole(void **state)
{
    struct procfs_mapping m = {0};
    assert_true(mapping_parse("7f00-7f10 rw-s 00001000 08:1a 1234                       /a b", &m));
    assert_int_equal(m.start, 0x7f00);
    assert_int_equal(m.end, 0x7f10);
    assert_int_equal(m.offset, 0x1000);
    assert_int_equal(m.dev_major, 8);
    assert_int_equal(m.dev_minor, 0x1a);
    assert_int_equal(m.inode, 1234);
    assert_true(m.readable && m.writable && m.shared && !m.executable);
    assert_string_equal(m.name, "/a b");
    assert_true(mapping_parse("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [v]", &m));
    assert_true(!m.readable && !m.writable && !m.shared && m.executable);
    assert_string_equal(m.name, "[v]");
    assert_true(mapping_parse("7f00-7f10 rw-p 00000000 00:00 0", &m));
    assert_string_equal(m.name, "");
    assert_true(mapping_parse("7f00-7f10 rw-p 00000000 00:00 0 ", &m));
    assert_string_equal(m.name, "");
}

static void mapping_that_is_invalid_is_refused(void **state)
{
    static const char *const lines[] = {
        "",
        "7f00",
        "7f00-",
        "7f00-7f10",
        "7f10-7f10 rw-p 00000000 00:00 0",
        "7f10-7f00 rw-p 00000000 00:00 0",
        "7f00 7f10 rw-p 00000000 00:00 0",
        "7f00-7f10 rw-pp 00000000 00:00 0",
        "7f00-7f10 rw- 00000000 00:00 0",
        "7f00-7f10 rw-p x 00:00 0",
        "7f00-7f10 rw-p 00000000 00.00 0",
        "7f00-7f10 rw-p 00000000 00:00 ",
        "7f00-7f10 rw-p 00000000 00:00 f",
        "17f0000000000000000-27f0000000000000000 rw-p 00000000 00:00 0",
        "Rss:                1712 kB",
    };
    struct procfs_mapping m = {.start = 77};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        assert_false(mapping_parse(lines[i], &m));
    assert_int_equal(m.start, 77);
    const char *line = "7f00-7f10 rw-p 00000000 00:00 12 /x"; /* nothing behind the end is read */
    for (size_t len = 0; len < strlen("7f00-7f10 rw-p 00000000 00:00 1"); len++)
        assert_false(procfs_mapping_parse(line, line + len, &m));
}

/* ---- others ---- */

static void time_offset_may_be_negative(void **state)
{
    static const char text[] =
        "monotonic         -86400 500000000\nboottime            7200         1\n";
    assert_true(procfs_time_offset(text, "monotonic") == -86400 * INT64_C(1000000000) + 500000000);
    assert_true(procfs_time_offset(text, "boottime") == 7200 * INT64_C(1000000000) + 1);
    assert_true(procfs_time_offset("monotonic 0 0\n", "boottime") == 0);
    assert_true(procfs_time_offset("boottime x\n", "boottime") == 0);
    assert_true(procfs_time_offset("boottime 99999999999999999999 0\n", "boottime") == 0);
}

static void command_line_is_one_line(void **state)
{
    char text[] = "a\0b c\0\0d\0\0";
    assert_int_equal(procfs_command_line(text, sizeof(text) - 1), 8);
    assert_string_equal(text, "a b c  d");
    assert_int_equal(procfs_command_line(text, 0), 0);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statm_gives_pages),
        cmocka_unit_test(a_name_may_hold_anything),
        cmocka_unit_test(stat_that_is_cut_makes_no_sense),
        cmocka_unit_test(threads_of_the_kernel_are_told_apart),
        cmocka_unit_test(exit_status_is_field_52),
        cmocka_unit_test(ids_are_four_numbers),
        cmocka_unit_test(pids_are_those_of_each_namespace),
        cmocka_unit_test(mapping_is_read_whole),
        cmocka_unit_test(mapping_that_is_invalid_is_refused),
        cmocka_unit_test(time_offset_may_be_negative),
        cmocka_unit_test(command_line_is_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
