/* Inside scan: the live blocks of libmemoir-malloc's macro-blocks, by the words that it keeps beside them (malloc/words.h). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "book/trailer.h"

struct scan_memory;
struct scan_words;

int scan_words_new(struct scan_words **ret_words);
void scan_words_free(struct scan_words *words); /* NULL is fine */

/* Call `each` for every live block of the macro-block at `macro` that lies within [start, end), by their addresses, until it returns
 * non-zero: that is returned. What makes no sense has no blocks; what cannot be read has none either, and is counted in memory->unread. `goes_on`: the process does meanwhile, and
 * blocks that come or go may be told of or not; else it stands still, and is read once. ret_read: adds the bytes that were read. */
int scan_words_macro(struct scan_words *words, struct scan_memory *memory, uint64_t macro,
                     uint64_t start, uint64_t end, bool goes_on, uint32_t generation,
                     int (*each)(void *context, const struct book_trailer *block), void *context,
                     uint64_t *ret_read);
