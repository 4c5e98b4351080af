/* Sessions: a code is good once, a cookie until it is given back, and both outlive what they should. */
#include "http/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "check.h"

static char directory[64], path[96];

static int setup(void **state)
{
    log_set_level(LOG_LEVEL_ERROR);
    strcpy(directory, "/tmp/memoir-test-session-XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    snprintf(path, sizeof(path), "%s/sessions", directory);
    return 0;
}

static int teardown(void **state)
{
    unlink(path);
    return rmdir(directory);
}

static struct http_sessions *sessions_open(void)
{
    struct http_sessions *sessions = NULL;
    assert_int_equal(sessions_new(path, &sessions), 0);
    return sessions;
}

static const struct http_viewer ann = {.uid = 1000, .role = HTTP_CONTROL, .name = "ann"};
static const struct http_viewer root = {
    .uid = 0, .sees_all = true, .role = HTTP_READ, .name = "root"};

static void log_in(struct http_sessions *sessions, const struct http_viewer *who, char *cookie)
{
    char code[SESSION_SECRET_CHARS + 1];
    struct http_viewer viewer;
    assert_int_equal(sessions_code_make(sessions, who, code), 0);
    assert_int_equal(sessions_begin(sessions, code, cookie, &viewer), 0);
}

static bool is_known(struct http_sessions *sessions, const char *cookie)
{
    struct http_viewer viewer;
    return sessions_find(sessions, cookie, strlen(cookie), &viewer) == 0;
}

static void a_code_is_good_once(void **state)
{
    struct http_sessions *sessions = sessions_open();
    char code[SESSION_SECRET_CHARS + 1], cookie[SESSION_SECRET_CHARS + 1],
        second[SESSION_SECRET_CHARS + 1];
    struct http_viewer viewer = {0};
    assert_int_equal(sessions_code_make(sessions, &ann, code), 0);
    assert_int_equal(strlen(code), SESSION_SECRET_CHARS);
    assert_int_equal(sessions_begin(sessions, code, cookie, &viewer), 0);
    assert_int_equal(sessions_begin(sessions, code, second, &viewer), -EACCES);
    assert_int_equal(sessions_begin(sessions, cookie, second, &viewer), -EACCES); /* no code */
    assert_int_equal(sessions_begin(sessions, "", second, &viewer), -EACCES);
    viewer = (struct http_viewer){0};
    assert_int_equal(sessions_find(sessions, cookie, strlen(cookie), &viewer), 0);
    assert_int_equal(viewer.uid, 1000);
    assert_false(viewer.sees_all);
    assert_int_equal(viewer.role, HTTP_CONTROL);
    assert_string_equal(viewer.name, "ann");
    assert_false(is_known(sessions, code)); /* no cookie */
    sessions_free(sessions);
}

static void a_cookie_is_good_until_it_is_given_back(void **state)
{
    struct http_sessions *sessions = sessions_open();
    char one[SESSION_SECRET_CHARS + 1], two[SESSION_SECRET_CHARS + 1];
    log_in(sessions, &ann, one);
    log_in(sessions, &root, two);
    assert_string_not_equal(one, two);
    assert_true(is_known(sessions, one) && is_known(sessions, two));
    sessions_end(sessions, one, strlen(one));
    assert_false(is_known(sessions, one));
    assert_true(is_known(sessions, two));
    sessions_end(sessions, one, strlen(one)); /* again: nothing */
    char changed[SESSION_SECRET_CHARS + 1];
    strcpy(changed, two);
    changed[5] = changed[5] == 'A' ? 'B' : 'A';
    assert_false(is_known(sessions, changed));
    assert_false(is_known(sessions, ""));
    sessions_free(sessions);
}

static void sessions_outlive_a_restart_and_logging_out_does_too(void **state)
{
    struct http_sessions *sessions = sessions_open();
    char stays[SESSION_SECRET_CHARS + 1], goes[SESSION_SECRET_CHARS + 1];
    struct http_viewer viewer = {0};
    log_in(sessions, &root, stays);
    log_in(sessions, &ann, goes);
    sessions_end(sessions, goes, strlen(goes));
    sessions_free(sessions);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    sessions = sessions_open();
    assert_int_equal(sessions_find(sessions, stays, strlen(stays), &viewer), 0);
    assert_true(viewer.sees_all && viewer.uid == 0 && viewer.role == HTTP_READ);
    assert_string_equal(viewer.name, "root");
    assert_false(is_known(sessions, goes));
    sessions_free(sessions);
    assert_int_equal(chmod(path, 0644), 0); /* others may have seen, or written, it */
    log_set_level(LOG_LEVEL_ERROR);
    sessions = sessions_open();
    assert_false(is_known(sessions, stays));
    sessions_free(sessions);
    unlink(path);
}

static void a_file_that_makes_no_sense_lets_nobody_in(void **state)
{
    static const char *const texts[] = {
        "\n",
        "zz\n",
        "0000000000000000000000000000000000000000000000000000000000000000\n",
        "0000000000000000000000000000000000000000000000000000000000000000 99999999999 0 1 7 root\n",
        "0000000000000000000000000000000000000000000000000000000000000000 x 0 1 1 root\n",
    };
    char longer[4096];
    memset(longer, 'a', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    for (size_t i = 0; i <= sizeof(texts) / sizeof(*texts); i++) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(i < sizeof(texts) / sizeof(*texts) ? texts[i] : longer, file);
        fclose(file);
        assert_int_equal(chmod(path, 0600), 0);
        struct http_sessions *sessions = sessions_open();
        char cookie[SESSION_SECRET_CHARS + 1];
        log_in(sessions, &ann, cookie); /* it works all the same */
        assert_true(is_known(sessions, cookie));
        sessions_free(sessions);
        unlink(path);
    }
}

static void nobody_fills_the_table_for_others(void **state)
{
    struct http_sessions *sessions = NULL;
    assert_int_equal(sessions_new(NULL, &sessions), 0);
    char others[SESSION_SECRET_CHARS + 1], first[SESSION_SECRET_CHARS + 1],
        last[SESSION_SECRET_CHARS + 1];
    log_in(sessions, &root, others);
    log_in(sessions, &ann, first);
    for (int i = 0; i < SESSIONS_USER_MAX; i++)
        log_in(sessions, &ann, last);
    assert_true(is_known(sessions, others));
    assert_true(is_known(sessions, last));
    /* So many codes are good at a time, too. */
    char codes[SESSION_CODES_USER_MAX + 1][SESSION_SECRET_CHARS + 1],
        code[SESSION_SECRET_CHARS + 1];
    assert_int_equal(sessions_code_make(sessions, &root, code), 0);
    for (int i = 0; i <= SESSION_CODES_USER_MAX; i++)
        assert_int_equal(sessions_code_make(sessions, &ann, codes[i]), 0);
    struct http_viewer viewer;
    int good = 0;
    for (int i = 0; i <= SESSION_CODES_USER_MAX; i++)
        good += sessions_begin(sessions, codes[i], last, &viewer) == 0;
    assert_int_equal(good, SESSION_CODES_USER_MAX);
    assert_int_equal(sessions_begin(sessions, code, last, &viewer), 0);
    sessions_free(sessions);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_code_is_good_once),
        cmocka_unit_test(a_cookie_is_good_until_it_is_given_back),
        cmocka_unit_test(sessions_outlive_a_restart_and_logging_out_does_too),
        cmocka_unit_test(a_file_that_makes_no_sense_lets_nobody_in),
        cmocka_unit_test(nobody_fills_the_table_for_others),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
