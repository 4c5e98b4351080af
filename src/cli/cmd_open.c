/* memoir open: the dashboard in a browser, logged in.
 *
 * memoird, asked over its Unix socket, knows who we are and makes a link that is good once. The link is a secret: it
 * does not go into the arguments of a program, where all users can read it, but into a page of our own that leads
 * there. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/json_read.h"
#include "cli/ask.h"
#include "cli/command.h"

enum { ANSWER_MAX = 64 << 10, LINK_MAX = 512, PAGE_MAX = 2048 };

static const char *const role_words[] = {"control", "read", NULL};

struct open_values {
    struct command_common common;
    bool print, json;
    int role;
    const char *socket;
};

static const struct open_values defaults = {0};

#define AT(field) offsetof(struct open_values, field)

static const struct option_spec options[] = {
    OPTION_HELP,
    {"print", 'p', OPTION_FLAG, AT(print),
     .help = "print the link instead of opening a browser: it is good once, for ten minutes"},
    {"role", 0, OPTION_CHOICE, AT(role), "ROLE",
     "what the page may do: control (start and stop tracking of your processes) or read (default: control)",
     .choices = role_words},
    OPTION_JSON,
    {"socket", 0, OPTION_STRING, AT(socket), "PATH",
     "memoird's socket (default: your own memoird's, else the machine's)"},
    {0},
};

/* The members of {"login":"http://…","expires_in":600} or {"error":{"message":…}}. */
static int answer_read(const struct buffer *answer, char *link, size_t link_size, char *message,
                       size_t message_size, uint64_t *ret_expires_s)
{
    struct json_read read;
    struct json_text key, text;
    size_t len = strcspn(buffer_string(answer), "\n");
    json_read_init(&read, buffer_string(answer), len);
    json_read_object(&read);
    while (json_read_key(&read, &key)) {
        if (json_text_is(&key, "login")) {
            if (json_read_string(&read, &text))
                (void)json_text_copy(&text, link, link_size);
        } else if (json_text_is(&key, "expires_in")) {
            json_read_u64(&read, ret_expires_s);
        } else if (json_text_is(&key, "error")) {
            json_read_object(&read);
            while (json_read_key(&read, &key)) {
                if (!json_text_is(&key, "message"))
                    json_read_skip(&read);
                else if (json_read_string(&read, &text))
                    (void)json_text_copy(&text, message, message_size);
            }
        } else {
            json_read_skip(&read);
        }
    }
    return json_read_finish(&read);
}

static int link_get(const struct open_values *v, char *link, size_t size, uint64_t *ret_expires_s)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer answer = BUFFER_INIT(ANSWER_MAX);
    char message[512] = "", question[64];
    MEMOIR_CLEANUP(closep)
    int fd = ask_connect(v->socket);
    if (fd == -ENOENT || fd == -ECONNREFUSED)
        return command_fail(
            "no memoird answers%s%s: start one with `memoird`, or name its socket with "
            "--socket",
            v->socket ? " at " : "", v->socket ? v->socket : "");
    if (fd == -EACCES)
        return command_fail(
            "permission denied for the machine's memoird: access is limited to socket-group in "
            "/etc/memoir/memoird.conf");
    if (fd < 0)
        return command_fail("cannot ask memoird: %s", strerror(-fd));
    snprintf(question, sizeof(question), "{\"login\":\"%s\"}", role_words[v->role]);
    int r = ask_line(fd, question, &answer);
    if (r < 0)
        return command_fail("memoird does not answer: %s", strerror(-r));
    link[0] = '\0';
    r = answer_read(&answer, link, size, message, sizeof(message), ret_expires_s);
    if (message[0])
        return command_fail("%s", message);
    if (r < 0 || !link[0])
        return command_fail("memoird's answer was invalid: is it of another version?");
    return COMMAND_OK;
}

/* ---- a browser ---- */

/* A page that only we can read and that leads to the link. */
static int page_write(const char *link, char *path, size_t size)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer page = BUFFER_INIT(PAGE_MAX);
    const char *runtime = getenv("XDG_RUNTIME_DIR"), *home = getenv("HOME");
    if (runtime && runtime[0] == '/')
        snprintf(path, size, "%s/memoir-open.html", runtime);
    else if (home && home[0] == '/')
        snprintf(path, size, "%s/.memoir-open.html", home);
    else
        return -ENOENT;
    buffer_printf(&page,
                  "<!doctype html><meta charset=\"utf-8\"><title>Memoir</title>"
                  "<meta http-equiv=\"refresh\" content=\"0;url=%s\"><a href=\"%s\">Memoir</a>\n",
                  link, link);
    return page.error ? page.error : fs_write_file_atomic(path, page.data, page.len, 0600);
}

static int browser_start(const char *page)
{
    extern char **environ;
    const char *browser = getenv("BROWSER");
    const char *program = browser && browser[0] && !strchr(browser, ':') ? browser : "xdg-open";
    char url[PATH_MAX + 8];
    snprintf(url, sizeof(url), "file://%s", page);
    char *argv[] = {(char *)program, url, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return -ENOMEM;
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    command_restore_signals();
    int r = -posix_spawnp(&pid, program, &actions, NULL, argv, environ);
    command_take_signals();
    posix_spawn_file_actions_destroy(&actions);
    if (r < 0)
        return r;
    if (waitpid(pid, &status, 0) < 0)
        return -errno;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ENOEXEC;
}

static bool has_screen(void)
{
    const char *browser = getenv("BROWSER");
    return getenv("DISPLAY") || getenv("WAYLAND_DISPLAY") || (browser && browser[0]);
}

static int print_link(const struct open_values *v, const char *link, uint64_t expires_s)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(PAGE_MAX);
    struct json json;
    if (v->json) {
        command_json_begin(&json, &out, "memoir.open/1");
        json_field_string(&json, "link", link);
        json_field_u64(&json, "expires_in", expires_s);
        json_object_end(&json);
        (void)json_finish(&json);
    } else {
        buffer_append_str(&out, link);
    }
    buffer_append_char(&out, '\n');
    return command_output(&out);
}

static int run(const void *values, const struct operands *operands)
{
    const struct open_values *v = values;
    char link[LINK_MAX], page[PATH_MAX];
    uint64_t expires_s = 0;
    int r = link_get(v, link, sizeof(link), &expires_s);
    if (r != COMMAND_OK)
        return r;
    if (!v->print && !v->json && has_screen()) {
        r = page_write(link, page, sizeof(page));
        if (r >= 0)
            r = browser_start(page);
        if (r >= 0)
            return COMMAND_OK;
    }
    if (!v->print && !v->json)
        fprintf(stderr, "Open this in a browser within %llu s; it is good once:\n",
                (unsigned long long)expires_s);
    return print_link(v, link, expires_s);
}

static const struct command_example examples[] = {
    {"memoir open", "show the dashboard; it asks once whether to log in as you"},
    {"memoir open --print",
     "print the link, for a browser elsewhere (ssh -L PORT:localhost:PORT HOST, with the port of the link)"},
    {"memoir open --role read", "a session that can only look"},
    {0},
};

const struct command cmd_open = {
    .name = "open",
    .usage = "open [OPTION...]",
    .help = "the dashboard in a browser, logged in",
    .description =
        "Asks memoird for a link that logs a browser in as you, and opens it. The link is good once and for ten minutes; the "
        "session for 12 hours, also after a restart of memoird. Without a screen the link is printed.",
    .options = options,
    .examples = examples,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = run,
};
