/* ledger_world.h: a ledger and a directory in memory whose books are composed by hand, for its tests. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "book_builder.h"
#include "check.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"

struct world {
    char dir[64], place[96];
    int dirfd;
    struct ledger *ledger;
    struct proc_stat self;
    uint64_t pid_ns;
    int fds[16]; /* of books, closed at the end */
    size_t n_fds;
};

static inline int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    strcpy(w->dir, "/dev/shm/memoir-ledger-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    snprintf(w->place, sizeof(w->place), "%s/%u", w->dir, geteuid());
    assert_int_equal(mkdir(w->place, 0700), 0);
    w->dirfd = open(w->place, O_RDONLY | O_DIRECTORY);
    assert_true(w->dirfd >= 0);
    assert_int_equal(proc_stat_read(getpid(), &w->self), 0);
    assert_int_equal(proc_pid_ns(getpid(), &w->pid_ns), 0);
    assert_int_equal(ledger_new(NULL, &w->ledger), 0);
    *state = w;
    return 0;
}

static inline int teardown(void **state)
{
    struct world *w = *state;
    ledger_free(w->ledger);
    for (size_t i = 0; i < w->n_fds; i++)
        close(w->fds[i]);
    close(w->dirfd);
    char command[160];
    snprintf(command, sizeof(command), "rm -rf %s", w->dir);
    assert_int_equal(system(command), 0);
    free(w);
    return 0;
}

/* A book about this very process, whose lock is held as its writer would. */
static inline void book_begin(struct world *w, struct book_builder *b, const char *name,
                              uint32_t source)
{
    int fd = openat(w->dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    w->fds[w->n_fds++] = fd;
    assert_int_equal(flock(fd, LOCK_EX), 0);
    builder_init(b, fd);
    b->h.source = source;
    b->h.pid = getpid();
    b->h.pid_ns = w->pid_ns;
    b->h.start_ticks = w->self.start_ticks;
    b->h.uid = geteuid();
}

static inline void count(struct book_builder *b, uint32_t account, uint64_t blocks, uint64_t bytes)
{
    struct book_counters counters = {.alloc_blocks = blocks, .alloc_bytes = bytes};
    uint64_t at = builder_common_offset(b, account);
    assert_int_equal(pwrite(b->fd, &counters, sizeof(counters), (off_t)at), sizeof(counters));
}

static inline uint32_t account_add(struct book_builder *b, uint32_t space, uint32_t device,
                                   uint64_t blocks, uint64_t bytes)
{
    uint32_t account = builder_account(b, space, device, "space");
    count(b, account, blocks, bytes);
    return account;
}

static inline int try_add(struct world *w, const char *name, struct ledger_book **ret_book)
{
    struct ledger_where where = {
        .dirfd = w->dirfd, .name = name, .fd = -1, .uid = geteuid(), .place = w->place};
    return ledger_book_add(w->ledger, &where, ret_book);
}

static inline struct ledger_book *add(struct world *w, const char *name)
{
    struct ledger_book *book = NULL;
    assert_int_equal(try_add(w, name, &book), 0);
    return book;
}

static inline uint64_t live(struct world *w, struct ledger_process *p, uint32_t space)
{
    uint64_t bytes = 0;
    ledger_refresh_process(w->ledger, p);
    assert_true(ledger_process_sum(p, space, NULL, &bytes, NULL));
    return bytes;
}

static inline void device_put_kind(struct book_builder *b, uint32_t kind, int32_t ordinal,
                                   const char *name, const char *uid, const char *bus,
                                   uint64_t capacity, uint64_t bytes)
{
    struct book_device device = {.type = BOOK_RECORD_DEVICE, .kind = kind, .ordinal = ordinal};
    strcpy(device.name, name);
    strcpy(device.uid, uid);
    strcpy(device.bus, bus);
    uint32_t record = (uint32_t)builder_add(b, BOOK_SECTION_REGISTRY, &device, sizeof(device));
    struct book_account account = {.type = BOOK_RECORD_ACCOUNT,
                                   .space = MEMOIR_SPACE_DRAM,
                                   .device = record,
                                   .capacity = capacity,
                                   .name = "dram"};
    uint32_t at = (uint32_t)builder_add(b, BOOK_SECTION_REGISTRY, &account, sizeof(account));
    count(b, at, 1, bytes);
}

static inline void device_put(struct book_builder *b, int32_t ordinal, const char *name,
                              const char *uid, const char *bus, uint64_t capacity, uint64_t bytes)
{
    device_put_kind(b, MEMOIR_DEVICE_GPU, ordinal, name, uid, bus, capacity, bytes);
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
