/* The allocator's seam to the kernel: what it promises when calls succeed, and when any of them fails. */
#include "malloc/os.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "check.h"

#define MIB  ((size_t)1 << 20)
#define UNIT (2 * MIB)

/* Which calls fail: the nth of a kind from now, once or from then on. */
static struct {
    enum os_call call;
    int left; /* calls that still succeed; negative: none fails */
    bool lasting;
    bool fired;
} plan = {.left = -1};

static bool fails(enum os_call call)
{
    if (plan.left < 0 || call != plan.call || (plan.fired && !plan.lasting))
        return false;
    if (plan.left > 0) {
        plan.left--;
        return false;
    }
    plan.fired = true;
    errno = EIO;
    return true;
}

static void plan_fault(enum os_call call, int nth, bool lasting)
{
    plan.call = call;
    plan.left = nth;
    plan.lasting = lasting;
    plan.fired = false;
    os_fault = fails;
}

static bool plan_end(void)
{
    plan.left = -1;
    os_fault = NULL;
    return plan.fired;
}

static bool all_are(const void *p, size_t bytes, int value)
{
    const unsigned char *byte = p;
    return bytes == 0 || (byte[0] == value && memcmp(byte, byte + 1, bytes - 1) == 0);
}

static void memory_is_zeroed_and_aligned(void **unused)
{
    static const size_t sizes[] = {1, 4096, 4097, UNIT - 4096, UNIT, UNIT + 1, 5 * MIB};
    static const size_t aligns[] = {16, 4096, 65536, UNIT, 8 * UNIT, 1024 * MIB};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t a = 0; a < sizeof aligns / sizeof *aligns; a++) {
            void *p = os_map(sizes[s], aligns[a]);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p & (aligns[a] - 1), 0);
            assert_true(all_are(p, os_page_up(sizes[s]), 0));
            memset(p, 1, sizes[s]);
            assert_true(os_unmap(p, sizes[s]));
        }
}

static void neighbours_cost_one_call_each(void **unused)
{
    enum { N = 64 };
    char *units[N];
    units[0] = os_map(UNIT, UNIT);
    uint64_t before = load_relaxed(&os_counts.map_calls);
    int adjacent = 0;
    for (int i = 1; i < N; i++) {
        units[i] = os_map(UNIT, UNIT);
        assert_non_null(units[i]);
        adjacent += units[i] + UNIT == units[i - 1];
    }
    /* A few may run into what others mapped. */
    assert_true(load_relaxed(&os_counts.map_calls) - before < N + N / 4);
    assert_true(adjacent > N / 2);
    for (int i = 0; i < N; i++)
        assert_true(os_unmap(units[i], UNIT));
}

/* Holes are used again, or an idle loop would wander through the whole address space. */
static void churn_stays_in_place(void **unused)
{
    uintptr_t low = UINTPTR_MAX, high = 0;
    void *before = NULL;
    for (int i = 0; i < 600; i++) {
        void *p = os_map(32 * MIB, UNIT);
        assert_non_null(p);
        if (i >= 100) { /* by then it no longer stands where another test left it */
            low = (uintptr_t)p < low ? (uintptr_t)p : low;
            high = (uintptr_t)p > high ? (uintptr_t)p : high;
        }
        if (before)
            assert_true(os_unmap(before, 32 * MIB));
        before = p;
    }
    assert_true(os_unmap(before, 32 * MIB));
    /* 16 GB went through. */
    assert_true(high - low < 4 * 1024 * MIB);
}

static void purged_memory_reads_as_zero(void **unused)
{
    char *p = os_map(4 * MIB, UNIT);
    memset(p, 7, 4 * MIB);
    assert_true(os_purge(p + 4096, MIB));
    assert_true(all_are(p, 4096, 7));
    assert_true(all_are(p + 4096, MIB, 0));
    assert_true(all_are(p + 4096 + MIB, 4 * MIB - MIB - 4096, 7));
    os_unmap(p, 4 * MIB);
}

