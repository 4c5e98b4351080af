/* Names for code addresses: function, file, line, inlined calls. Reader side: the command line and the
 * daemon; uses malloc, elfutils' libdw and a process of its own.
 *
 * Files are untrusted. Debug information is a language rich enough to crash, hang or exhaust a
 * parser, so the parsing happens in a worker process: it is given open files, can open none itself (seccomp), has no
 * capabilities (root becomes a user that has nothing) and a memory limit, and ends when it takes too long. A worker that cannot be
 * confined does not start. A file that ended the worker is remembered and not tried again. Nothing is ever fetched
 * from the network.
 *
 * Where debug information is looked for: in the file itself, then
 * /usr/lib/debug/.build-id/ab/cdef....debug, then its .gnu_debuglink beside it, in .debug beside it,
 * and under /usr/lib/debug. Without any, function names come from the symbol tables.
 *
 * One owner at a time: a symbolizer has no lock. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct symbolizer;
struct symbol_worker_setup;

/* A file to open: the first of these that can be. */
struct symbol_wanted {
    pid_t pid;           /* 0: none */
    int mapped;          /* names a file that `pid` has mapped (O_PATH); -1: none */
    const char *in_root; /* path inside the root of `pid`; NULL: none */
    const char *path;    /* path in our root; NULL: none */
    int64_t before_s;    /* it must not have been written or replaced since; 0: does not matter */
    bool (*may_open)(int path_fd, pid_t pid); /* is asked before a file (O_PATH) is; NULL: yes */
};

/* What a daemon does for the symbolizer where it answers users with rights that they do not have. Both calls may take
 * seconds. */
struct symbol_host {
    /* Open a regular file with the rights of `owner`: a descriptor or -errno. */
    int (*open)(void *context, uint32_t owner, const struct symbol_wanted *wanted);
    /* Start a process that calls symbol_worker_serve() with a copy of `fd`: 0 or -errno. */
    int (*spawn)(void *context, int fd, const struct symbol_worker_setup *setup);
    void *context;
};

enum { SYMBOL_OWNER_NONE = -1 };

struct symbolizer_options {
    size_t results_bytes_max; /* cached answers; default 64 MiB */
    size_t worker_bytes_max;  /* memory of the worker; default 4 GiB */
    unsigned modules_max;     /* files kept open by the worker; default 64 */
    unsigned timeout_ms;      /* for one answer; default 20000: large files take seconds at first */
    const struct symbol_host *host; /* NULL: files are opened with our own rights; else borrowed */
    bool in_process;                /* no worker: only for files that are trusted, and for tests */
    const char *debug_dir;          /* default "/usr/lib/debug"; borrowed during symbolizer_new() */
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
    uint64_t map_start; /* with pid: the module's first address there; 0 if not known */
    int64_t
        before_s; /* without build-id: since 1970; a file that changed later did not run. 0: does not matter */
    uint32_t owner;         /* set by the symbolizer: symbolizer_act_as() */
    bool is_return_address; /* look up the call before it */
};

struct symbol_frame {
    const char *function;     /* demangled; NULL if not known */
    const char *file;         /* NULL if not known */
    uint32_t line;            /* 0 if not known */
    uint32_t column;          /* 0 if not known */
    uint64_t function_offset; /* of the queried offset from the start of the (outermost) function */
    uint32_t function_bytes;  /* code of the (outermost) function; 0 if not known */
    bool inlined;             /* was compiled into the frame that follows */
};

/* `options` may be NULL. Starts the worker, so call it early, before there are threads and much
 * memory. */
int symbolizer_new(const struct symbolizer_options *options, struct symbolizer **ret_symbolizer);
void symbolizer_free(struct symbolizer *s);

/* With options.host: from now on queries are about processes of this user, whose rights open the files. Answers are
 * kept per user. Until the first call nothing can be opened. */
void symbolizer_act_as(struct symbolizer *s, uint32_t owner);

/* Resolve one address. Gives at least one frame, the innermost first; they stay the symbolizer's and
 * are good until the next call. Errors (also remembered):
 *   -ENOENT   there is no such file (or module)
 *   -ESTALE   the file is another build than the one that ran, and no debug file has the right one
 *   -ENODATA  nothing is known about this address
 *   -EBADMSG  not an ELF file, or one that broke the worker
 *   -EACCES   and others from opening the file, or -EPERM: no worker could be confined
 *   -ETIMEDOUT, -ENOMEM
 * About 20 ns for an answer known from before; else from 50 us to seconds. */
int symbolizer_resolve(struct symbolizer *s, const struct symbol_query *query,
                       const struct symbol_frame **ret_frames, size_t *ret_n);

/* Look up many offsets of one module at once and remember the answers, for symbolizer_resolve() to find: about five
 * times faster than one by one. query->offset plays no part. What fails is looked up again when it is asked
 * for, and fails there. */
void symbolizer_prefetch(struct symbolizer *s, const struct symbol_query *query,
                         const uint64_t *offsets, size_t n);

/* The function at an address of code that a process made at run time, by the map that the process wrote (perf_map.h); NULL where
 * there is none. The map is read anew after some seconds. Good until the next call. */
const char *symbolizer_made_code(struct symbolizer *s, pid_t pid, uint64_t address);

struct symbolizer_stats {
    uint64_t queries;
    uint64_t misses;
    uint64_t evicted;
    uint64_t worker_starts;
    uint64_t worker_deaths; /* crashed, hung or out of memory on some file */
    size_t results_bytes;
};
void symbolizer_stats(const struct symbolizer *s, struct symbolizer_stats *ret_stats);
