/* clustering_confine.h: what the cluster's nats-server may do.
 *
 * It listens to the network, and memoird, which starts it, is root's with the capabilities of its unit. Another user cannot be had for it:
 * memoird has no CAP_SETUID, and without CAP_KILL could neither reload nor end a process of another user's. So it stays memoird's user, without
 * capabilities, without sockets in the file system (root's user opens many doors there), and Landlock leaves it its own folder, the
 * folders of its certificate, and programs and libraries to read. */
#pragma once

#include <stdbool.h>

/* argv[0] of the process that confines itself and becomes nats-server; argv[1] is the configuration. */
#define CLUSTERING_SERVER_HELPER "memoird-nats-server"

/* Where nats-server is, or NULL. */
const char *clustering_server_program(void);

/* Has the kernel Landlock? Without it the server can read and write what files of its user allow. */
bool clustering_confine_whole(void);

/* Never returns if all works; else an exit status. One thread. */
int clustering_server_become(const char *config);
