/* The cluster's private nats-server, which memoird runs where `memoir cluster init` asked for one. It outlives a memoird that is
 * killed, so that other nodes go on; the next one takes it over by its PID file. The loop's thread's. */
#pragma once

struct clustering_server;
struct daemon;

enum { CLUSTERING_SERVER_RETRY_MS = 500, CLUSTERING_SERVER_RETRY_MAX_MS = 30000 };

/* Starts it, or takes over the one that runs. */
int clustering_server_new(struct daemon *daemon, struct clustering_server **ret_server);

/* Ends it. NULL is fine. */
void clustering_server_free(struct clustering_server *server);

/* Its configuration changed. */
void clustering_server_reload(struct clustering_server *server);
