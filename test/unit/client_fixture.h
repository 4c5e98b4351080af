/* What the tests of libmemoir share. The library keeps one state per process, so each test runs in a
 * child of its own, with a private place for books; what it wants to hold it EXPECTs. */
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "base/cleanup.h"
#include "book/reader.h"
#include "check.h"

#define EXPECT(condition)                                                           \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            _exit(1);                                                               \
        }                                                                           \
    } while (0)

/* Two numbers that must be equal, shown when they are not. */
#define EXPECT_EQUAL(a, b)                                                                    \
    do {                                                                                      \
        unsigned long long a_ = (unsigned long long)(a), b_ = (unsigned long long)(b);        \
        if (a_ != b_) {                                                                       \
            fprintf(stderr, "%s:%d: %s is %llu, not %llu\n", __FILE__, __LINE__, #a, a_, b_); \
            _exit(1);                                                                         \
        }                                                                                     \
    } while (0)

static char client_root[64];

/* A memoird of this machine may look at all books of all processes: then a book is left for it. */
static inline bool client_book_is_watched(int directory, const char *name)
{
    struct book_header header;
    struct book_control control = {0};
    int fd = openat(directory, name, O_RDONLY);
    bool whole = fd >= 0 && pread(fd, &header, sizeof(header), 0) == sizeof(header);
    for (int i = 0; whole && i < BOOK_SECTIONS_MAX; i++)
        if (header.sections[i].kind == BOOK_SECTION_CONTROL)
            whole = pread(fd, &control, sizeof(control), (off_t)header.sections[i].offset) ==
                    sizeof(control);
    if (fd >= 0)
        close(fd);
    return whole && header.state == BOOK_STATE_CLOSED && control.watchers[0].pid > 0;
}

static inline size_t client_books(void)
{
    char path[96];
    size_t n = 0;
    snprintf(path, sizeof(path), "%s/%u", client_root, (unsigned)geteuid());
    DIR *directory = opendir(path);
    for (struct dirent *e; directory && (e = readdir(directory)) != NULL;)
        n += strstr(e->d_name, ".book") != NULL &&
             !client_book_is_watched(dirfd(directory), e->d_name);
    if (directory)
        closedir(directory);
    return n;
}

/* Run `test` in a child and see it succeed; `leftover` books may stay. */
static inline void in_child(void (*test)(void), size_t leftover)
{
    strcpy(client_root, "/dev/shm/memoir-test-client-XXXXXX");
    assert_non_null(mkdtemp(client_root));
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        for (int number = 1; number < 32; number++)
            signal(number, SIG_DFL); /* cmocka catches those that would tell us */
        setenv("MEMOIR_DIR", client_root, 1);
        test();
        exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    size_t left = client_books();
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", client_root);
    assert_int_equal(system(command), 0);
    assert_int_equal(status, 0);
    assert_int_equal(left, leftover);
}

/* ---- short ways, for use in the child ---- */

static inline int declare(int ordinal)
{
    return memoir_device(&(struct memoir_device_options){
        .struct_size = sizeof(struct memoir_device_options),
        .kind = MEMOIR_DEVICE_SIMULATED,
        .ordinal = ordinal,
        .capacity = {{MEMOIR_SPACE_DRAM, 1 << 30}},
    });
}

static inline struct memoir_totals totals_of(int device, int space)
{
    struct memoir_totals totals = {.struct_size = sizeof(totals)};
    EXPECT(memoir_totals(device, space, &totals) == 0);
    return totals;
}

static inline struct memoir_status status_now(void)
{
    struct memoir_status status = {.struct_size = sizeof(status)};
    EXPECT(memoir_status(&status) == 0);
    return status;
}

/* This process's own book. */
struct own_book {
    int fd;
    struct book_reader *reader;
    struct book_status status;
    struct book_sites sites;
};

static inline struct own_book own_book_open(void)
{
    struct own_book book = {0};
    struct memoir_status status = status_now();
    EXPECT_EQUAL(status.state, MEMOIR_STATE_OPEN);
    book.fd = open(status.path, O_RDONLY | O_CLOEXEC);
    EXPECT(book.fd >= 0);
    EXPECT(book_reader_open_fd(book.fd, &book.reader) == 0);
    EXPECT(book_reader_refresh(book.reader) == 0);
    EXPECT(book_reader_status(book.reader, &book.status) == 0);
    EXPECT(book_reader_sites(book.reader, book.fd, &book.sites) == 0);
    return book;
}

static inline void own_book_close(struct own_book *book)
{
    book_sites_release(&book->sites);
    book_reader_free(book->reader);
    close(book->fd);
}

static inline uint64_t lost_by(enum book_loss cause)
{
    struct own_book book = own_book_open();
    uint64_t n = book.status.losses[cause];
    own_book_close(&book);
    return n;
}
