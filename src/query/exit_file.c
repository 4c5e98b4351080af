/* Reading exits.ring. See exit_file.h. */
#include "query/exit_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"

enum {
    TRIES = 4,
    HOUR_S = 3600,
    INDEX = 4096, /* of sums; twice as many as there are */
    NONE = UINT16_MAX,
};

uint64_t exit_record_check(const struct exit_record *record)
{
    return hash_bytes(record, offsetof(struct exit_record, check), EXIT_FILE_VERSION);
}

uint64_t exit_sum_check(const struct exit_sum *sum)
{
    return hash_bytes(sum, offsetof(struct exit_sum, check), EXIT_FILE_VERSION);
}

uint32_t exit_hour(uint64_t end_ns)
{
    return (uint32_t)(end_ns / NS_PER_S / HOUR_S);
}

static uint64_t kind_hash(uint32_t hour, uint32_t uid, int32_t status, uint32_t flags,
                          const char *program)
{
    uint64_t hash = hash_combine(hash_combine(hour, uid), (uint32_t)status);
    return hash_bytes(program, strnlen(program, EXIT_PROGRAM_MAX),
                      hash_combine(hash, flags & EXIT_RECORD_OOM));
}

uint64_t exit_record_kind(const struct exit_record *r)
{
    return kind_hash(exit_hour(r->end_ns), r->uid, r->status, r->flags, r->program);
}

uint64_t exit_sum_kind(const struct exit_sum *s)
{
    return kind_hash(s->hour, s->uid, s->status, s->flags, s->program);
}

bool exit_sum_is(const struct exit_sum *s, const struct exit_record *r)
{
    return s->hour == exit_hour(r->end_ns) && s->uid == r->uid && s->status == r->status &&
           ((s->flags ^ r->flags) & EXIT_RECORD_OOM) == 0 &&
           strncmp(s->program, r->program, sizeof(s->program)) == 0;
}

bool exit_header_valid(const struct exit_file_header *header)
{
    return header->magic == EXIT_FILE_MAGIC && header->version == EXIT_FILE_VERSION &&
           header->slots == EXIT_FILE_SLOTS && header->sums == EXIT_FILE_SUMS &&
           memchr(header->why, '\0', sizeof(header->why));
}

bool exit_record_valid(const struct exit_record *record)
{
    return record->sequence != 0 && record->check == exit_record_check(record) &&
           memchr(record->program, '\0', sizeof(record->program)) &&
           memchr(record->cgroup, '\0', sizeof(record->cgroup));
}

bool exit_sum_valid(const struct exit_sum *sum)
{
    return sum->count != 0 && sum->check == exit_sum_check(sum) &&
           memchr(sum->program, '\0', sizeof(sum->program));
}

static bool read_at(int fd, void *data, size_t size, size_t offset)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = pread(fd, (char *)data + done, size - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

/* What does not match is being written, or it is broken. */
static void settle(int fd, struct exit_file *file)
{
    for (size_t i = 0; i < EXIT_FILE_SLOTS; i++) {
        struct exit_record *r = &file->records[i];
        for (int try = 0; try < TRIES && r->sequence != 0 && !exit_record_valid(r); try++)
            if (!read_at(fd, r, sizeof(*r), offsetof(struct exit_file, records[i])))
                break;
        if (!exit_record_valid(r))
            r->sequence = 0;
    }
    for (size_t i = 0; i < EXIT_FILE_SUMS; i++) {
        struct exit_sum *s = &file->sums[i];
        for (int try = 0; try < TRIES && s->count != 0 && !exit_sum_valid(s); try++)
            if (!read_at(fd, s, sizeof(*s), offsetof(struct exit_file, sums[i])))
                break;
        if (!exit_sum_valid(s))
            s->count = 0;
    }
}

/* Sums are read after the slots. What gave way in between is in both, and is left in its sum: those of one kind
 * give way in their order. */
static void drop_folded(struct exit_file *file)
{
    uint16_t index[INDEX];
    memset(index, 0xff, sizeof(index));
    for (uint16_t i = 0; i < EXIT_FILE_SUMS; i++) {
        if (file->sums[i].count == 0)
            continue;
        uint64_t at = exit_sum_kind(&file->sums[i]) % INDEX;
        while (index[at] != NONE)
            at = (at + 1) % INDEX;
        index[at] = i;
    }
    for (size_t i = 0; i < EXIT_FILE_SLOTS; i++) {
        struct exit_record *r = &file->records[i];
        if (r->sequence == 0)
            continue;
        uint64_t at = exit_record_kind(r) % INDEX;
        while (index[at] != NONE && !exit_sum_is(&file->sums[index[at]], r))
            at = (at + 1) % INDEX;
        if (index[at] != NONE && file->sums[index[at]].folded_to >= r->sequence)
            r->sequence = 0;
    }
}

static int file_open(const char *state)
{
    char path[4096];
    if (snprintf(path, sizeof(path), "%s/%s", state, EXIT_FILE_NAME) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe there would hold us up */
    struct stat info;
    if (fd < 0 || fstat(fd, &info) < 0)
        return -errno;
    return S_ISREG(info.st_mode) ? MEMOIR_TAKE_FD(fd) : -EINVAL;
}

int exit_file_header_read(const char *state, struct exit_file_header *ret_header)
{
    MEMOIR_CLEANUP(closep)
    int fd = file_open(state);
    struct exit_file_header header;
    if (fd < 0)
        return fd;
    if (!read_at(fd, &header, sizeof(header), 0) || !exit_header_valid(&header))
        return -EINVAL;
    *ret_header = header;
    return 0;
}

int exit_file_read(const char *state, struct exit_file **ret_file)
{
    MEMOIR_CLEANUP(closep)
    int fd = file_open(state);
    if (fd < 0)
        return fd;
    MEMOIR_CLEANUP(freep)
    struct exit_file *file = malloc(sizeof(*file));
    if (!file)
        return -ENOMEM;
    if (!read_at(fd, file, sizeof(*file), 0) || !exit_header_valid(&file->header))
        return -EINVAL;
    settle(fd, file);
    drop_folded(file);
    *ret_file = MEMOIR_TAKE(file);
    return 0;
}

const char *exit_status_text(int status, bool oom, char text[static EXIT_CAUSE_TEXT_MAX])
{
    const char *core = WIFSIGNALED(status) && WCOREDUMP(status) ? " (core dumped)" : "";
    int number = WTERMSIG(status);
    const char *name = WIFSIGNALED(status) ? sigabbrev_np(number) : NULL;
    if (WIFEXITED(status))
        snprintf(text, EXIT_CAUSE_TEXT_MAX, "exited with %d", WEXITSTATUS(status));
    else if (oom)
        snprintf(text, EXIT_CAUSE_TEXT_MAX, "OOM kill");
    else if (name)
        snprintf(text, EXIT_CAUSE_TEXT_MAX, "killed by SIG%s%s", name, core);
    else if (number >= SIGRTMIN && number <= SIGRTMAX)
        snprintf(text, EXIT_CAUSE_TEXT_MAX, "killed by SIGRTMIN+%d%s", number - SIGRTMIN, core);
    else
        snprintf(text, EXIT_CAUSE_TEXT_MAX, "killed by signal %d%s", number, core);
    return text;
}
