/* Names for code addresses: function, file, line, inlined calls. Reader side: the command line and the
 * daemon; uses malloc, elfutils' libdw and a process of its own.
 *
 * Files come from strangers. Debug information is a language rich enough to crash, hang or exhaust a
 * parser, so the parsing happens in a worker process: it is given open files, holds no privileges
 * (root becomes nobody), has a memory limit, and is killed when it takes too long. What killed it is
 * remembered and not tried again. Nothing is ever fetched from the network.
 *
 * Where debug information is looked for: in the file itself, then
 * /usr/lib/debug/.build-id/ab/cdef....debug, then its .gnu_debuglink beside it, in .debug beside it,
 * and under /usr/lib/debug. Without any, function names come from the symbol tables. (The worker of a
 * daemon that runs as root finds by link only what everybody may read.)
 *
 * One owner at a time: a symbolizer has no lock. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct symbolizer;

struct symbolizer_options {
    size_t results_bytes_max; /* cached answers; default 64 MiB */
    size_t worker_bytes_max;  /* memory of the worker; default 4 GiB */
    unsigned modules_max;     /* files kept open by the worker; default 64 */
    unsigned timeout_ms;      /* for one answer; default 20000: large files take seconds at first */
    /* a path that a stranger names is followed only to files that everybody may read: for root's daemon,
     * which tells him what is in them. What his process has mapped is no such path */
    bool public_only;
    bool in_process;       /* no worker: only for files that are trusted, and for tests */
    const char *debug_dir; /* default "/usr/lib/debug"; borrowed during symbolizer_new() */
};

struct symbol_query {
    const char *path;        /* as the process saw it */
    const uint8_t *build_id; /* with build_id_len bytes, which may be 0: then any file will do */
    size_t build_id_len;
    uint64_t offset; /* address as in the ELF file: module_offset() */
    /* Whose path it is. 0: ours. Else the file that the process has mapped, through
     * /proc/PID/map_files where that is allowed; or else its path inside /proc/PID/root, resolved so
     * that no link leads out of there. */
    pid_t pid;
    uint64_t map_start;     /* with pid: the module's first address there; 0 if not known */
    bool is_return_address; /* look up the call before it */
};

struct symbol_frame {
    const char *function;     /* demangled; NULL if not known */
    const char *file;         /* NULL if not known */
    uint32_t line;            /* 0 if not known */
    uint32_t column;          /* 0 if not known */
    uint64_t function_offset; /* of the queried offset from the start of the (outermost) function */
    bool inlined;             /* was compiled into the frame that follows */
};

/* `options` may be NULL. Starts the worker, so call it early, before there are threads and much
 * memory. */
int symbolizer_new(const struct symbolizer_options *options, struct symbolizer **ret_symbolizer);
void symbolizer_free(struct symbolizer *s);

/* Resolve one address. Gives at least one frame, the innermost first; they stay the symbolizer's and
 * are good until the next call. Errors (also remembered):
 *   -ENOENT   there is no such file (or module)
 *   -ESTALE   the file is another build than the one that ran, and no debug file has the right one
 *   -ENODATA  nothing is known about this address
 *   -EBADMSG  not an ELF file, or one that broke the worker
 *   -EACCES   and others from opening the file
 *   -ETIMEDOUT, -ENOMEM
 * About 20 ns for an answer known from before; else from 50 us to seconds. */
int symbolizer_resolve(struct symbolizer *s, const struct symbol_query *query,
                       const struct symbol_frame **ret_frames, size_t *ret_n);

/* Look up many offsets of one module at once and remember the answers, for symbolizer_resolve() to find: about five
 * times faster than one by one. query->offset plays no part. What fails is looked up again when it is asked
 * for, and fails there. */
void symbolizer_prefetch(struct symbolizer *s, const struct symbol_query *query,
                         const uint64_t *offsets, size_t n);

struct symbolizer_stats {
    uint64_t queries;
    uint64_t misses;
    uint64_t evicted;
    uint64_t worker_starts;
    uint64_t worker_deaths; /* crashed, hung or out of memory on some file */
    size_t results_bytes;
};
void symbolizer_stats(const struct symbolizer *s, struct symbolizer_stats *ret_stats);
