/* Tokens: who gets in, which files are trusted, and what becomes of a file that changes. */
#include "daemon/token.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/log.h"
#include "base/sha256.h"
#include "check.h"
#include "fault.h"

/* Digests of the tokens below, by sha256sum. */
#define TOKEN_A  "correct-horse-battery-staple"
#define DIGEST_A "87cbebfeebc05f7c54ac9336c4b4bbec831227a641951a4bde7edd56020f8590"
#define TOKEN_B  "another-token-of-some-length"
#define DIGEST_B "7d4257d24c0b25175938864bf3eeb26bf3ab243c5d6cfc769c53dcaa68e76971"

struct fixture {
    char directory[64], path[96];
};

static void file_write(const struct fixture *f, const char *text, mode_t mode)
{
    char beside[112];
    snprintf(beside, sizeof(beside), "%s.new", f->path);
    FILE *file = fopen(beside, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(beside, mode), 0);
    assert_int_equal(rename(beside, f->path), 0); /* another inode, so the change is seen at once */
}

static int setup(void **state)
{
    static struct fixture f;
    log_set_level(LOG_LEVEL_ERROR);
    strcpy(f.directory, "/tmp/memoir-test-token-XXXXXX");
    if (!mkdtemp(f.directory))
        return -1;
    snprintf(f.path, sizeof(f.path), "%s/tokens", f.directory);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    unlink(f->path);
    return rmdir(f->directory);
}

static struct tokens *open_tokens(const struct fixture *f)
{
    struct tokens *tokens = NULL;
    assert_int_equal(tokens_new(f->path, &tokens), 0);
    return tokens;
}

static void a_token_gets_in_with_its_name_and_user(void **state)
{
    file_write(*state, "# comment\n\n a " DIGEST_A "\nb\t" DIGEST_B " user=1000\r\n", 0600);
    struct tokens *tokens = open_tokens(*state);
    struct token token;
    assert_int_equal(tokens_check(tokens, TOKEN_A, &token), 0);
    assert_string_equal(token.name, "a");
    assert_false(token.has_uid);
    assert_int_equal(tokens_check(tokens, TOKEN_B, &token), 0);
    assert_true(token.has_uid && token.uid == 1000);
    static const char *const wrong[] = {"", "correct-horse-battery-stapl", TOKEN_A " ", DIGEST_A,
                                        "a"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        assert_int_equal(tokens_check(tokens, wrong[i], &token), -EACCES);
    tokens_free(tokens);
}

static void lines_that_make_no_sense_let_nobody_in(void **state)
{
    static const char *const lines[] = {
        "a",
        "a " DIGEST_A "0",
        DIGEST_A,
        "a x" DIGEST_A,
        "a " DIGEST_A " user=",
        "a " DIGEST_A " user=-1",
        "a " DIGEST_A " user=4294967295",
        "a " DIGEST_A " user=99999999999999999999",
        "a " DIGEST_A " uid=5",
        "a " DIGEST_A " user=5 more",
        "a " DIGEST_A " user=5 user=5",
        "a " DIGEST_A " role=",
        "a " DIGEST_A " role=root",
        "a " DIGEST_A " expires=soon",
        "a " DIGEST_A " expires=0",
        "# a " DIGEST_A,
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
        char text[512];
        struct token token;
        snprintf(text, sizeof(text), "%s\nb " DIGEST_B "\n", lines[i]);
        file_write(*state, text, 0600);
        struct tokens *tokens = open_tokens(*state);
        assert_int_equal(tokens_check(tokens, TOKEN_A, &token), -EACCES);
        assert_int_equal(tokens_check(tokens, TOKEN_B, &token), 0); /* the others count */
        tokens_free(tokens);
    }
}

static void a_token_has_a_role_and_an_end(void **state)
{
    file_write(*state,
               "a " DIGEST_A " role=control user=7\nb " DIGEST_B " expires=1000000000 role=read\n",
               0600);
    struct tokens *tokens = open_tokens(*state);
    struct token token;
    assert_int_equal(tokens_check(tokens, TOKEN_A, &token), 0);
    assert_true(token.control && token.has_uid && token.uid == 7);
    assert_int_equal(tokens_check(tokens, TOKEN_B, &token), -EACCES); /* since 2001 */
    file_write(*state, "a " DIGEST_A "\nb " DIGEST_B " expires=99999999999\n", 0600);
    assert_int_equal(tokens_check(tokens, TOKEN_A, &token), 0);
    assert_false(token.control);
    assert_int_equal(tokens_check(tokens, TOKEN_B, &token), 0);
    tokens_free(tokens);
}

static void a_file_that_may_come_yet_lets_nobody_in_before(void **state)
{
    const struct fixture *f = *state;
    struct tokens *tokens = NULL;
    struct token token;
    unlink(f->path);
    assert_int_equal(tokens_watch(f->path, &tokens), 0);
    assert_int_equal(tokens_check(tokens, TOKEN_A, &token), -EACCES);
    file_write(f, "a " DIGEST_A "\n", 0600);
    assert_int_equal(tokens_check(tokens, TOKEN_A, &token), 0);
    tokens_free(tokens);
    file_write(f, "a " DIGEST_A "\n", 0644);
    assert_int_equal(tokens_watch(f->path, &tokens), 0);
    assert_int_equal(tokens_check(tokens, TOKEN_A, &token), -EACCES);
    tokens_free(tokens);
}

static void a_line_that_is_written_reads_the_same(void **state)
{
    struct token_line token = {.name = "x",
                               .has_uid = true,
                               .uid = 5,
                               .control = true,
                               .expires_s = 77},
                      again;
    struct buffer out = BUFFER_INIT(1024);
    sha256(TOKEN_A, strlen(TOKEN_A), token.digest);
    token_line_write(&token, &out);
    out.data[out.len - 1] = '\0';
    assert_int_equal(token_line_parse(out.data, &again), 1);
    assert_memory_equal(&token, &again, sizeof(token));
    buffer_release(&out);
    assert_true(token_name_is_good("ann-ci.2_x@y"));
    assert_false(token_name_is_good("") || token_name_is_good("a b") || token_name_is_good("#a") ||
                 token_name_is_good("a\n"));
}

static void files_of_others_or_for_others_are_refused(void **state)
{
    const struct fixture *f = *state;
    struct tokens *tokens = NULL;
    static const mode_t modes[] = {0644, 0640, 0620, 0604, 0602, 0666};
    for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
        file_write(f, "a " DIGEST_A "\n", modes[i]);
        assert_int_equal(tokens_new(f->path, &tokens), -EACCES);
    }
    assert_int_equal(tokens_new(f->directory, &tokens), -EACCES);
    unlink(f->path);
    assert_int_equal(tokens_new(f->path, &tokens), -ENOENT);
    assert_int_equal(symlink("/etc/hostname", f->path), 0);
    assert_int_equal(tokens_new(f->path, &tokens), -ELOOP);
}

