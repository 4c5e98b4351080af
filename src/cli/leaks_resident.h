/*
 * leaks_resident.h: a process that keeps no book: only its resident size can be watched.
 */
#ifndef MEMOIR_CLI_LEAKS_RESIDENT_H
#define MEMOIR_CLI_LEAKS_RESIDENT_H

#include <stdint.h>
#include <sys/types.h>

struct leaks_watch;
struct suspects;

/* Blocks for watch->for_ns; ends early with the process. One row, whatever the verdict is, which is never "leak": nobody
 * knows what is freed. -ESRCH: there is no such process. */
int leaks_resident(const struct leaks_watch *watch, pid_t pid, struct suspects *ret_suspects);

#endif
