/* The connection to NATS. See bus.h. */
#include "cluster/bus.h"

#include <errno.h>
#include <nats/nats.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cluster/nkey.h"

enum { SUBSCRIPTIONS_MAX = 16, SERVERS_MAX = 64, END_S = 5 };

struct bus {
    natsOptions *options;
    natsConnection *connection;
    natsSubscription *subscriptions[SUBSCRIPTIONS_MAX];
    size_t n_subscriptions;
    atomic_int state; /* enum bus_state */
    atomic_uint generation;
    void (*heard)(void *context, const char *subject, const char *reply, const void *data,
                  size_t len);
    void (*changed)(void *context);
    void *context;
    pthread_mutex_t lock; /* for what follows */
    pthread_cond_t less;
    size_t
        calls_left; /* of libnats that are still to come: the end of each subscription and of all */
    char why[BUS_WHY_MAX];
    char *urls; /* that `servers` points into */
    const char *servers[SERVERS_MAX];
};

/* libnats gives up on servers that refuse us, and does not tell what they said. */
static const char refused[] =
    "the server refuses the connection: authorization failed, or TLS is wrong; its log says more";

/* ---- what libnats calls ---- */

static void why_set(struct bus *bus, const char *why)
{
    pthread_mutex_lock(&bus->lock);
    snprintf(bus->why, sizeof(bus->why), "%s", why ? why : "");
    pthread_mutex_unlock(&bus->lock);
}

static void state_set(struct bus *bus, enum bus_state state)
{
    atomic_store(&bus->state, state);
    bus->changed(bus->context);
}

static void call_came(struct bus *bus)
{
    pthread_mutex_lock(&bus->lock);
    bus->calls_left--;
    pthread_cond_signal(&bus->less);
    pthread_mutex_unlock(&bus->lock);
}

static void on_connected(natsConnection *connection, void *closure)
{
    (void)connection;
    struct bus *bus = closure;
    why_set(bus, "");
    atomic_fetch_add(&bus->generation, 1);
    state_set(bus, BUS_UP);
}

static void on_disconnected(natsConnection *connection, void *closure)
{
    const char *why = NULL;
    (void)natsConnection_GetLastError(connection, &why);
    why_set(closure, why && *why ? why : "the connection to the server was lost");
    state_set(closure, BUS_CONNECTING);
}

static void on_closed(natsConnection *connection, void *closure)
{
    struct bus *bus = closure;
    const char *why = NULL;
    natsStatus status = natsConnection_GetLastError(connection, &why);
    if (status == NATS_NO_SERVER)
        why_set(bus, refused);
    else if (status != NATS_OK)
        why_set(bus, why && *why ? why : natsStatus_GetText(status));
    state_set(bus, BUS_CLOSED);
    call_came(bus);
}

static void on_complete(void *closure)
{
    call_came(closure);
}

static void on_error(natsConnection *connection, natsSubscription *subscription, natsStatus status,
                     void *closure)
{
    (void)subscription;
    const char *why = NULL;
    (void)natsConnection_GetLastError(connection, &why);
    why_set(closure, why && *why ? why : natsStatus_GetText(status));
}

static void on_message(natsConnection *connection, natsSubscription *subscription, natsMsg *message,
                       void *closure)
{
    struct bus *bus = closure;
    (void)connection;
    (void)subscription;
    bus->heard(bus->context, natsMsg_GetSubject(message), natsMsg_GetReply(message),
               natsMsg_GetData(message), (size_t)natsMsg_GetDataLength(message));
    natsMsg_Destroy(message);
}

/* ---- options ---- */

static bool is_set(const char *text)
{
    return text && *text;
}

static natsStatus set_servers(struct bus *bus, const char *urls)
{
    int n = 0;
    bus->urls = strdup(urls);
    if (!bus->urls)
        return NATS_NO_MEMORY;
    char *rest = bus->urls, *word;
    while ((word = strsep(&rest, ", ")) != NULL)
        if (*word && n < SERVERS_MAX)
            bus->servers[n++] = word;
    return n ? natsOptions_SetServers(bus->options, bus->servers, n) : NATS_INVALID_ARG;
}

static natsStatus set_identity(struct bus *bus, const struct bus_options *o)
{
    natsStatus s = NATS_OK;
    if (is_set(o->user))
        s = natsOptions_SetUserInfo(bus->options, o->user, is_set(o->password) ? o->password : "");
    if (s == NATS_OK && is_set(o->creds_file))
        s = natsOptions_SetUserCredentialsFromFiles(bus->options, o->creds_file, NULL);
    if (s == NATS_OK && is_set(o->tls_ca))
        s = natsOptions_LoadCATrustedCertificates(bus->options, o->tls_ca);
    if (s == NATS_OK && is_set(o->tls_cert))
        s = natsOptions_LoadCertificatesChain(bus->options, o->tls_cert, o->tls_key);
    if (s == NATS_OK && (is_set(o->tls_ca) || is_set(o->tls_cert)))
        s = natsOptions_SetSecure(bus->options, true);
    return s;
}