static void a_changed_file_is_read_again_and_a_spoilt_one_lets_nobody_in(void **state)
{
    const struct fixture *f = *state;
    struct token token;
    unlink(f->path);
    file_write(f, "a " DIGEST_A "\n", 0600);
    struct tokens *tokens = open_tokens(f);
    assert_int_equal(tokens_check(tokens, TOKEN_B, &token), -EACCES);
    file_write(f, "b " DIGEST_B "\n", 0600);
    assert_int_equal(tokens_check(tokens, TOKEN_B, &token), 0);
    assert_int_equal(tokens_check(tokens, TOKEN_A, &token), -EACCES); /* revoked */
    assert_int_equal(chmod(f->path, 0644), 0);
    assert_int_equal(tokens_check(tokens, TOKEN_B, &token), -EACCES);
    assert_int_equal(chmod(f->path, 0600), 0);
    assert_int_equal(tokens_check(tokens, TOKEN_B, &token), 0);
    unlink(f->path);
    assert_int_equal(tokens_check(tokens, TOKEN_B, &token), -EACCES);
    tokens_free(tokens);
}

static void failing_calls_let_nobody_in_who_has_no_token(void **state)
{
    const struct fixture *f = *state;
    file_write(f, "a " DIGEST_A "\n", 0600);
    log_set_level(LOG_LEVEL_ERROR);
    for (int nth = 0; fault_arm(nth); nth++) {
        struct tokens *tokens = NULL;
        struct token token;
        int r = tokens_new(f->path, &tokens);
        int right = r < 0 ? r : tokens_check(tokens, TOKEN_A, &token);
        int wrong = r < 0 ? r : tokens_check(tokens, TOKEN_B, &token);
        fault_disarm();
        assert_true(right == 0 || fault_fired());
        assert_true(wrong < 0);
        tokens_free(tokens);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_gets_in_with_its_name_and_user),
        cmocka_unit_test(a_token_has_a_role_and_an_end),
        cmocka_unit_test(a_file_that_may_come_yet_lets_nobody_in_before),
        cmocka_unit_test(a_line_that_is_written_reads_the_same),
        cmocka_unit_test(lines_that_make_no_sense_let_nobody_in),
        cmocka_unit_test(files_of_others_or_for_others_are_refused),
        cmocka_unit_test(a_changed_file_is_read_again_and_a_spoilt_one_lets_nobody_in),
        cmocka_unit_test(failing_calls_let_nobody_in_who_has_no_token),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
