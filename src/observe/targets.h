/* targets.h: library files that probes belong on. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct probe_table;

/* Gets an open file, which is borrowed, and how it is called for people. */
typedef void targets_fn(void *context, const struct probe_table *table, int fd, const char *path);

/* Each file that a process has mapped as code, where it lies, and how maps calls it. 0 or -errno. */
typedef void targets_code_fn(void *context, uint64_t start, uint64_t end, const char *path);
int targets_code(pid_t pid, targets_code_fn *each, void *context);

/* The file behind such a mapping, or -errno. */
int targets_open(pid_t pid, uint64_t start, uint64_t end);

/* The libraries of probe tables where distributions and drivers put them, and those in the colon-separated list `more` of
 * directories (as LD_LIBRARY_PATH has it; may be NULL). */
void targets_installed(const char *more, targets_fn *each, void *context);

/* Those that a process has mapped, whatever mount namespace it lives in. 0 or -errno. */
int targets_of(pid_t pid, targets_fn *each, void *context);

/* Those of all processes that are wanted (NULL: of all). About 0.1 ms for each process. */
typedef bool targets_wanted_fn(void *context, pid_t pid);
void targets_running(targets_wanted_fn *wanted, targets_fn *each, void *context);

/* The same again and again: looks at processes that are new, and at each of them again after 4 and after 16 rounds, since
 * libraries are loaded late. Some 2 us for each process that is not looked at. */
struct targets_scan;
int targets_scan_new(struct targets_scan **ret_scan);
void targets_scan_free(struct targets_scan *scan); /* NULL is fine */
void targets_scan(struct targets_scan *scan, targets_wanted_fn *wanted, targets_fn *each,
                  void *context);
