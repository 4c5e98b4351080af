/* Which user owns the other end of a TCP connection inside this machine? The kernel tells it of every socket. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A descriptor to ask by; below 0: the kernel does not tell. */
int socket_owner_open(void);

/* The owner of the client's end of the accepted connection `fd`. False: not known, or the client has closed it already. Does
 * not block; two system calls, about 5 us. */
bool socket_owner(int owner_fd, int fd, uint32_t *ret_uid);
