/* Listening sockets for those who serve them by themselves; see conn.h for how a name in the file system is made. */
#pragma once

#include <limits.h>
#include <stdint.h>
#include <sys/socket.h>

#include "daemon/conn.h"

/* "HOST:PORT", numeric. The listening descriptor, or -errno; -EINVAL: the address is invalid. */
int listen_inet(const char *address, struct sockaddr_storage *ret_own);

/* The name of a Unix socket, to be removed in the end. */
struct listen_name {
    int dirfd; /* -1: none */
    char name[NAME_MAX + 1];
    uint64_t dev, ino;
};

/* The listening descriptor, or -errno as conn_listen_unix() has it. */
int listen_unix(const struct conn_unix_options *options, struct listen_name *ret_name);
void listen_name_release(struct listen_name *name);
