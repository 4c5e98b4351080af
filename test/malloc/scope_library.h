/* scope_library.h: what the libraries of scopes.cpp do for it. Each is found by dlsym(), since both have the same functions. */
#pragma once

#include <stddef.h>

enum scope_how {
    SCOPE_MALLOC,
    SCOPE_CALLOC,
    SCOPE_ALIGNED,
    SCOPE_STRDUP,
    SCOPE_NEW,
    SCOPE_ARRAY,
    SCOPE_STRING,
    SCOPE_HOWS
};

struct scope_calls {
    void *(*give)(enum scope_how how, size_t bytes); /* a block of at least 16 bytes */
    void (*take)(enum scope_how how, void *block);   /* free it by what belongs to `how` */
    void *(*resize)(void *block, size_t bytes);
    size_t (*usable)(void *block);
    void *(*malloc_address)(void);
    const char *(*name)(void);        /* as this library sees scope_name() */
    const struct scope_calls *needed; /* those of a library that this one needs, or NULL */
};
