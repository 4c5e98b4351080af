/* The native protocol: lines of JSON over a Unix socket or TCP (doc/native-protocol.md).
 *
 * Everything runs on the loop's thread. One struct native for the daemon; a client is the state of a
 * connection. */
#pragma once

#include <stdint.h>

#include "daemon/conn.h"

struct daemon;
struct ledger_process;
struct native;
struct retired_process;

enum {
    NATIVE_ANSWER_MAX = 4 << 20,          /* bytes of one answer */
    NATIVE_EVENTS_QUEUED_MAX = 256 << 10, /* unread events of a subscriber; further ones are lost */
    NATIVE_SUBSCRIBERS_PER_USER_MAX = 64, /* connections of one user other than root */
    NATIVE_DEVICES_SHARE = 4,          /* writing totals of devices takes a quarter of the time */
    NATIVE_TOKEN_WAIT_S = 5,           /* from a remote client's connection to its token */
    NATIVE_TOKEN_LINE_MAX = 4096,      /* bytes of the line with it */
    NATIVE_STRANGERS_MAX = 64,         /* remote clients that have not shown one yet, */
    NATIVE_STRANGERS_ADDRESS_MAX = 16, /* and of one address */
};

/* Needs config, server and behalf of the daemon by the time that clients come. With `tcp` set, the
 * token file is read; -errno (and a line in the log) when it cannot be. */
int native_new(struct daemon *daemon, struct native **ret_native);

/* After its connections are gone. NULL is fine. */
void native_free(struct native *native);

/* For conn_listen_*(), with the struct server as context. */
extern const struct conn_protocol native_protocol;

/* For those who subscribed; each does nothing, quickly, where there is none. NULL is fine. */
void native_process_came(struct native *native, const struct ledger_process *process);
void native_process_went(struct native *native, const struct retired_process *process,
                         const char *line);
