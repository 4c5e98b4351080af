/* The tree of cgroups when it is large, changes while it is read, or cannot be read: limits, budgets and failures. */
#include <errno.h>
#include <unistd.h>

#include "base/clock.h"
#include "cgroup_tree.h"
#include "fault.h"

static int setup(void **state)
{
    tree_make();
    return 0;
}

static int teardown(void **state)
{
    tree_remove();
    return 0;
}

static size_t descriptors(void)
{
    size_t n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* ---- in parts ---- */

static void twenty_make(void)
{
    v2_root();
    for (int i = 0; i < 20; i++) {
        char path[16];
        snprintf(path, sizeof(path), "g%d", i);
        v2_make(&(struct v2){path, "1", "max", "1\n", 0});
    }
}

static void a_budget_is_kept_and_the_look_goes_on(void **state)
{
    struct cgroups *cgroups = NULL;
    size_t n, turns = 0;
    twenty_make();
    uint64_t before = clock_monotonic_ns();
    assert_int_equal(cgroups_new(tree_root, &cgroups), 0);
    assert_in_range(cgroups_time_ns(cgroups), before, clock_monotonic_ns());
    for (;;) {
        n = 4711;
        (void)cgroups_rows(cgroups, &n);
        assert_int_equal(n, 0); /* nothing until it is whole */
        int r = cgroups_read(cgroups, 0);
        assert_true(r >= 0);
        turns++;
        if (r)
            break;
    }
    assert_int_equal(turns, 21);
    (void)cgroups_rows(cgroups, &n);
    assert_int_equal(n, 21);
    assert_figure(find(cgroups, "/"), CGROUP_PROCESSES, 22);
    assert_int_equal(cgroups_read(cgroups, 0), 1); /* a constant now */
    assert_figure(find(cgroups, "/"), CGROUP_PROCESSES, 22);
    cgroups_free(cgroups);
    cgroups_free(NULL);
}

/* What the thread used before the call does not count. */
static void the_budget_begins_with_the_call(void **state)
{
    enum { USED_MS = 40 };
    struct cgroups *cgroups = NULL;
    twenty_make();
    assert_int_equal(cgroups_new(tree_root, &cgroups), 0);
    while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < USED_MS * NS_PER_MS)
        ;
    uint64_t used = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    assert_int_equal(cgroups_read(cgroups, used + used / 2), 1);
    cgroups_free(cgroups);
}

static void remove_below(const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", tree_root, name);
    assert_int_equal(nftw(path, tree_remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static void one_that_goes_meanwhile_is_no_row(void **state)
{
    struct cgroups *cgroups = NULL;
    v2_root();
    v2_make(&(struct v2){"gone", "1", "max", "1\n", 0});
    v2_make(&(struct v2){"stays", "1", "max", "1\n", 0});
    assert_int_equal(cgroups_new(tree_root, &cgroups), 0);
    assert_int_equal(cgroups_read(cgroups, 0), 0);
    remove_below("gone");
    assert_int_equal(cgroups_read(cgroups, UINT64_MAX), 1);
    assert_null(find(cgroups, "/gone"));
    assert_figure(find(cgroups, "/"), CGROUP_PROCESSES, 3);
    cgroups_free(cgroups);
}

/* It is a row of which nothing is known, and sums that lack it are not claimed. */
static void one_that_cannot_be_opened_is_not_known(void **state)
{
    struct cgroups *cgroups = NULL;
    char path[128];
    size_t before = descriptors();
    v2_root();
    v2_make(&(struct v2){"closed", "1", "max", "1\n", 0});
    v2_make(&(struct v2){"open", "1", "max", "1\n", 0});
    assert_int_equal(cgroups_new(tree_root, &cgroups), 0);
    assert_int_equal(cgroups_read(cgroups, 0), 0);
    remove_below("closed");
    snprintf(path, sizeof(path), "%s/closed", tree_root);
    assert_int_equal(symlink("open", path), 0); /* nothing is followed */
    assert_int_equal(cgroups_read(cgroups, UINT64_MAX), 1);
    const struct cgroup *closed = find(cgroups, "/closed");
    for (enum cgroup_figure i = 0; i < CGROUP_FIGURES; i++)
        assert_true(unknown(closed, i));
    assert_true(unknown(find(cgroups, "/"), CGROUP_PROCESSES));
    assert_figure(find(cgroups, "/"), CGROUP_OWN_PROCESSES, 2);
    assert_figure(find(cgroups, "/open"), CGROUP_PROCESSES, 1);
    cgroups_free(cgroups);
    assert_int_equal(descriptors(), before);
    tree_remove();
    tree_make();
    assert_int_equal(cgroups_new(tree_root, &cgroups), -ENOENT);
    assert_int_equal(descriptors(), before);
}

/* ---- limits ---- */

/* Chains of directories are deeper than tree_printf() can name. */
static int chain_make(const char *const *names, size_t n)
{
    int at = open(tree_root, O_RDONLY | O_DIRECTORY);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(mkdirat(at, names[i], 0700), 0);
        int next = openat(at, names[i], O_RDONLY | O_DIRECTORY);
        assert_true(next >= 0);
        close(at);
        at = next;
    }
    return at;
}

static void what_is_too_deep_is_counted_and_sums_are_not_claimed(void **state)
{
    const char *names[CGROUPS_DEPTH_MAX + 3];
    size_t n;
    v2_root();
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        names[i] = "d";
    close(chain_make(names, sizeof(names) / sizeof(*names)));
    v2_make(&(struct v2){"beside", "1", "max", "1\n", 0});
    struct cgroups *cgroups = look();
    const struct cgroup *rows = cgroups_rows(cgroups, &n);
    assert_int_equal(n, CGROUPS_DEPTH_MAX + 1);
    assert_int_equal(cgroups_left_out(cgroups), 1);
    size_t deep = 0;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(rows[i].path, "/beside") == 0)
            continue;
        assert_int_equal(rows[i].cut, rows[i].depth == CGROUPS_DEPTH_MAX - 1);
        assert_true(unknown(&rows[i], CGROUP_PROCESSES));
        assert_true(none(&rows[i], CGROUP_PEAK) && !known(&rows[i], CGROUP_PEAK));
        deep += rows[i].depth > 0;
    }
    assert_int_equal(deep, CGROUPS_DEPTH_MAX - 1);
    /* Nothing but the sum is forgotten. */
    const struct cgroup *root = find(cgroups, "/");
    assert_figure(root, CGROUP_OWN_PROCESSES, 2);
    assert_figure(root, CGROUP_ANON, 900);
    assert_false(none(root, CGROUP_ANON) || none(root, CGROUP_OWN_PROCESSES));
    assert_figure(find(cgroups, "/beside"), CGROUP_PROCESSES, 1);
    cgroups_free(cgroups);
}

