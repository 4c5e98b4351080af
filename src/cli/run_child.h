/*
 * run_child.h: run a program as if it had been started without us.
 *
 * It stays in our process group, so the terminal's signals reach it by themselves; others are handed on. When
 * it is stopped from the terminal we stop too, so that a shell sees its job stopped, and with us it goes on.
 *
 * Who wants to look at its memory once more before it is gone is told at the last moment: then the program is
 * traced (ptrace), which costs it something for every signal, and no other program can trace it meanwhile.
 */
#ifndef MEMOIR_CLI_RUN_CHILD_H
#define MEMOIR_CLI_RUN_CHILD_H

#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

struct run_child {
    char **argv;                               /* ended by NULL */
    void (*prepare)(void *context, pid_t pid); /* in the child, before exec: its environment */
    /* In the parent, before the program begins: the child waits until this returns. Or NULL. */
    void (*started)(void *context, pid_t pid);
    void (*ready)(void *context, pid_t pid); /* `fd` can be read (-1: not wanted) */
    void (*ended)(void *context,
                  pid_t pid); /* the child has ended, and still has its PID; or NULL */
    void (*look)(void *context, pid_t pid); /* the child is gone */
    /* It has done its last instruction and stands still, its memory still there; or NULL. Not told where it could
     * not be traced, and not of a first thread that ends before the others. */
    void (*leaving)(void *context, pid_t pid);
    /* Called every tick_ms while it runs (0: never). */
    void (*tick)(void *context, pid_t pid);
    int tick_ms;
    int fd;
    void *context;
};

struct run_end {
    pid_t pid;
    int status; /* as of waitpid() */
    int traced; /* for run_child.leaving: 0, or -errno */
    uint64_t duration_ns;
    struct rusage usage; /* its own and its children's that it waited for */
};

/* Become the program. Only returns, with -errno, where that fails. */
int run_exec(const struct run_child *child);

/* Start it and wait for its end. -errno where it could not be started. */
int run_wait(const struct run_child *child, struct run_end *ret_end);

/* End as it ended: by the same signal, or with the exit code that is returned. */
int run_end_alike(int status);

#endif
