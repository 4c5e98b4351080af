/* What the files of tt.h share. */
#pragma once

#include "daemon/tt_wire.h"

struct conn;
struct server;

/* Answer a dump that carries TT_DUMP_MARK with one message for each block of processes that the client may
 * see, and one that ends it; write the others into the log, a line for each process. */
void tt_dump(struct server *server, struct conn *conn, uint16_t size, const struct tt_message *m);

/* How long this request has to wait for its turn, in ns; 0: not at all. */
uint64_t tt_dump_wait(const struct server *server, const struct tt_message *m);
