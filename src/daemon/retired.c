/* The list of processes that ended. See retired.h. */
#include "daemon/retired.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/accountable.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/allowance.h"

enum { RECORD_TEXT_MAX = 16 << 20 };

static const char file_name[] = "retired.jsonl", old_name[] = "retired.jsonl.1";

struct retired {
    struct retired_process **list; /* room for `keep`, the oldest first */
    size_t keep, n;
    size_t bytes; /* that they take, about */
    uint64_t total, lost;
    int state_fd, fd; /* fd: -1 until the first record, and after a failure */
    uint64_t file_max, file_len;
    struct allowance *file_share; /* bytes of the file that each user may fill */
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

static uint64_t file_burst(uint64_t file_max)
{
    uint64_t part = file_max / RETIRED_FILE_SHARE;
    return part > RETIRED_FILE_BURST_MIN ? part : RETIRED_FILE_BURST_MIN;
}

int retired_new(int state_fd, size_t keep, uint64_t file_max, struct retired **ret_retired)
{
    struct retired *retired = calloc(1, sizeof(*retired));
    if (!retired)
        return -ENOMEM;
    retired->list = calloc(keep, sizeof(struct retired_process *));
    if (!retired->list || allowance_new(file_burst(file_max), RETIRED_FILE_REFILL_S * NS_PER_S,
                                        &retired->file_share) < 0) {
        free(retired->list);
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
    for (size_t i = 0; i < retired->n; i++)
        retired_process_free(retired->list[i]);
    if (retired->fd >= 0)
        close(retired->fd);
    allowance_free(retired->file_share);
    buffer_release(&retired->line);
    free(retired->list);
    free(retired);
}

const struct retired_process *retired_get(const struct retired *retired, size_t i)
{
    return i < retired->n ? retired->list[retired->n - 1 - i] : NULL;
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

/* ---- the list ---- */

static size_t record_bytes(const struct retired_process *p)
{
    return sizeof(*p) + p->n_accounts * (sizeof(*p->accounts) + sizeof(*p->devices)) +
           p->n_blocks * (sizeof(*p->blocks) + sizeof(*p->sites)) + p->text_len;
}

static void list_remove(struct retired *retired, size_t i)
{
    retired->bytes -= record_bytes(retired->list[i]);
    retired_process_free(retired->list[i]);
    retired->n--;
    memmove(&retired->list[i], &retired->list[i + 1],
            (retired->n - i) * sizeof(struct retired_process *));
}

/* Make room for one more of `uid`. A user beyond its share loses its own entries, so that it cannot
 * push out what others left. */
static void list_make_room(struct retired *retired, uint32_t uid, size_t bytes)
{
    uint32_t user = accountable_uid(uid);
    while (retired->n > 0 &&
           (retired->n >= retired->keep || retired->bytes + bytes > RETIRED_MEMORY_MAX)) {
        size_t oldest = 0, count = 0, taken = bytes;
        for (size_t i = retired->n; i > 0; i--)
            if (accountable_uid(retired->list[i - 1]->uid) == user) {
                oldest = i - 1;
                count++;
                taken += record_bytes(retired->list[i - 1]);
            }
        bool over = count >= retired->keep / RETIRED_LIST_SHARE ||
                    taken > RETIRED_MEMORY_MAX / RETIRED_LIST_SHARE;
        list_remove(retired, over && count > 0 ? oldest : 0);
    }
}

static void list_add(struct retired *retired, struct retired_process *process)
{
    size_t bytes = record_bytes(process);
    list_make_room(retired, process->uid, bytes);
    retired->list[retired->n++] = process;
    retired->bytes += bytes;
}

void retired_set_limits(struct retired *retired, size_t keep, uint64_t file_max)
{
    retired->file_max = file_max;
    allowance_set_burst(retired->file_share, file_burst(file_max));
    while (retired->n > keep)
        list_remove(retired, 0);
    struct retired_process **list = reallocarray(retired->list, keep, sizeof(*list));
    if (!list && keep > retired->keep)
        return; /* no memory: the old limit goes on */
    retired->list = list ? list : retired->list;
    retired->keep = keep;
}

/* ---- the file ---- */

/* Where the last whole line ends: a daemon that was killed while it wrote left half of one. */
static off_t whole_lines_end(int fd, off_t size)
{
    char piece[4096];
    for (off_t end = size; end > 0;) {
        off_t start = end > (off_t)sizeof(piece) ? end - (off_t)sizeof(piece) : 0;
        ssize_t n = pread(fd, piece, (size_t)(end - start), start);
        if (n <= 0)
            return size; /* cannot be told: leave it */
        const char *newline = memrchr(piece, '\n', (size_t)n);
        if (newline)
            return start + (newline - piece) + 1;
        end = start;
    }
    return 0;
}

static int file_open(struct retired *retired)
{
    if (retired->fd >= 0)
        return 0;
    MEMOIR_CLEANUP(closep)
    int fd = openat(retired->state_fd, file_name,
                    O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    off_t end = whole_lines_end(fd, st.st_size);
    if (end < st.st_size && ftruncate(fd, end) < 0)
        return -errno;
    retired->file_len = (uint64_t)end;
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
    if (r >= 0 &&
        !allowance_take(retired->file_share, process->uid, retired->line.len, clock_monotonic_ns()))
        return 0; /* counted there */
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
        file_close(retired); /* it or its disk may have been moved: try afresh next time */
    return r;
}

int retired_add(struct retired *retired, struct retired_process *process)
{
    int r = file_append(retired, process);
    if (r < 0)
        retired->lost++;
    retired->total++;
    list_add(retired, process);
    return r;
}

void retired_tell(struct retired *retired, uint64_t now_ns,
                  void (*each)(uint32_t uid, uint64_t refused, void *context), void *context)
{
    allowance_tell(retired->file_share, now_ns, each, context);
}
