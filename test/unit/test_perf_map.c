/* Names of code made at run time. */
#include "site/perf_map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static struct perf_map *parse(const char *text)
{
    struct perf_map *map = NULL;
    assert_int_equal(perf_map_parse(text, strlen(text), &map), 0);
    return map;
}

static void functions_are_found_by_address(void **state)
{
    struct perf_map *map = parse("1000 20 first function\n0x1020 40 second\n");
    assert_int_equal(perf_map_entries(map), 2);
    assert_string_equal(perf_map_find(map, 0x1000), "first function");
    assert_string_equal(perf_map_find(map, 0x101f), "first function");
    assert_string_equal(perf_map_find(map, 0x1020), "second");
    assert_null(perf_map_find(map, 0xfff));
    assert_null(perf_map_find(map, 0x1060));
    perf_map_free(map);
}

static void code_that_was_made_last_is_what_is_there(void **state)
{
    struct perf_map *map = parse("1000 100 old\n1040 20 inner\n1000 80 new\n");
    assert_string_equal(perf_map_find(map, 0x1050), "new");
    assert_string_equal(perf_map_find(map, 0x10f0), "old");
    perf_map_free(map);
}

static void lines_that_make_no_sense_are_passed_over(void **state)
{
    struct perf_map *map =
        parse("\n1000\n1000 20\n1000 20 \nx 20 a\n1000 0 a\nffffffffffffffff 2 a\n"
              "10000000000000000 1 a\n2000 10 go\x01od\n3000 10 last");
    assert_int_equal(perf_map_entries(map), 2);
    assert_string_equal(perf_map_find(map, 0x2000), "go od");
    assert_string_equal(perf_map_find(map, 0x3000), "last");
    perf_map_free(map);
}

static void long_names_are_cut(void **state)
{
    char text[4096];
    memset(text, 'n', sizeof(text));
    memcpy(text, "1000 10 ", 8);
    text[sizeof(text) - 1] = '\0';
    struct perf_map *map = parse(text);
    assert_int_equal(strlen(perf_map_find(map, 0x1000)), PERF_MAP_NAME_MAX);
    perf_map_free(map);
}

/* Our own map, in our own /tmp. */
static void only_a_file_of_the_owner_counts(void **state)
{
    char path[64];
    struct perf_map *map = NULL;
    snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
    assert_int_equal(perf_map_read(getpid(), NULL, 0, &map), -ENOENT);
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "1000 20 mine\n", 13), 13);
    assert_int_equal(perf_map_read(getpid(), NULL, 0, &map), 0);
    assert_string_equal(perf_map_find(map, 0x1000), "mine");
    perf_map_free(map);
    if (geteuid() == 0) {
        assert_int_equal(fchown(fd, 12345, 12345), 0);
        assert_int_equal(perf_map_read(getpid(), NULL, 0, &map), -EPERM);
    }
    close(fd);
    unlink(path);
    assert_int_equal(mkfifo(path, 0644), 0);
    assert_true(perf_map_read(getpid(), NULL, 0, &map) < 0); /* and does not wait */
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_are_found_by_address),
        cmocka_unit_test(code_that_was_made_last_is_what_is_there),
        cmocka_unit_test(lines_that_make_no_sense_are_passed_over),
        cmocka_unit_test(long_names_are_cut),
        cmocka_unit_test(only_a_file_of_the_owner_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
