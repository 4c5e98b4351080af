/* Exits as memoird keeps them: slots, sums, and the file that outlives it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "bpf/exit_event.h"
#include "check.h"
#include "daemon/exit_store.h"
#include "daemon/exit_watch.h"
#include "query/exit_file.h"

enum { HOUR_S = 3600, USER = 1000, OTHER = 1001 };
#define NOON (UINT64_C(1800000000) / HOUR_S * HOUR_S * NS_PER_S)

struct folder {
    char path[64];
    int fd;
};

static int setup(void **state)
{
    struct folder *f = calloc(1, sizeof(*f));
    strcpy(f->path, "/tmp/memoir-exits-XXXXXX");
    assert_non_null(mkdtemp(f->path));
    f->fd = open(f->path, O_RDONLY | O_DIRECTORY);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct folder *f = *state;
    char command[128];
    close(f->fd);
    snprintf(command, sizeof(command), "rm -rf %s", f->path);
    assert_int_equal(system(command), 0);
    free(f);
    return 0;
}

static struct exit_store *store_new(int fd)
{
    struct exit_store *store = NULL;
    int error = -1;
    assert_int_equal(exit_store_new(fd, &store, &error), 0);
    assert_int_equal(error, 0);
    return store;
}

static struct exit_record record(int pid, uint32_t uid, int status, const char *comm)
{
    struct exit_record r = {
        .pid = pid,
        .inner_pid = pid,
        .uid = uid,
        .status = status,
        .start_ticks = (uint64_t)pid * 100,
        .start_ns = NOON,
        .end_ns = NOON + NS_PER_S,
        .peak_bytes = 4096,
        .cpu_ns = 10,
    };
    snprintf(r.program, sizeof(r.program), "%s", comm);
    strcpy(r.cgroup, "/");
    return r;
}

static bool add(struct exit_store *store, int pid, uint32_t uid, int status, const char *comm)
{
    struct exit_record r = record(pid, uid, status, comm);
    return exit_store_add(store, &r);
}

static const struct exit_record *get(const struct exit_store *store, int pid)
{
    return exit_store_find(store, pid, (uint64_t)pid * 100);
}

/* Slots and sums together, by program (NULL: of all). */
static uint64_t count(const struct exit_store *store, const char *comm, uint64_t *ret_summed)
{
    const struct exit_file *file = exit_store_file(store);
    uint64_t slots = 0, summed = 0;
    for (size_t i = 0; i < EXIT_FILE_SLOTS; i++)
        slots += file->records[i].sequence != 0 &&
                 (!comm || strcmp(file->records[i].program, comm) == 0);
    for (size_t i = 0; i < EXIT_FILE_SUMS; i++)
        if (!comm || strcmp(file->sums[i].program, comm) == 0)
            summed += file->sums[i].count;
    if (ret_summed)
        *ret_summed = summed;
    return slots + summed;
}

static void exit_is_found_by_pid_and_start(void **state)
{
    struct exit_store *store = store_new(-1);
    assert_true(add(store, 7, USER, 3 << 8, "cc1"));
    assert_non_null(get(store, 7));
    assert_int_equal(get(store, 7)->status, 3 << 8);
    assert_non_null(exit_store_find(store, 7, 701)); /* an offset may round it apart by one */
    assert_null(exit_store_find(store, 7, 705));     /* another process that had the same pid */
    assert_null(exit_store_find(store, 8, 700));
    exit_store_free(store);
}

static void second_telling_of_one_exit_is_dropped(void **state)
{
    struct exit_store *store = store_new(-1);
    assert_true(add(store, 7, USER, 0, "cc1"));
    struct exit_record again = record(7, USER, 0, "cc1");
    again.peak_bytes = 8192;
    assert_false(exit_store_add(store, &again));
    assert_int_equal(count(store, NULL, NULL), 1);
    assert_int_equal(get(store, 7)->peak_bytes, 8192);
    assert_true(exit_record_valid(get(store, 7)));
    assert_int_equal(exit_store_file(store)->header.seen, 1);
    exit_store_free(store);
}

