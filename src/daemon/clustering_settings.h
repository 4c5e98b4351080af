/* Where the cluster is and how to log in there: from the configuration or, where that names none, from
 * STATE/cluster.conf, which `memoir cluster init` and `join` write. */
#pragma once

#include <stdbool.h>

#include "cluster/subject.h"

struct daemon;

struct clustering_settings {
    char *urls, *name, *user, *password, *nkey, *creds, *tls_ca, *tls_cert, *tls_key,
        *trust;   /* never NULL */
    char *server; /* HOST:PORT where we run the cluster's own nats-server, or "" */
    char id[SUBJECT_ID_CHARS + 1];
};

/* 0 and false: there is no cluster. -errno, and said so in the log. */
int clustering_settings_read(const struct daemon *daemon, struct clustering_settings *ret,
                             bool *ret_some);
void clustering_settings_release(struct clustering_settings *settings);
