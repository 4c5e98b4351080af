/* targets.h: library files that probes belong on. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

struct probe_table;

/* Gets an open file, which is borrowed, and how it is called for people. */
typedef void targets_fn(void *context, const struct probe_table *table, int fd, const char *path);

/* The libraries of probe tables where distributions and drivers put them, and those in the colon-separated list `more` of
 * directories (as LD_LIBRARY_PATH has it; may be NULL). */
void targets_installed(const char *more, targets_fn *each, void *context);

/* Those that a process has mapped, whatever mount namespace it lives in. 0 or -errno. */
int targets_of(pid_t pid, targets_fn *each, void *context);

/* Those of all processes. About 0.1 ms for each process. */
void targets_running(targets_fn *each, void *context);
