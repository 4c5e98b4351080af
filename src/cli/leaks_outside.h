/*
 * leaks_outside.h: while call sites are watched, the RSS of the process is watched, too: growth outside malloc has no site.
 */
#ifndef MEMOIR_CLI_LEAKS_OUTSIDE_H
#define MEMOIR_CLI_LEAKS_OUTSIDE_H

#include <stdint.h>
#include <sys/types.h>

struct leaks_outside;
struct suspects;

/* Starts a thread. NULL: pid is 0, or there is no room for it; all functions take that. */
struct leaks_outside *leaks_outside_start(pid_t pid, uint64_t needs_ns);

/* Of rows of growth outside malloc: whose memory it is, as far as its mappings may be read. */
void leaks_outside_name(struct suspects *suspects);

/* Ends it, and says on stderr what grows outside malloc, if anything does. */
void leaks_outside_tell(struct leaks_outside *outside);

#endif
