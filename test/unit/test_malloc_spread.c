/* Several sources for the threads of a node: who moves when, and what one takes from another. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "malloc/exchange.h"
#include "malloc/huge.h"
#include "malloc/node.h"
#include "malloc/os.h"
#include "malloc/policy.h"
#include "malloc/pressure.h"
#include "malloc/settings.h"
#include "malloc/spread.h"
#include "malloc/thread.h"
#include "os_faults.h"

/* What these ask of others, held fast. */
struct slab slab_none;
bool node_many;
struct heap *heap_all;
struct lock heaps_lock;
extern uint64_t spread_processors;

void policy_grown(bool huge)
{
}
void policy_tick(bool needed)
{
}
uint32_t policy_level_now = PRESSURE_PLENTY;
bool policy_would_yield(size_t bytes, bool huge)
{
    return false;
}
void node_prefer(void *p, size_t bytes, unsigned node)
{
}
void huge_held(uint64_t *ret_mapped, uint64_t *ret_kept)
{
    *ret_mapped = *ret_kept = 0;
}
void *exchange_unit(size_t *ret_dirty)
{
    return NULL;
}

enum { HEAPS = 16 };
static struct heap heaps[HEAPS];

/* As many threads as that, all with the first source; nothing is left of earlier ones. */
static void threads_begin(unsigned n)
{
    heap_all = NULL;
    memset(heaps, 0, sizeof(heaps));
    for (unsigned i = 0; i < n; i++) {
        heaps[i].tid = (int32_t)i + 1;
        heaps[i].source = &source_main;
        heaps[i].next = heap_all;
        heap_all = &heaps[i];
    }
    for (unsigned i = 0; i < sources_n; i++)
        source_at(i)->waits = 0;
    sources_n = 1;
    spread_processors = UINT64_MAX;
    malloc_settings.sources = 0;
}

/* They wait for each other until nobody moves any more. How many have the source that most have. */
static unsigned all_wait(unsigned n)
{
    unsigned most = 0, with[NODE_MAX] = {0};
    for (unsigned round = 0; round < 4 * HEAPS; round++)
        for (unsigned i = 0; i < n; i++) {
            heaps[i].source->waits = SPREAD_WAITS;
            spread(&heaps[i]);
        }
    for (unsigned i = 0; i < n; i++) {
        unsigned now = ++with[source_number(heaps[i].source)];
        most = now > most ? now : most;
    }
    return most;
}

static void threads_that_wait_share_sources_evenly(void **unused)
{
    threads_begin(16);
    assert_int_equal(all_wait(16), 2);
    assert_int_equal(sources_n, SPREAD_MAX);
    assert_int_equal(spread_width(&source_main), SPREAD_MAX);
    threads_begin(3);
    assert_int_equal(all_wait(3), 1);
    assert_int_equal(sources_n, 3);
}

static void who_is_alone_with_a_source_stays(void **unused)
{
    threads_begin(1);
    assert_int_equal(all_wait(1), 1);
    assert_int_equal(sources_n, 1);
    assert_ptr_equal(heaps[0].source, &source_main);
    assert_int_equal(source_main.waits, 0); /* and is not asked again at once */
}

static void there_is_one_for_two_processors(void **unused)
{
    threads_begin(16);
    spread_processors = 0x7;
    assert_int_equal(all_wait(16), 16);
    spread_processors = 0xf0;
    assert_in_range(all_wait(16), 8, 9);
    assert_int_equal(sources_n, 2);
}

static void so_many_as_are_set(void **unused)
{
    threads_begin(8);
    spread_processors = 0;
    malloc_settings.sources = 4;
    assert_int_equal(all_wait(8), 2);
    assert_int_equal(sources_n, 4);
    threads_begin(8);
    malloc_settings.sources = 1;
    assert_int_equal(all_wait(8), 8);
    assert_int_equal(sources_n, 1);
}

static void a_heap_that_stands_for_a_node_stays(void **unused)
{
    threads_begin(2);
    heaps[0].on_node = true;
    source_main.waits = SPREAD_WAITS;
    spread(&heaps[0]);
    assert_ptr_equal(heaps[0].source, &source_main);
}

static void sources_of_another_node_are_not_beside(void **unused)
{
    threads_begin(2);
    struct source *near = source_add(0), *far = source_add(1);
    assert_non_null(far);
    for (unsigned i = 0; i < 4; i++)
        assert_ptr_equal(spread_beside(&source_main), near);
    assert_null(spread_beside(far));
}

static void waits_are_forgotten(void **unused)
{
    source_main.waits = 100;
    spread_forget(&source_main, 1);
    assert_int_equal(source_main.waits, 50);
    spread_forget(&source_main, 1000);
    assert_int_equal(source_main.waits, 0);
}

/* ---- memory ---- */

static struct slab *taken(struct source *s, unsigned slices)
{
    struct span span;
    assert_true(source_take(s, slices, 1, &span));
    memset(slab_memory(span.slab), 1, (size_t)slices << SLICE_SHIFT);
    return span.slab;
}

