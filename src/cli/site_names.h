/*
 * site_names.h: names for the frames in the daemon's list of the dead.
 *
 * The list has "PATH+0xOFFSET" and no build-id, so a frame gets a name only where the file is older
 * than the process: a rebuilt program would otherwise get wrong lines.
 */
#ifndef MEMOIR_CLI_SITE_NAMES_H
#define MEMOIR_CLI_SITE_NAMES_H

#include <stdint.h>

struct site_names;

/* What is known about a frame; strings are good until the next call. */
struct site_name {
    const char *function; /* NULL if not known */
    const char *file;     /* NULL if not known */
    uint32_t line;        /* 0 if not known */
};

/* Starts a helper process that reads debug information. NULL where that fails: frames then stay
 * without names, which all functions here take for what it is. */
struct site_names *site_names_new(void);
void site_names_freep(struct site_names **names);

/* The name of `frame` in a process that started at `started_real_ns` (0: not known). */
struct site_name site_names_find(struct site_names *names, const char *frame,
                                 uint64_t started_real_ns);

#endif
