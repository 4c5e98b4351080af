/* Changes between looks at real books: this process reports, and follows its own directory. */
#include "ledger/changes.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "base/clock.h"
#include "check.h"
#include "ledger/blockset.h"
#include "ledger/follow.h"

enum { HEARD_MAX = 4096 };

static char root[64];
static int device;
static struct follow *follow;
static struct changes *changes;

/* What the last look told. */
static struct change heard[HEARD_MAX];
static size_t n_heard;
static uint64_t sum_came, sum_went, sum_came_bytes, sum_went_bytes; /* of all looks */

static int hear(const struct change *change, void *context)
{
    if (n_heard < HEARD_MAX)
        heard[n_heard++] = *change;
    switch (change->kind) {
    case CHANGE_ALLOC:
        sum_came++;
        sum_came_bytes += change->bytes;
        break;
    case CHANGE_FREE:
        sum_went++;
        sum_went_bytes += change->bytes;
        break;
    case CHANGE_UNSEEN:
        sum_came += change->came;
        sum_went += change->went;
        sum_came_bytes += change->came_bytes;
        sum_went_bytes += change->went_bytes;
        break;
    default:
        break;
    }
    return 0;
}

static size_t look(void)
{
    n_heard = 0;
    assert_int_equal(follow_look(follow, false), 0);
    assert_int_equal(changes_look(changes, follow_ledger(follow), hear, NULL), 0);
    return n_heard;
}

/* Looks until so much was told: a book that took long to read waits for its turn, on a busy machine. */
static size_t hear_at_least(size_t n)
{
    uint64_t deadline_ns = clock_monotonic_ns() + 60 * NS_PER_S;
    n_heard = 0;
    while (n_heard < n && clock_monotonic_ns() < deadline_ns) {
        assert_int_equal(follow_look(follow, false), 0);
        assert_int_equal(changes_look(changes, follow_ledger(follow), hear, NULL), 0);
        usleep(1000);
    }
    return n_heard;
}

static int enter(void **unused)
{
    strcpy(root, "/dev/shm/memoir-test-changes-XXXXXX");
    if (!mkdtemp(root) || setenv("MEMOIR_DIR", root, 1) < 0)
        return -1;
    device = memoir_device(&(struct memoir_device_options){
        .struct_size = sizeof(struct memoir_device_options),
        .kind = MEMOIR_DEVICE_SIMULATED,
        .name = "D",
        .uid = "D",
    });
    return memoir_open(0);
}

static int leave(void **unused)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    return system(command) == 0 ? 0 : -1;
}

/* Before each test: a first look, which tells nothing. */
static int begin(void **unused)
{
    if (follow_new(root, &follow) < 0 || changes_new(&changes) < 0)
        return -1;
    look();
    if (n_heard)
        return -1;
    sum_came = sum_went = sum_came_bytes = sum_went_bytes = 0;
    return 0;
}

static int end(void **unused)
{
    changes_free(changes);
    follow_free(follow);
    return 0;
}

static void assert_block(size_t i, enum change_kind kind, uint64_t id, uint64_t bytes)
{
    assert_true(i < n_heard);
    assert_int_equal(heard[i].kind, kind);
    assert_int_equal(heard[i].id, id);
    assert_int_equal(heard[i].bytes, bytes);
    assert_int_equal(heard[i].space, MEMOIR_SPACE_DRAM);
    assert_string_equal(heard[i].place->uid, "D");
    assert_int_equal(heard[i].process->pid, getpid());
}

/* ---- blocks ---- */

static void blocks_that_come_and_go_are_told_once(void **unused)
{
    assert_int_equal(look(), 0);
    memoir_alloc(device, MEMOIR_SPACE_DRAM, 5, 1000);
    assert_int_equal(hear_at_least(1), 1);
    assert_block(0, CHANGE_ALLOC, 5, 1000);
    assert_int_equal(look(), 0);
    memoir_free(device, MEMOIR_SPACE_DRAM, 5);
    assert_int_equal(hear_at_least(1), 1);
    assert_block(0, CHANGE_FREE, 5, 1000);
    assert_int_equal(look(), 0);
    assert_int_equal(look(), 0);
}

