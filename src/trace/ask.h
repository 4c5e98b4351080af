/* ask.h: ask a running observer over its socket (observe/control.h has the requests). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct buffer;

/* Sockets and locks of observers. Only root can create names here: in the directory of books any user could, and
 * would then be taken for an observer. */
#define TRACE_ASK_DIR "/run/memoird"
/* Where memoird's observer answers. */
#define TRACE_ASK_SOCKET TRACE_ASK_DIR "/observe.sock"

enum {
    TRACE_ASK_WHY_MAX = 256,
    TRACE_ASK_WAIT_MS = 30000,
    TRACE_ASK_PATH_MAX = 108, /* of a socket */
};

/* Where the observer of one process's heap answers that writes its book below `dir`: heap-PID.sock for the machine's own directories
 * (NULL or ""), else heap-PID-HASH.sock, so that memoirds with directories of their own do not take each other's observers. */
void trace_ask_heap_socket(pid_t pid, const char *dir, char path[static TRACE_ASK_PATH_MAX]);

/* The PID, if `name` in TRACE_ASK_DIR is what the observer of a process has for `dir`; 0: it is not. */
pid_t trace_ask_heap_pid(const char *name, const char *dir);

/* Any observer of this heap that answers, whatever its directory is, except the one at `but` (NULL: none is left out). */
bool trace_ask_heap_find(pid_t pid, const char *but, char path[static TRACE_ASK_PATH_MAX]);

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