static void locked_memory_is_not_purged(void **unused)
{
    char *p = os_map(MIB, 4096);
    size_t page = os_page_bytes();
    memset(p, 7, MIB);
    if (syscall(SYS_mlock, p, page) == 0) { /* mlock() itself does nothing under sanitizers */
        errno = 5;
        assert_false(os_purge(p, page));
        assert_int_equal(errno, 5);
        assert_true(all_are(p, MIB, 7));
        syscall(SYS_munlock, p, page);
    }
    os_unmap(p, MIB);
}

/* Longer where it is, else elsewhere; NULL: neither worked. */
static void *os_grow(void *old, size_t old_bytes, size_t new_bytes, size_t align)
{
    int r = os_extend(old, old_bytes, new_bytes);
    if (r == 0)
        return old;
    if (r != -ENOMEM)
        return NULL;
    void *to = os_reserve(new_bytes, new_bytes / 2, align, 0);
    if (!to)
        return NULL;
    return os_move(old, old_bytes, new_bytes, to) ? to : NULL;
}

static void growth_keeps_the_contents(void **unused)
{
    size_t bytes = MIB;
    char *p = os_map(bytes, UNIT);
    memset(p, 3, bytes);
    while (bytes < 200 * MIB) {
        size_t more = bytes + bytes / 7 + 1;
        char *q = os_grow(p, bytes, more, UNIT);
        assert_non_null(q);
        assert_int_equal((uintptr_t)q & (UNIT - 1), 0);
        assert_true(all_are(q, MIB, 3));
        assert_int_equal(q[os_page_up(more) - 1], 0);
        p = q;
        bytes = os_page_up(more);
    }
    assert_true(os_unmap(p, bytes));
}

static void growth_moves_past_a_neighbour(void **unused)
{
    char *above = os_map(UNIT, UNIT);
    char *p = os_map(UNIT, UNIT);
    memset(p, 3, UNIT);
    memset(above, 4, UNIT);
    char *q = os_grow(p, UNIT, 4 * UNIT, UNIT);
    assert_non_null(q);
    assert_true(all_are(q, UNIT, 3));
    assert_true(all_are(q + UNIT, 3 * UNIT, 0));
    assert_true(all_are(above, UNIT, 4));
    /* Room was left, so the next step stays. */
    assert_ptr_equal(os_grow(q, 4 * UNIT, 4 * UNIT + 4096, UNIT), q);
    os_unmap(q, 4 * UNIT + 4096);
    os_unmap(above, UNIT);
}

static void absurd_sizes_fail(void **unused)
{
    errno = 5;
    assert_null(os_map(SIZE_MAX, 4096));
    assert_null(os_map(SIZE_MAX - 4095, UNIT));
    assert_null(os_map(PTRDIFF_MAX, UNIT));
    assert_null(os_map((size_t)1 << 50, 4096));
    assert_null(os_map(4096, (size_t)1 << 63));
    assert_null(os_map(0, 4096));
    void *p = os_map(4096, 4096);
    assert_null(os_grow(p, 4096, SIZE_MAX, 4096));
    assert_null(os_grow(p, 4096, (size_t)1 << 50, 4096));
    assert_int_equal(errno, 5);
    os_unmap(p, 4096);
}

static void what_leads_is_before_the_aligned_address(void **unused)
{
    size_t lead = OS_PAGE_MAX;
    for (size_t align = UNIT; align <= 64 * UNIT; align *= 4) {
        char *p = os_map_lead(UNIT + lead, align, lead);
        assert_non_null(p);
        assert_int_equal((uintptr_t)(p + lead) & (align - 1), 0);
        memset(p, 1, UNIT + lead);
        char *to = os_reserve(3 * UNIT, UNIT, align, lead);
        assert_non_null(to);
        assert_int_equal((uintptr_t)(to + lead) & (align - 1), 0);
        assert_true(os_move(p, UNIT + lead, 3 * UNIT, to));
        assert_true(all_are(to, UNIT + lead, 1));
        os_unmap(to, 3 * UNIT);
        os_unreserve(os_reserve(UNIT, 0, align, lead), UNIT);
    }
}

