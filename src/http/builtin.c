/* Routes that the server has by itself. See builtin.h. */
#include "http/builtin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"
#include "http/exchange.h"
#include "http/internal.h"
#include "http/session.h"

/* ---- in and out ---- */

static void cookie_set(struct http_call *call, const char *value, unsigned age_s)
{
    char name[COOKIE_NAME_MAX];
    free(call->cookie);
    exchange_cookie_name(&call->exchange_host, name);
    if (asprintf(&call->cookie, "%s=%s; Path=/; Max-Age=%u; HttpOnly; SameSite=Strict%s", name,
                 value, age_s, call->tls ? "; Secure" : "") < 0)
        call->cookie = NULL;
}

static bool log_in(struct http_call *call, const char *code)
{
    struct http_sessions *sessions = call->http->options.sessions;
    char cookie[SESSION_SECRET_CHARS + 1];
    struct http_viewer viewer = call->viewer;
    if (!sessions || sessions_begin(sessions, code, cookie, &viewer) < 0) {
        call->held = true;
        return false;
    }
    viewer.by = HTTP_BY_SESSION;
    call->viewer = viewer;
    http_audit(call, "log in");
    cookie_set(call, cookie, SESSION_KEEP_S);
    explicit_bzero(cookie, sizeof(cookie));
    return true;
}

static void refuse(struct http_call *call)
{
    http_problem(call, 401, "code",
                 "this link was used already, or is older than %d s: `memoir open` makes a new one",
                 SESSION_CODE_S);
}

static void go_on(struct http_call *call, const char *words, const char *location)
{
    struct buffer text = BUFFER_INIT(64);
    buffer_append_str(&text, words);
    http_body(call, "text/plain; charset=utf-8", NULL, &text);
    call->status = 303;
    call->location = location;
    buffer_release(&text);
}

static void text_escape(struct buffer *out, const char *text)
{
    for (; *text; text++)
        if (strchr("<>&\"'", *text))
            buffer_printf(out, "&#%d;", *text);
        else
            buffer_append(out, text, 1);
}

/* A page of another site leads to a link, whose code may be another user's: whoever looks would work in that
 * user's session from then on. So a person has to confirm it, on a page of ours. The page that memoir open writes is
 * another site's, too. */
static void ask_to_confirm(struct http_call *call, const char *code)
{
    struct http_viewer viewer = {0};
    struct http_sessions *sessions = call->http->options.sessions;
    if (!sessions || sessions_code_find(sessions, code, &viewer) < 0) {
        call->held = true;
        go_on(call, "This link was used already, or is too old.\n", "/?link=used");
        return;
    }
    struct buffer page = BUFFER_INIT(4096);
    buffer_append_str(&page, "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">"
                             "<title>Memoir: log in</title><h1>Log in to Memoir</h1><p>This link "
                             "logs you in as <strong>");
    text_escape(&page, viewer.name);
    buffer_append_str(&page, "</strong>. If that is not you, close this page.</p>"
                             "<p><a href=\"/login?code=");
    text_escape(&page, code); /* it is known, so it consists of letters, digits, - and _ */
    buffer_append_str(&page, "\">Log in</a></p></html>\n");
    http_body(call, "text/html; charset=utf-8", NULL, &page);
    buffer_release(&page);
}

static void answer_login_link(struct http_call *call, void *context)
{
    struct buffer none = BUFFER_INIT(64);
    (void)context;
    if (call->head) { /* a look at the link must not use it up */
        http_body(call, "text/plain; charset=utf-8", NULL, &none);
        return;
    }
    if (call->foreign_site && call->page)
        ask_to_confirm(call, http_argument(call, "code"));
    else if (call->foreign_site)
        http_problem(call, 403, "foreign-origin", "a page from elsewhere may not log in");
    else if (log_in(call, http_argument(call, "code")))
        go_on(call, "You are logged in.\n", "/");
    else if (call->page) /* people open a link twice: the dashboard knows whether they are in */
        go_on(call, "This link was used already, or is too old.\n", "/?link=used");
    else
        refuse(call);
}

