/* STATE/exits.ring is a file that a crash may have torn, and that anybody may be asked to read by --state.
 *
 * It has 1.6 MB of fixed layout, so an input is a list of changes to a file that is valid and empty: what to change (the
 * header, a record, a sum, the length), whether to make the check sum right again, which one, where in it, and bytes. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "query/exit_file.h"
#include "query/query.h"

enum { CHANGES_MAX = 64, CHANGE_HEADER, CHANGE_RECORD, CHANGE_SUM, CHANGE_LENGTH };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64];

static void require(int holds)
{
    if (!holds)
        abort();
}

static void folder_remove(void)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, EXIT_FILE_NAME);
    unlink(path);
    rmdir(folder);
}

static int file_make(void)
{
    char path[128];
    if (!*folder) {
        snprintf(folder, sizeof(folder), "/dev/shm/memoir-fuzz-XXXXXX");
        if (!mkdtemp(folder)) {
            snprintf(folder, sizeof(folder), "/tmp/memoir-fuzz-XXXXXX");
            require(mkdtemp(folder) != NULL);
        }
        atexit(folder_remove);
    }
    snprintf(path, sizeof(path), "%s/%s", folder, EXIT_FILE_NAME);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    require(fd >= 0);
    return fd;
}

struct change {
    uint8_t what, flags; /* 1: make its check sum right */
    uint16_t which, at;
    uint8_t len;
    const uint8_t *bytes;
};

static size_t change_take(const uint8_t *data, size_t size, struct change *ret)
{
    if (size < 7)
        return 0;
    *ret = (struct change){.what = (uint8_t)(CHANGE_HEADER + data[0] % 4),
                           .flags = data[1],
                           .which = (uint16_t)(data[2] | data[3] << 8),
                           .at = (uint16_t)(data[4] | data[5] << 8),
                           .len = data[6],
                           .bytes = data + 7};
    if (ret->len > size - 7)
        ret->len = (uint8_t)(size - 7);
    return 7 + (size_t)ret->len;
}

/* Change `part`, of which there are `room` bytes. */
static void bytes_put(const struct change *c, void *part, size_t room)
{
    size_t at = c->at % room, len = c->len < room - at ? c->len : room - at;
    memcpy((char *)part + at, c->bytes, len);
}

static void change_do(int fd, const struct change *c)
{
    struct exit_file_header header;
    struct exit_record record;
    struct exit_sum sum;
    off_t offset;
    switch (c->what) {
    case CHANGE_HEADER:
        require(pread(fd, &header, sizeof(header), 0) == sizeof(header));
        bytes_put(c, &header, sizeof(header));
        require(pwrite(fd, &header, sizeof(header), 0) == sizeof(header));
        break;
    case CHANGE_RECORD:
        offset = (off_t)offsetof(struct exit_file, records[c->which % EXIT_FILE_SLOTS]);
        require(pread(fd, &record, sizeof(record), offset) == sizeof(record));
        bytes_put(c, &record, sizeof(record));
        if (c->flags & 1)
            record.check = exit_record_check(&record);
        require(pwrite(fd, &record, sizeof(record), offset) == sizeof(record));
        break;
    case CHANGE_SUM:
        offset = (off_t)offsetof(struct exit_file, sums[c->which % EXIT_FILE_SUMS]);
        require(pread(fd, &sum, sizeof(sum), offset) == sizeof(sum));
        bytes_put(c, &sum, sizeof(sum));
        if (c->flags & 1)
            sum.check = exit_sum_check(&sum);
        require(pwrite(fd, &sum, sizeof(sum), offset) == sizeof(sum));
        break;
    default:
        break;
    }
}

static void check(const struct exit_file *file)
{
    require(exit_header_valid(&file->header));
    size_t n = 0;
    for (size_t i = 0; i < EXIT_FILE_SLOTS; i++) {
        require(file->records[i].sequence == 0 || exit_record_valid(&file->records[i]));
        n += file->records[i].sequence != 0;
    }
    for (size_t i = 0; i < EXIT_FILE_SUMS; i++) {
        require(file->sums[i].count == 0 || exit_sum_valid(&file->sums[i]));
        n += file->sums[i].count != 0;
    }
    struct query_exited_list list = {0};
    if (query_exited_join(NULL, 0, file, &list) < 0)
        return;
    require(list.n == n);
    size_t text = 0;
    for (size_t i = 0; i < list.n; i++) {
        const char *const texts[] = {list.rows[i].program, list.rows[i].cause, list.rows[i].cgroup};
        for (size_t k = 0; k < sizeof(texts) / sizeof(*texts); k++)
            text += texts[k] ? strlen(texts[k]) : 0;
    }
    require(text <= n * 512);
    query_exited_release(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct exit_file_header header = {.magic = EXIT_FILE_MAGIC,
                                                   .version = EXIT_FILE_VERSION,
                                                   .slots = EXIT_FILE_SLOTS,
                                                   .sums = EXIT_FILE_SUMS};
    struct change c;
    off_t length = -1;
    int fd = file_make();
    require(pwrite(fd, &header, sizeof(header), 0) == sizeof(header) &&
            ftruncate(fd, sizeof(struct exit_file)) == 0);
    for (int i = 0; i < CHANGES_MAX; i++) {
        size_t taken = change_take(data, size, &c);
        if (taken == 0)
            break;
        data += taken;
        size -= taken;
        if (c.what == CHANGE_LENGTH)
            length = (off_t)c.which * 32;
        else
            change_do(fd, &c);
    }
    if (length >= 0)
        require(ftruncate(fd, length) == 0);
    close(fd);
    struct exit_file *file = NULL;
    struct exit_file_header alone;
    int r = exit_file_read(folder, &file), r2 = exit_file_header_read(folder, &alone);
    require(r != 0 || r2 == 0); /* who can read all of it can read its header */
    if (r == 0)
        check(file);
    free(file);
    return 0;
}
