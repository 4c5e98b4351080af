/* A book is a stranger's bytes. The input is a compact book (test/unit/book_extents.h): it is expanded,
 * opened and asked for everything, then its late changes happen and it is asked again. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../unit/book_extents.h"
#include "book/control.h"
#include "book/reader.h"

#define SIZE_MAX_BYTES (UINT64_C(64) << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void check_text(const char *text, size_t size)
{
    size_t len = strnlen(text, size);
    check(len < size);
    for (size_t i = 0; i < len; i++)
        check((unsigned char)text[i] >= 0x20 && text[i] != 0x7f);
}

static int check_block(const struct book_block_view *block, void *context)
{
    check(block->account > 0 && block->account < BOOK_RECORDS_MAX && block->site < BOOK_SITES_MAX);
    check(block->bytes <= BOOK_BLOCK_SIZE_MAX && block->tag <= BOOK_TAGS_MAX);
    (*(size_t *)context)++;
    return 0;
}

static void check_accounts(struct book_reader *reader)
{
    size_t n, n_devices;
    const struct book_account_view *accounts = book_reader_accounts(reader, &n);
    const struct book_device_view *devices = book_reader_devices(reader, &n_devices);
    for (size_t i = 0; i < n_devices; i++) {
        check_text(devices[i].name, sizeof(devices[i].name));
        check_text(devices[i].uid, sizeof(devices[i].uid));
        check_text(devices[i].bus, sizeof(devices[i].bus));
    }
    for (size_t i = 0; i < n; i++) {
        struct book_totals totals;
        check_text(accounts[i].name, sizeof(accounts[i].name));
        check(book_reader_account_index(reader, accounts[i].record) == (ssize_t)i);
        if (book_reader_totals(reader, i, &totals) == 0)
            check(totals.peak_bytes >= totals.live_bytes);
    }
}

static void check_sites(struct book_reader *reader, int fd)
{
    struct book_sites s;
    if (book_reader_sites(reader, fd, &s) < 0)
        return;
    for (size_t i = 0; i < s.n_sites; i++) {
        check((uint64_t)s.sites[i].first_frame + s.sites[i].frames <= s.n_frames);
        check(s.sites[i].account < BOOK_RECORDS_MAX);
        for (uint16_t k = 0; k < s.sites[i].frames; k++) {
            const struct book_module *m =
                book_sites_module(&s, s.frames[s.sites[i].first_frame + k]);
            check(!m || (m > s.modules && m < s.modules + s.n_modules));
        }
    }
    for (size_t i = 1; i < s.n_modules; i++) {
        check(s.modules[i].build_id_len <= sizeof(s.modules[i].build_id));
        check_text(s.modules[i].path, sizeof(s.modules[i].path));
    }
    for (size_t i = 1; i < s.n_tags; i++)
        check_text(s.tags[i].name, sizeof(s.tags[i].name));
    book_sites_release(&s);
}

static void ask_everything(struct book_reader *reader, int fd)
{
    struct book_status status;
    struct book_control control;
    size_t blocks = 0;
    bool exact;
    book_reader_status(reader, &status);
    if (book_reader_refresh(reader) == 0)
        check_accounts(reader);
    check_sites(reader, fd);
    book_reader_blocks(reader, fd, check_block, &blocks, &exact);
    book_control_read(reader, fd, &control);
}

/* Inputs of odd length have a writer that lives: somebody else holds the lock. */
static int lock_like_a_writer(int fd, size_t size)
{
    char path[64];
    if (size % 2 == 0)
        return -1;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int writer = open(path, O_RDWR | O_CLOEXEC);
    check(writer >= 0 && flock(writer, LOCK_EX | LOCK_NB) == 0);
    return writer;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    struct book_reader *reader = NULL;
    if (fd < 0)
        return 0;
    extents_apply(fd, data, size, false, SIZE_MAX_BYTES);
    int writer = lock_like_a_writer(fd, size);
    if (book_reader_open_fd(fd, &reader) == 0) {
        const struct book_identity *id = book_reader_identity(reader);
        check_text(id->comm, sizeof(id->comm));
        check_text(id->host, sizeof(id->host));
        check_text(id->exe, 512);
        check_text(id->command, 512);
        ask_everything(reader, fd);
        extents_apply(fd, data, size, true, SIZE_MAX_BYTES);
        ask_everything(reader, fd);
        struct book_watcher watcher = {.pid = 1, .flags = BOOK_CONTROL_WATCHED};
        book_control_write(reader, fd, size % 4 < 2 ? BOOK_WATCHER_ROOT : BOOK_WATCHER_USER,
                           &watcher);
    }
    book_writer_alive_fd(fd);
    book_reader_free(reader);
    if (writer >= 0)
        close(writer);
    close(fd);
    return 0;
}
