/* label.h: a call site of the pinning library as people know it. For programs: starts no symbolizer
 * of its own. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "pin/state.h"

enum { PIN_LABEL_MAX = 320 };
struct symbolizer;

/* "train.py:41 load_batch" of a Python program; "loader.c:41 load_batch", "libfoo.so+0x12ab",
 * "unknown": the innermost frame outside of libraries that allocate for others. `names` may be NULL; `pid`: of the process if it runs, for files in its
 * root; 0: ours. */
const char *pin_label(struct symbolizer *names, const struct pin_state *state, uint32_t site,
                      pid_t pid, char text[static PIN_LABEL_MAX]);
