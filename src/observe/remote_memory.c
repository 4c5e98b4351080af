/* Memory of another process. See remote_memory.h. */
#include "observe/remote_memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "base/accountable.h"
#include "observe/deadline.h"

enum { PIECES_MAX = 64 }; /* of one system call */

static uint32_t file_uid(pid_t pid)
{
    char path[32];
    struct stat st;
    snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
    return stat(path, &st) == 0 ? st.st_uid : UINT32_MAX;
}

void remote_memory_init(struct remote_memory *memory, pid_t pid, struct deadline *deadline)
{
    char path[32];
    struct stat st;
    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    uint32_t owner = stat(path, &st) == 0 ? accountable_uid(st.st_uid) : UINT32_MAX;
    *memory = (struct remote_memory){.pid = pid,
                                     .deadline = owner == 0 ? NULL : deadline,
                                     .deadline_of_users = deadline,
                                     .owner = owner,
                                     .file_uid = file_uid(pid)};
}

/* How many pieces one call read; the kernel stops at the first that it cannot read. */
static size_t read_some(pid_t pid, struct remote_piece *pieces, size_t n)
{
    struct iovec to[PIECES_MAX], from[PIECES_MAX];
    for (size_t i = 0; i < n; i++) {
        to[i] = (struct iovec){pieces[i].to, pieces[i].bytes};
        from[i] = (struct iovec){(void *)(uintptr_t)pieces[i].address, pieces[i].bytes};
    }
    ssize_t got = process_vm_readv(pid, to, n, from, n, 0);
    size_t done = 0;
    for (; got > 0 && done < n && (size_t)got >= pieces[done].bytes; done++) {
        got -= (ssize_t)pieces[done].bytes;
        pieces[done].done = true;
    }
    return done;
}

static void read_all(pid_t pid, struct remote_piece *pieces, size_t n)
{
    while (n > 0) {
        size_t batch = n < PIECES_MAX ? n : PIECES_MAX;
        size_t done = read_some(pid, pieces, batch);
        done += done < batch; /* one that cannot be read is left out */
        pieces += done;
        n -= done;
    }
}

/* The same in a worker: with pieces and bytes of its own. */
struct read_job {
    struct deadline_job job;
    pid_t pid;
    size_t n;
    struct remote_piece pieces[];
};

static void job_run(struct deadline_job *job)
{
    struct read_job *j = (struct read_job *)job;
    read_all(j->pid, j->pieces, j->n);
}

static int read_within(struct remote_memory *memory, struct remote_piece *pieces, size_t n)
{
    size_t bytes = 0, head = sizeof(struct read_job) + n * sizeof(pieces[0]);
    for (size_t i = 0; i < n; i++)
        bytes += pieces[i].bytes;
    struct read_job *job = malloc(head + bytes);
    if (!job)
        return -ENOMEM;
    *job = (struct read_job){.job.run = job_run, .pid = memory->pid, .n = n};
    uint8_t *at = (uint8_t *)job + head;
    for (size_t i = 0; i < n; i++) {
        job->pieces[i] = pieces[i];
        job->pieces[i].to = at;
        at += pieces[i].bytes;
    }
    int r = deadline_run(memory->deadline, memory->owner, &job->job);
    for (size_t i = 0; i < n && r == 0; i++) {
        pieces[i].done = job->pieces[i].done;
        if (pieces[i].done)
            memcpy(pieces[i].to, job->pieces[i].to, pieces[i].bytes);
    }
    if (r != -ETIME)
        free(job);
    return r;
}

void remote_memory_read(void *context, struct remote_piece *pieces, size_t n)
{
    struct remote_memory *memory = context;
    for (size_t i = 0; i < n; i++)
        pieces[i].done = pieces[i].bytes == 0;
    if (memory->stuck || n == 0)
        return;
    if (!memory->deadline)
        read_all(memory->pid, pieces, n);
    else if (read_within(memory, pieces, n) == -ETIME)
        memory->stuck = true;
    if (memory->stuck || file_uid(memory->pid) == memory->file_uid)
        return;
    for (size_t i = 0; i < n; i++)
        pieces[i].done = pieces[i].bytes == 0;
    if (memory->file_uid == 0)
        remote_memory_init(memory, memory->pid, memory->deadline_of_users);
    else
        memory->stuck = true;
}
