/*
 * helper.h: a child that runs this same program under another name, and talks over one socket.
 *
 * For what may hang in the kernel or in a driver: such a child cannot be killed at once, so it must
 * hold nothing of ours. It has the socket as its standard input, /dev/null as its output, the root
 * as its directory, no other descriptor, no signal blocked, and a process group of its own (Ctrl-C
 * on the terminal is for the asking program, whose end ends the child).
 */
#pragma once

#include <spawn.h>
#include <sys/types.h>

/* For posix_spawn() of any child of ours: no signal blocked or ignored, and a process group of its own. */
void helper_attributes_init(posix_spawnattr_t *attributes);

/* `name` becomes argv[0], by which main() knows what to be. 0, or -errno. */
int helper_spawn(const char *name, int fd, pid_t *ret_pid);
