/* Names for places in the code: sites of books, frames in the daemon's list of processes that ended.
 *
 * Where there is no build-id, as in that list, a frame gets a name only if the
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

/* The same over a borrowed symbolizer, which must outlive it. */
struct symbolizer;
struct site_names *site_names_over(struct symbolizer *symbolizer);
void site_names_freep(struct site_names **names);

/* What it asks; NULL where there is none. */
struct symbolizer *site_names_symbolizer(const struct site_names *names);

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

/* The same for the query core, as query_world.source_of has it. */
struct query_code;
struct query_source;
bool site_names_source(struct site_names *names, const struct query_code *code,
                       struct query_source *ret_source);
