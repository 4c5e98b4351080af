/* How a process ended. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct cause {
    enum {
        CAUSE_UNKNOWN,      /* it ended before we looked, or its end was hidden from us */
        CAUSE_EXITED,       /* value: exit code */
        CAUSE_KILLED,       /* value: signal */
        CAUSE_EXEC,         /* another program took its place */
        CAUSE_DISCONNECTED, /* of another machine: it did not come back after its connection closed */
        CAUSE_FOUND,        /* never seen alive: there was only a book about it */
    } kind;
    int value;
    bool core; /* with KILLED: it left a core dump */
    bool oom;  /* with KILLED: the kernel's OOM killer had chosen it */
};

enum { CAUSE_TEXT_MAX = 48 };

/* Of the process behind `pidfd` (-1: none), which was `pid` and began at `start_ticks`. Makes a few
 * system calls, never waits. */
struct cause cause_read(int pidfd, pid_t pid, uint64_t start_ticks);

/* From a status as wait() gives it. */
struct cause cause_of_status(int status);

/* "exited with 0", "killed by SIGKILL", "killed by SIGSEGV (core dumped)", "OOM kill", "replaced by exec", "found dead", "cause unknown". Returns `text`. */
const char *cause_text(struct cause cause, char text[static CAUSE_TEXT_MAX]);