static void limit_holds_for_all_that_is_mapped(void **unused)
{
    uint64_t mapped =
        load_relaxed(&os_counts.mapped_bytes) - load_relaxed(&os_counts.unmapped_bytes);
    os_limit_bytes = mapped + 3 * MIB;
    char *p = os_map(2 * MIB, UNIT);
    assert_non_null(p);
    assert_null(os_map(2 * MIB, UNIT));
    assert_int_equal(os_extend(p, 2 * MIB, 4 * MIB), -EDQUOT);
    void *q = os_map(MIB, UNIT);
    assert_non_null(q);
    os_unmap(p, 2 * MIB);
    p = os_map(2 * MIB, UNIT);
    assert_non_null(p);
    os_unmap(p, 2 * MIB);
    os_unmap(q, MIB);
    os_limit_bytes = 0;
    assert_int_equal(
        load_relaxed(&os_counts.mapped_bytes) - load_relaxed(&os_counts.unmapped_bytes), mapped);
}

/* Where the kernel sees two mappings it moves neither, and nothing must be given up for that. */
static void ranges_of_two_mappings_are_left_alone(void **unused)
{
    char *p = os_map(2 * UNIT, UNIT);
    memset(p, 3, 2 * UNIT);
    assert_true(os_protect(p, os_page_bytes(), OS_READ));
    assert_int_equal(os_extend(p, 2 * UNIT, 3 * UNIT), -EFAULT);
    assert_true(all_are(p, 2 * UNIT, 3));
    assert_true(os_unmap(p, 2 * UNIT));
}

static void access_can_be_taken_and_given(void **unused)
{
    size_t page = os_page_bytes();
    char *p = os_map(2 * page, 4096);
    p[0] = 1;
    assert_true(os_protect(p, page, OS_READ));
    assert_int_equal(p[0], 1);
    assert_true(os_protect(p, page, OS_NO_ACCESS));
    assert_true(os_protect(p, page, OS_READ_WRITE));
    p[0]++;
    assert_int_equal(p[0], 2);
    os_unmap(p, 2 * page);
}

/* The kernel would round up to whole pages, and take what others have there. */
static void what_shares_a_page_with_others_is_not_given_away(void **unused)
{
    size_t page = os_page_bytes(), small = OS_PAGE_BYTES;
    if (page == small)
        skip(); /* no page has room for two */
    char *p = os_map(4 * page, 4096);
    static const struct {
        size_t from, to;
    } parts[] = {{0, 1}, {1, 2}, {3, 4}, {2, 5}, {1, 8}, {3, 9}, {4, 12}, {5, 16}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t from = parts[i].from * page / 4, to = parts[i].to * page / 4;
        memset(p, 7, 4 * page);
        uint64_t purged = load_relaxed(&os_counts.purged_bytes);
        assert_true(os_purge(p + from, to - from));
        assert_true(all_are(p, from, 7));
        assert_true(all_are(p + from, to - from, 0));
        assert_true(all_are(p + to, 4 * page - to, 7));
        uint64_t whole = (to & ~(page - 1)) - os_page_up(from);
        purged = load_relaxed(&os_counts.purged_bytes) - purged;
        assert_int_equal(purged, to > from + page / 2 && (int64_t)whole > 0 ? whole : 0);
    }
    assert_false(os_protect(p, small, OS_NO_ACCESS));
    assert_false(os_protect(p + small, page, OS_NO_ACCESS));
    assert_true(all_are(p, 5 * page / 4, 7));
    os_unmap(p, 4 * page);
}