static natsStatus set_times(struct bus *bus)
{
    natsOptions *o = bus->options;
    natsStatus s = natsOptions_SetTimeout(o, BUS_CONNECT_MS);
    if (s == NATS_OK)
        s = natsOptions_SetPingInterval(o, BUS_PING_MS);
    if (s == NATS_OK)
        s = natsOptions_SetMaxPingsOut(o, BUS_PINGS_OUT);
    if (s == NATS_OK)
        s = natsOptions_SetMaxReconnect(o, -1);
    if (s == NATS_OK)
        s = natsOptions_SetReconnectWait(o, BUS_RETRY_MS);
    if (s == NATS_OK)
        s = natsOptions_SetReconnectJitter(o, BUS_RETRY_JITTER_MS, BUS_RETRY_JITTER_MS);
    if (s == NATS_OK)
        s = natsOptions_SetWriteDeadline(o, BUS_WRITE_MS);
    if (s == NATS_OK) /* what is late is worth nothing: nothing is kept while there is no server */
        s = natsOptions_SetSendAsap(o, true);
    return s;
}

static natsStatus set_callbacks(struct bus *bus)
{
    natsOptions *o = bus->options;
    natsStatus s = natsOptions_SetRetryOnFailedConnect(o, true, on_connected, bus);
    if (s == NATS_OK)
        s = natsOptions_SetReconnectedCB(o, on_connected, bus);
    if (s == NATS_OK)
        s = natsOptions_SetDisconnectedCB(o, on_disconnected, bus);
    if (s == NATS_OK)
        s = natsOptions_SetClosedCB(o, on_closed, bus);
    if (s == NATS_OK)
        s = natsOptions_SetErrorHandler(o, on_error, bus);
    if (s == NATS_OK)
        s = natsOptions_SetNoEcho(o, true);
    if (s == NATS_OK) /* one thread for all subscriptions */
        s = natsOptions_UseGlobalMessageDelivery(o, true);
    return s;
}

/* libnats wants the public key beside the file with the seed. */
static natsStatus set_nkey(struct bus *bus, const char *path, char why[static BUS_WHY_MAX])
{
    char line[256], public[NKEY_PUBLIC_CHARS + 1] = "";
    FILE *file = fopen(path, "re");
    if (!file) {
        snprintf(why, BUS_WHY_MAX, "cannot read '%s': %s", path, strerror(errno));
        return NATS_INVALID_ARG;
    }
    while (!public[0] && fgets(line, sizeof(line), file)) {
        line[strcspn(line, " \r\n")] = '\0';
        (void)nkey_public(line, public);
    }
    explicit_bzero(line, sizeof(line));
    fclose(file);
    if (!public[0]) {
        snprintf(why, BUS_WHY_MAX, "'%s' has no line with the seed of a user (SU...)", path);
        return NATS_INVALID_ARG;
    }
    return natsOptions_SetNKeyFromSeed(bus->options, public, path);
}

/* ---- life ---- */

static natsStatus options_make(struct bus *bus, const struct bus_options *o,
                               char why[static BUS_WHY_MAX])
{
    natsStatus s = natsOptions_Create(&bus->options);
    if (s == NATS_OK)
        s = set_servers(bus, is_set(o->urls) ? o->urls : "");
    if (s == NATS_OK && is_set(o->name))
        s = natsOptions_SetName(bus->options, o->name);
    if (s == NATS_OK)
        s = set_identity(bus, o);
    if (s == NATS_OK && is_set(o->nkey_file))
        s = set_nkey(bus, o->nkey_file, why);
    if (s == NATS_OK)
        s = set_times(bus);
    if (s == NATS_OK)
        s = set_callbacks(bus);
    return s;
}

