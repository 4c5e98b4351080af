/*
 * script.h: which line of Python asked for an allocation.
 *
 * To a user of Python the native stack says nothing: all lines of a program that allocate through
 * the same extension share one. So the Python calls, from the innermost to the first outside of
 * libraries, become part of the site, by file, function and line, which are the same in every run.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SCRIPT_LABEL_MAX = 128,
    SCRIPT_CALLS = 8, /* calls within libraries that are looked at for the program's own line */
};

struct script {
    uint64_t hash;                /* of the calls' names; 0: no Python here */
    char label[SCRIPT_LABEL_MAX]; /* "train.py:41 load_batch": the innermost outside of libraries */
};

/* The Python calls of this thread, whose native stack is `pcs`. False: none, or none that can be
 * read. Takes no lock and allocates nothing; a microsecond for each call. */
bool script_read(const uintptr_t *pcs, size_t n, struct script *ret_script);
