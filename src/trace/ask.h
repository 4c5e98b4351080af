/* ask.h: ask a running observer over its socket (observe/control.h has the requests). */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct buffer;

/* Sockets and locks of observers. Only root can create names here: in the directory of books any user could, and
 * would then be taken for an observer. */
#define TRACE_ASK_DIR "/run/memoird"
/* Where memoird's observer answers. */
#define TRACE_ASK_SOCKET TRACE_ASK_DIR "/observe.sock"
/* Where the observer of one process's heap answers, by its PID: printf's form. */
#define TRACE_ASK_HEAP_SOCKET TRACE_ASK_DIR "/heap-%d.sock"

enum {
    TRACE_ASK_WHY_MAX = 256,
    TRACE_ASK_WAIT_MS = 30000,
};

/* Create TRACE_ASK_DIR if it is missing, for all to enter whatever the umask is: memoird's sockets are there, too. -EPERM:
 * users other than root can write to it. */
int trace_ask_dir_make(void);

/* One connection. Does not wait. -errno: -ECONNREFUSED or -ENOENT: no observer runs there; -EAGAIN: it takes no more now;
 * -EPERM: the process that listens belongs neither to root nor to our user. */
int trace_ask_open(const char *socket);

/* Send one request line and append the answer's bytes to `out` (may be NULL where there are none to be expected). 0; -EREMOTEIO:
 * the observer refused, and `why` has its words; -ETIMEDOUT after TRACE_ASK_WAIT_MS without a byte; -EBADMSG, other -errno. */
int trace_ask(int fd, const char *request, struct buffer *out, char why[static TRACE_ASK_WHY_MAX]);

/* The same until a moment of CLOCK_MONOTONIC: -ETIMEDOUT then, however many bytes have come. */
int trace_ask_until(int fd, const char *request, uint64_t until_ns, struct buffer *out,
                    char why[static TRACE_ASK_WHY_MAX]);
