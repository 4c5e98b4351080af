/* next.h: the functions that ours stand in front of: the allocator that the program has, and the
 * loader. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct pin_next {
    void *(*malloc)(size_t);
    void (*free)(void *);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void *(*memalign)(size_t, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
    size_t (*usable)(void *);
    int (*madvise)(void *, size_t, int);
    void *(*dlsym)(void *, const char *);
    bool ready;
};
extern struct pin_next pin_next;

/* True once all of them are known. While a thread looks for them, it gets false. */
bool pin_next_find(void);

/* For calls that come before that: a little memory that is never given back. NULL: none left. */
void *pin_next_boot(size_t bytes, size_t alignment);
bool pin_next_is_boot(const void *block);
size_t pin_next_boot_size(const void *block);
