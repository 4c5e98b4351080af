/* The time that users' questions take: what closes an account, and what opens it again. */
#include "check.h"

#include "base/clock.h"
#include "daemon/broker_account.h"

enum { ANN = 1000, BEN = 1001 };
#define TIME_NS ((uint64_t)BROKER_TIME_MS * NS_PER_MS)
#define REST_NS ((uint64_t)BROKER_REST_S * NS_PER_S)
#define BEGIN   (1000 * NS_PER_S)

static struct broker_accounts accounts;

static int setup(void **state)
{
    accounts = (struct broker_accounts){0};
    return 0;
}

static void account_that_is_used_up_is_closed_until_all_is_given_back(void **state)
{
    assert_true(broker_account_open(&accounts, ANN, BEGIN));
    assert_false(broker_account_charge(&accounts, ANN, TIME_NS - 1, BEGIN));
    assert_true(broker_account_open(&accounts, ANN, BEGIN));
    assert_true(broker_account_charge(&accounts, ANN, 2, BEGIN));
    assert_false(broker_account_open(&accounts, ANN, BEGIN));
    assert_true(broker_account_open(&accounts, BEN, BEGIN));
    assert_false(broker_account_open(&accounts, ANN, BEGIN + REST_NS - NS_PER_MS));
    assert_true(broker_account_open(&accounts, ANN, BEGIN + REST_NS));
    /* And then all of it can be used again. */
    assert_false(broker_account_charge(&accounts, ANN, TIME_NS / 2, BEGIN + REST_NS));
    assert_true(broker_account_open(&accounts, ANN, BEGIN + REST_NS));
}

/* Questions that end just before their time limit, again and again. */
static void time_counts_whatever_the_size_of_its_pieces(void **state)
{
    uint64_t now_ns = BEGIN, used_ns = 0;
    bool closed = false;
    while (!closed && used_ns < 3 * TIME_NS) {
        now_ns += NS_PER_S;
        used_ns += NS_PER_S;
        closed = broker_account_charge(&accounts, ANN, NS_PER_S, now_ns);
    }
    assert_true(closed);
    assert_in_range(used_ns, TIME_NS, TIME_NS + TIME_NS / 2); /* some was given back meanwhile */
}

static void what_takes_less_than_is_given_back_never_closes(void **state)
{
    uint64_t now_ns = BEGIN;
    for (int i = 0; i < 10000; i++) {
        now_ns += NS_PER_S;
        assert_false(
            broker_account_charge(&accounts, ANN, TIME_NS / BROKER_REST_S - NS_PER_MS, now_ns));
        assert_true(broker_account_open(&accounts, ANN, now_ns));
    }
}

static void questions_under_way_when_it_closes_keep_it_closed(void **state)
{
    assert_true(broker_account_charge(&accounts, ANN, 3 * TIME_NS, BEGIN));
    assert_false(broker_account_charge(&accounts, ANN, TIME_NS / 2, BEGIN + NS_PER_S));
    assert_false(broker_account_open(&accounts, ANN, BEGIN + REST_NS));
    assert_true(broker_account_open(&accounts, ANN, BEGIN + 2 * REST_NS));
}

/* More users than there are places: one that owes little makes room, one that is closed does not. */
static void users_who_used_least_make_room(void **state)
{
    assert_true(broker_account_charge(&accounts, ANN, TIME_NS, BEGIN));
    for (uint32_t user = 0; user < 4 * BROKER_ACCOUNTS_MAX; user++)
        assert_false(broker_account_charge(&accounts, 100000 + user, NS_PER_MS, BEGIN));
    assert_false(broker_account_open(&accounts, ANN, BEGIN));
    assert_true(broker_account_charge(&accounts, BEN, TIME_NS, BEGIN));
    assert_false(broker_account_open(&accounts, BEN, BEGIN));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(account_that_is_used_up_is_closed_until_all_is_given_back, setup),
        cmocka_unit_test_setup(time_counts_whatever_the_size_of_its_pieces, setup),
        cmocka_unit_test_setup(what_takes_less_than_is_given_back_never_closes, setup),
        cmocka_unit_test_setup(questions_under_way_when_it_closes_keep_it_closed, setup),
        cmocka_unit_test_setup(users_who_used_least_make_room, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
