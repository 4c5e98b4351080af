/* The identity of a call site: a number that is the same in every run, at every load address and on
 * every machine that has the same binaries. Used inside the process and by readers alike; it is stored
 * in books, history and alerts, so its definition never changes (test_site_key has fixed values). */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct site_frame {
    const uint8_t *build_id; /* with build_id_len bytes; may be NULL when that is 0 */
    const char *path;        /* only its last component counts, and only without a build-id */
    uint64_t offset;         /* address as in the ELF file: module_offset() */
    uint8_t build_id_len;
};

/* Key of a stack, innermost frame first. A frame without build-id and path (JIT code) has no stable
 * address: it counts as "unknown", whatever its offset, and a run of them counts once. Never 0.
 * Pure: async-signal-safe, about 5 ns a frame. */
uint64_t site_key(const struct site_frame *frames, size_t n);

/* The same in parts, for those who have frames one by one: start with SITE_KEY_SEED, add every frame,
 * then finish. site_key_module() needs to be computed only once for a module. */
#define SITE_KEY_SEED    UINT64_C(0x6d656d6f69722030)
#define SITE_KEY_UNKNOWN UINT64_C(0) /* module key of code that has no module */
uint64_t site_key_module(const uint8_t *build_id, size_t build_id_len, const char *path);
/* A line of a script stands in for a module and an offset. */
uint64_t site_key_script(const char *file);
uint64_t site_key_line(const char *function, uint32_t line);
uint64_t site_key_add(uint64_t key, uint64_t module_key, uint64_t offset);
uint64_t site_key_finish(uint64_t key);
