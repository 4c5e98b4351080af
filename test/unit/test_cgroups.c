/* The tree of cgroups: versions 1 and 2 as trees of files, hostile names, limits, and the table of the query core. */
#include <errno.h>

#include "fault.h"
#include "host_tree.h"
#include "ledger/cgroups.h"
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

static struct cgroups *look(void)
{
    struct cgroups *cgroups = NULL;
    assert_int_equal(cgroups_new(tree_root, &cgroups), 0);
    assert_int_equal(cgroups_read(cgroups, UINT64_MAX), 1);
    return cgroups;
}

static const struct cgroup *find(const struct cgroups *cgroups, const char *path)
{
    size_t n;
    const struct cgroup *rows = cgroups_rows(cgroups, &n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].path, path) == 0)
            return &rows[i];
    return NULL;
}

static bool known(const struct cgroup *g, enum cgroup_figure figure)
{
    return g->valid >> figure & 1;
}

static bool none(const struct cgroup *g, enum cgroup_figure figure)
{
    return g->none >> figure & 1;
}

#define assert_figure(g, figure, value)                \
    do {                                               \
        assert_true(known(g, figure));                 \
        assert_int_equal((g)->figures[figure], value); \
    } while (0)

/* ---- trees ---- */

static void v2_root(void)
{
    tree_printf("cgroup.controllers", "cpu memory pids\n");
    tree_printf("cgroup.procs", "2\n3\n");
    tree_printf("memory.stat", "anon 900\nfile 90\nkernel 9\nslab 5\nshmem 1\n");
}

struct v2 {
    const char *path, *current, *limit, *procs;
    unsigned long kills, inactive;
};

static void v2_make(const struct v2 *g)
{
    char name[512];
#define FILE_OF(file) (snprintf(name, sizeof(name), "%s/" file, g->path), name)
    tree_printf(FILE_OF("memory.current"), "%s\n", g->current);
    tree_printf(FILE_OF("memory.peak"), "5000\n");
    tree_printf(FILE_OF("memory.max"), "%s\n", g->limit);
    tree_printf(FILE_OF("memory.high"), "max\n");
    tree_printf(FILE_OF("memory.swap.current"), "7\n");
    tree_printf(FILE_OF("memory.stat"),
                "anon 100\nfile 200\nkernel 30\nkernel_stack 99\n"
                "slab_reclaimable 98\nslab 20\nshmem 3\n"
                "inactive_anon 77\ninactive_file %lu\n",
                g->inactive);
    tree_printf(FILE_OF("memory.events"),
                "low 0\nhigh 0\nmax 4\noom 3\noom_kill %lu\n"
                "oom_group_kill 77\n",
                g->kills);
    tree_printf(FILE_OF("cgroup.procs"), "%s", g->procs);
}

static void v1_make(const char *path, unsigned long used, unsigned long long limit,
                    unsigned long kills)
{
    char name[512];
#undef FILE_OF
#define FILE_OF(file) (snprintf(name, sizeof(name), "memory%s/" file, path), name)
    tree_printf(FILE_OF("memory.usage_in_bytes"), "%lu\n", used);
    tree_printf(FILE_OF("memory.max_usage_in_bytes"), "%lu\n", used * 2);
    tree_printf(FILE_OF("memory.limit_in_bytes"), "%llu\n", limit);
    tree_printf(FILE_OF("memory.kmem.usage_in_bytes"), "11\n");
    tree_printf(FILE_OF("memory.oom_control"), "oom_kill_disable 0\nunder_oom 0\noom_kill %lu\n",
                kills);
    tree_printf(FILE_OF("memory.stat"), "cache 1\nrss 2\nswap 3\ntotal_cache 40\ntotal_rss 50\n"
                                        "total_rss_huge 9\ntotal_shmem 6\ntotal_swap 70\n");
    tree_printf(FILE_OF("cgroup.procs"), "10\n11\n");
}

#define V1_NONE 9223372036854771712ull

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

static void the_tree_is_in_order(void **state)
{
    static const char *const paths[] = {"a", "a-b", "a/z", "a/b", "a.c", "a/b/c"};
    static const char *const expected[] = {"/", "/a", "/a/b", "/a/b/c", "/a/z", "/a-b", "/a.c"};
    size_t n;
    v2_root();
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++)
        v2_make(&(struct v2){paths[i], "1", "max", "1\n", 0});
    struct cgroups *cgroups = look();
    const struct cgroup *rows = cgroups_rows(cgroups, &n);
    assert_int_equal(n, 7);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(rows[i].path, expected[i]);
    assert_string_equal(rows[3].parent->path, "/a/b");
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

