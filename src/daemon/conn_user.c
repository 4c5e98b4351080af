/* Users of connections, and whose turn it is. See conn.h. A user is who answers for a uid: base/accountable.h.
 *
 * The loop's time is shared by user, not by connection, so that more connections do not give a user more of it.
 * A user who has used less than the others goes first; one who comes back from doing nothing starts level with
 * those who are served, so that idleness cannot be saved up. */
#include <errno.h>
#include <stdlib.h>

#include "base/accountable.h"
#include "base/log.h"
#include "base/share.h"
#include "daemon/conn_internal.h"
#include "daemon/loop.h"
#include "daemon/server.h"

static struct conn_user *user_find(struct conn_server *server, uint32_t uid)
{
    struct conn_user *idle = NULL;
    for (size_t i = 0; i < server->n_users; i++) {
        struct conn_user *user = server->users[i];
        if (user->uid == uid)
            return user;
        if (user->connections == 0)
            idle = user;
    }
    /* Those without connections are used again, so that there are never more than connections. */
    if (idle) {
        *idle = (struct conn_user){.uid = uid};
        TAILQ_INIT(&idle->ready);
    }
    return idle;
}

static struct conn_user *user_new(struct conn_server *server, uint32_t uid)
{
    struct conn_user **users =
        realloc(server->users, (server->n_users + 1) * sizeof(struct conn_user *));
    if (!users)
        return NULL;
    server->users = users;
    struct conn_user *user = calloc(1, sizeof(*user));
    if (!user)
        return NULL;
    user->uid = uid;
    TAILQ_INIT(&user->ready);
    users[server->n_users++] = user;
    return user;
}

static bool fits_in_all(struct conn_server *server, const struct conn_user *user)
{
    if (share_fits(server->n_conns, user->connections, server->limits->connections_max,
                   user->uid == 0))
        return true;
    server->figures->refused_connections_max++;
    if (!server->said_max)
        log_warn("%zu connections: more are turned away (connections-max)", server->n_conns);
    server->said_max = true;
    return false;
}

struct conn_user *conn_user_enter(struct conn_server *server, uint32_t uid)
{
    uid = accountable_uid(uid);
    struct conn_user *user = user_find(server, uid);
    if (!user)
        user = user_new(server, uid);
    if (user && !fits_in_all(server, user))
        return NULL;
    if (user && (uid == 0 || user->connections < server->limits->connections_per_user_max)) {
        user->connections++;
        return user;
    }
    server->figures->refused_connections_per_user_max++;
    if (user && !user->said)
        log_warn("uid %u has %zu connections: more are turned away (connections-per-user-max)", uid,
                 user->connections);
    if (user)
        user->said = true;
    return NULL;
}

void conn_users_free(struct conn_server *server)
{
    for (size_t i = 0; i < server->n_users; i++)
        free(server->users[i]);
    free(server->users);
}

/* ---- turns ---- */

void conn_ready(struct conn *conn)
{
    struct conn_server *server = conn->server;
    struct conn_user *user = conn->user;
    if (conn->ready)
        return;
    conn->ready = true;
    if (TAILQ_EMPTY(&user->ready)) {
        TAILQ_INSERT_TAIL(&server->ready_users, user, link);
        if (user->used_ns < server->used_ns)
            user->used_ns = server->used_ns;
    }
    TAILQ_INSERT_TAIL(&user->ready, conn, ready_link);
    loop_defer(server->turn);
}

void conn_unready(struct conn *conn)
{
    if (!conn->ready)
        return;
    conn->ready = false;
    TAILQ_REMOVE(&conn->user->ready, conn, ready_link);
    if (TAILQ_EMPTY(&conn->user->ready))
        TAILQ_REMOVE(&conn->server->ready_users, conn->user, link);
}

struct conn *conn_next_ready(struct conn_server *server)
{
    struct conn_user *user, *first = TAILQ_FIRST(&server->ready_users);
    TAILQ_FOREACH(user, &server->ready_users, link)
    if (user->used_ns < first->used_ns)
        first = user;
    if (!first)
        return NULL;
    if (server->used_ns < first->used_ns)
        server->used_ns = first->used_ns;
    return TAILQ_FIRST(&first->ready);
}
