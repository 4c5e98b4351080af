/* Which pages there are: the kernel is asked in two ways, which say the same. */
#include "scan/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "check.h"

enum { RUNS_MAX = 10000 };

struct runs {
    size_t n;
    uint64_t start[RUNS_MAX], end[RUNS_MAX];
};

static struct runs runs, others;

static int note(void *context, uint64_t start, uint64_t end)
{
    struct runs *r = context;
    assert_true(r->n < RUNS_MAX && start < end);
    assert_true(r->n == 0 || start > r->end[r->n - 1]);
    r->start[r->n] = start;
    r->end[r->n++] = end;
    return 0;
}

static char *reserve(uint64_t bytes)
{
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        skip(); /* no overcommitting here */
    madvise(at, bytes, MADV_NOHUGEPAGE);
    return at;
}

static void both_ways_tell_the_same(void **unused)
{
    const uint64_t page = (uint64_t)getpagesize(), bytes = UINT64_C(1) << 30;
    struct scan_memory memory;
    char *at = reserve(bytes);
    uint64_t from = (uintptr_t)at, dice = 12345, touched = 0;
    assert_int_equal(scan_memory_open(&memory, getpid()), 0);
    for (int i = 0; i < 5000; i++) { /* more than come at a time */
        dice = dice * UINT64_C(6364136223846793005) + 1442695040888963407;
        uint64_t place = (dice >> 33) % (bytes / page);
        for (uint64_t n = dice % 3; n < 3 && place + n < bytes / page; n++)
            at[(place + n) * page] = 1;
    }
    for (uint64_t cut = 0; cut <= 3 * page; cut += page / 2 + 8) {
        runs.n = others.n = 0;
        memory.one_by_one = false;
        assert_int_equal(scan_memory_runs(&memory, from + cut, from + bytes - cut, note, &runs), 0);
        if (memory.one_by_one)
            print_message("# this kernel tells of no stretches\n");
        memory.one_by_one = true;
        assert_int_equal(scan_memory_runs(&memory, from + cut, from + bytes - cut, note, &others),
                         0);
        assert_true(runs.n > 2730);
        assert_int_equal(runs.n, others.n);
        assert_memory_equal(runs.start, others.start, runs.n * sizeof(uint64_t));
        assert_memory_equal(runs.end, others.end, runs.n * sizeof(uint64_t));
    }
    for (size_t i = 0; i < runs.n; i++)
        touched += runs.end[i] - runs.start[i];
    assert_true(touched > 5000 * page && touched < 20000 * page);
    scan_memory_close(&memory);
    munmap(at, bytes);
}

static int refuse(void *context, uint64_t start, uint64_t end)
{
    ++*(int *)context;
    return -ENOMEM;
}

static void whoever_is_told_may_end_it(void **unused)
{
    const uint64_t page = (uint64_t)getpagesize();
    struct scan_memory memory;
    char *at = reserve(64 * page);
    uint64_t from = (uintptr_t)at;
    at[3 * page] = at[5 * page] = at[63 * page] = 1;
    assert_int_equal(scan_memory_open(&memory, getpid()), 0);
    for (int way = 0; way < 2; way++) {
        int calls = 0;
        memory.one_by_one = way;
        assert_int_equal(scan_memory_runs(&memory, from, from + 64 * page, refuse, &calls),
                         -ENOMEM);
        assert_int_equal(calls, 1);
    }
    scan_memory_close(&memory);
    munmap(at, 64 * page);
}

/* Terabytes in which there is next to nothing: at once, or by the deadline. */
static void nothing_takes_no_time(void **unused)
{
    const uint64_t bytes = UINT64_C(3) << 40;
    struct scan_memory memory;
    char *at = reserve(bytes);
    uint64_t from = (uintptr_t)at;
    at[0] = at[bytes / 3] = at[bytes - 1] = 1;
    assert_int_equal(scan_memory_open(&memory, getpid()), 0);
    runs.n = 0;
    memory.one_by_one = false;
    memory.deadline_ns = clock_monotonic_ns() + 60 * NS_PER_S;
    assert_int_equal(scan_memory_runs(&memory, from, from + bytes, note, &runs), 0);
    assert_int_equal(runs.n, 3);
    others.n = 0;
    memory.one_by_one = true;
    memory.deadline_ns = 1;
    assert_int_equal(scan_memory_runs(&memory, from, from + bytes, note, &others), -ETIME);
    assert_true(others.n < 3);
    scan_memory_close(&memory);
    munmap(at, bytes);
}

/* Who began because there are stretches to be asked for must not go on for hours without them. */
static void an_answer_that_ends_midway_ends_the_look(void **unused)
{
    const uint64_t from = UINT64_C(1) << 40;
    struct scan_memory memory;
    assert_int_equal(scan_memory_open(&memory, getpid()), 0);
    int pagemap = memory.pagemap;
    memory.pagemap = open("/dev/null", O_RDONLY | O_CLOEXEC); /* knows no such question */
    assert_true(memory.pagemap >= 0);
    memory.one_by_one = false;
    assert_true(scan_memory_may(&memory, SCAN_MAPPING_MAX + 4096));
    runs.n = 0;
    assert_int_equal(scan_memory_runs(&memory, from, from + SCAN_MAPPING_MAX + 4096, note, &runs),
                     0);
    assert_true(memory.one_by_one);
    assert_int_equal(runs.n, 0);
    assert_int_equal(memory.unread, SCAN_MAPPING_MAX + 4096);
    /* What can be looked at page by page is. */
    memory.unread = 0;
    memory.one_by_one = false;
    assert_int_equal(scan_memory_runs(&memory, from, from + 4096, note, &runs), 0);
    assert_int_equal(runs.n, 1);
    assert_int_equal(memory.unread, 0);
    close(memory.pagemap);
    memory.pagemap = pagemap;
    scan_memory_close(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ways_tell_the_same),
        cmocka_unit_test(whoever_is_told_may_end_it),
        cmocka_unit_test(nothing_takes_no_time),
        cmocka_unit_test(an_answer_that_ends_midway_ends_the_look),
    };
    return cmocka_run_group_tests_name("scan_memory", tests, NULL, NULL);
}
