/* The log, written to a file and read back. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/fs.h"
#include "check.h"

static char path[] = "/tmp/memoir-test-log-XXXXXX";
static struct buffer text;

static int make_file(void **unused)
{
    int fd = mkstemp(path);
    buffer_init(&text, 64 << 20);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **unused)
{
    buffer_release(&text);
    return unlink(path);
}

static int truncate_file(void **unused)
{
    unsetenv("JOURNAL_STREAM");
    return truncate(path, 0);
}

static int back_to_stderr(void **unused)
{
    log_close();
    return 0;
}

static void open_log(enum log_format format)
{
    struct log_options options = {.level = LOG_LEVEL_INFO, .format = format, .path = path};
    assert_int_equal(log_open(&options), 0);
}

static const char *read_log(void)
{
    buffer_reset(&text);
    assert_int_equal(fs_read_file(path, &text), 0);
    return buffer_string(&text);
}

static void text_line_has_time_level_message_and_fields(void **unused)
{
    open_log(LOG_FORMAT_TEXT);
    log_write(LOG_LEVEL_WARN,
              LOG_FIELDS(LOG_U64("pid", 42), LOG_I64("delta", -1), LOG_STR("dir", "/run/memoir"),
                         LOG_STR("name", "two words"), LOG_STR("none", NULL)),
              "found %d books", 3);
    const char *line = read_log();
    int year, month, day, hour, minute, second, ms, rest = 0;
    assert_int_equal(sscanf(line, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ %n", &year, &month, &day, &hour,
                            &minute, &second, &ms, &rest),
                     7);
    assert_string_equal(line + rest,
                        "warn: found 3 books pid=42 delta=-1 dir=/run/memoir name=\"two words\"\n");
}

static void json_line_has_the_same(void **unused)
{
    open_log(LOG_FORMAT_JSON);
    log_write(LOG_LEVEL_INFO, LOG_FIELDS(LOG_U64("pid", 42), LOG_STR("dir", "a\"b")), "say \"%s\"",
              "hi");
    assert_non_null(strstr(
        read_log(),
        "Z\",\"level\":\"info\",\"message\":\"say \\\"hi\\\"\",\"pid\":42,\"dir\":\"a\\\"b\"}\n"));
}

static void journal_line_starts_with_the_priority(void **unused)
{
    open_log(LOG_FORMAT_JOURNAL);
    log_error("broken");
    assert_string_equal(read_log(), "<3>broken\n");
}

static void journal_is_recognised_by_its_inode(void **unused)
{
    int saved = dup(STDERR_FILENO), fd = open(path, O_WRONLY | O_APPEND);
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    char stream[64];
    snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    dup2(fd, STDERR_FILENO);
    struct log_options options = {.level = LOG_LEVEL_INFO};
    assert_int_equal(log_open(&options), 0);
    log_info("hello");
    setenv("JOURNAL_STREAM", "1:1", 1);
    assert_int_equal(log_open(&options), 0);
    log_info("elsewhere");
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(fd);
    assert_non_null(strstr(read_log(), "<6>hello\n"));
    assert_non_null(strstr(read_log(), "Z info: elsewhere\n"));
}

static void control_bytes_never_reach_the_file(void **unused)
{
    char all[257] = {0};
    for (int i = 1; i < 256; i++)
        all[i - 1] = (char)i;
    open_log(LOG_FORMAT_TEXT);
    log_write(LOG_LEVEL_INFO, LOG_FIELDS(LOG_STR("field", all)), "%s \xc2\x9b[31m", all);
    open_log(LOG_FORMAT_JSON);
    log_write(LOG_LEVEL_INFO, LOG_FIELDS(LOG_STR("field", all)), "%s \xc2\x9b[31m", all);
    int lines = 0;
    read_log();
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        lines += c == '\n';
        assert_true(c == '\n' || (c >= 0x20 && c != 0x7f));
        assert_false(c == 0xc2 && (unsigned char)text.data[i + 1] < 0xa0);
    }
    assert_int_equal(lines, 2);
}

static void a_name_cannot_turn_its_line_around(void **unused)
{
    /* Right-to-left override, isolate, a tag beyond the first plane; then a letter that stays. */
    static const char name[] = "a\xe2\x80\xae\xe2\x81\xa6\xf3\xa0\x81\x81\xc3\xa4";
    open_log(LOG_FORMAT_TEXT);
    log_write(LOG_LEVEL_INFO, LOG_FIELDS(LOG_STR("field", name)), "%s", name);
    assert_non_null(strstr(read_log(), "info: a\\u202e\\u2066\\udb40\\udc41\xc3\xa4"));
    assert_null(strstr(read_log(), "\xe2\x80\xae"));
    open_log(LOG_FORMAT_JSON);
    log_write(LOG_LEVEL_INFO, LOG_FIELDS(LOG_STR("field", name)), "%s", name);
    assert_non_null(strstr(read_log(), "\"field\":\"a\\u202e\\u2066\\udb40\\udc41\xc3\xa4\""));
}

