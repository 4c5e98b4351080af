/* Where rows of the dead come from. See exited_source.h. */
#include "cli/exited_source.h"

#include <errno.h>
#include <jansson.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "cli/ask.h"
#include "cli/ps.h"
#include "query/exit_file.h"
#include "query/query.h"
#include "query/retired_lines.h"

enum { QUESTION_MAX = 1 << 20, ANSWER_MAX = 16 << 20, PATIENCE_S = 20 };

/* ---- files ---- */

static const char *user_name(uint32_t uid, void *context)
{
    static char name[64];
    static uint32_t last = UINT32_MAX;
    if (uid == last && name[0])
        return name;
    const struct passwd *pw = getpwuid(uid);
    if (pw)
        snprintf(name, sizeof(name), "%s", pw->pw_name);
    else
        snprintf(name, sizeof(name), "%u", uid);
    last = uid;
    return name;
}

static void header_take(struct exited_source *source)
{
    struct exit_file_header header;
    source->state = EXITED_UNWATCHED;
    source->why[0] = '\0';
    if (exit_file_header_read(source->path, &header) < 0)
        return;
    source->seen = header.seen;
    source->lost = header.lost;
    source->gap_from_ns = header.gap_from_ns;
    source->gap_to_ns = header.gap_to_ns;
    /* One that was killed could not say that it ended. */
    if (header.state == EXIT_WATCH_ON && (kill(header.watcher, 0) == 0 || errno == EPERM))
        source->state = EXITED_WATCHED;
    if (header.state != EXIT_WATCH_CANNOT)
        return;
    source->state = EXITED_FAILED;
    snprintf(source->why, sizeof(source->why), "%s", header.why);
}

static int ask_files(struct exited_source *source, const struct query *query,
                     struct query_result *result)
{
    MEMOIR_CLEANUP(query_exited_release)
    struct query_exited_list exited = {0};
    header_take(
        source); /* first: what comes after it is then not missed by who looks for changes */
    int r = query_exited_read(source->path, &exited);
    if (r < 0)
        return r;
    return query_run(query,
                     &(struct query_world){
                         .exited = exited.rows,
                         .n_exited = exited.n,
                         .sees_all = true, /* what we could read is ours to see */
                         .user_name = user_name,
                     },
                     result);
}

/* ---- the socket ---- */

static int socket_connect(struct exited_source *source)
{
    if (source->fd >= 0)
        return 0;
    int fd = ask_connect_within(source->path, PATIENCE_S);
    if (fd < 0)
        return fd;
    source->fd = fd;
    return 0;
}

static void exits_take(struct exited_source *source, const json_t *exits)
{
    const char *state = json_string_value(json_object_get(exits, "state"));
    const char *why = json_string_value(json_object_get(exits, "why"));
    source->state = state && strcmp(state, "on") == 0       ? EXITED_WATCHED
                    : state && strcmp(state, "failed") == 0 ? EXITED_FAILED
                                                            : EXITED_UNWATCHED;
    snprintf(source->why, sizeof(source->why), "%s", why ? why : "");
    source->seen = (uint64_t)json_integer_value(json_object_get(exits, "seen"));
    source->lost = (uint64_t)json_integer_value(json_object_get(exits, "lost"));
    source->gap_from_ns = retired_line_ns(exits, "gap_from");
    source->gap_to_ns = retired_line_ns(exits, "gap_to");
}

static int answer_take(struct exited_source *source, const struct buffer *line,
                       struct query_result *result)
{
    json_t *answer = json_loadb(line->data, line->len, 0, NULL);
    json_t *partial = json_object_get(answer, "partial");
    json_t *error = json_object_get(answer, "error");
    int r = -EPROTO;
    if (partial) {
        MEMOIR_CLEANUP(buffer_release)
        struct buffer bytes = BUFFER_INIT(ANSWER_MAX);
        r = json_is_string(partial)
                ? base64_decode(&bytes, json_string_value(partial), json_string_length(partial))
                : -EPROTO;
        if (r == 0)
            r = query_partial_read(result, bytes.data, bytes.len);
        exits_take(source, json_object_get(answer, "exits"));
    } else if (error) {
        const char *message = json_string_value(json_object_get(answer, "message"));
        if (!message)
            message = json_string_value(json_object_get(error, "message"));
        snprintf(source->why, sizeof(source->why), "%s", message ? message : "it says no");
    }
    json_decref(answer);
    return r;
}

