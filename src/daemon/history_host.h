/* What history notes besides the books: resident and proportional sizes of all processes, as the process table has them,
 * and the memory of the machine. Of processes without a book only the largest are noted, and only those that live for some
 * seconds, so that a build of thousands does not fill the file with their names. One thread, the writer's. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct history_host;
struct host;
struct hosts;
struct sample;

enum {
    HISTORY_HOST_AGE_S = 3,  /* younger processes are left out */
    HISTORY_HOST_PSS_S = 10, /* how old the PSS of a process in its first picture may be */
    HISTORY_HOST_NAME_S =
        30, /* until so long after the start, processes without a known program are left out */
    HISTORY_HOST_VALUES = 2, /* of a process without a book: resident and proportional size */
};

/* `hosts` is borrowed for good; NULL: pictures stay without sizes. `now_ns` is CLOCK_MONOTONIC. */
int history_host_new(struct hosts *hosts, uint64_t now_ns, struct history_host **ret_host);
void history_host_free(struct history_host *host); /* NULL is fine */

/* Complete a picture that has its totals (sample_totals()): sizes of the processes that are in it, up to `processes_max`
 * others, and the machine. Values of one user count against `per_user_max`: see sample_reserve(). */
void history_host_fill(struct history_host *host, struct sample *sample, size_t processes_max,
                       uint64_t per_user_max);

/* The same from this table, at this time. All pictures of one history_host are from one table. */
void history_host_fill_from(struct history_host *host, const struct host *table, uint64_t now_ns,
                            struct sample *sample, size_t processes_max, uint64_t per_user_max);