static void long_line_is_cut_visibly_and_counted(void **unused)
{
    char *words = calloc(1, 3 * LOG_LINE_MAX);
    memset(words, 'x', 3 * LOG_LINE_MAX - 1);
    uint64_t before = log_cut();
    for (enum log_format format = LOG_FORMAT_TEXT; format <= LOG_FORMAT_JOURNAL; format++) {
        assert_int_equal(truncate(path, 0), 0);
        open_log(format);
        log_write(LOG_LEVEL_INFO, LOG_FIELDS(LOG_STR("field", "x")), "%s", words);
        const char *end = format == LOG_FORMAT_JSON ? "x...\"}\n" : "x...\n";
        read_log();
        assert_true(text.len <= LOG_LINE_MAX && text.len > LOG_LINE_MAX - 10);
        assert_string_equal(text.data + text.len - strlen(end), end);
    }
    assert_int_equal(log_cut(), before + 3);
    free(words);
}

static void field_that_does_not_fit_is_left_out_whole(void **unused)
{
    char *words = calloc(1, LOG_LINE_MAX + 1);
    memset(words, '"', LOG_LINE_MAX);
    open_log(LOG_FORMAT_JSON);
    log_write(LOG_LEVEL_INFO, LOG_FIELDS(LOG_U64("a", 1), LOG_STR("b", words)), "m");
    const char *line = read_log();
    assert_non_null(strstr(line, "\"message\":\"m\",\"a\":1}\n"));
    free(words);
}

static void events_below_the_level_are_dropped(void **unused)
{
    open_log(LOG_FORMAT_TEXT);
    log_debug("silent");
    assert_string_equal(read_log(), "");
    log_set_level(LOG_LEVEL_DEBUG);
    log_debug("loud");
    assert_non_null(strstr(read_log(), " debug: loud\n"));
}

static void errno_survives_and_percent_m_prints_it(void **unused)
{
    open_log(LOG_FORMAT_JOURNAL);
    errno = ENOENT;
    log_warn("cannot open: %m");
    assert_int_equal(errno, ENOENT);
    assert_string_equal(read_log(), "<4>cannot open: No such file or directory\n");
}

static void failed_open_keeps_the_old_log(void **unused)
{
    open_log(LOG_FORMAT_JOURNAL);
    struct log_options bad = {.level = LOG_LEVEL_ERROR, .path = "/nonexistent/dir/log"};
    assert_int_equal(log_open(&bad), -ENOENT);
    log_info("still here");
    assert_string_equal(read_log(), "<6>still here\n");
}

static void full_disk_is_counted(void **unused)
{
    struct log_options full = {.level = LOG_LEVEL_INFO, .path = "/dev/full"};
    uint64_t before = log_lost();
    assert_int_equal(log_open(&full), 0);
    log_info("lost");
    assert_int_equal(log_lost(), before + 1);
}

static void words_name_levels_and_formats(void **unused)
{
    enum log_level level = LOG_LEVEL_INFO;
    enum log_format format = LOG_FORMAT_AUTO;
    assert_int_equal(log_level_parse("warn", &level), 0);
    assert_int_equal(level, LOG_LEVEL_WARN);
    assert_int_equal(log_level_parse("WARN", &level), -EINVAL);
    assert_int_equal(log_format_parse("json", &format), 0);
    assert_int_equal(format, LOG_FORMAT_JSON);
    assert_int_equal(log_format_parse("", &format), -EINVAL);
}

#define THREADS 4
#define LINES   300

static void *chatter(void *arg)
{
    char words[200];
    memset(words, 'a' + (int)(intptr_t)arg, sizeof(words));
    for (int i = 0; i < LINES; i++)
        log_info("%.*s.", (int)sizeof(words), words);
    return NULL;
}

static void lines_of_threads_never_mix_even_across_a_reopen(void **unused)
{
    pthread_t threads[THREADS];
    open_log(LOG_FORMAT_JOURNAL);
    for (intptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, chatter, (void *)i), 0);
    for (int i = 0; i < 50; i++)
        open_log(LOG_FORMAT_JOURNAL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    int lines = 0;
    for (const char *line = read_log(); *line; line = strchr(line, '\n') + 1, lines++) {
        assert_memory_equal(line, "<6>", 3);
        for (int i = 3; i < 203; i++)
            assert_int_equal(line[i], line[3]);
        assert_memory_equal(line + 203, ".\n", 2);
    }
    assert_int_equal(lines, THREADS * LINES);
}

#define log_test(name) cmocka_unit_test_setup_teardown(name, truncate_file, back_to_stderr)

int main(void)
{
    const struct CMUnitTest tests[] = {
        log_test(text_line_has_time_level_message_and_fields),
        log_test(json_line_has_the_same),
        log_test(journal_line_starts_with_the_priority),
        log_test(journal_is_recognised_by_its_inode),
        log_test(control_bytes_never_reach_the_file),
        log_test(a_name_cannot_turn_its_line_around),
        log_test(long_line_is_cut_visibly_and_counted),
        log_test(field_that_does_not_fit_is_left_out_whole),
        log_test(events_below_the_level_are_dropped),
        log_test(errno_survives_and_percent_m_prints_it),
        log_test(failed_open_keeps_the_old_log),
        log_test(full_disk_is_counted),
        log_test(words_name_levels_and_formats),
        log_test(lines_of_threads_never_mix_even_across_a_reopen),
    };
    return cmocka_run_group_tests_name("log", tests, make_file, remove_file);
}
