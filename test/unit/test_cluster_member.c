/* Membership on virtual time: who joins, falls silent, leaves and comes back, and what each is called. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "check.h"
#include "cluster/member.h"

#define MS(n) ((uint64_t)(n)*NS_PER_MS)

static const char id_a[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                  id_b[] = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
                  id_c[] = "cccccccccccccccccccccccccccccccc";

static struct members *make(void **state)
{
    struct members *members = NULL;
    assert_int_equal(members_new(&members), 0);
    assert_int_equal(members_add_self(members, id_a, "here", "1.0", 5, MS(1)), 0);
    *state = members;
    return members;
}

static enum members_change hello(struct members *members, const char *id, const char *name,
                                 uint64_t now_ns)
{
    struct message_hello h = {.name = name,
                              .version = "1.0",
                              .started_ns = 7,
                              .now_ns = 1000 * NS_PER_S,
                              .interval_ms = MEMBER_INTERVAL_MS};
    return members_hello(members, id, &h, now_ns, 1000 * NS_PER_S);
}

static size_t deaths;
static void died(const struct member *member, void *context)
{
    deaths++;
}

static enum member_state state_of(struct members *members, const char *id)
{
    const struct member *m = members_find(members, id);
    assert_non_null(m);
    return m->state;
}

static void a_silent_member_is_unreachable_within_five_seconds(void **state)
{
    struct members *m = make(state);
    assert_int_equal(hello(m, id_b, "b", MS(1000)), MEMBERS_JOINED);
    deaths = 0;
    uint64_t due = members_tick(m, MS(1000), died, NULL);
    assert_true(due > MS(1000 + 2 * MEMBER_INTERVAL_MS) && due < MS(1000 + 5000));
    members_tick(m, due - 1, died, NULL);
    assert_int_equal(state_of(m, id_b), MEMBER_ALIVE);
    members_tick(m, due, died, NULL);
    assert_int_equal(state_of(m, id_b), MEMBER_UNREACHABLE);
    members_tick(m, due + 1, died, NULL);
    assert_int_equal(deaths, 1);
    members_free(m);
}

static void one_lost_heartbeat_is_no_death(void **state)
{
    struct members *m = make(state);
    for (uint64_t t = 1000; t < 60000; t += 2 * MEMBER_INTERVAL_MS) {
        (void)hello(m, id_b, "b", MS(t));
        members_tick(m, MS(t + 2 * MEMBER_INTERVAL_MS), NULL, NULL);
        assert_int_equal(state_of(m, id_b), MEMBER_ALIVE);
    }
    members_free(m);
}

static void a_member_that_comes_back_is_reported_again(void **state)
{
    struct members *m = make(state);
    (void)hello(m, id_b, "b", MS(1000));
    members_tick(m, MS(10000), NULL, NULL);
    assert_int_equal(hello(m, id_b, "b", MS(11000)), MEMBERS_BACK);
    assert_int_equal(hello(m, id_b, "b", MS(12000)), MEMBERS_SAME);
    members_free(m);
}

static void goodbye_is_not_a_death(void **state)
{
    struct members *m = make(state);
    (void)hello(m, id_b, "b", MS(1000));
    assert_true(members_bye(m, id_b, MS(1100)));
    assert_false(members_bye(m, id_b, MS(1200)));
    assert_false(members_lost(m, id_b, MS(1300))); /* its connection closes after its goodbye */
    deaths = 0;
    members_tick(m, MS(20000), died, NULL);
    assert_int_equal(deaths, 0);
    assert_int_equal(state_of(m, id_b), MEMBER_LEFT);
    members_tick(m, MS(1100) + MEMBER_LEFT_S * NS_PER_S, NULL, NULL);
    assert_null(members_find(m, id_b));
    members_free(m);
}

static void a_dead_member_is_forgotten_in_the_end(void **state)
{
    struct members *m = make(state);
    (void)hello(m, id_b, "b", MS(1000));
    members_tick(m, MS(10000), NULL, NULL);
    members_tick(m, MS(10000) + (MEMBER_FORGET_S - 1) * NS_PER_S, NULL, NULL);
    assert_non_null(members_find(m, id_b));
    members_tick(m, MS(10000) + MEMBER_FORGET_S * NS_PER_S, NULL, NULL);
    assert_null(members_find(m, id_b));
    members_free(m);
}

static void no_message_makes_this_node_leave(void **state)
{
    struct members *m = make(state);
    assert_false(members_bye(m, id_a, MS(10)));
    assert_false(members_lost(m, id_a, MS(10)));
    assert_int_equal(hello(m, id_a, "impostor", MS(20)), MEMBERS_SAME);
    assert_string_equal(members_find(m, id_a)->name, "here");
    members_tick(m, MS(1000000), NULL, NULL);
    assert_int_equal(state_of(m, id_a), MEMBER_ALIVE);
    members_free(m);
}

