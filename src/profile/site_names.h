/* Names for places in the code: frames in the daemon\'s list of the dead, sites of books.
 *
 * Where there is no build-id, as in that list with its "PATH+0xOFFSET", a frame gets a name only if the
 * file is older than the process: a rebuilt program would otherwise get wrong lines. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct site_names;

/* What is known about a frame, of the calls compiled into each other there by the one of the program's own code
 * (headline.h); strings are good until the next call. */
struct site_name {
    const char *function; /* NULL if not known */
    const char *file;     /* NULL if not known */
    uint32_t line;        /* 0 if not known */
};

/* Starts a helper process that reads debug information. NULL where that fails: frames then stay
 * without names, which all functions here take for what it is. */
struct site_names *site_names_new(void);

/* The same by a symbolizer that somebody else owns and that outlives it. */
struct symbolizer;
struct site_names *site_names_over(struct symbolizer *symbolizer);
void site_names_freep(struct site_names **names);

/* What it asks; NULL where there is none. */
struct symbolizer *site_names_symbolizer(const struct site_names *names);

/* The name of `frame` in a process that started at `started_real_ns` (0: not known). */
struct site_name site_names_find(struct site_names *names, const char *frame,
                                 uint64_t started_real_ns);

/* A frame of a script in the daemon's list, "FILE:LINE in FUNCTION". */
struct site_script {
    char file[400];
    char frame[424];      /* "FILE:LINE" */
    const char *function; /* in the frame */
    uint32_t line;        /* 0 if not known */
};

/* False if it is none. */
bool site_names_script(const char *frame, struct site_script *ret_script);

/* A place in the code of a process. */
struct site_code {
    const char *path;
    const uint8_t *build_id; /* with build_id_len bytes, which may be 0 */
    size_t build_id_len;
    uint64_t offset;          /* as in the ELF file; a return address */
    uint64_t started_real_ns; /* of the process; 0: not known */
    pid_t pid;                /* whose path it is; 0: ours */
    uint64_t map_start;       /* with pid */
};
struct site_name site_names_find_code(struct site_names *names, const struct site_code *code);

/* "train.c:42 load", as far as it is known, with a shortened name; false and nothing where it is not. */
struct buffer;
bool site_names_append(struct site_names *names, const struct site_code *code, struct buffer *out);
