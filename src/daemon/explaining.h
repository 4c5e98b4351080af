/* Questions to the table `explain` (explain/table.h). The loop finds the processes, what the viewer may see of them and their
 * books; another thread reads the mappings and answers. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct asking_viewer;
struct daemon;
struct explain;
struct explaining;
struct query;
struct query_error;
struct query_result;
struct query_spec;

enum { EXPLAINING_MS_MAX = 3000 }; /* for one process */

/* On the loop. 0; -EINVAL with `ret_error` filled in; -EAGAIN while the table of processes is refreshed, or does not have a
 * process yet that runs: ask again; -ENOMEM. Processes of which the viewer may not see details leave no rows. */
int explaining_new(struct daemon *daemon, const struct query_spec *spec,
                   const struct asking_viewer *viewer, struct explaining **ret_explaining,
                   struct query_error *ret_error);
void explaining_free(struct explaining *explaining); /* NULL is fine */

/* On another thread: a finished result. 0 or -errno; then *ret_result stays as it is. It refers to the explaining. */
int explaining_run(struct explaining *explaining, struct query_result **ret_result);

/* On another thread: where the memory of one process goes, read with the rights of the viewer. Root's daemon has rights that a
 * viewer lacks, so it leaves the reading to the broker. As explain_take_apart(), and what the broker returns. */
int explaining_take(struct daemon *daemon, const struct asking_viewer *viewer, pid_t pid,
                    uint32_t uid, struct explain *ret_explain);
