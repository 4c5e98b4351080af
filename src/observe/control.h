/* control.h: questions to the observer over its socket.
 *
 * A request is one line of text; the answer one line, "ok BYTES" with so many bytes after it, or "error TEXT". A connection may
 * ask several times. Only root and whoever owns the observer may connect: memoird speaks for users.
 *
 *   list          JSON: the traced processes with their counters
 *   status        JSON: the observer itself
 *   flush         answers once all that the kernel had told before is in books and histories
 *   tidy          one of the rounds that come every five minutes: libraries unused in two of them lose their probes
 *   dump PID      a binary dump of the history (trace/dump.h); ends the connection
 *   trace PID     begin to trace this process
 *   off PID       forget it: its probes do nothing, and are removed where no other process needs them
 *   on PID        trace it again, from now on
 *   hold          the observer ends some time after the last connection that said so is closed
 *   stop          remove all probes and end
 *
 * The observer of a heap (heap.h) knows status, flush, hold and stop. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct buffer;
struct control;

enum {
    CONTROL_CLIENTS_MAX = 64,
    CONTROL_LINE_MAX = 256,
    CONTROL_ANSWER_MAX = 64 << 20,
    CONTROL_WHY_MAX = 256
};

enum control_result {
    CONTROL_ANSWERED, /* with the bytes in `out` */
    CONTROL_REFUSED,  /* for the reason in `why` */
    CONTROL_LEFT,     /* a child answers on `fd`: the connection ends here */
};

/* One request. `hold` does not come here. `why` has CONTROL_WHY_MAX bytes, and says that the request is unknown. */
typedef enum control_result control_request_fn(void *context, int fd, const char *line,
                                               struct buffer *out, char *why);

int control_new(control_request_fn *request, void *context, const char *path,
                struct control **ret_control);
void control_free(struct control *control); /* NULL is fine */

/* Readable when a request or a connection came: call control_serve(). */
int control_fd(const struct control *control);
void control_serve(struct control *control);

/* Connections that said hold. */
size_t control_holders(const struct control *control);

/* Forget all connections in a child that writes a dump, except `fd`. */
void control_forget(struct control *control, int fd);
