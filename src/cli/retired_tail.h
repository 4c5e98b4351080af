/*
 * retired_tail.h: why processes ended, as a daemon writes it down while we watch.
 *
 * Follows the end of STATE/retired.jsonl, also when it is begun anew.
 */
#ifndef MEMOIR_CLI_RETIRED_TAIL_H
#define MEMOIR_CLI_RETIRED_TAIL_H

#include <stdbool.h>
#include <sys/types.h>

struct retired_tail;

enum { RETIRED_CAUSE_MAX = 64 };

/* What is in the list already is not looked at. `state` is the daemon's state directory (NULL: the usual
 * one). NULL without memory. */
struct retired_tail *retired_tail_new(const char *state);
void retired_tail_freep(struct retired_tail **tail);

/* Is there a list at all? Without one, do not wait for a line of it. */
bool retired_tail_exists(const struct retired_tail *tail);

/* How `pid` ended ("killed by SIGKILL"). Reads what was written since the last call. false while nothing
 * is known. */
bool retired_tail_cause(struct retired_tail *tail, pid_t pid, char cause[static RETIRED_CAUSE_MAX]);

#endif
