/* A process that runs the symbol engine on untrusted files. It is sent open files and can open none itself
 * (symbol_confine.h); it may crash, hang or run out of memory without harm. */
#pragma once

#include <sys/types.h>

#include "base/buffer.h"
#include "site/symbol_file.h"

/* What a worker needs to know. Crosses a socket where a broker starts it. */
struct symbol_worker_setup {
    uint64_t bytes_max;
    uint32_t modules_max;
    uint32_t timeout_ms;
};

struct symbol_worker {
    int fd;    /* -1: not running */
    pid_t pid; /* of our child; 0: a host started it, and it ends by itself once nobody listens */
    int pidfd; /* of our child; -1: there is none */
    struct symbol_worker_setup setup;
    const char *debug_dir;          /* borrowed */
    const struct symbol_host *host; /* borrowed, or NULL */
};

/* Start it and wait until it is confined: 0; -EPERM: it could not be; -errno. */
int symbol_worker_start(struct symbol_worker *w);

/* The worker itself, in a process of one thread: `fd` is its socket. Confines itself first, and exits at once if that
 * fails. */
_Noreturn void symbol_worker_serve(int fd, const struct symbol_worker_setup *setup);

/* Let it end by itself, as one that waits for work does at once; else the same as symbol_worker_stop(). Who lists the
 * ends of processes should not find it killed. */
void symbol_worker_end(struct symbol_worker *w);

/* Kill it if it runs, and wait for its end. One that a host started has a timer of its own instead. */
void symbol_worker_stop(struct symbol_worker *w);

enum { SYMBOL_WORKER_OFFSETS_MAX = 256 };

/* Ask for the records of `n` offsets (1 to SYMBOL_WORKER_OFFSETS_MAX) of the query's module. `each` gets them one
 * by one, as they come; `record` is room for them. Else as below. */
int symbol_worker_resolve_many(struct symbol_worker *w, const struct symbol_query *query,
                               const struct symbol_files *files, const uint64_t *offsets, size_t n,
                               struct buffer *record, void (*each)(size_t i, void *context),
                               void *context);

/* Ask for one record; the files stay the caller's. 0, or -ETIMEDOUT or -EBADMSG when the worker had to
 * be stopped or died over it: then it has to be started again. */
int symbol_worker_resolve(struct symbol_worker *w, const struct symbol_query *query,
                          const struct symbol_files *files, struct buffer *record);
