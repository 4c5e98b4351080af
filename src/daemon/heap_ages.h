/* The heap of a process by age and size: a search of its memory, with the rights of the process that calls. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "book/reader.h"
#include "profile/ages.h"

enum { HEAP_AGES_MS_MAX = 2000 }; /* about 4 GB; the rest is not searched, and told */

/* Flat, since it crosses the broker's socket. */
struct heap_ages_wish {
    int32_t pid;
    uint32_t trailer_format, trailer_generation;
    uint64_t trailer_key;
    uint64_t beside_heap, beside_words, beside_span;
    uint64_t created_ns, now_ns; /* the book's, and ours: proc_monotonic_ns() */
};

struct heap_ages_found {
    struct ages ages;
    uint64_t searched;
    uint32_t late; /* there was more */
};

void heap_ages_wish_make(int32_t pid, const struct book_identity *id, uint64_t now_ns,
                         struct heap_ages_wish *ret_wish);

/* May hang with the memory that it reads. 0, or what scan_each() says: -EACCES, -ESRCH ... */
int heap_ages_look(const struct heap_ages_wish *wish, struct heap_ages_found *ret_found);
