/* File helpers, in a folder of their own, with every call failing once. */
#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "check.h"
#include "fault.h"

static char dir[] = "/tmp/memoir-test-fs-XXXXXX";

static int enter_dir(void **unused)
{
    return mkdtemp(dir) && chdir(dir) == 0 ? 0 : -1;
}

static int leave_dir(void **unused)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

static int files_here(void)
{
    int n = 0;
    DIR *d = opendir(".");
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void write_then_read_gives_the_same(void **unused)
{
    struct buffer b = BUFFER_INIT(100000);
    char *data = malloc(50000);
    memset(data, 'x', 50000);
    assert_int_equal(fs_write_file_atomic("same", data, 50000, 0600), 0);
    assert_int_equal(fs_read_file("same", &b), 0);
    assert_int_equal(b.len, 50000);
    assert_memory_equal(b.data, data, 50000);
    free(data);
    buffer_release(&b);
}

static void devices_and_pipes_stay_what_they_are(void **unused)
{
    struct stat st;
    char got[8];
    assert_int_equal(symlink("/dev/null", "null"), 0); /* a link: should it go, the device stays */
    assert_int_equal(fs_write_file_atomic("null", "lost", 4, 0600), 0);
    assert_int_equal(lstat("null", &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(mkfifo("pipe", 0600), 0);
    assert_int_equal(fs_write_file_atomic("pipe", "told", 4, 0600), -ENXIO); /* nobody reads */
    int fd = open("pipe", O_RDONLY | O_NONBLOCK);
    assert_true(fd >= 0);
    assert_int_equal(fs_write_file_atomic("pipe", "told", 4, 0600), 0);
    assert_int_equal(read(fd, got, sizeof(got)), 4);
    assert_memory_equal(got, "told", 4);
    close(fd);
    assert_int_equal(stat("pipe", &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
}

static void written_file_has_the_exact_mode(void **unused)
{
    struct stat st;
    mode_t before = umask(077);
    assert_int_equal(fs_write_file_atomic("mode", "x", 1, 0644), 0);
    umask(before);
    assert_int_equal(stat("mode", &st), 0);
    assert_int_equal(st.st_mode & 07777, 0644);
}

static void proc_files_are_read_whole(void **unused)
{
    struct buffer b = BUFFER_INIT(1 << 20);
    assert_int_equal(fs_read_file("/proc/self/stat", &b), 0);
    assert_true(b.len > 10 && b.data[b.len - 1] == '\n');
    buffer_release(&b);
}

static void file_of_exactly_the_limit_fits(void **unused)
{
    struct buffer b = BUFFER_INIT(5);
    assert_int_equal(fs_write_file_atomic("five", "12345", 5, 0600), 0);
    assert_int_equal(fs_read_file("five", &b), 0);
    assert_string_equal(buffer_string(&b), "12345");
    buffer_release(&b);
}

static void file_past_the_limit_is_refused_and_leaves_the_buffer(void **unused)
{
    struct buffer b = BUFFER_INIT(7);
    buffer_append_str(&b, "old");
    assert_int_equal(fs_write_file_atomic("five", "12345", 5, 0600), 0);
    assert_int_equal(fs_read_file("five", &b), -EFBIG);
    assert_string_equal(buffer_string(&b), "old");
    assert_int_equal(b.error, 0);
    buffer_release(&b);
}

static void missing_file_is_enoent(void **unused)
{
    struct buffer b = BUFFER_INIT(7);
    assert_int_equal(fs_read_file("nowhere", &b), -ENOENT);
    assert_int_equal(fs_read_file(".", &b), -EISDIR);
    assert_int_equal(fs_write_file_atomic("nowhere/x", "", 0, 0600), -ENOENT);
    buffer_release(&b);
}

static void mkdir_makes_all_that_is_missing(void **unused)
{
    struct stat st;
    assert_int_equal(fs_mkdir_all("a/b//c/", 0700), 0);
    assert_int_equal(stat("a/b/c", &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(fs_mkdir_all("a/b/c", 0700), 0);
    assert_int_equal(fs_mkdir_all("/", 0700), 0);
}

static void mkdir_refuses_a_file_in_the_way(void **unused)
{
    assert_int_equal(fs_write_file_atomic("file", "", 0, 0600), 0);
    assert_int_equal(fs_mkdir_all("file", 0700), -ENOTDIR);
    assert_int_equal(fs_mkdir_all("file/x", 0700), -ENOTDIR);
    assert_int_equal(fs_mkdir_all("", 0700), -ENOENT);
}

static void tmpfs_is_told_from_proc(void **unused)
{
    MEMOIR_CLEANUP(closep)
    int proc = open("/proc", O_RDONLY | O_DIRECTORY);
    assert_int_equal(fs_is_tmpfs(proc), 0);
    assert_int_equal(fs_is_tmpfs(-1), -EBADF);
    MEMOIR_CLEANUP(closep)
    int shm = open("/dev/shm", O_RDONLY | O_DIRECTORY);
    if (shm < 0)
        skip();
    assert_int_equal(fs_is_tmpfs(shm), 1);
}

static void failed_write_leaves_the_old_file_and_no_litter(void **unused)
{
    assert_int_equal(fs_write_file_atomic("keep", "old", 3, 0600), 0);
    int files = files_here();
    for (int nth = 0; fault_arm(nth); nth++) {
        int r = fs_write_file_atomic("keep", "new", 3, 0600);
        fault_disarm();
        assert_true(r == 0 || fault_fired());
        assert_int_equal(files_here(), files);
        struct buffer b = BUFFER_INIT(10);
        assert_int_equal(fs_read_file("keep", &b), 0);
        assert_string_equal(buffer_string(&b), r == 0 ? "new" : "old");
        buffer_release(&b);
        assert_int_equal(fs_write_file_atomic("keep", "old", 3, 0600), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(write_then_read_gives_the_same),
        cmocka_unit_test(devices_and_pipes_stay_what_they_are),
        cmocka_unit_test(written_file_has_the_exact_mode),
        cmocka_unit_test(proc_files_are_read_whole),
        cmocka_unit_test(file_of_exactly_the_limit_fits),
        cmocka_unit_test(file_past_the_limit_is_refused_and_leaves_the_buffer),
        cmocka_unit_test(missing_file_is_enoent),
        cmocka_unit_test(mkdir_makes_all_that_is_missing),
        cmocka_unit_test(mkdir_refuses_a_file_in_the_way),
        cmocka_unit_test(tmpfs_is_told_from_proc),
        cmocka_unit_test(failed_write_leaves_the_old_file_and_no_litter),
    };
    return cmocka_run_group_tests_name("fs", tests, enter_dir, leave_dir);
}
