/* Whose turn it is: users in turn, each with his own in order, and nobody waits for who does not come. */
#include "daemon/turns.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "check.h"

enum { CROWD = 100, SHORT_NS = 200, ANN = 1000, BOB = 1001 };

static struct turns *turns_make(void)
{
    struct turns *turns = calloc(1, sizeof(*turns));
    assert_non_null(turns);
    turns_init(turns, 4, SHORT_NS);
    return turns;
}

static void work_rests_for_the_others_share(void **state)
{
    struct turns *turns = turns_make();
    struct turn ann = {0};
    assert_int_equal(turns_wait(turns, &ann, ANN, 1000), 0);
    assert_false(ann.waiting);
    turns_done(turns, 500, 1500);
    assert_int_equal(turns_wait(turns, &ann, ANN, 1600), 1400);
    assert_true(ann.waiting);
    assert_int_equal(turns_wait(turns, &ann, ANN, 3000), 0);
    free(turns);
}

static void short_work_needs_no_rest(void **state)
{
    struct turns *turns = turns_make();
    struct turn ann = {0};
    for (uint64_t now = 1000; now < 100000; now += SHORT_NS) {
        assert_int_equal(turns_wait(turns, &ann, ANN, now), 0);
        turns_done(turns, SHORT_NS - 1, now + SHORT_NS - 1);
    }
    /* Nor does it end the rest of what was long. */
    turns_done(turns, SHORT_NS, 200000);
    turns_done(turns, SHORT_NS - 1, 200001);
    assert_int_equal(turns_wait(turns, &ann, ANN, 200002), 3 * SHORT_NS - 2);
    free(turns);
}

/* Each works for a millisecond; a thousand of one user's do not come before one of another's. */
static void users_take_turns(void **state)
{
    struct turns *turns = turns_make();
    struct turn ann[CROWD] = {0}, bob = {0};
    uint64_t now = NS_PER_S, ann_done = 0, bob_done = 0;
    assert_int_equal(turns_wait(turns, &ann[0], ANN, now), 0);
    turns_done(turns, NS_PER_MS, now + NS_PER_MS);
    for (int i = 0; i < CROWD; i++)
        assert_true(turns_wait(turns, &ann[i], ANN, now + NS_PER_MS) > 0);
    assert_true(turns_wait(turns, &bob, BOB, now + NS_PER_MS) > 0);
    /* Whoever may begin does, and asks for more at once. Ann's always ask first. */
    for (; now < 2 * NS_PER_S; now += NS_PER_MS / 2) {
        for (int i = 0; i < CROWD; i++)
            if (turns_wait(turns, &ann[i], ANN, now) == 0) {
                turns_done(turns, NS_PER_MS, now + NS_PER_MS);
                ann_done++;
            }
        if (turns_wait(turns, &bob, BOB, now) == 0) {
            turns_done(turns, NS_PER_MS, now + NS_PER_MS);
            bob_done++;
        }
    }
    assert_in_range(ann_done, 80, 130);
    assert_in_range(bob_done, ann_done - 1, ann_done + 1);
    free(turns);
}

static void of_one_user_who_came_first_is_first(void **state)
{
    struct turns *turns = turns_make();
    struct turn one = {0}, two = {0};
    turns_done(turns, NS_PER_MS, NS_PER_MS);
    assert_true(turns_wait(turns, &one, ANN, NS_PER_MS) > 0);
    assert_true(turns_wait(turns, &two, ANN, NS_PER_MS) > 0);
    assert_true(turns_wait(turns, &two, ANN, 5 * NS_PER_MS) > 0);
    assert_int_equal(turns_wait(turns, &one, ANN, 5 * NS_PER_MS), 0);
    assert_int_equal(turns_wait(turns, &two, ANN, 5 * NS_PER_MS), 0);
    free(turns);
}

static void who_does_not_come_or_leaves_stops_nobody(void **state)
{
    struct turns *turns = turns_make();
    struct turn mute[CROWD] = {0}, gone = {0}, bob = {0};
    uint64_t now = NS_PER_S;
    turns_done(turns, NS_PER_MS, now);
    assert_true(turns_wait(turns, &gone, ANN, now) > 0);
    for (int i = 0; i < CROWD; i++)
        assert_true(turns_wait(turns, &mute[i], ANN, now) > 0);
    assert_true(turns_wait(turns, &bob, ANN, now) > 0);
    turns_leave(turns, &gone);
    turns_leave(turns, &gone);
    assert_int_equal(turns->n, CROWD + 1);
    uint64_t end = now + NS_PER_S, wait = 1;
    while (now < end && (wait = turns_wait(turns, &bob, ANN, now)) > 0)
        now += wait;
    assert_int_equal(wait, 0);
    assert_true(now < NS_PER_S + 3 * TURNS_LATE_NS);
    assert_int_equal(turns->n, 0);
    assert_int_equal(turns_wait(turns, &mute[0], ANN, now), 0); /* he may come again */
    free(turns);
}

