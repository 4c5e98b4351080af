/* A token bucket for each user: what it holds, how it fills, and what is told of refusals. */
#include "daemon/allowance.h"

#include <stdio.h>

#include "base/clock.h"
#include "check.h"

enum { BURST = 100, ANN = 5001, BOB = 5002 };
#define REFILL (10 * NS_PER_S) /* so ten a second */
#define START  (1000 * NS_PER_S)

static struct allowance *make(void)
{
    struct allowance *allowance = NULL;
    assert_int_equal(allowance_new(BURST, REFILL, &allowance), 0);
    return allowance;
}

static void a_bucket_is_full_at_first_and_fills_again(void **state)
{
    static const struct {
        uint64_t after_ms, amount;
        bool allowed;
    } steps[] = {
        {0, 60, true},       {0, 41, false},    {0, 40, true}, {0, 1, false},    {99, 1, false},
        {1, 1, true},        {1000, 11, false}, {0, 10, true}, {5000, 50, true}, {0, 1, false},
        {100000, 100, true}, {0, 1, false}, /* no more than full */
    };
    struct allowance *allowance = make();
    uint64_t now_ns = START;
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
        now_ns += steps[i].after_ms * NS_PER_MS;
        if (allowance_take(allowance, ANN, steps[i].amount, now_ns) != steps[i].allowed)
            fail_msg("step %zu", i);
    }
    allowance_free(allowance);
    allowance_free(NULL);
}

/* One large thing passes where nothing was used before, and has to be made up for. */
static void a_full_bucket_lets_one_large_thing_pass(void **state)
{
    struct allowance *allowance = make();
    assert_true(allowance_take(allowance, ANN, 3 * BURST, START));
    assert_false(allowance_take(allowance, ANN, 1, START + 2 * REFILL));
    assert_true(allowance_take(allowance, ANN, 1, START + 2 * REFILL + NS_PER_S));
    assert_false(allowance_take(allowance, ANN, 2 * BURST, START + 2 * REFILL + 2 * NS_PER_S));
    allowance_free(allowance);
}

static void users_have_buckets_of_their_own_and_root_has_no_limit(void **state)
{
    struct allowance *allowance = make();
    assert_true(allowance_take(allowance, ANN, BURST, START));
    assert_false(allowance_take(allowance, ANN, 1, START));
    assert_true(allowance_take(allowance, BOB, BURST, START));
    assert_false(allowance_take(allowance, BOB, 1, START));
    assert_false(allowance_take(allowance, ANN, 1, START));
    for (int i = 0; i < 10; i++)
        assert_true(allowance_take(allowance, 0, BURST, START));
    allowance_free(allowance);
}

static void a_new_burst_holds_from_then_on(void **state)
{
    struct allowance *allowance = make();
    assert_true(allowance_take(allowance, ANN, 50, START));
    allowance_set_burst(allowance, 20);
    assert_true(allowance_take(allowance, ANN, 20, START)); /* 50 were left: cut to 20 */
    assert_false(allowance_take(allowance, ANN, 1, START));
    assert_false(allowance_take(allowance, ANN, 3, START + NS_PER_S));
    assert_true(allowance_take(allowance, ANN, 2, START + NS_PER_S)); /* two a second now */
    allowance_free(allowance);
}

/* The table is limited: the user who was idle for the longest time makes room. */
static void the_user_that_was_idle_longest_is_forgotten(void **state)
{
    struct allowance *allowance = make();
    for (uint32_t i = 0; i < ALLOWANCE_USERS_MAX; i++)
        assert_true(allowance_take(allowance, 100000 + i, BURST, START + i));
    uint64_t now_ns = START + ALLOWANCE_USERS_MAX;
    assert_false(allowance_take(allowance, 100000, 50, now_ns)); /* busy again */
    assert_true(
        allowance_take(allowance, ANN, BURST, now_ns + 1)); /* takes the second one's place */
    assert_false(allowance_take(allowance, 100000, 50, now_ns + 2));
    assert_false(allowance_take(allowance, 100002, 50, now_ns + 2));
    assert_false(allowance_take(allowance, 100000 + ALLOWANCE_USERS_MAX - 1, 50, now_ns + 2));
    assert_true(
        allowance_take(allowance, 100001, BURST, now_ns + 3)); /* forgotten, so full again */
    assert_false(allowance_take(allowance, ANN, 50, now_ns + 4));
    allowance_free(allowance);
}

/* ---- what is told ---- */

struct told {
    char text[256];
    size_t len;
};

static void note(uint32_t uid, uint64_t refused, void *context)
{
    struct told *told = context;
    told->len += (size_t)snprintf(told->text + told->len, sizeof(told->text) - told->len,
                                  " %u:%llu", uid, (unsigned long long)refused);
}

static void check_told(struct allowance *allowance, uint64_t now_ns, const char *expected)
{
    struct told told = {0};
    allowance_tell(allowance, now_ns, note, &told);
    assert_string_equal(told.text, expected);
}

static void refusals_are_told_once_and_not_too_often(void **state)
{
    struct allowance *allowance = make();
    static const uint64_t pause_ns = ALLOWANCE_TELL_MS * NS_PER_MS;
    check_told(allowance, START, "");
    assert_true(allowance_take(allowance, ANN, BURST, START));
    check_told(allowance, START, "");
    for (int i = 0; i < 3; i++)
        assert_false(allowance_take(allowance, ANN, BURST, START));
    check_told(allowance, START, " 5001:3");
    check_told(allowance, START + pause_ns, ""); /* none since */
    assert_false(allowance_take(allowance, ANN, 2 * BURST, START + 1));
    assert_true(allowance_take(allowance, BOB, BURST, START + 1));
    assert_false(allowance_take(allowance, BOB, BURST, START + 1));
    check_told(allowance, START + pause_ns - 1, " 5002:1");
    check_told(allowance, START + pause_ns, " 5001:1");
    check_told(allowance, START + 3 * pause_ns, "");
    allowance_free(allowance);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_is_full_at_first_and_fills_again),
        cmocka_unit_test(a_full_bucket_lets_one_large_thing_pass),
        cmocka_unit_test(users_have_buckets_of_their_own_and_root_has_no_limit),
        cmocka_unit_test(a_new_burst_holds_from_then_on),
        cmocka_unit_test(the_user_that_was_idle_longest_is_forgotten),
        cmocka_unit_test(refusals_are_told_once_and_not_too_often),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
