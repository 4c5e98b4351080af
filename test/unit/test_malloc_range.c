/* Addresses of a range, on a machine with two nodes that there is not: where things lie, what comes back, what is never given out
 * twice. The memory is real. */
#include "malloc/range.h"

#include <errno.h>
#include <memoir/malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "malloc/huge.h"
#include "malloc/node.h"
#include "malloc/nursery.h"
#include "malloc/os.h"
#include "malloc/thread.h"

#define UNIT  OS_PLACES_ALIGN
#define BYTES ((size_t)256 << 20)
#define PART  (BYTES / 2)
#define PAGE  OS_PAGE_BYTES

/* What is around it. */
bool node_many = true;
static unsigned here;
uint64_t node_mask(void)
{
    return 3;
}
unsigned node_here(void)
{
    return here;
}
bool huge_trim(void)
{
    return false;
}
void range_retire(void)
{
}
void nursery_close(void)
{
}
void heap_fast_set(void)
{
}
void start_modes(void)
{
}

static char *base;

static struct memoir_malloc_range now(void)
{
    struct memoir_malloc_range r = {.struct_size = sizeof(r)};
    assert_int_equal(memoir_malloc_range(&r), 0);
    return r;
}

static int begin(void **unused)
{
    malloc_settings.range_base = SETTING_AUTO;
    malloc_settings.range_bytes = BYTES;
    malloc_settings.slot = 2;
    range_begin();
    struct memoir_malloc_range r = now();
    base = (char *)(uintptr_t)r.base;
    assert_int_equal(r.nodes, 2);
    assert_int_equal(r.node_bytes, PART);
    assert_int_equal(r.base - r.all_base, 2 * BYTES);
    assert_false(r.waiting);
    return 0;
}

static size_t part_of(const void *p)
{
    return (size_t)((const char *)p - base) / PART;
}

static void nothing_is_left(void)
{
    assert_int_equal(now().mapped_bytes, 0);
    /* And all of it is held. */
    for (size_t at = 0; at < BYTES; at += UNIT / 2)
        assert_int_equal(os_hold(base + at, PAGE), -EEXIST);
}

static void memory_of_a_node_lies_in_its_part(void **unused)
{
    char *of[2] = {os_map_node(UNIT, UNIT, 0), os_map_node(UNIT, UNIT, 1)};
    assert_int_equal(part_of(of[0]), 0);
    assert_int_equal(part_of(of[1]), 1);
    assert_int_equal(range_node(of[0]), 0);
    assert_int_equal(range_node(of[1]), 1);
    here = 1;
    char *where_we_are = os_map(3 * UNIT, UNIT);
    here = 0;
    assert_int_equal(part_of(where_we_are), 1);
    os_unmap(of[0], UNIT);
    os_unmap(of[1], UNIT);
    os_unmap(where_we_are, 3 * UNIT);
    /* What needs no alignment is not of the heap's blocks. */
    char *other = os_map(PAGE, 1);
    assert_false(os_places_has(other));
    assert_true(os_places_lack(other));
    os_unmap(other, PAGE);
    nothing_is_left();
}

static void a_full_part_takes_from_the_other_and_a_full_range_ends(void **unused)
{
    char *units[BYTES / UNIT];
    for (size_t i = 0; i < BYTES / UNIT; i++) {
        units[i] = os_map_node(UNIT, UNIT, 1);
        assert_non_null(units[i]);
        assert_int_equal(part_of(units[i]), i < PART / UNIT ? 1 : 0);
        memset(units[i], 1, PAGE);
    }
    assert_null(os_map_node(UNIT, UNIT, 1));
    assert_null(os_map_node(PAGE, UNIT, 0));
    os_unmap(units[10], UNIT);
    assert_ptr_equal(os_map_node(UNIT, UNIT, 0), units[10]);
    assert_int_equal(units[10][0], 0); /* not what was there */
    for (size_t i = 0; i < BYTES / UNIT; i++)
        os_unmap(units[i], UNIT);
    /* More than a part. */
    char *all = os_map(BYTES, UNIT);
    assert_ptr_equal(all, base);
    assert_null(os_map(PAGE, UNIT));
    os_unmap(all, BYTES);
    assert_null(os_map(BYTES + PAGE, UNIT));
    nothing_is_left();
}

static void what_lies_before_an_alignment_has_a_unit_of_its_own(void **unused)
{
    char *a = os_map_lead(PAGE + UNIT, 8 * UNIT, PAGE);
    assert_int_equal((uintptr_t)(a + PAGE) % (8 * UNIT), 0);
    char *all[BYTES / UNIT];
    size_t n = 0;
    for (; (all[n] = os_map(UNIT, UNIT)); n++)
        assert_true(all[n] + UNIT <= a + PAGE - UNIT || all[n] >= a + PAGE + UNIT);
    assert_int_equal(n, BYTES / UNIT - 2);
    os_unmap(a, PAGE); /* the unit of the page is free, the next one is not */
    all[n] = os_map(UNIT, UNIT);
    assert_ptr_equal(all[n], a + PAGE - UNIT);
    assert_null(os_map(UNIT, UNIT));
    os_unmap(a + PAGE, UNIT);
    for (size_t i = 0; i <= n; i++)
        os_unmap(all[i], UNIT);
    nothing_is_left();
}

