/* {"login":"control"}: a link that logs the client's browser in as the client's user. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/native_internal.h"
#include "daemon/server.h"
#include "daemon/web.h"
#include "http/session.h"

static void refuse(struct native_client *client, const char *code, const char *message)
{
    struct native_error error;
    native_error_set(&error, code, "%s", message);
    native_refuse(client, &error);
}

void native_login(struct native_client *client)
{
    struct daemon *daemon = client->native->daemon;
    char link[WEB_LINK_MAX];
    struct json json;
    if (client->remote) {
        refuse(client, "forbidden", "only from this machine: a token serves elsewhere");
        return;
    }
    struct http_viewer viewer = {
        .uid = client->viewer_uid,
        .sees_all = client->sees_all,
        .role = client->native->parser.request.login_control ? HTTP_CONTROL : HTTP_READ,
    };
    int r = daemon->web ? web_link(daemon->web, &viewer, link) : -ENOTCONN;
    if (r < 0) {
        refuse(client, r == -ENOTCONN ? "bad-request" : "internal",
               r == -ENOTCONN ? "this memoird serves no dashboard: start it with --http auto"
                              : "no random numbers yet, try again later");
        return;
    }
    if (server_may_log(daemon->server, client->viewer_uid))
        log_info("uid %u asked for a link to log in", client->viewer_uid);
    native_answer_begin(client->native, &json);
    json_field_string(&json, "login", link);
    json_field_u64(&json, "expires_in", SESSION_CODE_S);
    native_answer_end(client, &json);
    explicit_bzero(link, sizeof(link));
}
