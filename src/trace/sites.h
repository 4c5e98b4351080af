/* sites.h: the call sites that a history refers to by number.
 *
 * Whoever feeds a history numbers call sites as it likes (1 to TRACE_SITES_MAX) and defines each number once. A
 * definition is data, not text: frames are (module, offset in its ELF file) or lines of a script, so that a site means
 * the same after a restart and on another machine. Names of native frames are added when some reader has resolved them.
 * A dump holds modules, frames and whatever names are known, and needs no file of the traced machine.
 *
 * Threads: definitions and names come from any thread and take one short lock. Readers take no lock: a site, its
 * frames and its strings are immutable and stay where they are until the table is freed; the lines of a native frame
 * are published once. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    TRACE_SITES_MAX = 1 << 20, /* the largest site number */
    TRACE_FRAMES_MAX = 128,    /* of a site; the outermost ones beyond are cut and `cut` says so */
    TRACE_LINES_MAX = 16,      /* of a frame: the function and what is inlined in it */
    TRACE_MODULES_MAX = 1 << 16,
    TRACE_BUILD_ID_MAX = 32,
    TRACE_STRING_MAX = 4096, /* bytes of a path or of a function's name; longer ones are cut */
    TRACE_SITES_BYTES = 256 << 20, /* of one table; -ENOSPC beyond */
};

struct trace_module {
    const char *path;
    uint8_t build_id[TRACE_BUILD_ID_MAX];
    uint8_t build_id_len; /* 0: none */
};

struct trace_line {
    const char *function; /* "" if not known */
    const char *file;     /* "" if not known */
    uint32_t line;        /* 0 if not known */
};

/* A native frame has a module, an offset, and 0 or more lines, innermost (inlined) first. A frame of a script has
 * no module and one line. */
struct trace_frame {
    const struct trace_module *module; /* NULL: a script's frame, or code without a module */
    uint64_t offset;                   /* address as in the ELF file, of the call's return */
    const struct trace_line *lines;
    uint32_t n_lines;
};

struct trace_site {
    uint32_t number;
    uint16_t n_frames;
    uint16_t cut;                     /* outermost frames that were left out */
    uint64_t key;                     /* site/key.h: the same in every run; 0: not known */
    const struct trace_frame *frames; /* innermost first */
};

struct trace_sites;

int trace_sites_new(struct trace_sites **ret_sites);
void trace_sites_free(struct trace_sites *sites); /* NULL is fine */

/* Define a number. All is copied. A number that is defined already stays as it is (0 is returned: a feeder that
 * reconnects may tell its sites again). -EINVAL: the number or a length is out of bounds; -ENOSPC; -ENOMEM. */
int trace_sites_define(struct trace_sites *sites, const struct trace_site *site);

/* The definition, or NULL. Borrowed until the table is freed. */
const struct trace_site *trace_sites_get(const struct trace_sites *sites, uint32_t number);

/* The largest number that is defined; 0: none. Numbers below it may be undefined. */
uint32_t trace_sites_last(const struct trace_sites *sites);

/* How many are defined. */
uint32_t trace_sites_count(const struct trace_sites *sites);

/* Name a native frame that has no lines yet. All is copied. -ENOENT, -EEXIST, -EINVAL, -ENOSPC, -ENOMEM. */
int trace_sites_name(struct trace_sites *sites, uint32_t number, unsigned frame,
                     const struct trace_line *lines, size_t n_lines);

/* The lines of a frame, safe beside trace_sites_name(): how many. */
size_t trace_frame_lines(const struct trace_frame *frame, const struct trace_line **ret_lines);