static void what_gives_way_is_in_the_sums(void **state)
{
    enum { N = EXIT_FILE_ORDINARY + 1000 };
    struct exit_store *store = store_new(-1);
    uint64_t summed;
    for (int i = 1; i <= N; i++)
        assert_true(add(store, i, 0, i % 2 ? 0 : 256, i % 2 ? "cc1" : "as"));
    assert_int_equal(count(store, NULL, &summed), N);
    assert_int_equal(summed, 1000);
    assert_int_equal(count(store, "cc1", &summed), N / 2);
    assert_int_equal(summed, 500);
    assert_null(get(store, 1000));
    assert_non_null(get(store, 1001));
    const struct exit_sum *sum = &exit_store_file(store)->sums[0];
    assert_int_equal(sum->cpu_ns, 10 * sum->count);
    assert_int_equal(sum->hour, NOON / NS_PER_S / HOUR_S);
    assert_int_equal(sum->lived_ns, NS_PER_S);
    exit_store_free(store);
}

static void the_killed_outlast_those_that_exit(void **state)
{
    struct exit_store *store = store_new(-1);
    assert_true(add(store, 1, USER, SIGKILL, "victim"));
    for (int i = 2; i < 2 * EXIT_FILE_SLOTS; i++)
        assert_true(add(store, i, 0, 0, "cc1"));
    assert_non_null(get(store, 1));
    exit_store_free(store);
}

static void one_user_pushes_out_only_his_own(void **state)
{
    struct exit_store *store = store_new(-1);
    for (int i = 1; i <= 100; i++)
        assert_true(add(store, i, OTHER, 0, "quiet"));
    for (int i = 1000; i < 1000 + 3 * EXIT_FILE_ORDINARY; i++)
        assert_true(add(store, i, USER, 0, "bomb"));
    for (int i = 1; i <= 100; i++)
        assert_non_null(get(store, i));
    assert_int_equal(count(store, "bomb", NULL), 3 * EXIT_FILE_ORDINARY);
    exit_store_free(store);
}

static void sums_are_bounded_and_what_goes_is_counted(void **state)
{
    enum { N = EXIT_FILE_ORDINARY + 2 * EXIT_FILE_SUMS };
    struct exit_store *store = store_new(-1);
    for (int i = 1; i <= 3; i++)
        assert_true(add(store, i, OTHER, 0, "quiet"));
    for (int i = 1000; i < 1000 + N; i++) {
        char comm[16];
        snprintf(comm, sizeof(comm), "p%d", i);
        assert_true(add(store, i, USER, 0, comm));
    }
    uint64_t all = count(store, NULL, NULL);
    assert_int_equal(all + exit_store_file(store)->header.forgotten, N + 3);
    assert_true(exit_store_file(store)->header.forgotten > 0);
    assert_int_equal(count(store, "quiet", NULL), 3);
    for (size_t i = 0; i < EXIT_FILE_SUMS; i++)
        assert_true(exit_store_file(store)->sums[i].count == 0 ||
                    exit_sum_valid(&exit_store_file(store)->sums[i]));
    exit_store_free(store);
}

/* The index of sums must find each of them again while others come and go: every name comes twice, with a thousand
 * others in between. */
static void no_kind_has_two_sums(void **state)
{
    enum { N = EXIT_FILE_ORDINARY + 6 * EXIT_FILE_SUMS, BACK = 1001 };
    struct exit_store *store = store_new(-1);
    for (int i = 1; i <= N; i++) {
        char comm[16];
        snprintf(comm, sizeof(comm), "p%d", i % 2 || i < BACK ? i : i - BACK);
        struct exit_record r = record(i, 0, 0, comm);
        r.end_ns += (uint64_t)i;
        assert_true(exit_store_add(store, &r));
    }
    const struct exit_file *file = exit_store_file(store);
    assert_true(file->header.forgotten > 0);
    assert_int_equal(count(store, NULL, NULL) + file->header.forgotten, N);
    for (size_t i = 0; i < EXIT_FILE_SUMS; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(file->sums[i].program, file->sums[k].program) == 0)
                fail_msg("'%s' has two sums", file->sums[i].program);
    exit_store_free(store);
}

