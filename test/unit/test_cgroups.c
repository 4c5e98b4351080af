/* The tree of cgroups: versions 1 and 2 as trees of files, hostile names, and the table of the query core. */
#include <errno.h>

#include "cgroup_tree.h"
#include "query/query.h"

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

/* ---- tests ---- */

static void figures_of_version_two(void **state)
{
    v2_root();
    v2_make(&(struct v2){"a", "1000", "4000", "10\n11\n12\n", 2, .inactive = 150});
    struct cgroups *cgroups = look();
    const struct cgroup *g = find(cgroups, "/a"), *root = find(cgroups, "/");
    static const uint64_t expected[CGROUP_FIGURES] = {
        [CGROUP_CURRENT] = 1000,    [CGROUP_PEAK] = 5000,     [CGROUP_LIMIT] = 4000,
        [CGROUP_SWAP] = 7,          [CGROUP_HEADROOM] = 3150, [CGROUP_ANON] = 100,
        [CGROUP_FILE] = 200,        [CGROUP_SHMEM] = 3,       [CGROUP_KERNEL] = 30,
        [CGROUP_SLAB] = 20,         [CGROUP_OOM_KILLS] = 2,   [CGROUP_PROCESSES] = 3,
        [CGROUP_OWN_PROCESSES] = 3, [CGROUP_INACTIVE] = 150,
    };
    for (enum cgroup_figure i = 0; i < CGROUP_FIGURES; i++)
        if (i != CGROUP_HIGH)
            assert_figure(g, i, expected[i]);
    assert_true(none(g, CGROUP_HIGH) && !known(g, CGROUP_HIGH)); /* "max" is no limit */
    assert_int_equal(g->depth, 1);
    assert_string_equal(g->name, "a");
    assert_ptr_equal(g->parent, root);
    /* The kernel keeps no current of the root: absent, not 0. */
    assert_true(!known(root, CGROUP_CURRENT) && none(root, CGROUP_CURRENT));
    assert_figure(root, CGROUP_ANON, 900);
    assert_figure(root, CGROUP_PROCESSES, 5);
    assert_figure(root, CGROUP_OWN_PROCESSES, 2);
    assert_true(none(root, CGROUP_HEADROOM));
    assert_string_equal(root->name, "/");
    assert_null(root->parent);
    cgroups_free(cgroups);
}

static void figures_of_version_one(void **state)
{
    v1_make("", 10000, V1_NONE, 1);
    v1_make("/b", 600, 1000, 2);
    v1_make("/b/c", 500, V1_NONE, 4);
    struct cgroups *cgroups = look();
    const struct cgroup *root = find(cgroups, "/"), *b = find(cgroups, "/b"),
                        *c = find(cgroups, "/b/c");
    assert_figure(b, CGROUP_CURRENT, 600);
    assert_figure(b, CGROUP_PEAK, 1200);
    assert_figure(b, CGROUP_LIMIT, 1000);
    assert_figure(b, CGROUP_ANON, 50);
    assert_figure(b, CGROUP_FILE, 40);
    assert_figure(b, CGROUP_SHMEM, 6);
    assert_figure(b, CGROUP_SWAP, 70);
    assert_figure(b, CGROUP_KERNEL, 11);
    assert_true(none(c, CGROUP_LIMIT) && !known(c, CGROUP_LIMIT));
    assert_figure(c, CGROUP_HEADROOM, 400); /* its parent's */
    /* Version 1 counts kills where they were; here those below count too, as in version 2. */
    assert_figure(c, CGROUP_OOM_KILLS, 4);
    assert_figure(b, CGROUP_OOM_KILLS, 6);
    assert_figure(root, CGROUP_OOM_KILLS, 7);
    assert_figure(root, CGROUP_PROCESSES, 6);
    assert_true(none(root, CGROUP_LIMIT));
    cgroups_free(cgroups);
}

/* The root of version 1 leaves out the kernel's part, so it is at least its parts (50 + 40 + 11). No other cgroup is
 * corrected, nor is the root of version 2. */
