/* A process that runs the symbol engine on files of strangers. The parent sends open files, so the
 * worker needs no privileges; it may crash, hang or run out of memory without harm. */
#pragma once

#include <sys/types.h>

#include "base/buffer.h"
#include "site/symbol_file.h"

struct symbol_worker {
    pid_t pid; /* 0: not running */
    int fd;
    const char *debug_dir; /* borrowed */
    unsigned modules_max;
    unsigned timeout_ms;
    size_t bytes_max;
};

/* Start it: 0 or -errno. */
int symbol_worker_start(struct symbol_worker *w);

/* Kill it if it runs, and wait for its end. */
void symbol_worker_stop(struct symbol_worker *w);

/* Ask for one record; the files stay the caller's. 0, or -ETIMEDOUT or -EBADMSG when the worker had to
 * be stopped or died over it: then it has to be started again. */
int symbol_worker_resolve(struct symbol_worker *w, const struct symbol_query *query,
                          const struct symbol_files *files, struct buffer *record);