static void what_another_source_has_free_is_taken_first(void **unused)
{
    threads_begin(2);
    struct source *first = source_add(0), *second = source_add(0);
    struct slab *free = taken(first, SPREAD_LEFT + 2), *own = taken(second, 1);
    assert_ptr_equal(macro_of(free)->source, first);
    source_give(first, free);
    uint64_t macros = second->n_macros;
    struct slab *a = taken(second, 2);
    assert_ptr_equal(macro_of(a)->source, first);
    /* But not what has to lie at a certain place. */
    struct span apart;
    assert_true(source_take(second, 1, 4, &apart));
    assert_int_equal(slab_slice(apart.slab) % 4, 0);
    /* What is left is for the threads of the other one: now it grows. */
    struct slab *b = taken(second, 2);
    assert_ptr_equal(macro_of(b)->source, second);
    assert_int_equal(second->n_macros, macros);
    /* It goes back to where it came from. */
    source_give(macro_of(a)->source, a);
    assert_int_equal(first->n_used, 0);
    source_give(macro_of(apart.slab)->source, apart.slab);
    source_give(second, b);
    source_give(second, own);
    assert_int_equal(second->n_used, 0);
}

static void a_source_that_somebody_is_at_is_let_be(void **unused)
{
    threads_begin(2);
    struct source *first = source_add(0), *second = source_add(0);
    struct slab *free = taken(first, SPREAD_LEFT + 4);
    source_give(first, free);
    lock_take(&first->lock);
    struct slab *own = taken(second, 2);
    lock_drop(&first->lock);
    assert_ptr_equal(macro_of(own)->source, second);
    source_give(second, own);
}

/* At any place, to the last slice. */
static void what_is_free_anywhere_is_found_before_there_is_none(void **unused)
{
    threads_begin(2);
    struct source *first = source_add(0), *second = source_add(0);
    struct slab *half = taken(first, 64), *rest = taken(first, MACRO_SLICES_USABLE - 64), *slab;
    source_give(first, rest);
    uint64_t left = 0; /* of earlier cases, too */
    for (unsigned i = 0; source_at(i); i++)
        left += source_at(i)->n_macros * MACRO_SLICES_USABLE - source_at(i)->n_used;
    assert_true(left >= MACRO_SLICES_USABLE - 64);
    os_fault = no_map;
    struct span span;
    unsigned n = 0;
    slab = NULL;
    for (; source_take(second, 1, n == 0 ? 16 : 1, &span); n++) {
        if (n == 0)
            assert_int_equal(slab_slice(span.slab) % 16, 0);
        span.slab->next = slab;
        slab = span.slab;
    }
    os_fault = NULL;
    assert_int_equal(n, left);
    for (struct slab *next; slab; slab = next) {
        next = slab->next;
        source_give(macro_of(slab)->source, slab);
    }
    source_give(first, half);
    assert_int_equal(first->n_used, 0);
}

/* The child of a fork whose other handlers allocate before ours: a lock that is held across it is not somebody else's. */
static void locks_held_across_a_fork_are_let_be(void **unused)
{
    threads_begin(2);
    struct source *first = source_add(0), *second = source_add(0);
    source_give(first, taken(first, SPREAD_LEFT + 4));
    lock_fork_take(&first->lock);
    lock_fork_take(&second->lock);
    lock_forking = true;
    uint32_t number = lock_page.process.number;
    lock_page.process.number = number + 2; /* as in a child */
    struct slab *own = taken(second, 2);
    unsigned n = sources_n;
    heaps[0].source->waits = SPREAD_WAITS;
    spread(&heaps[0]);
    lock_page.process.number = number;
    lock_forking = false;
    assert_ptr_equal(macro_of(own)->source, second);
    assert_true(first->n_macros > 0); /* not begun anew */
    assert_int_equal(sources_n, n);
    lock_fork_drop(&first->lock, false);
    lock_fork_drop(&second->lock, false);
    source_give(second, own);
}

static void what_idle_sources_keep_goes_with_time(void **unused)
{
    threads_begin(2);
    struct source *idle = source_add(0);
    struct slab *all[8];
    for (unsigned i = 0; i < 8; i++)
        all[i] = taken(idle, 100);
    malloc_settings.keep_bytes = 0;
    for (unsigned i = 0; i < 8; i++)
        (void)source_put(idle, all[i]);
    assert_true(idle->n_dirty_free >= 800);
    source_main.policy_ms = 0; /* long ago */
    source_age(&source_main);
    malloc_settings.keep_bytes = SETTING_AUTO;
    assert_int_equal(idle->n_dirty_free, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_that_wait_share_sources_evenly),
        cmocka_unit_test(who_is_alone_with_a_source_stays),
        cmocka_unit_test(there_is_one_for_two_processors),
        cmocka_unit_test(so_many_as_are_set),
        cmocka_unit_test(a_heap_that_stands_for_a_node_stays),
        cmocka_unit_test(sources_of_another_node_are_not_beside),
        cmocka_unit_test(waits_are_forgotten),
        cmocka_unit_test(what_another_source_has_free_is_taken_first),
        cmocka_unit_test(a_source_that_somebody_is_at_is_let_be),
        cmocka_unit_test(what_is_free_anywhere_is_found_before_there_is_none),
        cmocka_unit_test(locks_held_across_a_fork_are_let_be),
        cmocka_unit_test(what_idle_sources_keep_goes_with_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
