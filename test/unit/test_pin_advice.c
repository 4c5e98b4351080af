/* What `memoir pin advise` and the page say about call sites, and the kernel's count of pinned
 * pages. */
#include "pin/advice.h"
#include "pin/kernel_pinned.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { MIB = 1 << 20, PRICE = 1000000 }; /* 1 ms for a MiB */

static struct pin_advice advise(uint64_t blocks, uint64_t missed_ns, uint64_t saved_ns)
{
    static struct pin_state state;
    struct pin_state_site site = {
        .blocks = blocks, .bytes = blocks * 4 * MIB, .missed_ns = missed_ns, .saved_ns = saved_ns};
    state.magic = PIN_STATE_MAGIC;
    state.price_ns_mib = PRICE;
    return pin_advice_of(&state, &site);
}

static void sites_are_pinned_reused_or_left_by_what_their_memory_costs(void **unused)
{
    /* Memory of 4 MiB costs 4 ms. */
    struct pin_advice each = advise(10, 30000000, 10000000), all = advise(10, 39999999, 0),
                      one = advise(10, 4000000, 0), none = advise(10, 3999999, 0);
    assert_int_equal(each.kind, PIN_ADVICE_PIN);
    assert_int_equal(each.saves_ns, 40000000);
    assert_int_equal(each.each_ns, 4000000);
    assert_int_equal(each.cost_bytes, 4 * MIB);
    assert_int_equal(all.kind, PIN_ADVICE_REUSE);
    assert_int_equal(one.kind, PIN_ADVICE_REUSE);
    assert_int_equal(none.kind, PIN_ADVICE_LEAVE);
    assert_int_equal(advise(10, 0, 0).kind, PIN_ADVICE_LEAVE);
    assert_string_equal(pin_advice_word(PIN_ADVICE_REUSE), "reuse");
}

static void forged_figures_do_not_wrap(void **unused)
{
    struct pin_advice huge = advise(1, UINT64_MAX, UINT64_MAX), empty = advise(0, 5, 5);
    assert_int_equal(huge.saves_ns, UINT64_MAX);
    assert_int_equal(huge.kind, PIN_ADVICE_PIN);
    assert_int_equal(empty.each_ns, 10);
}

/* A file with this text. */
static int kernel(const char *text, uint64_t *ret)
{
    char path[] = "/tmp/memoir-vmstat-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    int r = pin_kernel_pinned(path, ret);
    unlink(path);
    return r;
}

static void the_kernel_counts_pages_that_are_pinned(void **unused)
{
    uint64_t bytes = 7, page = (uint64_t)sysconf(_SC_PAGESIZE);
    assert_int_equal(
        kernel("nr_foll_pin_acquired 1000\nnr_foll_pin_released 744\nnr_x 5\n", &bytes), 0);
    assert_int_equal(bytes, 256 * page);
    assert_int_equal(kernel("nr_foll_pin_acquired 10\nnr_foll_pin_released 11\n", &bytes), 0);
    assert_int_equal(bytes, 0);
    bytes = 7;
    assert_int_equal(kernel("nr_foll_pin_acquired 10\n", &bytes), -ENOENT);
    assert_int_equal(kernel("nr_foll_pin_acquired_more 10\nnr_foll_pin_released x\n", &bytes),
                     -ENOENT);
    assert_int_equal(pin_kernel_pinned("/does/not/exist", &bytes), -ENOENT);
    assert_int_equal(bytes, 7); /* changes on success alone */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sites_are_pinned_reused_or_left_by_what_their_memory_costs),
        cmocka_unit_test(forged_figures_do_not_wrap),
        cmocka_unit_test(the_kernel_counts_pages_that_are_pinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
