/* The list of processes that ended. See retired.h. */
#include "daemon/retired.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"

enum { RECORD_TEXT_MAX = 16 << 20 };

static const char file_name[] = "retired.jsonl", old_name[] = "retired.jsonl.1";

struct retired {
    struct retired_process **ring; /* `keep` slots */
    size_t keep, n, next;
    uint64_t total, lost;
    int state_fd, fd; /* fd: -1 until the first record, and after a failure */
    uint64_t file_max, file_len;
    struct buffer line;
};

void retired_process_free(struct retired_process *process)
{
    if (!process)
        return;
    free(process->devices);
    free(process->accounts);
    free(process->blocks);
    free(process->sites);
    free(process->text);
    free(process);
}

int retired_new(int state_fd, size_t keep, uint64_t file_max, struct retired **ret_retired)
{
    struct retired *retired = calloc(1, sizeof(*retired));
    if (!retired)
        return -ENOMEM;
    retired->ring = calloc(keep, sizeof(struct retired_process *));
    if (!retired->ring) {
        free(retired);
        return -ENOMEM;
    }
    retired->keep = keep;
    retired->state_fd = state_fd;
    retired->fd = -1;
    retired->file_max = file_max;
    buffer_init(&retired->line, RECORD_TEXT_MAX);
    *ret_retired = retired;
    return 0;
}

void retired_free(struct retired *retired)
{
    if (!retired)
        return;
    for (size_t i = 0; i < retired->keep; i++)
        retired_process_free(retired->ring[i]);
    if (retired->fd >= 0)
        close(retired->fd);
    buffer_release(&retired->line);
    free(retired->ring);
    free(retired);
}

const struct retired_process *retired_get(const struct retired *retired, size_t i)
{
    if (i >= retired->n)
        return NULL;
    return retired->ring[(retired->next + retired->keep - 1 - i) % retired->keep];
}

size_t retired_count(const struct retired *retired)
{
    return retired->n;
}

uint64_t retired_total(const struct retired *retired)
{
    return retired->total;
}

uint64_t retired_lost(const struct retired *retired)
{
    return retired->lost;
}

void retired_set_limits(struct retired *retired, size_t keep, uint64_t file_max)
{
    retired->file_max = file_max;
    struct retired_process **ring = keep == retired->keep ? NULL : calloc(keep, sizeof(*ring));
    if (!ring)
        return; /* the same, or no memory: the old limit goes on */
    size_t kept = retired->n < keep ? retired->n : keep;
    for (size_t i = 0; i < retired->n; i++) {
        size_t from = (retired->next + retired->keep - 1 - i) % retired->keep;
        if (i < kept)
            ring[kept - 1 - i] = retired->ring[from];
        else
            retired_process_free(retired->ring[from]);
    }
    free(retired->ring);
    retired->ring = ring;
    retired->keep = keep;
    retired->n = kept;
    retired->next = kept % keep;
}

/* ---- the file ---- */

static int file_open(struct retired *retired)
{
    if (retired->fd >= 0)
        return 0;
    MEMOIR_CLEANUP(closep)
    int fd = openat(retired->state_fd, file_name,
                    O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    retired->file_len = (uint64_t)st.st_size;
    retired->fd = MEMOIR_TAKE_FD(fd);
    return 0;
}

static void file_close(struct retired *retired)
{
    if (retired->fd >= 0)
        close(retired->fd);
    retired->fd = -1;
}

static int file_write(struct retired *retired, const char *data, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = write(retired->fd, data + done, len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int r = n < 0 ? -errno : -ENOSPC;
            /* Half a line would spoil the file for every reader. */
            (void)!ftruncate(retired->fd, (off_t)retired->file_len);
            return r;
        }
        done += (size_t)n;
    }
    retired->file_len += len;
    return 0;
}

static int file_append(struct retired *retired, const struct retired_process *process)
{
    if (retired->state_fd < 0 || retired->file_max == 0)
        return 0;
    buffer_reset(&retired->line);
    int r = retired_json(process, &retired->line);
    if (r >= 0)
        r = file_open(retired);
    if (r >= 0 && retired->file_len > 0 &&
        retired->file_len + retired->line.len > retired->file_max) {
        if (renameat(retired->state_fd, file_name, retired->state_fd, old_name) < 0)
            return -errno;
        file_close(retired);
        r = file_open(retired);
    }
    if (r >= 0)
        r = file_write(retired, retired->line.data, retired->line.len);
    if (r < 0)
        file_close(retired); /* somebody may have moved it or its disk: try afresh next time */
    return r;
}

int retired_add(struct retired *retired, struct retired_process *process)
{
    int r = file_append(retired, process);
    if (r < 0)
        retired->lost++;
    retired->total++;
    retired_process_free(retired->ring[retired->next]);
    retired->ring[retired->next] = process;
    retired->next = (retired->next + 1) % retired->keep;
    if (retired->n < retired->keep)
        retired->n++;
    return r;
}