static void a_block_that_comes_during_the_first_look_counts_once(void **unused)
{
    end(NULL);
    assert_int_equal(follow_new(root, &follow), 0);
    assert_int_equal(changes_new(&changes), 0);
    assert_int_equal(follow_look(follow, false), 0); /* the counters are read, */
    memoir_alloc(device, MEMOIR_SPACE_DRAM, 31, 1000);
    n_heard = 0;
    assert_int_equal(changes_look(changes, follow_ledger(follow), hear, NULL), 0); /* then blocks */
    assert_int_equal(n_heard, 0);
    memoir_alloc(device, MEMOIR_SPACE_DRAM, 32, 5);
    assert_int_equal(hear_at_least(1), 1);
    assert_block(0, CHANGE_ALLOC, 32, 5);
    assert_int_equal(heard[0].place->bytes[MEMOIR_SPACE_DRAM], 1005);
    memoir_free(device, MEMOIR_SPACE_DRAM, 31);
    memoir_free(device, MEMOIR_SPACE_DRAM, 32);
    assert_int_equal(hear_at_least(2), 2);
    assert_int_equal(heard[0].place->bytes[MEMOIR_SPACE_DRAM], 0);
    assert_int_equal(sum_came, 1);
    assert_int_equal(sum_went, 2);
}

static void allocations_come_by_age_after_the_frees(void **unused)
{
    memoir_alloc(device, MEMOIR_SPACE_DRAM, 1, 1);
    hear_at_least(1);
    memoir_alloc(device, MEMOIR_SPACE_DRAM, 900, 2);
    usleep(60000); /* longer than the clock of a book ticks */
    memoir_alloc(device, MEMOIR_SPACE_DRAM, 300, 3);
    memoir_free(device, MEMOIR_SPACE_DRAM, 1);
    assert_int_equal(hear_at_least(3), 3);
    assert_block(0, CHANGE_FREE, 1, 1);
    assert_block(1, CHANGE_ALLOC, 900, 2);
    assert_block(2, CHANGE_ALLOC, 300, 3);
    memoir_free(device, MEMOIR_SPACE_DRAM, 900);
    memoir_free(device, MEMOIR_SPACE_DRAM, 300);
}

static void a_reused_id_is_a_free_and_an_allocation(void **unused)
{
    memoir_alloc(device, MEMOIR_SPACE_DRAM, 7, 100);
    hear_at_least(1);
    memoir_free(device, MEMOIR_SPACE_DRAM, 7);
    memoir_alloc(device, MEMOIR_SPACE_DRAM, 7, 200);
    assert_int_equal(hear_at_least(2), 2);
    assert_block(0, CHANGE_FREE, 7, 100);
    assert_block(1, CHANGE_ALLOC, 7, 200);
    memoir_free(device, MEMOIR_SPACE_DRAM, 7);
}

static void what_came_and_went_in_between_is_told_by_its_counters(void **unused)
{
    for (int i = 0; i < 1204; i++) {
        memoir_alloc(device, MEMOIR_SPACE_DRAM, 10, 1 << 20);
        memoir_free(device, MEMOIR_SPACE_DRAM, 10);
    }
    memoir_alloc(device, MEMOIR_SPACE_DRAM, 11, 5);
    assert_int_equal(hear_at_least(1), 1); /* the rest may be on its way into the table */
    assert_block(0, CHANGE_ALLOC, 11, 5);
    assert_int_equal(hear_at_least(1), 1);
    assert_int_equal(heard[0].kind, CHANGE_UNSEEN);
    assert_int_equal(heard[0].came, 1204);
    assert_int_equal(heard[0].went, 1204);
    assert_int_equal(heard[0].came_bytes, 1204ull << 20);
    assert_int_equal(look(), 0);
    memoir_free(device, MEMOIR_SPACE_DRAM, 11);
}

static void running_sums_are_what_is_held(void **unused)
{
    memoir_alloc(device, MEMOIR_SPACE_DRAM, 20, 100);
    memoir_alloc(device, MEMOIR_SPACE_L1, 20, 7);
    hear_at_least(2);
    const struct change_place *place = heard[0].place;
    uint64_t held = place->bytes[MEMOIR_SPACE_DRAM];
    memoir_alloc(device, MEMOIR_SPACE_DRAM, 21, 50);
    hear_at_least(1);
    assert_int_equal(place->bytes[MEMOIR_SPACE_DRAM], held + 50);
    memoir_free(device, MEMOIR_SPACE_DRAM, 20);
    memoir_free(device, MEMOIR_SPACE_DRAM, 21);
    memoir_free(device, MEMOIR_SPACE_L1, 20);
    hear_at_least(3);
    assert_int_equal(place->bytes[MEMOIR_SPACE_DRAM], held - 100);
    assert_int_equal(place->bytes[MEMOIR_SPACE_L1], 0);
}

