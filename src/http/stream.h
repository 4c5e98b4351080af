/* Event streams: what is published once goes to all who listen. The server's thread only, unless http.h says
 * otherwise. */
#pragma once

#include "http/internal.h"

struct streams;
struct stream;

int streams_new(struct http *http, struct streams **ret_streams);
void streams_free(struct streams *streams); /* NULL is fine */

/* The call that `exchange` asked by became a stream. Sets exchange->stream, or exchange->answer when there are too
 * many. */
void stream_begin(struct exchange *exchange, struct http_call *call);
enum MHD_Result stream_queue(struct exchange *exchange);
/* Its client is gone; fine for an exchange without one. */
void stream_end(struct exchange *exchange);

/* A letter of http_stream_publish(): takes it. */
void streams_take(struct streams *streams, struct letter *letter);
/* Send what came since the last time. */
void streams_flush(struct streams *streams);
/* Once a second: a sign of life for those that had nothing to send. */
void streams_tick(struct streams *streams, uint64_t now_ns);
/* All of them end: memoird does. */
void streams_end_all(struct streams *streams);
