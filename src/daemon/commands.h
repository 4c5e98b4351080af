/* Command lines of strangers, which lie in their memory, and all else that a probe looks at (host_probe.h).
 *
 * Who reads /proc/PID/cmdline reads pages of that process, and waits for whatever it has mapped there: a file
 * of a user's own file system that never answers, and then nothing wakes the reader, not even SIGKILL. So
 * memoird asks a helper process, waits for a moment only, and goes on without the arguments if no answer
 * came: all else that books say of a process is from the kernel's own copies. One thread for each of them.
 *
 * How often a process can make us wait is bounded: after each time no process is asked for a while, and the
 * processes of who did it for longer. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct commands;
struct host_probe;

enum {
    COMMANDS_WAIT_MS = 100,   /* for an answer, which takes 50 µs */
    COMMANDS_REST_MS = 2000,  /* after none came: no process is asked */
    COMMANDS_BLAME_S = 600,   /* nor processes of that user */
    COMMANDS_BLAMED_MAX = 64, /* users at a time */
    COMMANDS_HELPERS_MAX = 8, /* that wait for good; then no more are started */
    COMMANDS_TEXT_MAX = 512,  /* bytes, with the 0 at the end */
};
#define COMMANDS_HELPER "memoird-commands" /* argv[0] of the helper */

/* Starts the helper, which is this program again. */
int commands_new(struct commands **ret_commands);
void commands_free(struct commands *commands); /* NULL is fine */

/* The arguments of a process, separated by spaces and cut to fit; "" when they are not known, as with NULL.
 * Blocks for COMMANDS_WAIT_MS at most. */
void commands_read(struct commands *commands, pid_t pid, char *ret_text, size_t size);

/* A costly look at a process, as host_probe_read() does it. 0, -ESRCH, -ETIMEDOUT when its memory did not answer
 * for `wait_ms` (or did not some time ago, or that of another one of its user), or -EBUSY when no process is asked
 * now. */
int commands_probe(struct commands *commands, pid_t pid, uint32_t kinds, unsigned wait_ms,
                   struct host_probe *ret_probe);

/* What the helper runs: answers on descriptor 0 until it is closed. Its exit status. */
int commands_help(void);
