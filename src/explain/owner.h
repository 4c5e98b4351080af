/* Whose memory an anonymous mapping is: by the libraries that are loaded, and by what lies at its pages.
 *
 * The checks of bytes are pure functions over what was read from another process: nothing there is trusted, a length
 * is at most what is left of the mapping. Layouts: glibc 2.x chunks, CPython 3.7 to 3.13 pools, V8 9 to 11 memory chunks,
 * PHP 7 and 8 chunks, libmemoir-malloc's huge blocks. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct smaps;

enum {
    OWNER_HEAD = 64, /* bytes at the start of a page that the checks need */
    OWNER_POOL_ALIGN = 16384,
    OWNER_V8_ALIGN = 256 << 10,
    OWNER_PHP_ALIGN = 2 << 20,
    OWNER_HUGE_ALIGN = 2 << 20,
    OWNER_ARENA_ALIGN = 64 << 20, /* of glibc's arenas of threads */
};

/* Java's heap lies below this address where its pointers are compressed without a base, its class metadata from here on. */
#define OWNER_JAVA_BASE    UINT64_C(0x800000000)
#define OWNER_JAVA_CLASSES (OWNER_JAVA_BASE + (UINT64_C(4) << 30))
#define OWNER_GO_BASE      UINT64_C(0xc000000000)
#define OWNER_GO_END       UINT64_C(0x1c000000000) /* a TiB of arenas */

struct owners {
    bool python, v8, jvm, go, php, memoir;
    const char *allocator; /* jemalloc ..., by its library; NULL: none */
};

void owners_find(const struct smaps *smaps, struct owners *ret_owners);

/* Each: how many bytes from `at` on are that, at most `left`; 0: it is something else. `head` has OWNER_HEAD bytes. */
uint64_t owner_glibc_chunk(const void *head, uint64_t left);  /* with a mapping of its own */
uint64_t owner_glibc_arena(const void *head, uint64_t left);  /* at `at`, of OWNER_ARENA_ALIGN */
uint64_t owner_python_arena(const void *pool, uint64_t left); /* at the next OWNER_POOL_ALIGN */
uint64_t owner_v8_chunk(const void *head, uint64_t at, uint64_t left);
uint64_t owner_php_chunk(const void *head, uint64_t at, uint64_t left);
uint64_t owner_memoir_huge(const void *head, uint64_t at, uint64_t left);
