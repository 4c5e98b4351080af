/* sweep.h: whoever makes a book removes a few that nobody will miss. */
#pragma once

#include <stdint.h>

struct book_header;

/* Look at a handful of the books in `directory` (ours alone: 0700). Those whose writer is gone and
 * that no daemon watches are removed when they are old or when there are many: a fresh one is
 * somebody's post-mortem. Books of earlier images of this very process (exec keeps PID and start
 * time) go at once: exec ended them in order. Returns how many such images there were, as far as
 * the newest of their books tells. */
uint32_t book_sweep(int directory, const struct book_header *self);
