/* What history notes besides the books: resident and proportional sizes of all processes, as the process table
 * has them, and the memory of the machine. Of processes that keep no book only the largest, and only those
 * that live for some seconds, so that a build of thousands does not fill the file with their names. One thread,
 * the writer's. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct history_host;
struct hosts;
struct sample;

enum {
    HISTORY_HOST_AGE_S = 3,  /* younger ones are left out */
    HISTORY_HOST_PSS_S = 10, /* the PSS of a process in its first picture may be that old */
    HISTORY_HOST_NAME_S =
        30, /* for so long one whose program is not known yet waits for its name */
};

/* `hosts` is borrowed for good. */
int history_host_new(struct hosts *hosts, struct history_host **ret_host);
void history_host_free(struct history_host *host); /* NULL is fine */

/* Complete a picture: sizes of the processes that are in it, up to `processes_max` others, and the machine. Of one
 * user other than root and us, no more than `per_user_max` values in all. */
void history_host_fill(struct history_host *host, struct sample *sample, size_t processes_max,
                       uint64_t per_user_max);
