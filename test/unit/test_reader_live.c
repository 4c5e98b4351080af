/* The reader beside the real writer: a child reports without pause while its book is read. Blocks that
 * live all the time must be found once in every exact picture, also while the table grows, and totals must
 * never fall below them. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "book/finder.h"
#include "book/reader.h"
#include "check.h"

enum {
    STAYING = 1000, /* blocks that live all the time, of */
    STAYING_BYTES = 100,
    CHILDREN = 6,
    CHURN = 60000, /* live blocks per thread at most: the table grows many times */
};

static char root[64];

static int enter(void **unused)
{
    strcpy(root, "/dev/shm/memoir-test-live-XXXXXX");
    return mkdtemp(root) && setenv("MEMOIR_DIR", root, 1) == 0 ? 0 : -1;
}

static int leave(void **unused)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    return system(command) == 0 ? 0 : -1;
}

/* ---- the child ---- */

static int device;

static void *churn(void *context)
{
    uint64_t base = (uint64_t)(uintptr_t)context << 40, state = base;
    for (uint64_t live = 0;; live = 0) {
        for (uint64_t i = 0; i < CHURN; i++) {
            memoir_alloc(device, MEMOIR_SPACE_DRAM, base + i, 1 + (state >> 50));
            if ((state = hash_mix(state + HASH_K0)) % 3 == 0)
                memoir_free(device, MEMOIR_SPACE_DRAM, base + i);
            live++;
        }
        for (uint64_t i = 0; i < live; i++)
            memoir_free(device, MEMOIR_SPACE_DRAM, base + i); /* some are gone already */
    }
    return NULL;
}

static void child(int ready)
{
    device = memoir_device(&(struct memoir_device_options){
        .struct_size = sizeof(struct memoir_device_options), .kind = MEMOIR_DEVICE_SIMULATED});
    if (memoir_open(0) < 0)
        _exit(1);
    for (uint64_t i = 1; i <= STAYING; i++)
        memoir_alloc(device, MEMOIR_SPACE_DRAM, i, STAYING_BYTES);
    if (write(ready, "", 1) != 1)
        _exit(1);
    pthread_t thread;
    pthread_create(&thread, NULL, churn, (void *)1);
    churn((void *)2);
}

/* ---- the parent ---- */

struct seen {
    uint8_t times[STAYING + 1];
    size_t staying, all;
};

static int note_block(const struct book_block_view *block, void *context)
{
    struct seen *s = context;
    s->all++;
    if (block->id > STAYING)
        return 0;
    assert_int_equal(block->bytes, STAYING_BYTES);
    assert_int_equal(s->times[block->id]++, 0);
    s->staying++;
    return 0;
}

static void check_totals(struct book_reader *reader)
{
    struct book_totals totals;
    assert_int_equal(book_reader_refresh(reader), 0);
    assert_int_equal(book_reader_totals(reader, 0, &totals), 0);
    assert_true(totals.live_blocks >= STAYING);
    assert_true(totals.live_bytes >= STAYING * STAYING_BYTES);
}

static int open_only_book(int dirfd, const char *name, void *context)
{
    *(int *)context = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return 0;
}

static void watch_child(pid_t pid, size_t *exact_scans)
{
    MEMOIR_CLEANUP(book_places_release)
    struct book_places places = {0};
    MEMOIR_CLEANUP(book_reader_freep)
    struct book_reader *reader = NULL;
    MEMOIR_CLEANUP(closep)
    int fd = -1;
    assert_int_equal(book_places_find(NULL, &places), 0);
    assert_int_equal(places.n, 1);
    assert_int_equal(book_place_scan(&places.places[0], 10, open_only_book, &fd, NULL), 0);
    assert_int_equal(book_reader_open_fd(fd, &reader), 0);
    assert_int_equal(book_reader_identity(reader)->pid, pid);
    assert_int_equal(book_writer_alive_fd(fd), 1);
    uint64_t end = clock_monotonic_ns() + 150 * NS_PER_MS;
    while (clock_monotonic_ns() < end) {
        for (int i = 0; i < 200; i++)
            check_totals(reader);
        struct seen seen = {0};
        bool exact = false;
        assert_int_equal(book_reader_blocks(reader, fd, note_block, &seen, &exact), 0);
        if (!exact)
            continue;
        assert_int_equal(seen.staying, STAYING);
        ++*exact_scans;
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);

    /* Dead: nothing changes any more, and every live block is in the table. */
    assert_int_equal(book_writer_alive_fd(fd), 0);
    struct seen seen = {0};
    bool exact = false;
    assert_int_equal(book_reader_blocks(reader, fd, note_block, &seen, &exact), 0);
    assert_true(exact);
    assert_int_equal(seen.staying, STAYING);
    check_totals(reader);
}

/* Run `report` in a child that stays until its book was opened; the caller kills it. */
static pid_t start_child(void (*report)(void), struct book_reader **ret_reader)
{
    int ready[2], fd = -1;
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        report();
        if (write(ready[1], "", 1) == 1)
            pause();
        _exit(1);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    MEMOIR_CLEANUP(book_places_release)
    struct book_places places = {0};
    assert_int_equal(book_places_find(NULL, &places), 0);
    assert_int_equal(places.n, 1);
    assert_int_equal(book_place_scan(&places.places[0], 10, open_only_book, &fd, NULL), 0);
    assert_int_equal(book_reader_open_fd(fd, ret_reader), 0);
    close(fd);
    return pid;
}

/* Each block is the highest point so far, is gone at once, and likely the first of its shard. */
static void report_spikes(void)
{
    memoir_open(0);
    for (uint64_t i = 1; i <= 10; i++) {
        memoir_alloc(MEMOIR_HOST, MEMOIR_SPACE_PINNED, i, i << 20);
        memoir_free(MEMOIR_HOST, MEMOIR_SPACE_PINNED, i);
    }
}

static void peak_is_too_low_by_no_more_than_it_says(void **unused)
{
    for (int i = 0; i < 20; i++) {
        MEMOIR_CLEANUP(book_reader_freep)
        struct book_reader *reader = NULL;
        pid_t pid = start_child(report_spikes, &reader);
        struct book_totals totals;
        struct book_status status;
        assert_int_equal(book_reader_totals(reader, 0, &totals), 0);
        assert_int_equal(book_reader_status(reader, &status), 0);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        assert_true(totals.peak_bytes <= 10 << 20);
        assert_true(totals.peak_bytes + status.peak_error >= 10 << 20);
        char command[128];
        snprintf(command, sizeof(command), "rm -rf '%s'/*", root);
        assert_int_equal(system(command), 0);
    }
}

static void book_of_a_busy_process_is_read_right(void **unused)
{
    size_t exact_scans = 0;
    for (int i = 0; i < CHILDREN; i++) {
        int ready[2];
        char byte;
        assert_int_equal(pipe(ready), 0);
        pid_t pid = fork();
        if (pid == 0) {
            child(ready[1]);
            _exit(0);
        }
        close(ready[1]);
        assert_int_equal(read(ready[0], &byte, 1), 1);
        close(ready[0]);
        watch_child(pid, &exact_scans);
        char command[128];
        snprintf(command, sizeof(command), "rm -rf '%s'/*", root);
        assert_int_equal(system(command), 0);
    }
    print_message("# %zu exact pictures\n", exact_scans);
    assert_true(exact_scans > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(book_of_a_busy_process_is_read_right),
        cmocka_unit_test(peak_is_too_low_by_no_more_than_it_says),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
