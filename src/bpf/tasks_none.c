/* Marks in a build without clang or libbpf: there are none to be had. See tasks.h. */
#include "bpf/tasks.h"

#include <errno.h>
#include <stdio.h>

int tasks_open(struct tasks **ret_tasks, char why[static EXITS_WHY_MAX])
{
    snprintf(why, EXITS_WHY_MAX, "memoird was built without BPF (meson option bpf)");
    return -ENOTSUP;
}

void tasks_free(struct tasks *tasks)
{
}

int tasks_read(struct tasks *tasks, const struct task_mark **ret_marks, size_t *ret_n)
{
    return -ENOTSUP;
}
