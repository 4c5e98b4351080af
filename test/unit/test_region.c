/* Regions of tt-metal: what is read of them, what is refused, and whose their slots are. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "check.h"
#include "ledger/ledger.h"
#include "region_builder.h"

static const uint64_t some[5] = {1000, 200, 30, 4, 5};

/* ---- bytes ---- */

static void names_are_decimal_ids(void **state)
{
    uint64_t id = 1;
    assert_true(region_name_parse("tt_device_0_memory", &id));
    assert_int_equal(id, 0);
    assert_true(region_name_parse("tt_device_18446744073709551615_memory", &id));
    assert_true(id == UINT64_MAX);
    static const char *const others[] = {
        "tt_device__memory",
        "tt_device_18446744073709551616_memory",
        "tt_device_07_memory",
        "tt_device_7_memory.x",
        "tt_device_7_util",
        "tt_device_-7_memory",
        "tt_device_7a_memory",
        "xtt_device_7_memory",
        "",
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        assert_false(region_name_parse(others[i], &id));
}

static void both_versions_are_read(void **state)
{
    for (uint32_t version = 3; version <= 4; version++) {
        uint8_t bytes[REGION_BYTES];
        struct region_view view;
        region_compose(bytes, version, 77, 2);
        region_put_slot(bytes, 0, 100, some, "train");
        region_put_slot(bytes, 63, 200, some, "serve");
        put_u64(bytes + 48, 12345);
        assert_int_equal(region_parse(bytes, sizeof(bytes), 77, &view), 0);
        assert_int_equal(view.version, version);
        assert_int_equal(view.device_id, 2);
        assert_int_equal(view.totals[0], 12345);
        assert_int_equal(view.n, 2);
        assert_int_equal(view.slots[0].pid, 100);
        assert_string_equal(view.slots[0].name, "train");
        assert_int_equal(view.slots[1].pid, 200);
        for (int i = 0; i < 5; i++)
            assert_int_equal(view.slots[1].bytes[i], some[i]);
        assert_int_equal(view.nonsense, 0);
    }
}

static void half_made_regions_are_left_for_later(void **state)
{
    uint8_t bytes[REGION_BYTES] = {0};
    struct region_view view;
    assert_int_equal(region_parse(bytes, 0, 77, &view), -EAGAIN);
    assert_int_equal(region_parse(bytes, sizeof(bytes), 77, &view), -EAGAIN);
    region_compose(bytes, 4, 77, 0);
    put_u32(bytes + 8536, 1); /* in progress */
    assert_int_equal(region_parse(bytes, sizeof(bytes), 77, &view), -EAGAIN);
    put_u32(bytes + 8536, 0);
    put_u32(bytes, 3); /* version 3 has no such word */
    assert_int_equal(region_parse(bytes, sizeof(bytes), 77, &view), 0);
}

static void wrong_bytes_are_refused(void **state)
{
    uint8_t bytes[REGION_BYTES];
    struct region_view view;
    region_compose(bytes, 3, 77, 0);
    assert_int_equal(region_parse(bytes, sizeof(bytes), 78, &view), -EBADMSG);
    assert_int_equal(region_parse(bytes, sizeof(bytes) - 1, 77, &view), -EBADMSG);
    assert_int_equal(region_parse(bytes, 5, 77, &view), -EBADMSG);
    put_u32(bytes + 40, UINT32_MAX); /* no device has that number */
    assert_int_equal(region_parse(bytes, sizeof(bytes), 77, &view), -EBADMSG);
    static const uint32_t versions[] = {1, 2, 5, UINT32_MAX};
    for (size_t i = 0; i < sizeof(versions) / sizeof(*versions); i++) {
        region_compose(bytes, versions[i], 77, 0);
        assert_int_equal(region_parse(bytes, sizeof(bytes), 77, &view), -EPROTONOSUPPORT);
    }
}

static void impossible_slots_are_counted_and_left_out(void **state)
{
    uint8_t bytes[REGION_BYTES];
    struct region_view view;
    static const uint64_t below_zero[5] = {0, (uint64_t)-4096, 0, 0, 0};
    region_compose(bytes, 3, 77, 0);
    region_put_slot(bytes, 0, 100, below_zero, "x");
    region_put_slot(bytes, 1, -5, some, "x");
    region_put_slot(bytes, 2, 101, some, "\033[31mred\377");
    assert_int_equal(region_parse(bytes, sizeof(bytes), 77, &view), 0);
    assert_int_equal(view.nonsense, 2);
    assert_int_equal(view.n, 1);
    assert_string_equal(view.slots[0].name, "?[31mred?");
    memset(bytes + 856 + 2 * 120 + 56, 'x', 64); /* not terminated */
    assert_int_equal(region_parse(bytes, sizeof(bytes), 77, &view), 0);
    assert_int_equal(strlen(view.slots[0].name), 63);
}

/* Two threads that open a device at once can each find no slot of theirs and make one. */
static void two_slots_of_one_process_add_up(void **state)
{
    uint8_t bytes[REGION_BYTES];
    struct region_view view;
    region_compose(bytes, 3, 77, 0);
    region_put_slot(bytes, 0, 100, some, "x");
    region_put_slot(bytes, 5, 100, some, "x");
    assert_int_equal(region_parse(bytes, sizeof(bytes), 77, &view), 0);
    assert_int_equal(view.n, 1);
    assert_int_equal(view.slots[0].bytes[0], 2000);
}

/* ---- files ---- */

struct place {
    char dir[64];
    int dirfd;
    struct ledger *ledger;
};

static int place_make(void **state)
{
    struct place *p = calloc(1, sizeof(*p));
    strcpy(p->dir, "/dev/shm/memoir-region-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    p->dirfd = open(p->dir, O_RDONLY | O_DIRECTORY);
    struct ledger_options options = {.regions_dir = p->dir};
    assert_int_equal(ledger_new(&options, &p->ledger), 0);
    *state = p;
    return 0;
}

static int place_remove(void **state)
{
    struct place *p = *state;
    char command[160];
    ledger_free(p->ledger);
    close(p->dirfd);
    snprintf(command, sizeof(command), "rm -rf %s", p->dir);
    assert_int_equal(system(command), 0);
    free(p);
    return 0;
}

static const char *const name = "tt_device_77_memory";

static void file_write(const struct place *p, const uint8_t *bytes, size_t n)
{
    int fd = openat(p->dirfd, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
}

static uint8_t *file_map(const struct place *p)
{
    int fd = openat(p->dirfd, name, O_RDWR);
    uint8_t *bytes = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(bytes, MAP_FAILED);
    close(fd);
    return bytes;
}

static const struct ledger_region *poll_one(struct place *p)
{
    size_t n;
    assert_int_equal(ledger_regions_poll(p->ledger, NULL, NULL), 0);
    const struct ledger_region *regions = ledger_regions(p->ledger, &n);
    assert_int_equal(n, 1);
    return regions;
}

static uint64_t dram_used(struct place *p)
{
    size_t n;
    struct ledger_process *const *processes = ledger_processes(p->ledger, &n);
    for (size_t i = 0; i < n; i++) {
        ledger_update_state(p->ledger, processes[i]);
        ledger_refresh_process(
            p->ledger, processes[i]); /* also if this machine is so slow that it has to wait */
    }
    ledger_refresh(p->ledger);
    struct ledger_device *const *devices = ledger_devices(p->ledger, &n);
    return n == 0 ? 0 : devices[0]->spaces[MEMOIR_SPACE_DRAM].used;
}

static void tricks_with_the_file_are_refused(void **state)
{
    struct place *p = *state;
    uint8_t bytes[REGION_BYTES];
    struct region_file file;
    region_compose(bytes, 3, 77, 0);
    file_write(p, bytes, sizeof(bytes));
    int fd = region_open(p->dirfd, name, &file);
    assert_true(fd >= 0);
    assert_int_equal(file.uid, geteuid());
    close(fd);
    assert_int_equal(fchmodat(p->dirfd, name, 0622, 0), 0);
    assert_int_equal(region_open(p->dirfd, name, &file), -EPERM);
    assert_int_equal(fchmodat(p->dirfd, name, 0600, 0), 0);
    assert_int_equal(linkat(p->dirfd, name, p->dirfd, "other", 0), 0);
    assert_int_equal(region_open(p->dirfd, name, &file), -EPERM);
    assert_int_equal(unlinkat(p->dirfd, name, 0), 0);
    assert_int_equal(symlinkat("other", p->dirfd, name), 0);
    assert_int_equal(region_open(p->dirfd, name, &file), -EPERM);
    assert_int_equal(unlinkat(p->dirfd, name, 0), 0);
    assert_int_equal(mkfifoat(p->dirfd, name, 0600), 0);
    assert_int_equal(region_open(p->dirfd, name, &file), -EPERM); /* and does not hang */
    assert_int_equal(unlinkat(p->dirfd, name, 0), 0);
    assert_int_equal(region_open(p->dirfd, name, &file), -ENOENT);
}

static void problem_is_told_once(void **state)
{
    struct place *p = *state;
    uint8_t bytes[REGION_BYTES];
    region_compose(bytes, 3, 77, 0);
    file_write(p, bytes, 4000);
    for (int i = 0; i < 3; i++)
        assert_int_equal(poll_one(p)->error, -EBADMSG);
    assert_int_equal(ledger_problem_count(p->ledger, LEDGER_PROBLEM_BAD), 1);
    file_write(p, bytes, sizeof(bytes));
    assert_int_equal(poll_one(p)->error, 0);
}

/* ---- whose slots ---- */

static void living_holder_is_in_the_tables(void **state)
{
    struct place *p = *state;
    uint8_t bytes[REGION_BYTES];
    region_compose(bytes, 4, 77, 3);
    region_put_slot(bytes, 0, getpid(), some, "test_region");
    file_write(p, bytes, sizeof(bytes));
    uint8_t *mapped = file_map(p);
    assert_int_equal(poll_one(p)->live.processes, 1);
    assert_int_equal(dram_used(p), 1000);
    size_t n;
    struct ledger_device *const *devices = ledger_devices(p->ledger, &n);
    assert_int_equal(n, 1);
    assert_string_equal(devices[0]->uid, "tt-77");
    assert_int_equal(devices[0]->kind, MEMOIR_DEVICE_NPU);
    assert_int_equal(devices[0]->ordinal, 3);
    assert_int_equal(devices[0]->spaces[MEMOIR_SPACE_CB].used, 5);
    struct ledger_process *process = ledger_process_find(p->ledger, getpid());
    assert_non_null(process);
    assert_int_equal(process->state, LEDGER_RUNNING);
    assert_int_equal(process->accounts[0].source, BOOK_SOURCE_REGION);
    assert_true(process->accounts[0].partial);

    /* It goes up and down, and the peak stays. */
    put_u64(mapped + 856 + 8, 5000);
    poll_one(p);
    assert_int_equal(dram_used(p), 5000);
    put_u64(mapped + 856 + 8, 10);
    poll_one(p);
    assert_int_equal(dram_used(p), 10);
    process = ledger_process_find(p->ledger, getpid());
    assert_int_equal(process->accounts[0].totals.peak_bytes, 5000);

    /* The device is closed: the slot is free, the process lives on. */
    put_u32(mapped + 856, 0);
    poll_one(p);
    assert_int_equal(dram_used(p), 0);

    /* And opened again. */
    put_u32(mapped + 856, (uint32_t)getpid());
    poll_one(p);
    assert_int_equal(dram_used(p), 10);
    munmap(mapped, REGION_BYTES);
}

static void pid_that_does_not_map_the_region_is_a_ghost(void **state)
{
    struct place *p = *state;
    uint8_t bytes[REGION_BYTES];
    region_compose(bytes, 3, 77, 0);
    region_put_slot(bytes, 0, getpid(), some, "test_region"); /* the pid is ours, the slot is not */
    file_write(p, bytes, sizeof(bytes));
    const struct ledger_region *region = poll_one(p);
    assert_int_equal(region->live.processes, 0);
    assert_int_equal(region->ghosts.processes + region->unknown.processes, 1);
    assert_int_equal(region->ghosts.bytes[0] + region->unknown.bytes[0], 1000);
    assert_int_equal(dram_used(p), 0);
}

static void killed_process_leaves_a_ghost(void **state)
{
    struct place *p = *state;
    uint8_t bytes[REGION_BYTES];
    int ready[2];
    region_compose(bytes, 3, 77, 0);
    file_write(p, bytes, sizeof(bytes));
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        uint8_t *mapped = file_map(p);
        region_put_slot(mapped, 0, getpid(), some, "test_region");
        (void)!write(ready[1], "x", 1);
        pause();
        _exit(0);
    }
    char word;
    assert_int_equal(read(ready[0], &word, 1), 1);
    assert_int_equal(poll_one(p)->live.processes, 1);
    assert_int_equal(dram_used(p), 1000);
    kill(child, SIGKILL);
    /* A zombie is dead already, and so it is once it was waited for. */
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    for (int i = 0; i < 2; i++) {
        const struct ledger_region *region = poll_one(p);
        assert_int_equal(region->live.processes, 0);
        assert_int_equal(region->ghosts.processes + region->unknown.processes, 1);
        assert_int_equal(dram_used(p), 0);
        /* Its last figures are still in its book, for the record. */
        const struct ledger_process *process = ledger_process_find(p->ledger, child);
        assert_int_equal(process->state, LEDGER_EXITED);
        assert_int_equal(process->accounts[0].totals.live_bytes, 1000);
        waitpid(child, NULL, 0);
    }
    close(ready[0]);
    close(ready[1]);
}

/* A user cannot make us look at as many pids as he likes. */
static void slots_past_the_limit_are_unknown(void **state)
{
    struct place *p = *state;
    if (geteuid() != 0)
        skip(); /* needs files of two users */
    for (uint64_t id = 1; id <= 20; id++) {
        uint8_t bytes[REGION_BYTES];
        char file[64];
        region_compose(bytes, 3, id, 0);
        for (int i = 0; i < 64; i++)
            region_put_slot(bytes, i, 1000000 + i, some, "x"); /* above any pid there is */
        snprintf(file, sizeof(file), "tt_device_%d_memory", (int)id);
        int fd = openat(p->dirfd, file, O_WRONLY | O_CREAT, 0600);
        assert_int_equal(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
        assert_int_equal(fchown(fd, 65534, 65534), 0);
        close(fd);
    }
    for (int round = 0; round < 2; round++) {
        size_t n, ghosts = 0, unknown = 0;
        assert_int_equal(ledger_regions_poll(p->ledger, NULL, NULL), 0);
        const struct ledger_region *regions = ledger_regions(p->ledger, &n);
        assert_int_equal(n, 20);
        for (size_t i = 0; i < n; i++) {
            ghosts += regions[i].ghosts.processes;
            unknown += regions[i].unknown.processes;
        }
        assert_int_equal(ghosts + unknown, 20 * 64);
        assert_true(unknown >= 20 * 64 - LEDGER_REGION_SLOTS_PER_UID_MAX);
    }
}

static void regions_come_and_go(void **state)
{
    struct place *p = *state;
    size_t n;
    uint8_t bytes[REGION_BYTES];
    assert_int_equal(ledger_regions_poll(p->ledger, NULL, NULL), 0);
    ledger_regions(p->ledger, &n);
    assert_int_equal(n, 0);
    region_compose(bytes, 3, 77, 0);
    file_write(p, bytes, sizeof(bytes));
    poll_one(p);
    assert_int_equal(unlinkat(p->dirfd, name, 0), 0);
    assert_int_equal(ledger_regions_poll(p->ledger, NULL, NULL), 0);
    ledger_regions(p->ledger, &n);
    assert_int_equal(n, 0);
    file_write(p, bytes, sizeof(bytes));
    poll_one(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_decimal_ids),
        cmocka_unit_test(both_versions_are_read),
        cmocka_unit_test(half_made_regions_are_left_for_later),
        cmocka_unit_test(wrong_bytes_are_refused),
        cmocka_unit_test(impossible_slots_are_counted_and_left_out),
        cmocka_unit_test(two_slots_of_one_process_add_up),
        cmocka_unit_test_setup_teardown(tricks_with_the_file_are_refused, place_make, place_remove),
        cmocka_unit_test_setup_teardown(problem_is_told_once, place_make, place_remove),
        cmocka_unit_test_setup_teardown(living_holder_is_in_the_tables, place_make, place_remove),
        cmocka_unit_test_setup_teardown(pid_that_does_not_map_the_region_is_a_ghost, place_make,
                                        place_remove),
        cmocka_unit_test_setup_teardown(killed_process_leaves_a_ghost, place_make, place_remove),
        cmocka_unit_test_setup_teardown(slots_past_the_limit_are_unknown, place_make, place_remove),
        cmocka_unit_test_setup_teardown(regions_come_and_go, place_make, place_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
