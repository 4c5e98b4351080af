/* Tenstorrent's allocation protocol on a socket: doc/tt-protocol.md. */
#pragma once

struct conn_protocol;

/* Context is the struct server. */
extern const struct conn_protocol tt_protocol;