static void another_daemon_goes_on_where_the_last_one_was(void **state)
{
    const struct folder *f = *state;
    struct exit_store *store = store_new(f->fd);
    for (int i = 1; i <= EXIT_FILE_ORDINARY + 5; i++)
        assert_true(add(store, i, 0, 0, "cc1"));
    assert_true(add(store, 9999, USER, SIGSEGV | WCOREFLAG, "victim"));
    uint64_t sequence = get(store, 9999)->sequence;
    exit_store_free(store); /* as good as killed: nothing is written here */

    store = store_new(f->fd);
    uint64_t summed;
    assert_int_equal(count(store, NULL, &summed), EXIT_FILE_ORDINARY + 6);
    assert_int_equal(summed, 5);
    assert_int_equal(get(store, 9999)->status, SIGSEGV | WCOREFLAG);
    assert_null(get(store, 5));
    assert_non_null(get(store, 6));
    assert_true(add(store, 10000, 0, 0, "cc1"));
    assert_null(get(store, 6)); /* who is older is known again */
    assert_int_equal(get(store, 10000)->sequence, sequence + 1);
    exit_store_free(store);

    struct exit_file *file = NULL;
    assert_int_equal(exit_file_read(f->path, &file), 0);
    assert_int_equal(file->header.seen, EXIT_FILE_ORDINARY + 7);
    free(file);
}

static void torn_record_is_left_out(void **state)
{
    const struct folder *f = *state;
    struct exit_store *store = store_new(f->fd);
    assert_true(add(store, 1, 0, 0, "whole"));
    assert_true(add(store, 2, 0, 0, "torn"));
    exit_store_free(store);
    int fd = openat(f->fd, EXIT_FILE_NAME, O_RDWR);
    int64_t pid = 3;
    assert_int_equal(
        pwrite(fd, &pid, 4,
               offsetof(struct exit_file, records[1]) + offsetof(struct exit_record, pid)),
        4);
    close(fd);
    struct exit_file *file = NULL;
    assert_int_equal(exit_file_read(f->path, &file), 0);
    assert_int_equal(file->records[0].sequence, 1);
    assert_int_equal(file->records[1].sequence, 0);
    free(file);
    store = store_new(f->fd);
    assert_int_equal(count(store, NULL, NULL), 1);
    assert_true(add(store, 4, 0, 0, "next"));
    assert_int_equal(count(store, NULL, NULL), 2);
    exit_store_free(store);
}

/* A reader that had copied the slots before one of them gave way. */
static void what_gave_way_while_it_was_read_counts_once(void **state)
{
    const struct folder *f = *state;
    struct exit_store *store = store_new(f->fd);
    for (int i = 1; i <= EXIT_FILE_ORDINARY; i++)
        assert_true(add(store, i, 0, 0, "cc1"));
    struct exit_record first = *get(store, 1), second = *get(store, 2);
    assert_true(add(store, 9999, 0, 0, "cc1")); /* in the place of the first */
    exit_store_free(store);
    struct exit_file *file = NULL;
    int fd = openat(f->fd, EXIT_FILE_NAME, O_RDWR);
    assert_int_equal(pwrite(fd, &first, sizeof(first), offsetof(struct exit_file, records[0])),
                     sizeof(first));
    assert_int_equal(exit_file_read(f->path, &file), 0);
    assert_int_equal(file->records[0].sequence, 0);
    assert_int_equal(file->records[1].sequence, second.sequence);
    free(file);
    close(fd);
}

/* Whatever is in the file, readers and daemons survive it, and take only what is whole. */
static void broken_bytes_cost_only_what_they_hit(void **state)
{
    enum { ROUNDS = 60, FLIPS = 8, N = 300 };
    const struct folder *f = *state;
    struct exit_store *store = store_new(f->fd);
    uint64_t seed = 1;
    for (int i = 1; i <= N; i++)
        assert_true(add(store, i, (uint32_t)i % 3, i % 7 ? 0 : SIGKILL, i % 2 ? "odd" : "even"));
    exit_store_free(store);
    int fd = openat(f->fd, EXIT_FILE_NAME, O_RDWR);
    for (int round = 0; round < ROUNDS; round++) {
        for (int flip = 0; flip < FLIPS; flip++) {
            seed = hash_mix(seed + 1);
            uint8_t byte = (uint8_t)(seed >> 56);
            /* Past the words by which the file is known; most of the rest is empty. */
            off_t at = 24 + (off_t)(seed % (sizeof(struct exit_file_header) + N * 256));
            assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        }
        struct exit_file *file = NULL;
        if (exit_file_read(f->path, &file) == 0)
            for (size_t i = 0; i < EXIT_FILE_SLOTS; i++)
                assert_true(file->records[i].sequence == 0 || exit_record_valid(&file->records[i]));
        free(file);
        store = store_new(f->fd);
        assert_true(count(store, NULL, NULL) <= N + (uint64_t)round);
        assert_true(add(store, 100000 + round, 0, 0, "next"));
        assert_non_null(get(store, 100000 + round));
        exit_store_free(store);
    }
    close(fd);
}

