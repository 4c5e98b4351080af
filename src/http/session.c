/* Sessions and codes. See session.h. */
#include "http/session.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/accountable.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/token_line.h"

/* A code or a session: both are a secret that stands for a viewer for a while. */
struct pass {
    bool used;
    uint8_t digest[SHA256_BYTES];
    uint64_t until_s; /* since 1970: sessions outlive the machine's start */
    uint32_t uid;
    bool sees_all;
    enum http_role role;
    char name[HTTP_NAME_MAX + 1];
};

struct http_sessions {
    pthread_mutex_t lock; /* for all that follows */
    char *path;           /* constant; NULL: no file */
    struct pass codes[SESSION_CODES_MAX];
    struct pass sessions[SESSIONS_MAX];
    bool write_failed; /* said so once */
};

static uint64_t now_s(void)
{
    return clock_real_ns() / NS_PER_S;
}

/* ---- secrets ---- */

/* The pass with this secret. Looks at all of them in full, so that time tells nothing. */
static struct pass *pass_find(struct pass *passes, size_t n, const char *secret, size_t len)
{
    uint8_t digest[SHA256_BYTES];
    uint64_t now = now_s();
    struct pass *found = NULL;
    if (len != SESSION_SECRET_CHARS)
        return NULL;
    sha256(secret, len, digest);
    for (size_t i = 0; i < n; i++)
        if (passes[i].used && sha256_equal(digest, passes[i].digest) && passes[i].until_s > now)
            found = &passes[i];
    return found;
}

/* A place for one more of this user's: a free one, an expired one, or that of his oldest when he has as many as he
 * may, else of the oldest of all. */
static struct pass *pass_place(struct pass *passes, size_t n, size_t user_max, uint32_t uid)
{
    struct pass *unused = NULL, *oldest = &passes[0], *own_oldest = NULL;
    uint64_t now = now_s();
    uint32_t user = accountable_uid(uid);
    size_t own = 0;
    for (size_t i = 0; i < n; i++) {
        struct pass *pass = &passes[i];
        if (!pass->used || pass->until_s <= now) {
            unused = pass;
            continue;
        }
        if (pass->until_s < oldest->until_s)
            oldest = pass;
        if (accountable_uid(pass->uid) != user)
            continue;
        own++;
        if (!own_oldest || pass->until_s < own_oldest->until_s)
            own_oldest = pass;
    }
    if (own >= user_max)
        return own_oldest;
    return unused ? unused : own_oldest ? own_oldest : oldest;
}

static void viewer_of(const struct pass *pass, struct http_viewer *ret_viewer)
{
    ret_viewer->uid = pass->uid;
    ret_viewer->sees_all = pass->sees_all;
    ret_viewer->role = pass->role;
    memcpy(ret_viewer->name, pass->name, sizeof(pass->name));
}

/* ---- the file: one line for each, DIGEST UNTIL UID SEES-ALL ROLE NAME ---- */

enum { FILE_MAX = SESSIONS_MAX * 256 };

static void sessions_save(struct http_sessions *sessions)
{
    struct buffer out = BUFFER_INIT(FILE_MAX);
    uint64_t now = now_s();
    if (!sessions->path)
        return;
    for (size_t i = 0; i < SESSIONS_MAX; i++) {
        const struct pass *pass = &sessions->sessions[i];
        if (!pass->used || pass->until_s <= now)
            continue;
        for (size_t k = 0; k < SHA256_BYTES; k++)
            buffer_printf(&out, "%02x", pass->digest[k]);
        buffer_printf(&out, " %" PRIu64 " %" PRIu32 " %d %d %s\n", pass->until_s, pass->uid,
                      pass->sees_all, (int)pass->role, pass->name);
    }
    int r = out.error
                ? out.error
                : fs_write_file_atomic(sessions->path, out.len ? out.data : "", out.len, 0600);
    buffer_release(&out);
    if (r < 0 && !sessions->write_failed)
        log_warn("cannot write '%s': %s, so browsers have to log in again after a restart",
                 sessions->path, strerror(-r));
    sessions->write_failed = r < 0;
}

static bool line_read(const char *line, struct pass *ret_pass)
{
    struct pass pass = {.used = true};
    int sees_all, role, at = 0;
    /* A short line must not be read past its end, into the next one. */
    if (strspn(line, "0123456789abcdef") != 2 * (size_t)SHA256_BYTES)
        return false;
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        unsigned byte;
        if (sscanf(line + 2 * i, "%2x", &byte) != 1)
            return false;
        pass.digest[i] = (uint8_t)byte;
    }
    if (sscanf(line + 2 * SHA256_BYTES, " %" SCNu64 " %" SCNu32 " %d %d %n", &pass.until_s,
               &pass.uid, &sees_all, &role, &at) != 4 ||
        at == 0 || role < HTTP_NONE || role > HTTP_CONTROL)
        return false;
    pass.sees_all = sees_all != 0;
    pass.role = (enum http_role)role;
    snprintf(pass.name, sizeof(pass.name), "%s", line + 2 * SHA256_BYTES + at);
    *ret_pass = pass;
    return true;
}

