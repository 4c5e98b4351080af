/* Which connections are taken, and which have to go for them.
 *
 * A connection counts for a payer: the user at the other end of a Unix socket or of a TCP connection inside this
 * machine (base/accountable.h), else the address that it comes from. One payer other than root gets half of all places, or
 * connections_address_max; base/share.h tells for whom the last places are kept. */
#pragma once

#include <stdbool.h>

struct conn;
struct http;

/* Take it, counted for its payer; its peer or address is known. Another connection that only holds a place may be ended
 * for it. False: it cannot be taken. */
bool admission_enter(struct http *http, struct conn *conn);

/* It is gone; fine for one that was not taken. */
void admission_leave(struct conn *conn);
