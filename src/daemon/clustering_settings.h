/* Where the cluster is and how to log in there: from the configuration or, where that names none, from
 * STATE/cluster.conf, which `memoir cluster init` and `join` write. */
#pragma once

#include <stdbool.h>

#include "base/sha256.h"
#include "cluster/subject.h"

struct daemon;

struct clustering_settings {
    char *urls, *name, *user, *password, *nkey, *creds, *tls_ca, *tls_cert, *tls_key,
        *trust;   /* never NULL */
    char *server; /* HOST:PORT where we run the cluster's own nats-server, or "" */
    char id[SUBJECT_ID_CHARS + 1];
    uint8_t files[SHA256_BYTES]; /* digest of what the files of nkey, creds and TLS hold */
};

/* Would another connection come of `b` than of `a`? Who is trusted makes no difference. */
bool clustering_settings_same(const struct clustering_settings *a,
                              const struct clustering_settings *b);

/* 0 and false: there is no cluster. -errno, and said so in the log. */
int clustering_settings_read(const struct daemon *daemon, struct clustering_settings *ret,
                             bool *ret_some);
void clustering_settings_release(struct clustering_settings *settings);