static void file_of_another_version_is_refused_and_begun_anew(void **state)
{
    const struct folder *f = *state;
    struct exit_file *file = NULL;
    assert_int_equal(exit_file_read(f->path, &file), -ENOENT);
    int fd = openat(f->fd, EXIT_FILE_NAME, O_RDWR | O_CREAT, 0600);
    assert_int_equal(write(fd, "something else", 14), 14);
    close(fd);
    assert_int_equal(exit_file_read(f->path, &file), -EINVAL);
    struct exit_store *store = store_new(f->fd);
    assert_int_equal(count(store, NULL, NULL), 0);
    assert_true(add(store, 1, 0, 0, "first"));
    exit_store_free(store);
    assert_int_equal(exit_file_read(f->path, &file), 0);
    assert_string_equal(file->records[0].program, "first");
    free(file);
}

static void causes_read_like_sentences(void **state)
{
    static const struct {
        int status;
        bool oom;
        const char *text;
    } cases[] = {
        {0, false, "exited with 0"},
        {255 << 8, false, "exited with 255"},
        {SIGKILL, false, "killed by SIGKILL"},
        {SIGKILL, true, "OOM kill"},
        {0, true, "exited with 0"}, /* it had ended before the killer came to it */
        {SIGSEGV | WCOREFLAG, false, "killed by SIGSEGV (core dumped)"},
        {40, false, "killed by SIGRTMIN+6"},
    };
    char text[EXIT_CAUSE_TEXT_MAX];
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_string_equal(exit_status_text(cases[i].status, cases[i].oom, text), cases[i].text);
}

static void event_becomes_a_record(void **state)
{
    struct exit_event event = {
        .end_ns = 90 * NS_PER_S + 5,
        .start_ns = 80 * NS_PER_S + 123456789,
        .cpu_ns = 7,
        .peak_pages = 3,
        .pid = 4711,
        .inner_pid = 2,
        .parent = 1,
        .uid = USER,
        .status = SIGKILL,
        .flags = EXIT_OOM | EXIT_PEAK_MM,
        .comm = "evil\033[2Jname",
        .cgroup = "leaf",
    };
    struct exit_record r;
    exit_record_of(&event, 1000 * NS_PER_S, &r);
    assert_int_equal(r.end_ns, 1090 * NS_PER_S + 5);
    assert_int_equal(r.start_ns, 1080 * NS_PER_S + 123456789);
    assert_int_equal(r.start_ticks, 80 * (uint64_t)sysconf(_SC_CLK_TCK) + 12);
    assert_int_equal(r.peak_bytes, 3 * sysconf(_SC_PAGESIZE));
    assert_int_equal(r.pid, 4711);
    assert_int_equal(r.inner_pid, 2);
    assert_int_equal(r.flags, EXIT_RECORD_OOM | EXIT_RECORD_CGROUP_LEAF);
    assert_string_equal(r.program, "evil?[2Jname");
    assert_string_equal(r.cgroup, "leaf");
    memset(event.comm, 'x', sizeof(event.comm)); /* without an end */
    event.flags = 0;
    exit_record_of(&event, 0, &r);
    assert_string_equal(r.program, "xxxxxxxxxxxxxxxx");
    assert_int_equal(r.flags, EXIT_RECORD_PEAK_FORK | EXIT_RECORD_CGROUP_LEAF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exit_is_found_by_pid_and_start),
        cmocka_unit_test(second_telling_of_one_exit_is_dropped),
        cmocka_unit_test(what_gives_way_is_in_the_sums),
        cmocka_unit_test(the_killed_outlast_those_that_exit),
        cmocka_unit_test(one_user_pushes_out_only_his_own),
        cmocka_unit_test(sums_are_bounded_and_what_goes_is_counted),
        cmocka_unit_test(no_kind_has_two_sums),
        cmocka_unit_test_setup_teardown(another_daemon_goes_on_where_the_last_one_was, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(torn_record_is_left_out, setup, teardown),
        cmocka_unit_test_setup_teardown(what_gave_way_while_it_was_read_counts_once, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(broken_bytes_cost_only_what_they_hit, setup, teardown),
        cmocka_unit_test_setup_teardown(file_of_another_version_is_refused_and_begun_anew, setup,
                                        teardown),
        cmocka_unit_test(causes_read_like_sentences),
        cmocka_unit_test(event_becomes_a_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
