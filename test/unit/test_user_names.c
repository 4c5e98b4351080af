/* Users that only NSS knows: asked for aside, and whoever asks never waits. */
#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "check.h"
#include "daemon/user_names.h"

enum { PATIENCE_MS = 20000, HANGING = 7, NOBODY = 9, ODD = 11 };

/* In the child. */
static int look(uint32_t uid, char ret_name[static USER_NAMES_BYTES])
{
    if (uid == HANGING)
        for (;;)
            pause();
    if (uid == NOBODY)
        return -ENOENT;
    snprintf(ret_name, USER_NAMES_BYTES, uid == ODD ? "a\nb" : "user-%u", uid);
    return 0;
}

static const char *wait_for(struct user_names *names, uint32_t uid)
{
    const char *name = NULL;
    for (int i = 0; i < PATIENCE_MS && !(name = user_names_of(names, uid)); i++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    return name;
}

static void name_comes_later_and_stays(void **state)
{
    struct user_names *names;
    assert_int_equal(user_names_new(look, 5000, &names), 0);
    assert_null(user_names_of(names, 70001));
    const char *name = wait_for(names, 70001);
    assert_string_equal(name, "user-70001");
    assert_string_equal(wait_for(names, 70002), "user-70002");
    assert_ptr_equal(user_names_of(names, 70001), name);
    user_names_free(names);
}

/* The child hangs, is killed, and the next users are asked for by another one. */
static void helper_that_hangs_keeps_nobody_waiting(void **state)
{
    struct user_names *names;
    assert_int_equal(user_names_new(look, 300, &names), 0);
    uint64_t begin_ns = clock_monotonic_ns();
    assert_null(user_names_of(names, HANGING));
    assert_true(clock_monotonic_ns() - begin_ns < 250 * NS_PER_MS);
    assert_string_equal(wait_for(names, 5), "user-5");
    assert_null(user_names_of(names, HANGING));
    user_names_free(names);
}

static void user_without_a_name_stays_a_number(void **state)
{
    struct user_names *names;
    assert_int_equal(user_names_new(look, 5000, &names), 0);
    assert_null(user_names_of(names, NOBODY));
    assert_null(user_names_of(names, ODD));
    assert_string_equal(wait_for(names, 5), "user-5");
    assert_null(user_names_of(names, NOBODY));
    assert_null(user_names_of(names, ODD));
    user_names_free(names);
}

static void more_users_than_there_is_room_for_are_left_out(void **state)
{
    struct user_names *names;
    assert_int_equal(user_names_new(look, 5000, &names), 0);
    for (uint32_t i = 0; i <= USER_NAMES_MAX; i++)
        (void)user_names_of(names, 100000 + i);
    assert_non_null(wait_for(names, 100000 + USER_NAMES_MAX - 1));
    assert_null(user_names_of(names, 100000 + USER_NAMES_MAX));
    user_names_free(names); /* perhaps while a helper runs */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(name_comes_later_and_stays),
        cmocka_unit_test(helper_that_hangs_keeps_nobody_waiting),
        cmocka_unit_test(user_without_a_name_stays_a_number),
        cmocka_unit_test(more_users_than_there_is_room_for_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
