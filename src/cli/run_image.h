/*
 * run_image.h: which program a process runs, so that the figures of one image are not taken for those of the next.
 *
 * A program that is tracked may execute one that is not: a static one, a set-uid one, one without LD_PRELOAD. The books of the
 * process are then those of an earlier image. The process is looked at whenever one of its books comes or goes, and from time to
 * time, and once more between its end and wait(): then its name is all that is left of it.
 */
#ifndef MEMOIR_CLI_RUN_IMAGE_H
#define MEMOIR_CLI_RUN_IMAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct ledger;
struct ledger_process;

enum { RUN_IMAGE_NAME_MAX = 64, RUN_IMAGE_PATH_MAX = 4096 };

struct run_image {
    uint64_t seen_ns;                  /* CLOCK_MONOTONIC, when it was looked at last; 0: never */
    uint64_t exec_id;                  /* as in its book; 0: it may not be looked at */
    bool closed;                       /* it may not be looked at */
    char path[RUN_IMAGE_PATH_MAX];     /* "": not known */
    char name[RUN_IMAGE_NAME_MAX];     /* comm, when it was looked at */
    char end_name[RUN_IMAGE_NAME_MAX]; /* comm at the end; "": not known */
    const char *why_not; /* why a program of this kind cannot be tracked; NULL: it can */
};

/* What the process runs now. `mapped`: it still maps one of its books, and so runs what it ran when that was made. Nothing changes
 * where it is about to end. */
void run_image_look(struct run_image *image, pid_t pid, bool mapped);

/* The process has ended, and wait() was not called yet. */
void run_image_ended(struct run_image *image, pid_t pid);

enum run_image_verdict {
    RUN_IMAGE_SAME,     /* the figures are those of the program that ended */
    RUN_IMAGE_REPLACED, /* that was another one, which left no figures */
    RUN_IMAGE_PERHAPS, /* it ended under another name, and not in order: exec, or only a new name */
};

/* When the last book of an image was made. */
uint64_t run_image_created_ns(const struct ledger_process *process);

/* Is `process` known to be the image that ended: did it say that it exits, or (`image` may be NULL) was it seen last? 0 where that is
 * not known; a proof counts for more than a look. */
unsigned run_image_proof(const struct run_image *image, const struct ledger_process *process);

/* Are the figures of `process`, the last one of `ledger` that left some, those of the program that ended? */
enum run_image_verdict run_image_judge(const struct run_image *image, const struct ledger *ledger,
                                       const struct ledger_process *process);

/* What the program at the end is called, as far as that is known. */
const char *run_image_last(const struct run_image *image);

#endif
