/* Marks of all processes: tasks.bpf.c, loaded and read. One thread uses it.
 *
 * Needs what exits.h needs, the initial pid namespace, and a kernel for at most TASK_CPUS_MAX processors: with more, adding
 * up what each has counted takes as long as /proc does. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "bpf/exits.h"
#include "bpf/task_mark.h"

struct tasks;

/* Takes about 20 ms. On failure -errno and, for people, `why`. */
int tasks_open(struct tasks **ret_tasks, char why[static EXITS_WHY_MAX]);
void tasks_free(struct tasks *tasks); /* NULL is fine */

/* One for each process, by pid. They are the tasks' own, until the next call. -errno. */
int tasks_read(struct tasks *tasks, const struct task_mark **ret_marks, size_t *ret_n);
