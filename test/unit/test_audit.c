/* The audit: what its lines say, and that one user's many do not push out what others did. */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/fs.h"
#include "base/log.h"
#include "daemon/audit.h"
#include "http/server.h"

struct seen {
    size_t ann, root, more;
};

static void act(struct audit *audit, uint32_t uid, const char *name)
{
    struct http_viewer viewer = {.uid = uid, .role = HTTP_CONTROL, .by = HTTP_BY_PEER};
    strcpy(viewer.name, name);
    strcpy(viewer.from, "unix");
    audit_write(audit, &(struct http_action){.viewer = &viewer,
                                             .method = "POST",
                                             .path = "/api/v1/processes/1/tracking",
                                             .what = "tracking of PID 1 on",
                                             .status = 200});
}

static struct seen count(const char *path)
{
    struct buffer text = BUFFER_INIT(16 << 20);
    struct seen seen = {0};
    assert_int_equal(fs_read_file(path, &text), 0);
    for (char *rest = text.data, *line; (line = strsep(&rest, "\n")) != NULL;) {
        seen.ann += strstr(line, "\"who\":\"ann\",\"uid\":1000,\"by\":\"peer\"") != NULL;
        seen.root += strstr(line, "\"who\":\"root\",\"uid\":0,") != NULL;
        seen.more +=
            strstr(line, "\"who\":\"uid-1000\"") && strstr(line, " more, which are not listed");
    }
    buffer_release(&text);
    return seen;
}

static void one_user_does_not_push_out_what_others_did(void **unused)
{
    char folder[] = "/tmp/memoir-test-audit-XXXXXX", path[64];
    struct audit *audit;
    log_set_level(LOG_LEVEL_ERROR);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/audit.jsonl", folder);
    assert_int_equal(audit_new(path, &audit), 0);
    for (int i = 0; i < AUDIT_USER_LINES; i++)
        act(audit, 1000, "ann");
    assert_int_equal(count(path).ann, AUDIT_USER_LINES);
    for (int i = 0; i < 2 * AUDIT_USER_LINES; i++) {
        act(audit, 1000, "ann");
        act(audit, 0, "root");
    }
    struct seen seen = count(path);
    assert_true(seen.ann < 2 * AUDIT_USER_LINES); /* a few came back while this ran */
    assert_int_equal(seen.root, 2 * AUDIT_USER_LINES);
    assert_true(seen.more >= 1);
    audit_free(audit);
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_user_does_not_push_out_what_others_did),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