/* A path has CGROUPS_PATH_MAX bytes at most, with its end. */
static void what_has_too_long_a_path_is_counted(void **state)
{
    enum { NAME = 255, HEAD = 7 };
    char long_name[NAME + 1], fits[NAME + 1];
    const char *names[HEAD];
    size_t n, longest = 0;
    memset(long_name, 'n', NAME);
    memset(fits, 'f', NAME);
    long_name[NAME] = '\0';
    fits[CGROUPS_PATH_MAX - 1 - HEAD * (NAME + 1) - 1] = '\0';
    for (size_t i = 0; i < HEAD; i++)
        names[i] = long_name;
    v2_root();
    int at = chain_make(names, HEAD);
    assert_int_equal(mkdirat(at, fits, 0700), 0);
    assert_int_equal(mkdirat(at, long_name, 0700), 0);
    close(at);
    struct cgroups *cgroups = look();
    const struct cgroup *rows = cgroups_rows(cgroups, &n);
    assert_int_equal(n, 1 + HEAD + 1);
    for (size_t i = 0; i < n; i++)
        longest = strlen(rows[i].path) > longest ? strlen(rows[i].path) : longest;
    assert_int_equal(longest, CGROUPS_PATH_MAX - 1);
    assert_int_equal(cgroups_left_out(cgroups), 1);
    cgroups_free(cgroups);
}

static void what_is_too_many_is_counted(void **state)
{
    enum { MORE = 3 };
    size_t n;
    v2_root();
    int at = open(tree_root, O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < CGROUPS_MAX - 1 + MORE; i++) {
        char name[16];
        snprintf(name, sizeof(name), "g%d", i);
        assert_int_equal(mkdirat(at, name, 0700), 0);
    }
    close(at);
    struct cgroups *cgroups = look();
    (void)cgroups_rows(cgroups, &n);
    assert_int_equal(n, CGROUPS_MAX);
    assert_int_equal(cgroups_left_out(cgroups), MORE);
    assert_true(find(cgroups, "/")->cut);
    assert_true(unknown(find(cgroups, "/"), CGROUP_PROCESSES));
    cgroups_free(cgroups);
}

/* Lists that take several reads are counted, and one past the limit is not known, which is not the same as none. */
static void long_lists_of_processes_are_counted_up_to_a_limit(void **state)
{
    enum { LINES = 1 << 16 };
    static char text[LINES + 1];
    static const struct {
        off_t size;
        bool known;
    } cases[] = {
        {CGROUPS_LIST_MAX - 1, true}, {CGROUPS_LIST_MAX, true}, {CGROUPS_LIST_MAX + 1, false}};
    char path[128];
    memset(text, '\n', sizeof(text));
    text[LINES] = 'x'; /* a last line without its end does not count */
    v2_root();
    tree_write("a/cgroup.procs", text, sizeof(text));
    snprintf(path, sizeof(path), "%s/a/cgroup.procs", tree_root);
    struct cgroups *cgroups = look();
    assert_figure(find(cgroups, "/a"), CGROUP_OWN_PROCESSES, LINES);
    assert_figure(find(cgroups, "/"), CGROUP_PROCESSES, LINES + 2);
    cgroups_free(cgroups);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_int_equal(truncate(path, cases[i].size), 0);
        cgroups = look();
        if (cases[i].known)
            assert_figure(find(cgroups, "/a"), CGROUP_OWN_PROCESSES, LINES);
        else
            assert_true(unknown(find(cgroups, "/a"), CGROUP_OWN_PROCESSES));
        assert_int_equal(known(find(cgroups, "/"), CGROUP_PROCESSES), cases[i].known);
        cgroups_free(cgroups);
    }
}