static int ask_socket(struct exited_source *source, const struct query_spec *spec,
                      struct query_result *result)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer line = BUFFER_INIT(ANSWER_MAX);
    source->why[0] = '\0';
    int r = socket_connect(source);
    if (r < 0)
        return r;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer question = BUFFER_INIT(QUESTION_MAX);
    r = exited_request_write(spec, &question);
    if (r < 0)
        return r;
    r = ask_line(source->fd, question.data, &line);
    if (r < 0) { /* the daemon may have been restarted: the next question connects anew */
        exited_source_close(source);
        return r;
    }
    return answer_take(source, &line, result);
}

/* ---- both ---- */

static bool try_socket(struct exited_source *source, const char *path, int *ret_error)
{
    snprintf(source->path, sizeof(source->path), "%s", path);
    source->by_socket = true;
    *ret_error = socket_connect(source);
    return *ret_error == 0;
}

static bool has_files(const char *state)
{
    static const char *const names[] = {"retired.jsonl", "retired.jsonl.1", EXIT_FILE_NAME};
    char path[EXITED_SOURCE_PATH_MAX + 32];
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        snprintf(path, sizeof(path), "%s/%s", state, names[i]);
        if (access(path, F_OK) == 0)
            return true;
    }
    return false;
}

/* Where the daemon of the machine, and one's own, listen. */
static bool try_usual_sockets(struct exited_source *source, int *ret_refused)
{
    char own[ASK_PATH_MAX];
    int r;
    if (try_socket(source, ASK_MACHINE_PATH, &r))
        return true;
    *ret_refused = r == -EACCES ? r : 0;
    ask_own_path(own);
    return *own && try_socket(source, own, &r);
}

int exited_source_open(const char *state, const char *socket, struct exited_source *ret_source)
{
    char usual[PS_STATE_PATH_MAX];
    struct exited_source source = {.fd = -1};
    int r = 0, refused = 0;
    ps_state_default(usual);
    if (socket) {
        (void)try_socket(&source, socket, &r);
    } else if (state || (geteuid() == 0 && has_files(usual))) {
        snprintf(source.path, sizeof(source.path), "%s", state ? state : usual);
    } else if (!try_usual_sockets(&source, &refused)) {
        source.by_socket = false;
        snprintf(source.path, sizeof(source.path), "%s", usual);
        if (!has_files(usual))
            r = refused ? refused : -ENOENT;
        if (refused && r < 0) { /* so that the message is about the socket */
            source.by_socket = true;
            snprintf(source.path, sizeof(source.path), ASK_MACHINE_PATH);
        }
    }
    *ret_source = source;
    return r;
}

void exited_source_close(struct exited_source *source)
{
    if (source->fd >= 0)
        close(source->fd);
    source->fd = -1;
}

int exited_source_ask(struct exited_source *source, const struct query_spec *spec,
                      const struct query *query, struct query_result *result)
{
    query_result_reset(result);
    int r = source->by_socket ? ask_socket(source, spec, result) : ask_files(source, query, result);
    return r < 0 ? r : query_result_finish(result);
}

int exited_source_look(struct exited_source *source)
{
    struct query_spec spec = {.table = "exited", .show = "max(sequence)"};
    struct query_error error;
    MEMOIR_CLEANUP(query_freep)
    struct query *query = NULL;
    struct query_result *result = NULL;
    if (!source->by_socket) {
        header_take(source);
        return 0;
    }
    int r = query_new(&spec, &query, &error);
    if (r == 0)
        r = query_result_new(query, 0, &result);
    if (r == 0)
        r = exited_source_ask(source, &spec, query, result);
    query_result_free(result);
    return r;
}

bool exited_source_changed(const struct exited_source *source)
{
    struct exit_file_header header;
    return source->by_socket || exit_file_header_read(source->path, &header) < 0 ||
           header.seen != source->seen;
}