/* ---- nothing is lost ---- */

static atomic_bool stop;

static void *churn(void *context)
{
    uint64_t base = (uint64_t)(uintptr_t)context << 32;
    for (uint64_t i = 0; !stop; i++) {
        memoir_alloc(device, MEMOIR_SPACE_DRAM, base + i % 500, 1 + i % 77);
        if (i % 3)
            memoir_free(device, MEMOIR_SPACE_DRAM, base + i * 7 % 500);
        if (i % 5000 == 0)
            usleep(1000);
    }
    for (uint64_t i = 0; i < 500; i++)
        memoir_free(device, MEMOIR_SPACE_DRAM, base + i);
    return NULL;
}

static void changes_add_up_to_the_counters_whatever_happens(void **unused)
{
    struct memoir_totals before = {.struct_size = sizeof(before)};
    struct memoir_totals after = {.struct_size = sizeof(after)};
    memoir_totals(device, MEMOIR_SPACE_DRAM, &before);
    pthread_t threads[2];
    stop = false;
    for (uintptr_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
    uint64_t deadline_ns = clock_monotonic_ns() + NS_PER_S;
    size_t looks = 0;
    while (clock_monotonic_ns() < deadline_ns || looks <= 5) {
        look();
        looks++;
    }
    stop = true;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    memoir_totals(device, MEMOIR_SPACE_DRAM, &after);
    deadline_ns = clock_monotonic_ns() + 60 * NS_PER_S;
    while ((sum_came != after.alloc_blocks - before.alloc_blocks ||
            sum_went != after.freed_blocks - before.freed_blocks ||
            sum_came_bytes != after.alloc_bytes - before.alloc_bytes ||
            sum_went_bytes != after.freed_bytes - before.freed_bytes) &&
           clock_monotonic_ns() < deadline_ns) {
        look();
        usleep(1000);
    }
    assert_true(after.alloc_blocks > before.alloc_blocks + 1000);
    assert_int_equal(sum_came, after.alloc_blocks - before.alloc_blocks);
    assert_int_equal(sum_went, after.freed_blocks - before.freed_blocks);
    assert_int_equal(sum_came_bytes, after.alloc_bytes - before.alloc_bytes);
    assert_int_equal(sum_went_bytes, after.freed_bytes - before.freed_bytes);
    assert_int_equal(look(), 0);
}

/* ---- processes ---- */

/* A child that holds two blocks and waits. */
static pid_t child_start(void)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int own = memoir_device(&(struct memoir_device_options){
            .struct_size = sizeof(struct memoir_device_options),
            .kind = MEMOIR_DEVICE_SIMULATED,
            .name = "D",
            .uid = "D",
        });
        memoir_alloc(own, MEMOIR_SPACE_DRAM, 1, 3000);
        memoir_alloc(own, MEMOIR_SPACE_CB, 2, 500);
        if (write(ready[1], "", 1) == 1)
            pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static void a_process_begins_with_its_blocks_and_goes_with_them(void **unused)
{
    pid_t pid = child_start();
    assert_int_equal(hear_at_least(3), 3);
    assert_int_equal(heard[0].kind, CHANGE_BEGIN);
    assert_int_equal(heard[0].process->pid, pid);
    assert_int_equal(heard[1].kind, CHANGE_ALLOC);
    assert_int_equal(heard[2].kind, CHANGE_ALLOC);
    const struct change_place *place = heard[1].place;
    uint64_t held = place->bytes[MEMOIR_SPACE_DRAM];
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_int_equal(hear_at_least(3), 3);
    assert_int_equal(heard[0].kind, CHANGE_GONE);
    assert_int_equal(heard[0].process->pid, pid);
    assert_int_equal(heard[0].bytes, 3500);
    assert_int_equal(heard[0].blocks, 2);
    assert_int_equal(heard[0].state, LEDGER_EXITED);
    assert_int_equal(heard[1].kind, CHANGE_HELD);
    assert_int_equal(heard[1].space, MEMOIR_SPACE_DRAM);
    assert_int_equal(heard[1].bytes, 3000);
    assert_int_equal(heard[2].bytes, 500);
    assert_int_equal(place->bytes[MEMOIR_SPACE_DRAM], held - 3000);
    assert_int_equal(place->bytes[MEMOIR_SPACE_CB], 0);
    assert_int_equal(look(), 0);
}

static void a_book_that_vanishes_takes_its_process_along(void **unused)
{
    pid_t pid = child_start();
    hear_at_least(3);
    struct ledger_process *p = ledger_process_find(follow_ledger(follow), pid);
    assert_non_null(p);
    assert_int_equal(unlinkat(p->books[0]->dirfd, p->books[0]->name, 0), 0);
    assert_int_equal(hear_at_least(3), 3);
    assert_int_equal(heard[0].kind, CHANGE_GONE);
    assert_int_equal(heard[0].state, LEDGER_UNKNOWN);
    assert_int_equal(heard[0].bytes, 3500);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void those_who_were_dead_before_are_not_told(void **unused)
{
    pid_t pid = child_start();
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    end(NULL);
    assert_int_equal(begin(NULL), 0);
    assert_int_equal(look(), 0);
}

/* ---- sets of blocks ---- */

static int count_gone(const struct blockset_entry *gone, void *context)
{
    uint64_t *sum = context;
    *sum += gone->id;
    return 0;
}

static void sets_tell_new_from_same_from_gone(void **unused)
{
    struct blockset set = {0};
    struct blockset_entry old;
    uint64_t gone = 0;
    blockset_begin(&set);
    for (uint64_t i = 1; i <= 1000; i++)
        assert_int_equal(
            blockset_put(&set, &(struct blockset_entry){.id = i, .bytes = i}, 1000, 0, &old),
            BLOCKSET_NEW);
    assert_int_equal(
        blockset_put(&set, &(struct blockset_entry){.id = 9, .bytes = 9}, 1000, 0, &old),
        BLOCKSET_AGAIN);
    assert_int_equal(blockset_put(&set, &(struct blockset_entry){.id = 9999}, 1000, 0, &old),
                     -ENOSPC);
    assert_int_equal(blockset_sweep(&set, count_gone, &gone), 0);
    assert_int_equal(gone, 0);
    blockset_begin(&set);
    for (uint64_t i = 1; i <= 1000; i += 2) /* the odd ones stay */
        assert_int_equal(
            blockset_put(&set, &(struct blockset_entry){.id = i, .bytes = i}, 1000, 0, &old),
            BLOCKSET_SAME);
    assert_int_equal(blockset_sweep(&set, count_gone, &gone), 0);
    assert_int_equal(gone, 500 * 501); /* 2 + 4 + ... + 1000 */
    assert_int_equal(set.n, 500);
    blockset_begin(&set);
    assert_int_equal(
        blockset_put(&set, &(struct blockset_entry){.id = 1, .bytes = 2}, 1000, 0, &old),
        BLOCKSET_REPLACED);
    assert_int_equal(old.bytes, 1);
    /* The same id of another owner is another block. */
    assert_int_equal(blockset_put(&set, &(struct blockset_entry){.id = 1, .bytes = 2, .owner = 5},
                                  1000, 0, &old),
                     BLOCKSET_NEW);
    struct blockset_entry late = {.id = 1, .bytes = 2, .owner = 6, .time_ns = 100};
    assert_int_equal(blockset_put(&set, &late, 1000, 0, &old), BLOCKSET_NEW);
    blockset_begin(&set);
    late.time_ns = 140;
    assert_int_equal(blockset_put(&set, &late, 1000, 40, &old), BLOCKSET_SAME);
    blockset_begin(&set);
    late.time_ns = 141;
    assert_int_equal(blockset_put(&set, &late, 1000, 40, &old), BLOCKSET_REPLACED);
    blockset_release(&set);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(blocks_that_come_and_go_are_told_once),
        TEST(a_block_that_comes_during_the_first_look_counts_once),
        TEST(allocations_come_by_age_after_the_frees),
        TEST(a_reused_id_is_a_free_and_an_allocation),
        TEST(what_came_and_went_in_between_is_told_by_its_counters),
        TEST(running_sums_are_what_is_held),
        TEST(changes_add_up_to_the_counters_whatever_happens),
        TEST(a_process_begins_with_its_blocks_and_goes_with_them),
        TEST(a_book_that_vanishes_takes_its_process_along),
        TEST(those_who_were_dead_before_are_not_told),
        cmocka_unit_test(sets_tell_new_from_same_from_gone),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