/* ---- failures ---- */

/* Whatever fails, a look ends, and what it says is right or absent. */
static void any_call_may_fail(void **state)
{
    size_t before = descriptors();
    v2_root();
    v2_make(&(struct v2){"a", "1000", "4000", "1\n", 0});
    v2_make(&(struct v2){"a/b", "1000", "4000", "1\n", 0});
    for (int nth = 0; fault_arm(nth); nth++) {
        struct cgroups *cgroups = NULL;
        int r = cgroups_new(tree_root, &cgroups);
        if (r == 0)
            r = cgroups_read(cgroups, UINT64_MAX);
        fault_disarm();
        assert_true(r < 0 || r == 1);
        size_t n = 0;
        const struct cgroup *rows = r == 1 ? cgroups_rows(cgroups, &n) : NULL;
        for (size_t i = 0; i < n; i++)
            assert_true(!known(&rows[i], CGROUP_CURRENT) ||
                        rows[i].figures[CGROUP_CURRENT] == 1000);
        cgroups_free(cgroups);
        assert_int_equal(descriptors(), before);
    }
}

/* Children that do not fit into memory are an error, not children that are not there. */
static void a_lack_of_memory_among_children_is_told(void **state)
{
    size_t told = 0;
    v2_root();
    for (int i = 0; i < 100; i++) {
        char name[128];
        snprintf(name, sizeof(name), "%s/g%d", tree_root, i);
        assert_int_equal(mkdir(name, 0700), 0);
    }
    for (int nth = 0; fault_arm(nth); nth++) {
        struct cgroups *cgroups = NULL;
        int r = cgroups_new(tree_root, &cgroups);
        bool made = r == 0;
        if (made)
            r = cgroups_read(cgroups, 0); /* the root */
        fault_disarm();
        assert_true(r <= 1); /* 1: the root could not be opened */
        told += made && r == -ENOMEM;
        assert_true(made || !cgroups);
        cgroups_free(cgroups);
    }
    assert_true(told >= 1);
}

/* How a list of processes fails decides whether there is none, or it is not known. */
static void a_list_that_is_refused_is_none_and_one_that_fails_is_not_known(void **state)
{
    static const struct {
        int error;
        bool none;
    } cases[] = {{EOPNOTSUPP, true}, {ENOENT, true}, {EIO, false}, {EACCES, false}};
    v2_root();
    v2_make(&(struct v2){"a", "1000", "4000", "1\n", 0});
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        size_t rounds = 0;
        fault_error(cases[i].error);
        for (int nth = 0; fault_arm(nth); nth++) {
            struct cgroups *cgroups = NULL;
            int r = cgroups_new(tree_root, &cgroups);
            if (r == 0)
                r = cgroups_read(cgroups, UINT64_MAX);
            fault_disarm();
            const struct cgroup *a = r == 1 ? find(cgroups, "/a") : NULL;
            if (a && known(a, CGROUP_CURRENT) && !known(a, CGROUP_OWN_PROCESSES)) {
                const struct cgroup *root = find(cgroups, "/");
                assert_int_equal(none(a, CGROUP_OWN_PROCESSES), cases[i].none);
                assert_int_equal(none(a, CGROUP_PROCESSES), cases[i].none);
                assert_false(known(a, CGROUP_PROCESSES));
                assert_int_equal(known(root, CGROUP_PROCESSES), cases[i].none);
                assert_true(!cases[i].none || root->figures[CGROUP_PROCESSES] == 2);
                assert_true(none(a, CGROUP_HIGH) && known(a, CGROUP_ANON));
                rounds++;
            }
            cgroups_free(cgroups);
        }
        assert_int_equal(rounds, 3); /* to open it, to read it, to read its end */
    }
    fault_error(0);
}

int main(void)
{
#define TREE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TREE_TEST(a_budget_is_kept_and_the_look_goes_on),
        TREE_TEST(the_budget_begins_with_the_call),
        TREE_TEST(one_that_goes_meanwhile_is_no_row),
        TREE_TEST(one_that_cannot_be_opened_is_not_known),
        TREE_TEST(what_is_too_deep_is_counted_and_sums_are_not_claimed),
        TREE_TEST(what_has_too_long_a_path_is_counted),
        TREE_TEST(what_is_too_many_is_counted),
        TREE_TEST(long_lists_of_processes_are_counted_up_to_a_limit),
        TREE_TEST(any_call_may_fail),
        TREE_TEST(a_lack_of_memory_among_children_is_told),
        TREE_TEST(a_list_that_is_refused_is_none_and_one_that_fails_is_not_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
