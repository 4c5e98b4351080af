/* The audit. See audit.h. */
#include "daemon/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "daemon/allowance.h"
#include "http/server.h"

enum { LINE_MAX_BYTES = 8192, TIME_CHARS = 32 };

struct audit {
    char *path, *older;
    struct allowance *allowance;
    bool failed; /* said so once */
};

int audit_new(const char *path, struct audit **ret_audit)
{
    struct audit *audit = calloc(1, sizeof(*audit));
    if (!audit)
        return -ENOMEM;
    audit->path = strdup(path);
    if (!audit->path || asprintf(&audit->older, "%s.1", path) < 0)
        audit->older = NULL;
    if (!audit->older ||
        allowance_new(AUDIT_USER_LINES, AUDIT_USER_S * NS_PER_S, &audit->allowance) < 0) {
        audit_free(audit);
        return -ENOMEM;
    }
    *ret_audit = audit;
    return 0;
}

void audit_free(struct audit *audit)
{
    if (!audit)
        return;
    free(audit->path);
    free(audit->older);
    allowance_free(audit->allowance);
    free(audit);
}

static const char *by_word(enum http_by by)
{
    static const char *const words[] = {"nobody", "peer", "token", "session"};
    return words[by];
}

static void line_write(const struct http_action *action, struct buffer *out)
{
    const struct http_viewer *viewer = action->viewer;
    char text[TIME_CHARS] = "";
    struct json json;
    time_t now = time(NULL);
    struct tm tm;
    if (gmtime_r(&now, &tm))
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
    json_init(&json, out);
    json_object_begin(&json);
    json_field_string(&json, "time", text);
    json_field_string(&json, "who", viewer->name);
    if (viewer->uid != HTTP_VIEWER_NOBODY)
        json_field_u64(&json, "uid", viewer->uid);
    json_field_string(&json, "by", by_word(viewer->by));
    json_field_string(&json, "from", viewer->from);
    json_field_string(&json, "what", action->what);
    json_field_string(&json, "method", action->method);
    json_field_string(&json, "path", action->path);
    json_field_u64(&json, "status", (uint64_t)action->status);
    json_object_end(&json);
    (void)json_finish(&json);
    buffer_append_char(out, '\n');
}

static int line_append(struct audit *audit, const struct buffer *line)
{
    struct stat st;
    if (stat(audit->path, &st) == 0 && st.st_size + (off_t)line->len > AUDIT_FILE_MAX)
        (void)rename(audit->path, audit->older);
    MEMOIR_CLEANUP(closep)
    int fd = open(audit->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? -errno : fs_write_all(fd, line->data, line->len);
}

static void write_action(struct audit *audit, const struct http_action *action)
{
    struct buffer line = BUFFER_INIT(LINE_MAX_BYTES);
    log_info("%s (%s, from %s): %s: %s", action->viewer->name[0] ? action->viewer->name : "nobody",
             by_word(action->viewer->by), action->viewer->from, action->what,
             action->status < 400 ? "done" : "refused");
    line_write(action, &line);
    int r = line.error ? line.error : line_append(audit, &line);
    buffer_release(&line);
    if (r < 0 && !audit->failed)
        log_error("cannot write '%s': %s, so what is done over HTTP is in this log only",
                  audit->path, strerror(-r));
    audit->failed = r < 0;
}

static void left_out(uint32_t uid, uint64_t n, void *context)
{
    struct http_viewer viewer = {.uid = uid};
    char what[64];
    snprintf(viewer.name, sizeof(viewer.name), "uid-%u", uid);
    snprintf(what, sizeof(what), "%llu more, which are not listed", (unsigned long long)n);
    write_action(context,
                 &(struct http_action){
                     .viewer = &viewer, .method = "", .path = "", .what = what, .status = 200});
}

void audit_write(struct audit *audit, const struct http_action *action)
{
    uint64_t now_ns = clock_monotonic_ns();
    if (allowance_take(audit->allowance, action->viewer->uid, 1, now_ns))
        write_action(audit, action);
    allowance_tell(audit->allowance, now_ns, left_out, audit);
}
