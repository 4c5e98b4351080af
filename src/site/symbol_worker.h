/* A process that runs the symbol engine on files of strangers. The parent sends open files, so the
 * worker needs no privileges; it may crash, hang or run out of memory without harm. */
#pragma once

#include <sys/types.h>

#include "base/buffer.h"
#include "site/symbol_file.h"

struct symbol_worker {
    pid_t pid; /* 0: not running */
    int pidfd; /* of it; -1: there is none */
    int fd;
    const char *debug_dir; /* borrowed */
    unsigned modules_max;
    unsigned timeout_ms;
    size_t bytes_max;
};

/* Start it: 0 or -errno. */
int symbol_worker_start(struct symbol_worker *w);

/* Let it end by itself, as one that waits for work does at once; else the same as symbol_worker_stop(). Who lists the
 * ends of processes should not find it killed. */
void symbol_worker_end(struct symbol_worker *w);

/* Kill it if it runs, and wait for its end. */
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