static void two_of_one_name_are_told_apart(void **state)
{
    struct members *m = make(state);
    char label[MEMBER_LABEL_MAX];
    bool several;
    (void)hello(m, id_b, "web", MS(1000));
    assert_string_equal(member_label(members_find(m, id_b), label), "web");
    (void)hello(m, id_c, "web", MS(1000));
    assert_string_equal(member_label(members_find(m, id_b), label), "web~bbbb");
    assert_string_equal(member_label(members_find(m, id_c), label), "web~cccc");
    (void)members_named(m, "web", &several);
    assert_true(several);
    assert_string_equal(members_named(m, "web~cccc", &several)->id, id_c);
    assert_false(several);
    assert_string_equal(members_named(m, "bbbbbb", &several)->id, id_b);
    assert_null(members_named(m, "nobody", &several));
    /* One of them is gone for long: the name is the other's alone. */
    assert_true(members_bye(m, id_b, MS(2000)));
    assert_string_equal(members_named(m, "web", &several)->id, id_c);
    assert_false(several);
    (void)hello(m, id_c, "web", MS(2000) + MEMBER_LEFT_S * NS_PER_S);
    members_tick(m, MS(2000) + MEMBER_LEFT_S * NS_PER_S, NULL, NULL);
    assert_string_equal(member_label(members_find(m, id_c), label), "web");
    members_free(m);
}

static void a_name_that_is_another_node_s_id_hides_it_from_nobody(void **state)
{
    struct members *m = make(state);
    bool several = true;
    (void)hello(m, id_b, "b", MS(1000));
    (void)hello(m, id_c, id_b, MS(1000));
    assert_string_equal(members_named(m, id_b, &several)->id, id_b);
    assert_false(several);
    assert_true(members_bye(m, id_b, MS(2000)));
    assert_string_equal(members_named(m, id_b, &several)->id, id_b);
    members_free(m);
}

static void a_flood_of_names_has_a_limit(void **state)
{
    struct members *m = make(state);
    char id[SUBJECT_ID_CHARS + 1];
    size_t n;
    for (int i = 0; i < MEMBERS_MAX + 10; i++) {
        snprintf(id, sizeof(id), "%032x", i);
        enum members_change change = hello(m, id, "x", MS(1000));
        assert_int_equal(change, i < MEMBERS_MAX - 1 ? MEMBERS_JOINED : MEMBERS_FULL);
    }
    (void)members_list(m, &n);
    assert_int_equal(n, MEMBERS_MAX);
    assert_int_equal(members_left_out(m), 11);
    /* The dead make room for the living. */
    members_tick(m, MS(20000), NULL, NULL);
    assert_int_equal(hello(m, id, "x", MS(20000)), MEMBERS_JOINED);
    members_free(m);
}

static void many_members_speak_less_often(void **state)
{
    struct members *m = make(state);
    char id[SUBJECT_ID_CHARS + 1];
    for (int i = 0; i < 999; i++) {
        snprintf(id, sizeof(id), "%032x", i);
        (void)hello(m, id, "x", MS(1000));
        if (i == 99)
            assert_int_equal(members_interval_ms(m), MEMBER_INTERVAL_MS);
    }
    assert_int_equal(members_interval_ms(m), 1000 * MEMBER_INTERVAL_NODE_MS);
    members_free(m);
}

/* A thousand members whose heartbeats to all come every 8 s; `id_b` is watched by this node. */
static struct members *make_watching(void **state)
{
    struct members *m = make(state);
    struct message_hello h = {
        .name = "b", .version = "1.0", .interval_ms = 8000, .watch_ms = MEMBER_WATCH_MS};
    (void)members_hello(m, id_b, &h, MS(1000), 0);
    return m;
}

static void a_watcher_misses_its_member_within_five_seconds(void **state)
{
    struct members *m = make_watching(state);
    uint64_t due = members_tick(m, MS(1000), NULL, NULL);
    assert_int_equal(due, MS(1000 + 2 * MEMBER_WATCH_MS + MEMBER_GRACE_MS));
    assert_false(member_overdue(members_find(m, id_b), due - 1));
    assert_true(member_overdue(members_find(m, id_b), due));
    deaths = 0;
    members_tick(m, due, died, NULL);
    assert_int_equal(deaths, 1);
    assert_int_equal(state_of(m, id_b), MEMBER_UNREACHABLE);
    members_free(m);
}