/* One life of a range. True when every call succeeded; asserts what must hold whatever failed. */
static bool life(void)
{
    bool ok = true;
    errno = 5;
    char *p = os_map(3 * MIB, 8 * UNIT); /* an alignment that mostly needs the wide way */
    if (!p) {
        assert_int_equal(errno, 5);
        return false;
    }
    assert_int_equal((uintptr_t)p & (8 * UNIT - 1), 0);
    memset(p, 9, 3 * MIB);
    size_t bytes = 3 * MIB;
    for (int i = 0; i < 3; i++) {
        char *q = os_grow(p, bytes, bytes * 2, UNIT);
        ok = ok && q;
        if (q) {
            p = q;
            bytes *= 2;
        }
        assert_true(all_are(p, 3 * MIB, 9));
        assert_true(all_are(p + 3 * MIB, bytes - 3 * MIB, 0));
    }
    bool purged = os_purge(p, MIB);
    ok = ok && purged;
    assert_true(all_are(p, MIB, purged ? 0 : 9));
    assert_true(all_are(p + MIB, 2 * MIB, 9));
    uint64_t kept = load_relaxed(&os_counts.kept_bytes);
    bool gone = os_unmap(p, bytes);
    ok = ok && gone;
    assert_int_equal(load_relaxed(&os_counts.kept_bytes) - kept, gone ? 0 : bytes);
    assert_int_equal(errno, 5);
    return ok;
}

static void any_call_may_fail(void **unused)
{
    assert_true(life());
    for (enum os_call call = OS_CALL_MAP; call <= OS_CALL_PROTECT; call++)
        for (int lasting = 0; lasting < 2; lasting++)
            for (int nth = 0;; nth++) {
                plan_fault(call, nth, lasting);
                uint64_t failed = load_relaxed(&os_counts.failed_calls);
                life();
                if (!plan_end())
                    break;
                assert_true(load_relaxed(&os_counts.failed_calls) > failed);
                assert_true(nth < 100);
            }
    assert_true(life());
}

/* A kernel that refuses every move costs a bounded stretch of addresses. */
static void refused_moves_come_to_an_end(void **unused)
{
    char *p = os_map(UNIT, UNIT);
    memset(p, 3, UNIT);
    plan_fault(OS_CALL_REMAP, 0, true);
    for (int i = 0; i < 100; i++)
        assert_null(os_grow(p, UNIT, 2 * UNIT, UNIT));
    uint64_t kept = load_relaxed(&os_counts.kept_bytes);
    assert_null(os_grow(p, UNIT, 2 * UNIT, UNIT));
    assert_int_equal(load_relaxed(&os_counts.kept_bytes), kept);
    assert_true(plan_end());
    assert_true(all_are(p, UNIT, 3));
    os_unmap(p, UNIT);
}

static void *churn(void *arg)
{
    int me = (int)(uintptr_t)arg;
    for (int i = 0; i < 200; i++) {
        size_t bytes = OS_PAGE_BYTES * (size_t)(1 + i % 7);
        unsigned char *p = os_map(bytes, UNIT);
        if (!p)
            return (void *)1;
        memset(p, me, bytes);
        unsigned char *q = os_grow(p, bytes, 2 * bytes, UNIT);
        if (!q || !all_are(q, bytes, me) || !all_are(q + bytes, bytes, 0))
            return (void *)2;
        if (!os_unmap(q, 2 * bytes))
            return (void *)3;
    }
    return NULL;
}

static void threads_get_ranges_of_their_own(void **unused)
{
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
    for (int i = 0; i < 4; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_null(result);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zeroed_and_aligned),
        cmocka_unit_test(neighbours_cost_one_call_each),
        cmocka_unit_test(churn_stays_in_place),
        cmocka_unit_test(purged_memory_reads_as_zero),
        cmocka_unit_test(locked_memory_is_not_purged),
        cmocka_unit_test(growth_keeps_the_contents),
        cmocka_unit_test(growth_moves_past_a_neighbour),
        cmocka_unit_test(absurd_sizes_fail),
        cmocka_unit_test(what_leads_is_before_the_aligned_address),
        cmocka_unit_test(limit_holds_for_all_that_is_mapped),
        cmocka_unit_test(ranges_of_two_mappings_are_left_alone),
        cmocka_unit_test(access_can_be_taken_and_given),
        cmocka_unit_test(what_shares_a_page_with_others_is_not_given_away),
        cmocka_unit_test(any_call_may_fail),
        cmocka_unit_test(threads_get_ranges_of_their_own),
        cmocka_unit_test(refused_moves_come_to_an_end), /* last: moves stay off afterwards */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