static bool code_read(struct http_call *call, char *code, size_t size)
{
    struct json_read read;
    struct json_text key, text;
    size_t len;
    const char *body = http_request_body(call, &len);
    bool found = false;
    json_read_init(&read, body, len);
    json_read_object(&read);
    while (json_read_key(&read, &key)) {
        if (!json_text_is(&key, "code"))
            json_read_fail(&read, "there is only one member, code");
        else if (json_read_string(&read, &text))
            found = json_text_copy(&text, code, size) >= 0;
    }
    if (json_read_finish(&read) >= 0 && found)
        return true;
    const char *why = json_read_error(&read);
    http_problem(call, 400, "bad-body", "expected {\"code\":\"...\"}%s%s", why ? ": " : "",
                 why ? why : "");
    return false;
}

static void answer_login(struct http_call *call, void *context)
{
    char code[2 * SESSION_SECRET_CHARS];
    (void)context;
    if (!code_read(call, code, sizeof(code)))
        return;
    if (!log_in(call, code)) {
        refuse(call);
        return;
    }
    struct json *json = http_json(call);
    json_object_begin(json);
    json_field_string(json, "user", call->viewer.name);
    json_field_string(json, "role", call->viewer.role == HTTP_CONTROL ? "control" : "read");
    json_object_end(json);
}

static void answer_logout(struct http_call *call, void *context)
{
    struct http_sessions *sessions = call->http->options.sessions;
    (void)context;
    if (sessions && call->session[0])
        sessions_end(sessions, call->session, strlen(call->session));
    http_audit(call, "log out");
    cookie_set(call, "", 0);
    struct json *json = http_json(call);
    json_object_begin(json);
    json_field_bool(json, "logged_out", true);
    json_object_end(json);
}

/* ---- the description ---- */

static void answer_openapi(struct http_call *call, void *context)
{
    const struct http *http = call->http;
    struct openapi_source source = {
        .title = http->options.title,
        .version = http->options.version,
        .routes = http->routes,
        .n_routes = http->n_routes,
        .schemas = http->options.schemas,
        .n_schemas = http->options.n_schemas,
    };
    (void)context;
    struct buffer *out = http_json_buffer(call);
    (void)openapi_write(&source, out); /* its error is the buffer's */
}

static const struct http_param login_params[] = {
    {.name = "code",
     .in = HTTP_IN_QUERY,
     .kind = HTTP_TEXT,
     .required = true,
     .max = 128,
     .help = "The code that `memoir open` got from memoird: good once, and for ten minutes."},
    {0},
};

static const struct http_route routes[] = {
    {.method = "GET",
     .path = "/login",
     .name = "loginLink",
     .summary = "Log in by the link that `memoir open` makes",
     .help =
         "Sets the session's cookie and goes on to the dashboard. A client that accepts text/html goes there by a link that is "
         "not good any more too, without a cookie. A browser that a page of another site sends here "
         "(Sec-Fetch-Site) gets a page that names the user and asks for confirmation.",
     .params = login_params,
     .answer_type = "text/plain",
     .role = HTTP_NONE,
     .where = HTTP_HERE,
     .answer = answer_login_link},
    {.method = "POST",
     .path = "/api/v1/login",
     .name = "login",
     .summary = "Log in by a code",
     .help = "What the link does, for pages: sets the session's cookie.",
     .body_schema = "LoginRequest",
     .answer_schema = "Login",
     .role = HTTP_NONE,
     .where = HTTP_HERE,
     .answer = answer_login},
    {.method = "POST",
     .path = "/api/v1/logout",
     .name = "logout",
     .summary = "Log out",
     .help = "Ends the session whose cookie is sent: it is good nowhere any more.",
     .answer_schema = "Logout",
     .role = HTTP_READ,
     .where = HTTP_HERE,
     .answer = answer_logout},
    {.method = "GET",
     .path = "/api/v1/openapi.json",
     .name = "openapi",
     .summary = "This description",
     .role = HTTP_NONE,
     .where = HTTP_HERE,
     .fresh_ms = 3600000,
     .answer = answer_openapi},
};

const struct http_route *builtin_routes(size_t *ret_n)
{
    *ret_n = sizeof(routes) / sizeof(*routes);
    return routes;
}