/* The next one waits for the rest alone; the others look again from time to time, less often the more they are. */
static void delays_are_those_of_the_place_in_the_queue(void **state)
{
    struct turns *turns = turns_make();
    struct turn waiting[3] = {0};
    uint64_t now = NS_PER_S, rest = 3 * NS_PER_MS;
    turns_done(turns, NS_PER_MS, now);
    for (uint64_t i = 0; i < 3; i++) {
        uint64_t more = i ? TURNS_LOOK_NS + (i + 1) * TURNS_LOOK_MORE_NS : 0;
        assert_int_equal(turns_wait(turns, &waiting[i], ANN, now), rest + more);
        assert_int_equal(waiting[i].due_ns, now + rest + more);
    }
    assert_int_equal(turns_wait(turns, &waiting[0], ANN, now + rest - 1), 1);
    assert_int_equal(turns_wait(turns, &waiting[0], ANN, now + rest), 0);
    free(turns);
}

/* A user who was not served yet comes before one who was, also if that one waits already. */
static void the_user_served_longest_ago_is_next(void **state)
{
    struct turns *turns = turns_make();
    struct turn ann = {0}, bob = {0}, more = {0};
    uint64_t now = NS_PER_S;
    assert_int_equal(turns_wait(turns, &ann, ANN, now), 0);
    turns_done(turns, NS_PER_MS, now);
    assert_true(turns_wait(turns, &ann, ANN, now) > 0);
    assert_ptr_equal(turns->next, &ann);
    assert_true(turns_wait(turns, &bob, BOB, now) > 0);
    assert_ptr_equal(turns->next, &bob);
    assert_true(turns_wait(turns, &more, BOB, now) > 0);
    assert_ptr_equal(turns->next, &bob);
    turns_leave(turns, &more); /* another one's place does not matter */
    assert_ptr_equal(turns->next, &bob);
    turns_leave(turns, &bob);
    assert_ptr_equal(turns->next, &ann);
    turns_leave(turns, &ann);
    assert_null(turns->next);
    assert_int_equal(turns->n, 0);
    free(turns);
}

/* A waiter loses its place when it is late by more than TURNS_LATE_NS, and only then. */
static void a_waiter_may_be_late_for_so_long(void **state)
{
    for (uint64_t late = 0; late < 2; late++) {
        struct turns *turns = turns_make();
        struct turn one = {0}, two = {0}, three = {0};
        uint64_t now = NS_PER_S;
        turns_done(turns, NS_PER_MS, now);
        assert_true(turns_wait(turns, &one, ANN, now) > 0);
        assert_true(turns_wait(turns, &three, ANN, now) > 0); /* is due later: not late yet */
        uint64_t then = one.due_ns + TURNS_LATE_NS + late;
        assert_int_equal(turns_wait(turns, &two, ANN, then) == 0, 0);
        assert_int_equal(one.waiting, !late);
        assert_true(three.waiting && two.waiting);
        assert_ptr_equal(turns->next, late ? &three : &one);
        assert_int_equal(turns->n, late ? 2 : 3);
        free(turns);
    }
}

/* Others are looked at only where the next one did not come. */
static void a_late_waiter_keeps_its_place_while_the_next_one_comes(void **state)
{
    struct turns *turns = turns_make();
    struct turn next = {0}, late = {0};
    uint64_t now = NS_PER_S;
    turns_done(turns, NS_PER_S, now);
    assert_true(turns_wait(turns, &next, ANN, now) > 0);
    assert_true(turns_wait(turns, &late, ANN, now) > 0);
    late.due_ns = now;
    assert_true(turns_wait(turns, &next, ANN, now + TURNS_LATE_NS + 1) > 0);
    assert_true(late.waiting);
    assert_ptr_equal(turns->next, &next);
    free(turns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_rests_for_the_others_share),
        cmocka_unit_test(short_work_needs_no_rest),
        cmocka_unit_test(users_take_turns),
        cmocka_unit_test(of_one_user_who_came_first_is_first),
        cmocka_unit_test(who_does_not_come_or_leaves_stops_nobody),
        cmocka_unit_test(delays_are_those_of_the_place_in_the_queue),
        cmocka_unit_test(the_user_served_longest_ago_is_next),
        cmocka_unit_test(a_waiter_may_be_late_for_so_long),
        cmocka_unit_test(a_late_waiter_keeps_its_place_while_the_next_one_comes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