static void root_of_version_one_holds_its_parts_at_least(void **state)
{
    static const struct {
        unsigned long used, expected;
    } cases[] = {{10, 101}, {100, 101}, {101, 101}, {102, 102}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        v1_make("", cases[i].used, V1_NONE, 0);
        v1_make("/b", 20, V1_NONE, 0);
        struct cgroups *cgroups = look();
        assert_figure(find(cgroups, "/"), CGROUP_CURRENT, cases[i].expected);
        assert_figure(find(cgroups, "/b"), CGROUP_CURRENT, 20);
        cgroups_free(cgroups);
    }
    tree_remove();
    tree_make();
    v2_root();
    tree_printf("memory.current", "10\n"); /* as in a container */
    struct cgroups *cgroups = look();
    assert_figure(find(cgroups, "/"), CGROUP_CURRENT, 10);
    cgroups_free(cgroups);
}

/* Each cgroup directly behind its parent and the subtrees before it, whatever bytes names have. */
static void the_tree_is_in_order(void **state)
{
    static const char *const paths[] = {"c",   "b",   "d",     "a",     "a-b",  "a/z",
                                        "a/b", "a.c", "a\x01", "a\x02", "\xff", "a/b/c"};
    static const char *const expected[] = {"/",      "/a",     "/a/b", "/a/b/c", "/a/z",
                                           "/a\x01", "/a\x02", "/a-b", "/a.c",   "/b",
                                           "/c",     "/d",     "/\xff"};
    size_t n;
    v2_root();
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++)
        v2_make(&(struct v2){paths[i], "1", "max", "1\n", 0});
    struct cgroups *cgroups = look();
    const struct cgroup *rows = cgroups_rows(cgroups, &n);
    assert_int_equal(n, sizeof(expected) / sizeof(*expected));
    for (size_t i = 0; i < n; i++)
        assert_string_equal(rows[i].path, expected[i]);
    assert_string_equal(rows[3].parent->path, "/a/b");
    assert_string_equal(rows[3].name, "c");
    assert_string_equal(rows[6].parent->path, "/");
    assert_figure(&rows[1], CGROUP_PROCESSES, 4);
    cgroups_free(cgroups);
}

static void the_tightest_limit_around_it_counts(void **state)
{
    v2_root();
    v2_make(&(struct v2){"a", "900", "1000", "", 0});
    v2_make(&(struct v2){"a/b", "100", "5000", "", 0});
    v2_make(&(struct v2){"a/c", "800", "810", "", 0});
    v2_make(&(struct v2){"a/d", "800", "700", "", 0}); /* the limit was lowered since */
    struct cgroups *cgroups = look();
    assert_figure(find(cgroups, "/a/b"), CGROUP_HEADROOM, 100);
    assert_figure(find(cgroups, "/a/c"), CGROUP_HEADROOM, 10);
    assert_figure(find(cgroups, "/a/d"), CGROUP_HEADROOM, 0);
    cgroups_free(cgroups);
}

/* A limit that cannot be read may be the tightest one: neither this cgroup nor those below have a known headroom. */
static void headroom_needs_every_limit_around_it(void **state)
{
    static const struct {
        const char *current, *limit;
        bool known, none;
        uint64_t headroom, below;
    } cases[] = {
        {"100", "1000", true, false, 900, 300},   {"100", "max", false, true, 0, 300},
        {"100", "nonsense", false, false, 0, 0},  {"nonsense", "1000", false, false, 0, 0},
        {"nonsense", "max", false, true, 0, 300}, /* what is used does not matter */
    };
    v2_root();
    v2_make(&(struct v2){"a/below", "200", "500", "", 0});
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        v2_make(&(struct v2){"a", cases[i].current, cases[i].limit, "", 0});
        struct cgroups *cgroups = look();
        const struct cgroup *a = find(cgroups, "/a"), *below = find(cgroups, "/a/below");
        assert_int_equal(known(a, CGROUP_HEADROOM), cases[i].known);
        assert_int_equal(none(a, CGROUP_HEADROOM), cases[i].none);
        if (cases[i].known)
            assert_figure(a, CGROUP_HEADROOM, cases[i].headroom);
        if (cases[i].below)
            assert_figure(below, CGROUP_HEADROOM, cases[i].below);
        else
            assert_true(unknown(below, CGROUP_HEADROOM));
        assert_figure(below, CGROUP_CURRENT, 200);
        cgroups_free(cgroups);
    }
}

