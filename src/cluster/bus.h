/* The connection to NATS, and the only file that knows libnats.
 *
 * libnats has threads of its own: they call `heard` and `changed`, which must not block. bus_open() and
 * bus_publish() may block for BUS_WRITE_MS, so they belong to the cluster's thread, never to memoird's
 * loop. After a connection was made once it is kept by libnats, which tries again by itself; where libnats
 * gives up (wrong credentials), the owner opens it again after a while. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bus;

enum {
    BUS_PING_MS = 2000, /* a hung server is seen after two of them */
    BUS_PINGS_OUT = 2,
    BUS_CONNECT_MS = 2000,
    BUS_WRITE_MS = 2000,
    BUS_RETRY_MS = 250,        /* between attempts to connect again, */
    BUS_RETRY_JITTER_MS = 250, /* and as much more by chance */
    BUS_REOPEN_MIN_MS = 1000,  /* after libnats gave up; doubles */
    BUS_REOPEN_MAX_MS = 30000,
    BUS_SILENCE_MS = 5000, /* after which it is told that no server has answered yet */
    BUS_FLAPS_MAX =
        6, /* connections that were lost within BUS_FLAP_MS: libnats connects again at once, */
    BUS_FLAP_MS = 10000, /* as often as a server breaks them, so the bus is closed for a while */
    BUS_PENDING_MESSAGES = 65536, /* that wait for `heard`; further ones are dropped and counted */
    BUS_PENDING_BYTES = 64 << 20,
    BUS_WHY_MAX = 256,
};

/* Strings may be NULL or "": not set. All are copied. */
struct bus_options {
    const char *urls; /* "nats://a:4222,nats://b:4222" */
    const char *name; /* of the connection, for the server's operator */
    const char *user, *password;
    const char *nkey_file;  /* a seed: SU... */
    const char *creds_file; /* a JWT and a seed */
    const char *tls_ca, *tls_cert, *tls_key;

    /* A message. Borrowed during the call. */
    void (*heard)(void *context, const char *subject, const char *reply, const void *data,
                  size_t len);
    /* The state changed: see bus_state(). */
    void (*changed)(void *context);
    void *context;
};

enum bus_state {
    BUS_CONNECTING, /* no connection yet, or none any more; libnats tries */
    BUS_UP,
    BUS_CLOSED, /* libnats gave up: free it, and open another one later */
};

/* Blocks for BUS_CONNECT_MS at most for each server. 0 also where no server answers yet. -EINVAL with the
 * reason in `ret_why`: an option is wrong. */
int bus_open(const struct bus_options *options, struct bus **ret_bus,
             char ret_why[static BUS_WHY_MAX]);
void bus_free(struct bus *bus); /* NULL is fine; waits for callbacks at hand */

/* Any thread; neither blocks. */
enum bus_state bus_state(const struct bus *bus);
/* Why it is not up, or "". */
const char *bus_why(struct bus *bus, char ret_why[static BUS_WHY_MAX]);

/* The cluster's thread: these may wait for a write at hand. The server it is connected to, without credentials, or "". */
void bus_server(struct bus *bus, char *ret_text, size_t size);
uint64_t bus_dropped(struct bus *bus);
/* How often it came up: a new number means that the server knows nothing of us but our subscriptions. */
unsigned bus_generation(const struct bus *bus);

/* -EIO with the reason in the log of errors (bus_why()). Subscriptions live as long as the bus. */
int bus_subscribe(struct bus *bus, const char *subject);

/* 0; -ENOTCONN while it is not up: nothing is queued; -EMSGSIZE; -EIO. */
int bus_publish(struct bus *bus, const char *subject, const void *data, size_t len);

/* Wait until what was published has reached the server, at most that long. */
void bus_flush(struct bus *bus, unsigned ms);