static void growing_stops_at_what_is_there(void **unused)
{
    char *a = os_map(PAGE, UNIT), *b = os_map(UNIT, UNIT);
    assert_ptr_equal(b, a + UNIT);
    memset(a, 7, PAGE);
    assert_int_equal(os_extend(a, PAGE, UNIT), 0);
    assert_int_equal(os_extend(a, UNIT, UNIT + PAGE), -ENOMEM);
    os_unmap(b + PAGE, UNIT - PAGE); /* a page of it is still there */
    assert_int_equal(os_extend(a, UNIT, UNIT + PAGE), -ENOMEM);
    os_unmap(b, PAGE);
    assert_int_equal(os_extend(a, UNIT, 5 * UNIT + PAGE), 0);
    assert_int_equal(a[PAGE - 1], 7);
    assert_int_equal(a[5 * UNIT], 0);
    assert_ptr_equal(os_map(UNIT, UNIT), a + 6 * UNIT);
    os_unmap(a + 6 * UNIT, UNIT);
    assert_int_equal(os_extend(a, 5 * UNIT + PAGE, BYTES), 0);
    assert_int_equal(os_extend(a, BYTES, BYTES + PAGE), -ENOMEM);
    os_unmap(a, BYTES);
    assert_null(os_reserve(UNIT, 0, UNIT, 0)); /* pages do not move */
    nothing_is_left();
}

static void an_image_takes_what_is_free_and_ours(void **unused)
{
    assert_true(range_take_at(base + 4 * UNIT, UNIT));
    assert_true(os_map_held(base + 4 * UNIT, UNIT));
    assert_false(range_take_at(base + 4 * UNIT, PAGE));
    assert_false(range_take_at(base + 5 * UNIT - PAGE, 2 * PAGE));
    assert_false(range_take_at(base + 3 * UNIT, UNIT + PAGE));
    assert_false(range_take_at(base - PAGE, PAGE));
    assert_false(range_take_at(base + BYTES, PAGE));
    assert_false(range_take_at(base + BYTES - PAGE, 2 * PAGE));
    assert_false(range_take_at(base + UNIT, SIZE_MAX - PAGE));
    assert_false(range_take_at(base + UNIT, 0));
    os_unmap(base + 4 * UNIT, UNIT);
    nothing_is_left();
}

/* ---- anything in any order ---- */

struct piece {
    char *at;
    size_t bytes;
    char stamp;
};

static void stamp(const struct piece *p)
{
    for (size_t i = 0; i < p->bytes; i += PAGE)
        p->at[i] = p->stamp;
}

static void check_stamps(const struct piece *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += PAGE)
        assert_int_equal(p->at[i], p->stamp);
}

static void nobody_has_what_another_has(void **unused)
{
    unsigned seed = (unsigned)time(NULL);
    printf("# seed %u\n", seed);
    srand(seed);
    struct piece pieces[24] = {0};
    for (int step = 0; step < 1000; step++) {
        struct piece *p = &pieces[(size_t)rand() % 24];
        size_t bytes = PAGE * (1 + (size_t)rand() % (rand() % 4 ? 600 : 3000));
        if (!p->at) {
            size_t lead = rand() % 4 ? 0 : PAGE, align = lead ? UNIT << rand() % 4 : UNIT;
            here = (unsigned)rand() % 2;
            *p = (struct piece){os_map_lead(bytes, align, lead), bytes, (char)(1 + step % 100)};
            if (!p->at)
                continue;
            assert_true(p->at >= base && p->at + bytes <= base + BYTES);
            assert_int_equal((uintptr_t)(p->at + lead) % align, 0);
            stamp(p);
        } else if (rand() % 3 == 0) {
            check_stamps(p, p->bytes);
            if (os_extend(p->at, p->bytes, p->bytes + bytes) == 0) {
                assert_true(p->at + p->bytes + bytes <= base + BYTES);
                p->bytes += bytes;
                stamp(p);
            }
        } else if (rand() % 3 == 0 && bytes < p->bytes) {
            assert_true(os_unmap(p->at + bytes, p->bytes - bytes));
            p->bytes = bytes;
        } else {
            check_stamps(p, p->bytes);
            assert_true(os_unmap(p->at, p->bytes));
            p->at = NULL;
        }
    }
    for (size_t i = 0; i < 24; i++)
        if (pieces[i].at)
            os_unmap(pieces[i].at, pieces[i].bytes);
    nothing_is_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_a_node_lies_in_its_part),
        cmocka_unit_test(a_full_part_takes_from_the_other_and_a_full_range_ends),
        cmocka_unit_test(what_lies_before_an_alignment_has_a_unit_of_its_own),
        cmocka_unit_test(growing_stops_at_what_is_there),
        cmocka_unit_test(an_image_takes_what_is_free_and_ours),
        cmocka_unit_test(nobody_has_what_another_has),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