int bus_open(const struct bus_options *options, struct bus **ret_bus,
             char ret_why[static BUS_WHY_MAX])
{
    struct bus *bus = calloc(1, sizeof(*bus));
    ret_why[0] = '\0';
    if (!bus)
        return -ENOMEM;
    pthread_mutex_init(&bus->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&bus->less, &monotonic);
    pthread_condattr_destroy(&monotonic);
    bus->heard = options->heard;
    bus->changed = options->changed;
    bus->context = options->context;
    atomic_init(&bus->state, BUS_CONNECTING);
    natsStatus s = options_make(bus, options, ret_why);
    if (s == NATS_OK)
        s = natsConnection_Connect(&bus->connection, bus->options);
    if (s == NATS_OK && atomic_fetch_add(&bus->generation, 1) == 0)
        atomic_store(&bus->state, BUS_UP); /* libnats calls back for later connections only */
    if (s == NATS_NOT_YET_CONNECTED)
        why_set(bus, "no server answers");
    if (s == NATS_OK || s == NATS_NOT_YET_CONNECTED) {
        bus->calls_left = 1;
        *ret_bus = bus;
        return 0;
    }
    const char *last = nats_GetLastError(NULL);
    if (s == NATS_NO_SERVER)
        last = refused;
    if (!ret_why[0])
        snprintf(ret_why, BUS_WHY_MAX, "%s", last && *last ? last : natsStatus_GetText(s));
    bus_free(bus);
    return s == NATS_NO_MEMORY ? -ENOMEM : -EINVAL;
}

/* Callbacks run on threads of libnats, also after everything was closed: their last ones say so. */
static bool calls_ended(struct bus *bus)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += END_S;
    pthread_mutex_lock(&bus->lock);
    while (bus->calls_left > 0 && pthread_cond_timedwait(&bus->less, &bus->lock, &until) == 0)
        continue;
    bool ended = bus->calls_left == 0;
    pthread_mutex_unlock(&bus->lock);
    return ended;
}

void bus_free(struct bus *bus)
{
    if (!bus)
        return;
    if (bus->connection)
        natsConnection_Close(bus->connection);
    bool ended = calls_ended(bus);
    for (size_t i = 0; i < bus->n_subscriptions; i++)
        natsSubscription_Destroy(bus->subscriptions[i]);
    natsConnection_Destroy(bus->connection);
    natsOptions_Destroy(bus->options);
    if (!ended)
        return; /* a thread of libnats hangs in a callback: what it looks at has to stay */
    pthread_cond_destroy(&bus->less);
    pthread_mutex_destroy(&bus->lock);
    free(bus->urls);
    free(bus);
}

enum bus_state bus_state(const struct bus *bus)
{
    return (enum bus_state)atomic_load(&bus->state);
}

const char *bus_why(struct bus *bus, char ret_why[static BUS_WHY_MAX])
{
    pthread_mutex_lock(&bus->lock);
    memcpy(ret_why, bus->why, BUS_WHY_MAX);
    pthread_mutex_unlock(&bus->lock);
    return ret_why;
}

void bus_server(struct bus *bus, char *ret_text, size_t size)
{
    char url[512] = "";
    ret_text[0] = '\0';
    if (bus_state(bus) != BUS_UP ||
        natsConnection_GetConnectedUrl(bus->connection, url, sizeof(url)) != NATS_OK)
        return;
    const char *at = strrchr(url, '@'), *scheme = strstr(url, "://");
    if (at && scheme)
        snprintf(ret_text, size, "%.*s%s", (int)(scheme + 3 - url), url, at + 1);
    else
        snprintf(ret_text, size, "%s", url);
}

uint64_t bus_dropped(struct bus *bus)
{
    uint64_t all = 0;
    for (size_t i = 0; i < bus->n_subscriptions; i++) {
        int64_t n = 0;
        if (natsSubscription_GetDropped(bus->subscriptions[i], &n) == NATS_OK && n > 0)
            all += (uint64_t)n;
    }
    return all;
}

unsigned bus_generation(const struct bus *bus)
{
    return atomic_load(&bus->generation);
}

int bus_subscribe(struct bus *bus, const char *subject)
{
    if (bus->n_subscriptions == SUBSCRIPTIONS_MAX)
        return -ENOSPC;
    natsSubscription *subscription = NULL;
    natsStatus s =
        natsConnection_Subscribe(&subscription, bus->connection, subject, on_message, bus);
    if (s != NATS_OK)
        return -EIO;
    (void)natsSubscription_SetPendingLimits(subscription, BUS_PENDING_MESSAGES, BUS_PENDING_BYTES);
    pthread_mutex_lock(&bus->lock);
    bus->calls_left++;
    pthread_mutex_unlock(&bus->lock);
    (void)natsSubscription_SetOnCompleteCB(subscription, on_complete, bus);
    bus->subscriptions[bus->n_subscriptions++] = subscription;
    return 0;
}

int bus_publish(struct bus *bus, const char *subject, const void *data, size_t len)
{
    if (bus_state(bus) != BUS_UP)
        return -ENOTCONN;
    natsStatus s = natsConnection_Publish(bus->connection, subject, data, (int)len);
    return s == NATS_OK ? 0 : s == NATS_MAX_PAYLOAD ? -EMSGSIZE : -EIO;
}

void bus_flush(struct bus *bus, unsigned ms)
{
    if (bus_state(bus) == BUS_UP)
        (void)natsConnection_FlushTimeout(bus->connection, (int64_t)ms);
}