static void what_the_kernel_does_not_have_is_absent(void **state)
{
    v2_root();
    tree_printf("old/memory.current", "1000\n");
    tree_printf("old/memory.stat", "anon 1\n");
    tree_printf("old/memory.events", "oom 1\n");
    tree_printf("old/memory.max", "nonsense\n");
    struct cgroups *cgroups = look();
    const struct cgroup *g = find(cgroups, "/old");
    static const enum cgroup_figure absent[] = {CGROUP_PEAK, CGROUP_SWAP, CGROUP_KERNEL,
                                                CGROUP_OOM_KILLS, CGROUP_OWN_PROCESSES};
    for (size_t i = 0; i < sizeof(absent) / sizeof(*absent); i++)
        assert_true(!known(g, absent[i]) && none(g, absent[i]));
    /* What makes no sense is not known: that is something else. */
    assert_true(!known(g, CGROUP_LIMIT) && !none(g, CGROUP_LIMIT));
    assert_figure(find(cgroups, "/"), CGROUP_PROCESSES, 2);
    cgroups_free(cgroups);
}

static void version_one_wins_beside_version_two(void **state)
{
    struct cgroups *cgroups;
    assert_int_equal(cgroups_new(tree_root, &cgroups), -ENOENT);
    tree_printf("unified/cgroup.controllers", "\n"); /* version 2 without the memory controller */
    assert_int_equal(cgroups_new(tree_root, &cgroups), -ENOENT);
    v1_make("", 10, V1_NONE, 0);
    cgroups = look();
    assert_figure(find(cgroups, "/"), CGROUP_CURRENT, 50 + 40 + 11); /* its parts: it says less */
    cgroups_free(cgroups);
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

static void a_budget_is_kept_and_the_look_goes_on(void **state)
{
    struct cgroups *cgroups = NULL;
    size_t n, turns = 0;
    v2_root();
    for (int i = 0; i < 20; i++) {
        char path[16];
        snprintf(path, sizeof(path), "g%d", i);
        v2_make(&(struct v2){path, "1", "max", "1\n", 0});
    }
    assert_int_equal(cgroups_new(tree_root, &cgroups), 0);
    for (;;) {
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
    cgroups_free(cgroups);
}

static void one_that_goes_meanwhile_is_no_row(void **state)
{
    struct cgroups *cgroups = NULL;
    char path[128];
    v2_root();
    v2_make(&(struct v2){"gone", "1", "max", "1\n", 0});
    v2_make(&(struct v2){"stays", "1", "max", "1\n", 0});
    assert_int_equal(cgroups_new(tree_root, &cgroups), 0);
    assert_int_equal(cgroups_read(cgroups, 0), 0);
    snprintf(path, sizeof(path), "%s/gone", tree_root);
    assert_int_equal(nftw(path, tree_remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    assert_int_equal(cgroups_read(cgroups, UINT64_MAX), 1);
    assert_null(find(cgroups, "/gone"));
    assert_figure(find(cgroups, "/"), CGROUP_PROCESSES, 3);
    cgroups_free(cgroups);
}

static void what_is_too_deep_is_counted_and_sums_are_not_claimed(void **state)
{
    struct cgroups *cgroups;
    size_t n;
    v2_root();
    int at = open(tree_root, O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < CGROUPS_DEPTH_MAX + 3; i++) {
        assert_int_equal(mkdirat(at, "d", 0700), 0);
        int next = openat(at, "d", O_RDONLY | O_DIRECTORY);
        close(at);
        at = next;
    }
    close(at);
    v2_make(&(struct v2){"beside", "1", "max", "1\n", 0});
    cgroups = look();
    (void)cgroups_rows(cgroups, &n);
    assert_int_equal(n, CGROUPS_DEPTH_MAX + 1);
    assert_int_equal(cgroups_left_out(cgroups), 1);
    assert_false(known(find(cgroups, "/"), CGROUP_PROCESSES));
    assert_figure(find(cgroups, "/beside"), CGROUP_PROCESSES, 1);
    cgroups_free(cgroups);
}

/* Whatever fails, a look ends, and what it says is no less than nothing. */
static void any_call_may_fail(void **state)
{
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
    }
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
        cmocka_unit_test_setup_teardown(the_tree_is_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(the_tightest_limit_around_it_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(what_the_kernel_does_not_have_is_absent, setup, teardown),
        cmocka_unit_test_setup_teardown(version_one_wins_beside_version_two, setup, teardown),
        cmocka_unit_test_setup_teardown(any_name_is_taken_as_it_is, setup, teardown),
        cmocka_unit_test_setup_teardown(a_budget_is_kept_and_the_look_goes_on, setup, teardown),
        cmocka_unit_test_setup_teardown(one_that_goes_meanwhile_is_no_row, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_too_deep_is_counted_and_sums_are_not_claimed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(any_call_may_fail, setup, teardown),
        cmocka_unit_test_setup_teardown(the_table_tells_containers_and_percents, setup, teardown),
        cmocka_unit_test_setup_teardown(rows_come_in_the_order_of_the_tree, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