static void what_the_kernel_does_not_have_is_absent(void **state)
{
    v2_root();
    tree_printf("old/memory.current", "1000\n");
    tree_printf("old/memory.stat", "anon 1\n");
    tree_printf("old/memory.events", "oom 1\n");
    tree_printf("old/memory.max", "nonsense\n");
    struct cgroups *cgroups = look();
    const struct cgroup *g = find(cgroups, "/old");
    static const enum cgroup_figure absent[] = {CGROUP_PEAK,          CGROUP_SWAP,
                                                CGROUP_KERNEL,        CGROUP_OOM_KILLS,
                                                CGROUP_OWN_PROCESSES, CGROUP_PROCESSES};
    for (size_t i = 0; i < sizeof(absent) / sizeof(*absent); i++)
        assert_true(!known(g, absent[i]) && none(g, absent[i]));
    /* What makes no sense is not known: that is something else. */
    assert_true(unknown(g, CGROUP_LIMIT));
    assert_true(unknown(g, CGROUP_HEADROOM));
    assert_figure(g, CGROUP_CURRENT, 1000);
    assert_figure(find(cgroups, "/"), CGROUP_PROCESSES, 2);
    cgroups_free(cgroups);
}

/* Version 1 where it has the memory controller, else version 2, at the root or beside version 1. */
static void the_version_with_the_memory_controller_is_read(void **state)
{
    static const struct {
        const char *root, *unified; /* cgroup.controllers; NULL: there is none */
        bool v1;
        int error;
        uint64_t anon;
    } cases[] = {
        {NULL, NULL, false, -ENOENT, 0},       {NULL, "\n", false, -ENOENT, 0},
        {NULL, "", false, -ENOENT, 0},         {"cpu pids\n", "cpu\n", false, -ENOENT, 0},
        {NULL, "cpu memory\n", false, 0, 2},   {"memory\n", NULL, false, 0, 1},
        {"memory\n", "memory\n", false, 0, 1}, {"cpu\n", "memory\n", false, 0, 2},
        {"memory\n", "memory\n", true, 0, 50}, {NULL, "\n", true, 0, 50},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct cgroups *cgroups = NULL;
        tree_remove();
        tree_make();
        tree_printf("memory.stat", "anon 1\n");
        tree_printf("unified/memory.stat", "anon 2\n");
        tree_printf("memory/other", "\n"); /* a folder is not enough */
        if (cases[i].root)
            tree_printf("cgroup.controllers", "%s", cases[i].root);
        if (cases[i].unified)
            tree_printf("unified/cgroup.controllers", "%s", cases[i].unified);
        if (cases[i].v1)
            v1_make("", 1000, V1_NONE, 0);
        assert_int_equal(cgroups_new(tree_root, &cgroups), cases[i].error);
        if (cases[i].error) {
            assert_null(cgroups);
            continue;
        }
        assert_int_equal(cgroups_read(cgroups, UINT64_MAX), 1);
        assert_figure(find(cgroups, "/"), CGROUP_ANON, cases[i].anon);
        cgroups_free(cgroups);
    }
    struct cgroups *cgroups;
    char file[128];
    snprintf(file, sizeof(file), "%s/memory.stat", tree_root);
    assert_int_equal(cgroups_new(file, &cgroups), -ENOTDIR);
}

static void any_name_is_taken_as_it_is(void **state)
{
    static const char name[] = "x\x1b[2J\xff %s\t'\"";
    char path[64];
    v2_root();
    v2_make(&(struct v2){name, "1", "max", "", 0});
    tree_printf("outside/memory.current", "4711\n");
    char link[128], target[128];
    snprintf(link, sizeof(link), "%s/link", tree_root);
    snprintf(target, sizeof(target), "%s/outside", tree_root);
    assert_int_equal(symlink(target, link), 0);
    struct cgroups *cgroups = look();
    snprintf(path, sizeof(path), "/%s", name);
    assert_non_null(find(cgroups, path));
    assert_null(find(cgroups, "/link")); /* nothing is followed */
    cgroups_free(cgroups);
}

/* ---- the table ---- */

struct answer {
    struct query *query;
    struct query_result *result;
};

