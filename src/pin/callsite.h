/*
 * callsite.h: which line of code asked for an allocation.
 *
 * A site is the innermost frames of the stack, as modules and offsets, with the line of Python where
 * there is one (script.h), so that its key (site/key.h) is the same in every run: histories are
 * saved by it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "pin/script.h"
#include "site/unwind.h"

enum {
    CALLSITE_FRAMES = 12,
    CALLSITE_MAX = 4096, /* further sites share number 0 */
    CALLSITE_MODULES_MAX = 256,
    CALLSITE_PATH_MAX = 224,
    CALLSITE_ID_MAX = 20,
    CALLSITE_DEPTH = 40, /* frames in which an interpreter is looked for */
};

struct callsite_module {
    char path[CALLSITE_PATH_MAX];
    uint8_t build_id[CALLSITE_ID_MAX];
    uint32_t build_id_len;
    uint64_t key;
    uintptr_t start, end;
};

struct callsite {
    uint64_t hash; /* of the addresses in this process, and of its script; 0: unused */
    uint64_t key;
    uint32_t n, unused;
    struct {
        uint64_t offset;
        uint32_t module; /* number; 0: unknown code */
        uint32_t unused;
    } frame[CALLSITE_FRAMES];
    char script[SCRIPT_LABEL_MAX]; /* the line of Python; "": none */
};

struct callsites {
    uint32_t lock;
    uint32_t n_sites, n_modules; /* stored (release) after the entry; number 0 is none */
    struct callsite site[CALLSITE_MAX];
    struct callsite_module module[CALLSITE_MODULES_MAX];
    uint32_t index[2 * CALLSITE_MAX];
    struct unwind_cache unwind;
};
extern struct callsites *callsites; /* NULL before callsite_init() */

bool callsite_init(void);

/* Number of the site whose stack begins at `from`; 0: none. About a microsecond for a known one. */
uint32_t callsite_find(const struct unwind_state *from);
