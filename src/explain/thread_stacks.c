/* See thread_stacks.h. */
#include "explain/thread_stacks.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    GUARD_MAX = 128 << 10, /* glibc: a page; a JVM: some more */
    STACK_MAX = 64 << 20,
};

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* "NR ARGUMENTS... SP PC", or "running". */
static uint64_t pointer_read(int tasks, const char *thread)
{
    char path[32], text[256];
    if (snprintf(path, sizeof(path), "%.16s/syscall", thread) >= (int)sizeof(path))
        return 0;
    int fd = openat(tasks, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    char *last = strrchr(text, ' ');
    if (!last)
        return 0;
    *last = '\0';
    char *before = strrchr(text, ' ');
    return before ? strtoull(before + 1, NULL, 16) : 0;
}

int thread_stacks_read(pid_t pid, struct thread_stacks *ret)
{
    char path[64];
    *ret = (struct thread_stacks){0};
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    if (!tasks)
        return 0;
    uint64_t *pointers = calloc(STACKS_THREADS_MAX, sizeof(*pointers));
    if (!pointers) {
        closedir(tasks);
        return -ENOMEM;
    }
    size_t n = 0;
    const struct dirent *entry;
    while ((entry = readdir(tasks))) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        uint64_t pointer =
            ret->n_threads < STACKS_THREADS_MAX ? pointer_read(dirfd(tasks), entry->d_name) : 0;
        ret->n_threads++;
        if (pointer)
            pointers[n++] = pointer;
    }
    closedir(tasks);
    qsort(pointers, n, sizeof(*pointers), by_number);
    ret->pointers = pointers;
    ret->n = n;
    return 0;
}

void thread_stacks_release(struct thread_stacks *stacks)
{
    free(stacks->pointers);
    *stacks = (struct thread_stacks){0};
}

bool thread_stacks_in(const struct thread_stacks *stacks, const struct smaps_mapping *m)
{
    size_t lo = 0, hi = stacks->n;
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if (stacks->pointers[middle] < m->start)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo < stacks->n && stacks->pointers[lo] < m->end;
}

bool thread_stacks_shaped(const struct smaps_mapping *before, const struct smaps_mapping *m)
{
    return before && before->end == m->start && before->inode == 0 && !before->readable &&
           !before->writable && !before->executable && before->end - before->start <= GUARD_MAX &&
           m->readable && m->writable && !m->executable && m->end - m->start <= STACK_MAX;
}