static void sessions_load(struct http_sessions *sessions)
{
    struct buffer text = BUFFER_INIT(FILE_MAX);
    struct stat st;
    size_t n = 0;
    /* A file that others could have written lets nobody in. */
    if (lstat(sessions->path, &st) < 0)
        return;
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 077) {
        log_warn("'%s' is not used: it must be a file of memoird's user with mode 0600",
                 sessions->path);
        return;
    }
    if (fs_read_file(sessions->path, &text) >= 0 && text.len > 0)
        for (char *rest = text.data, *line; (line = strsep(&rest, "\n")) && n < SESSIONS_MAX;)
            if (strlen(line) > 2 * SHA256_BYTES && line_read(line, &sessions->sessions[n]))
                n++;
    buffer_release(&text);
}

/* ---- life ---- */

int sessions_new(const char *path, struct http_sessions **ret_sessions)
{
    struct http_sessions *sessions = calloc(1, sizeof(*sessions));
    if (!sessions)
        return -ENOMEM;
    pthread_mutex_init(&sessions->lock, NULL);
    if (path && !(sessions->path = strdup(path))) {
        sessions_free(sessions);
        return -ENOMEM;
    }
    if (path)
        sessions_load(sessions);
    *ret_sessions = sessions;
    return 0;
}

void sessions_free(struct http_sessions *sessions)
{
    if (!sessions)
        return;
    pthread_mutex_destroy(&sessions->lock);
    free(sessions->path);
    free(sessions);
}

int sessions_code_make(struct http_sessions *sessions, const struct http_viewer *viewer,
                       char ret_code[static SESSION_SECRET_CHARS + 1])
{
    char code[SESSION_SECRET_CHARS + 1];
    int r = token_make(code);
    if (r < 0)
        return r;
    pthread_mutex_lock(&sessions->lock);
    struct pass *pass =
        pass_place(sessions->codes, SESSION_CODES_MAX, SESSION_CODES_USER_MAX, viewer->uid);
    *pass = (struct pass){
        .used = true,
        .until_s = now_s() + SESSION_CODE_S,
        .uid = viewer->uid,
        .sees_all = viewer->sees_all,
        .role = viewer->role,
    };
    memcpy(pass->name, viewer->name, sizeof(pass->name));
    sha256(code, SESSION_SECRET_CHARS, pass->digest);
    pthread_mutex_unlock(&sessions->lock);
    memcpy(ret_code, code, sizeof(code));
    return 0;
}

int sessions_code_find(struct http_sessions *sessions, const char *code,
                       struct http_viewer *ret_viewer)
{
    pthread_mutex_lock(&sessions->lock);
    const struct pass *pass = pass_find(sessions->codes, SESSION_CODES_MAX, code, strlen(code));
    if (pass)
        viewer_of(pass, ret_viewer);
    pthread_mutex_unlock(&sessions->lock);
    return pass ? 0 : -EACCES;
}

int sessions_begin(struct http_sessions *sessions, const char *code,
                   char ret_cookie[static SESSION_SECRET_CHARS + 1], struct http_viewer *ret_viewer)
{
    char cookie[SESSION_SECRET_CHARS + 1];
    int r = token_make(cookie);
    if (r < 0)
        return r;
    pthread_mutex_lock(&sessions->lock);
    struct pass *pass = pass_find(sessions->codes, SESSION_CODES_MAX, code, strlen(code));
    if (pass) {
        struct pass *session =
            pass_place(sessions->sessions, SESSIONS_MAX, SESSIONS_USER_MAX, pass->uid);
        *session = *pass;
        session->until_s = now_s() + SESSION_KEEP_S;
        sha256(cookie, SESSION_SECRET_CHARS, session->digest);
        viewer_of(session, ret_viewer);
        *pass = (struct pass){0};
        sessions_save(sessions);
        memcpy(ret_cookie, cookie, sizeof(cookie));
    }
    pthread_mutex_unlock(&sessions->lock);
    return pass ? 0 : -EACCES;
}

int sessions_find(struct http_sessions *sessions, const char *cookie, size_t len,
                  struct http_viewer *ret_viewer)
{
    pthread_mutex_lock(&sessions->lock);
    const struct pass *pass = pass_find(sessions->sessions, SESSIONS_MAX, cookie, len);
    if (pass)
        viewer_of(pass, ret_viewer);
    pthread_mutex_unlock(&sessions->lock);
    return pass ? 0 : -EACCES;
}

void sessions_end(struct http_sessions *sessions, const char *cookie, size_t len)
{
    pthread_mutex_lock(&sessions->lock);
    struct pass *pass = pass_find(sessions->sessions, SESSIONS_MAX, cookie, len);
    if (pass) {
        *pass = (struct pass){0};
        sessions_save(sessions);
    }
    pthread_mutex_unlock(&sessions->lock);
}