static struct answer ask(const struct cgroups *cgroups, const struct query_spec *spec)
{
    struct answer a;
    struct query_error error;
    assert_int_equal(query_new(spec, &a.query, &error), 0);
    assert_int_equal(query_result_new(a.query, 0, &a.result), 0);
    /* A stranger sees all of it. */
    assert_int_equal(
        query_run(a.query,
                  &(struct query_world){.cgroups = cgroups, .viewer_uid = 4711, .node = "here"},
                  a.result),
        0);
    assert_int_equal(query_result_finish(a.result), 0);
    return a;
}

static void release(struct answer *a)
{
    query_result_free(a->result);
    query_free(a->query);
}

#define CONTAINER "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define POD       "6f1ed2a4-0000-4000-8000-123456789abc"

static void the_table_tells_containers_and_percents(void **state)
{
    v2_root();
    v2_make(&(struct v2){"k-pod6f1ed2a4_0000_4000_8000_123456789abc.slice", "600", "1000", "", 0});
    v2_make(&(struct v2){"k-pod6f1ed2a4_0000_4000_8000_123456789abc.slice/cri-containerd-" CONTAINER
                         ".scope",
                         "250", "500", "1\n2\n", 1});
    struct cgroups *cgroups = look();
    struct answer a =
        ask(cgroups, &(struct query_spec){.table = "cgroups",
                                          .show = "path,container,pod,current,percent,"
                                                  "processes,headroom,node,parent_path"});
    assert_int_equal(query_result_rows(a.result), 3);
    assert_string_equal(query_result_value(a.result, 0, 0).text, "/");
    assert_int_equal(query_result_value(a.result, 0, 1).state, 0);
    assert_int_equal(query_result_value(a.result, 0, 4).state, 0); /* no limit: no percentage */
    assert_int_equal(query_result_value(a.result, 1, 1).state, 0);
    assert_string_equal(query_result_value(a.result, 1, 2).text, POD);
    assert_string_equal(query_result_value(a.result, 2, 1).text, CONTAINER);
    assert_string_equal(query_result_value(a.result, 2, 2).text, POD);
    struct query_value percent = query_result_value(a.result, 2, 4);
    assert_int_equal(query_percent_hundredths(&percent), 5000);
    assert_int_equal(query_result_value(a.result, 2, 5).number, 2);
    assert_int_equal(query_result_value(a.result, 2, 6).number, 250);
    assert_string_equal(query_result_value(a.result, 2, 7).text, "here");
    release(&a);
    /* Of a group the outermost counts, not a sum that has everything twice. */
    a = ask(cgroups, &(struct query_spec){.table = "cgroups",
                                          .by = "pod",
                                          .where = "pod!=none",
                                          .show = "count,current,processes"});
    assert_int_equal(query_result_rows(a.result), 1);
    assert_int_equal(query_result_value(a.result, 0, 1).number, 2);
    assert_int_equal(query_result_value(a.result, 0, 2).number, 600);
    assert_int_equal(query_result_value(a.result, 0, 3).number, 2);
    release(&a);
    cgroups_free(cgroups);
}

static void rows_come_in_the_order_of_the_tree(void **state)
{
    static const char *const expected[] = {"/", "/a", "/a/b", "/a-b"};
    v2_root();
    v2_make(&(struct v2){"a-b", "1", "max", "", 0});
    v2_make(&(struct v2){"a/b", "1", "max", "", 0});
    struct cgroups *cgroups = look();
    struct answer a = ask(cgroups, &(struct query_spec){.table = "cgroups", .show = "path"});
    assert_int_equal(query_result_rows(a.result), 4);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(query_result_value(a.result, i, 0).text, expected[i]);
    release(&a);
    cgroups_free(cgroups);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(figures_of_version_two, setup, teardown),
        cmocka_unit_test_setup_teardown(figures_of_version_one, setup, teardown),
        cmocka_unit_test_setup_teardown(root_of_version_one_holds_its_parts_at_least, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_tree_is_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(the_tightest_limit_around_it_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(headroom_needs_every_limit_around_it, setup, teardown),
        cmocka_unit_test_setup_teardown(what_the_kernel_does_not_have_is_absent, setup, teardown),
        cmocka_unit_test_setup_teardown(the_version_with_the_memory_controller_is_read, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(any_name_is_taken_as_it_is, setup, teardown),
        cmocka_unit_test_setup_teardown(the_table_tells_containers_and_percents, setup, teardown),
        cmocka_unit_test_setup_teardown(rows_come_in_the_order_of_the_tree, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