static void a_member_that_chose_other_watchers_is_not_missed(void **state)
{
    struct members *m = make_watching(state);
    struct message_hello h = {
        .name = "b", .version = "1.0", .interval_ms = 8000, .watch_ms = MESSAGE_WATCH_END};
    (void)members_hello(m, id_b, &h, MS(2000), 0);
    members_tick(m, MS(2000 + 2 * 8000), NULL, NULL);
    assert_int_equal(state_of(m, id_b), MEMBER_ALIVE);
    members_free(m);
    /* Nor are any after this node itself was cut off. */
    m = make_watching(state);
    members_unwatch(m);
    members_tick(m, MS(1000 + 2 * 8000), NULL, NULL);
    assert_int_equal(state_of(m, id_b), MEMBER_ALIVE);
    members_free(m);
}

static void a_report_stands_unless_it_is_refuted(void **state)
{
    struct members *m = make(state);
    struct message_hello h = {.name = "b", .version = "1.0", .interval_ms = 8000};
    (void)members_hello(m, id_b, &h, MS(1000), 0);
    /* It was heard a moment ago: the report is wrong. */
    assert_false(members_doubt(m, id_b, MS(1000 + MEMBER_WATCH_MS - 1)));
    assert_false(members_doubt(m, id_c, MS(9000)));
    assert_false(members_doubt(m, id_a, MS(9000)));
    assert_true(members_doubt(m, id_b, MS(4000)));
    assert_false(members_doubt(m, id_b, MS(4100))); /* a second report changes nothing */
    (void)members_hello(m, id_b, &h, MS(4000 + MEMBER_DOUBT_MS - 1), 0);
    members_tick(m, MS(4000 + MEMBER_DOUBT_MS), NULL, NULL);
    assert_int_equal(state_of(m, id_b), MEMBER_ALIVE);
    assert_true(members_doubt(m, id_b, MS(8000)));
    assert_int_equal(members_tick(m, MS(8000), NULL, NULL), MS(8000 + MEMBER_DOUBT_MS));
    members_tick(m, MS(8000 + MEMBER_DOUBT_MS), NULL, NULL);
    assert_int_equal(state_of(m, id_b), MEMBER_UNREACHABLE);
    members_free(m);
}

static void watchers_follow_in_the_order_of_ids(void **state)
{
    struct members *m = make(state);
    char found[MEMBER_WATCHERS][SUBJECT_ID_CHARS + 1], id[SUBJECT_ID_CHARS + 1];
    assert_int_equal(members_watchers(m, found), 0);
    (void)hello(m, id_c, "c", MS(1000));
    (void)hello(m, id_b, "b", MS(1000));
    assert_int_equal(members_watchers(m, found), 2);
    assert_string_equal(found[0], id_b);
    assert_string_equal(found[1], id_c);
    for (int i = 0; i < 5; i++) {
        snprintf(id, sizeof(id), "%032x", i);
        (void)hello(m, id, "x", MS(1000));
    }
    assert_true(members_lost(m, id_c, MS(2000))); /* the dead watch no one */
    assert_int_equal(members_watchers(m, found), MEMBER_WATCHERS);
    assert_string_equal(found[0], id_b);
    assert_string_equal(found[1], "00000000000000000000000000000000");
    assert_string_equal(found[2], "00000000000000000000000000000001");
    members_free(m);
}

static void clocks_are_compared(void **state)
{
    struct members *m = make(state);
    struct message_hello h = {
        .name = "b", .version = "1", .now_ns = 1003 * NS_PER_S, .interval_ms = 2000};
    (void)members_hello(m, id_b, &h, MS(1), 1000 * NS_PER_S);
    assert_int_equal(members_find(m, id_b)->clock_offset_ns, 3 * (int64_t)NS_PER_S);
    h.now_ns = 998 * NS_PER_S;
    (void)members_hello(m, id_b, &h, MS(2), 1000 * NS_PER_S);
    assert_int_equal(members_find(m, id_b)->clock_offset_ns, -2 * (int64_t)NS_PER_S);
    members_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_silent_member_is_unreachable_within_five_seconds),
        cmocka_unit_test(one_lost_heartbeat_is_no_death),
        cmocka_unit_test(a_member_that_comes_back_is_reported_again),
        cmocka_unit_test(goodbye_is_not_a_death),
        cmocka_unit_test(a_dead_member_is_forgotten_in_the_end),
        cmocka_unit_test(no_message_makes_this_node_leave),
        cmocka_unit_test(two_of_one_name_are_told_apart),
        cmocka_unit_test(a_name_that_is_another_node_s_id_hides_it_from_nobody),
        cmocka_unit_test(a_flood_of_names_has_a_limit),
        cmocka_unit_test(many_members_speak_less_often),
        cmocka_unit_test(a_watcher_misses_its_member_within_five_seconds),
        cmocka_unit_test(a_member_that_chose_other_watchers_is_not_missed),
        cmocka_unit_test(a_report_stands_unless_it_is_refuted),
        cmocka_unit_test(watchers_follow_in_the_order_of_ids),
        cmocka_unit_test(clocks_are_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
