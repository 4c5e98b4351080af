/* observer.h: the observer's loop: reads the ring, keeps traced processes, answers questions. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "observe/kernel.h"

struct observer_options {
    struct kernel_options kernel;
    pid_t pid;                 /* trace this one; 0: all */
    const char *dir;           /* of books; NULL: the usual places */
    const char *socket;        /* to answer at; NULL: nowhere */
    const char *libraries[16]; /* files to attach to, besides those that are found */
    size_t n_libraries;
    const char *search; /* directories as LD_LIBRARY_PATH has them; NULL: none */
    int stream_fd;      /* events go there; -1: nowhere */
    int ready_fd;       /* "ready\n" is written there once probes are attached; -1: nobody waits */
    bool no_books;
    unsigned linger_s; /* end so long after the last holder went; 0: never */
    unsigned keep_s;   /* end so long after process `pid` did; 0: never */
};

enum {
    OBSERVER_ENDED_MAX = 64, /* ended processes whose histories are kept */
    OBSERVER_DUMPS_MAX = 4,  /* that are written at a time */
    OBSERVER_LOOK_MS = 4,    /* between two looks at the ring while records come, */
    OBSERVER_IDLE_LOOKS = 8, /* and so many in vain before it waits to be woken */
    OBSERVER_TICK_MS = 250,  /* between two comparisons of counters with the kernel's */
};

/* Runs until a signal or a request ends it: an exit status. */
int observer_run(const struct observer_options *options);
