/* Who answers for a uid. */
#include "base/accountable.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"

static char folder[] = "/tmp/memoir-accountable-XXXXXX";
static char subuid[64], passwd[64];

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static struct accountable *read_files(const char *ranges, const char *accounts)
{
    struct accountable *a = NULL;
    write_file(subuid, ranges);
    write_file(passwd, accounts);
    assert_int_equal(accountable_read(subuid, passwd, &a), 0);
    return a;
}

static void a_range_counts_for_its_owner(void **state)
{
    struct accountable *a =
        read_files("ann:100000:65536\n1001:165536:65536\nann:400000:10",
                   "root:x:0:0::/:\nann:x:1000:1000::/:\nbob:x:1001:1001::/:\n");
    assert_int_equal(accountable_find(a, 100000), 1000);
    assert_int_equal(accountable_find(a, 165535), 1000);
    assert_int_equal(accountable_find(a, 165536), 1001);
    assert_int_equal(accountable_find(a, 400009), 1000);
    assert_int_equal(accountable_find(a, 400010), 400010);
    assert_int_equal(accountable_find(a, 99999), 99999);
    assert_int_equal(accountable_find(a, 1000), 1000);
    assert_int_equal(accountable_find(a, 0), 0);
    assert_int_equal(accountable_find(a, UINT32_MAX), UINT32_MAX);
    accountable_free(a);
}

/* Root has no limits; what runs in its containers must have. */
static void ranges_of_root_and_of_unknown_owners_stand_for_themselves(void **state)
{
    struct accountable *a =
        read_files("root:100000:1000\n0:200000:1000\nghost:300000:1000\n", "root:x:0:0::/:\n");
    assert_int_equal(accountable_find(a, 100999), 100000);
    assert_int_equal(accountable_find(a, 200001), 200000);
    assert_int_equal(accountable_find(a, 300001), 300000);
    accountable_free(a);
}

static void an_account_inside_a_range_is_its_own(void **state)
{
    struct accountable *a =
        read_files("ann:1:4000000\n", "ann:x:1000:1000::/:\nbob:x:1001:1::/:\n");
    assert_int_equal(accountable_find(a, 1001), 1001);
    assert_int_equal(accountable_find(a, 1002), 1000);
    accountable_free(a);
}

static void lines_that_are_no_ranges_are_skipped(void **state)
{
    struct accountable *a = read_files("\n# ann:1:2\nann\nann:x:1\nann:5:\nann:6:0\nann:0:9\n"
                                       "ann:7:1 \nann:-1:5\nann:4294967290:4294967290\nann:50:2",
                                       "ann:x:1000\nann:x:1000:\n:\nann:x:y:\n");
    assert_int_equal(accountable_find(a, 7), 7);
    assert_int_equal(accountable_find(a, 51), 1000);
    assert_int_equal(accountable_find(a, 4294967294u), 1000);
    assert_int_equal(accountable_find(a, 0), 0);
    accountable_free(a);
    assert_int_equal(accountable_read("/nonexistent/a", "/nonexistent/b", &a), 0);
    assert_int_equal(accountable_find(a, 5), 5);
    accountable_free(a);
}

/* As a reader of the list does. */
static uint32_t list_find(const struct accountable_range *ranges, size_t n, uint32_t uid)
{
    uint32_t owner = uid;
    for (size_t i = 0; i < n && ranges[i].first <= uid; i++)
        owner = uid <= ranges[i].last ? ranges[i].owner : uid;
    return owner;
}

static void the_list_says_the_same(void **state)
{
    struct accountable *a =
        read_files("ann:100:50\nbob:200:10\nann:205:20\n500:300:5\n",
                   "ann:x:1000:1::/:\nbob:x:1001:1::/:\nc:x:100:1::/:\nd:x:120:1::/:\n"
                   "e:x:121:1::/:\nf:x:149:1::/:\ng:x:204:1::/:\nh:x:301:1::/:\n");
    struct accountable_range ranges[32];
    size_t n = accountable_list(a, ranges, 32);
    assert_in_range(n, 8, 31);
    for (uint32_t uid = 0; uid < 2000; uid++)
        assert_int_equal(list_find(ranges, n, uid), accountable_find(a, uid));
    for (size_t room = 0; room < n; room++)
        assert_int_equal(accountable_list(a, ranges, room), room);
    accountable_free(a);
    assert_int_equal(accountable_list(NULL, ranges, 32), 0);
}

static void root_and_this_user_are_themselves_on_this_machine(void **state)
{
    assert_int_equal(accountable_uid(0), 0);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(accountable_uid(accountable_uid(geteuid())), accountable_uid(geteuid()));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_range_counts_for_its_owner),
        cmocka_unit_test(ranges_of_root_and_of_unknown_owners_stand_for_themselves),
        cmocka_unit_test(an_account_inside_a_range_is_its_own),
        cmocka_unit_test(lines_that_are_no_ranges_are_skipped),
        cmocka_unit_test(the_list_says_the_same),
        cmocka_unit_test(root_and_this_user_are_themselves_on_this_machine),
    };
    if (!mkdtemp(folder))
        return 1;
    snprintf(subuid, sizeof(subuid), "%s/subuid", folder);
    snprintf(passwd, sizeof(passwd), "%s/passwd", folder);
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(subuid);
    unlink(passwd);
    rmdir(folder);
    return r;
}
