/* Sessions of browsers, and the codes that begin them.
 *
 * A code is good once and for ten minutes, since a link that was printed is not always opened at once: whoever may,
 * asks for one (on any thread) and gives it to a browser as a link. The browser shows it, and gets a cookie, by which it is known until it logs out or the session ends. Of
 * both only digests are kept. Sessions outlive a restart in a file that only its owner can read. */
#pragma once

#include "base/token_line.h"
#include "http/http.h"

struct http_sessions;

enum {
    SESSION_CODES_MAX = 64,
    SESSION_CODES_USER_MAX = 8, /* of one user; then his oldest goes */
    SESSIONS_MAX = 1024,
    SESSIONS_USER_MAX = 64,
    SESSION_CODE_S = 600,
    SESSION_KEEP_S = 12 * 3600,
    SESSION_SECRET_CHARS = TOKEN_CHARS,
};

/* `path` is the file, or NULL for none; it need not exist. */
int sessions_new(const char *path, struct http_sessions **ret_sessions);
void sessions_free(struct http_sessions *sessions); /* NULL is fine */

/* A code for this viewer (uid, sees_all, role and name count). Any thread. */
int sessions_code_make(struct http_sessions *sessions, const struct http_viewer *viewer,
                       char ret_code[static SESSION_SECRET_CHARS + 1]);

/* Whose code is it? The code stays good. -EACCES: not known, used or too old. Any thread. */
int sessions_code_find(struct http_sessions *sessions, const char *code,
                       struct http_viewer *ret_viewer);

/* The code becomes a session with this cookie. -EACCES: not known, used or too old. Any thread. */
int sessions_begin(struct http_sessions *sessions, const char *code,
                   char ret_cookie[static SESSION_SECRET_CHARS + 1],
                   struct http_viewer *ret_viewer);

/* Whose cookie is it? -EACCES: nobody's. Any thread. */
int sessions_find(struct http_sessions *sessions, const char *cookie, size_t len,
                  struct http_viewer *ret_viewer);

/* Log out; fine for a cookie that is nobody's. */
void sessions_end(struct http_sessions *sessions, const char *cookie, size_t len);
