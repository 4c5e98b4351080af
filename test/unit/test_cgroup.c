/* How much a cgroup may still take: one answer, whichever part of Memoir asks. */
#include <errno.h>
#include <fcntl.h>

#include "base/clock.h"
#include "book/cgroup.h"
#include "book/lines.h"
#include "book/pressure_source.h"
#include "host_tree.h"
#include "ledger/cgroups.h"
#include "ledger/headroom.h"
#include "ledger/host.h"
#include "ledger/host_cgroup.h"

static void headroom_leaves_out_what_can_be_reclaimed(void **state)
{
    static const struct {
        struct cgroup_memory memory;
        uint64_t headroom;
    } cases[] = {
        {{1000, 400, 0}, 600},      {{1000, 400, 300}, 900}, {{1000, 400, 400}, 1000},
        {{1000, 400, 500}, 1000}, /* no more than the limit */
        {{1000, 1000, 0}, 0},       {{1000, 1001, 0}, 0},    {{1000, 1500, 400}, 0},
        {{1000, 1300, 400}, 100},   {{0, 0, 0}, 0},          {{UINT64_MAX, 5, 0}, UINT64_MAX},
        {{1000, UINT64_MAX, 0}, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_int_equal(cgroup_memory_headroom(&cases[i].memory), cases[i].headroom);
}

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

/* One number of a file below the tree. */
static int number_read(const char *name, const char *key, uint64_t *ret)
{
    char path[512];
    struct lines_value value = {.key = key, .number = *ret};
    snprintf(path, sizeof(path), "%s/%s", tree_root, name);
    lines_read_numbers(AT_FDCWD, path, &value, 1);
    *ret = value.number;
    return value.error;
}

static void numbers_are_read_from_files_and_lines(void **state)
{
    static const struct {
        const char *text;
        uint64_t number; /* 7: unchanged */
        int error;
    } cases[] = {
        {"max\n", UINT64_MAX, 0},
        {"1073741824\n", 1073741824, 0},
        {"0\n", 0, 0},
        {"010\n", 10, 0},
        {"9", 9, 0},
        {"-1\n", 7, -EBADMSG},
        {"many\n", 7, -EBADMSG},
        {":1\n", 7, -EBADMSG},
        {"5 kB\n", 7, -EBADMSG},
        {"maximum\n", 7, -EBADMSG},
        {"", 7, -ENOENT},
    };
    uint64_t n;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        n = 7;
        tree_printf("f", "%s", cases[i].text);
        assert_int_equal(number_read("f", NULL, &n), cases[i].error);
        assert_int_equal(n, cases[i].number);
    }
    tree_printf("f", "ab 3\na 5\na 6\n");
    assert_int_equal(number_read("f", "a", &n), 0);
    assert_int_equal(n, 5);
    assert_int_equal(number_read("f", NULL, &n), -EBADMSG);
    assert_int_equal(number_read("f", "b", &n), -ENOENT);
    assert_int_equal(number_read("none", NULL, &n), -ENOENT);
    assert_int_equal(n, 5); /* unchanged */
}

static void several_numbers_are_read_in_one_pass(void **state)
{
    char path[512];
    struct lines_value values[] = {{.key = "b"}, {.key = "none"}, {.key = "a"}, {.key = "c"}};
    snprintf(path, sizeof(path), "%s/f", tree_root);
    tree_printf("f", "a 1\nab 2\nb 3\nc x\na 7\nc 8\n"); /* the first line counts */
    lines_read_numbers(AT_FDCWD, path, values, 4);
    assert_int_equal(values[0].error, 0);
    assert_int_equal(values[0].number, 3);
    assert_int_equal(values[1].error, -ENOENT);
    assert_int_equal(values[2].error, 0);
    assert_int_equal(values[2].number, 1);
    assert_int_equal(values[3].error, -EBADMSG);
}

/* Both versions, with a tight limit above: what the allocator, the leak detector, the process table and the
 * table of cgroups say. */
static void cgroup_write(const char *folder, const char *limit, const char *used,
                         const char *inactive, bool v1)
{
    char name[128];
#define PUT(file, ...)                                          \
    snprintf(name, sizeof(name), "cgroups/%s%s", folder, file); \
    tree_printf(name, __VA_ARGS__)
    PUT(v1 ? "/memory.limit_in_bytes" : "/memory.max", "%s\n", limit);
    PUT(v1 ? "/memory.usage_in_bytes" : "/memory.current", "%s\n", used);
    PUT("/memory.stat", "anon 1\n%s %s\n", v1 ? "total_inactive_file" : "inactive_file", inactive);
    PUT("/cgroup.procs", "10\n");
}

static uint64_t asked_by_table(const char *cgroups_root)
{
    uint64_t headroom = 0;
    struct cgroups *cgroups;
    assert_int_equal(cgroups_new(cgroups_root, &cgroups), 0);
    while (cgroups_read(cgroups, NS_PER_S) == 0)
        ;
    size_t n;
    const struct cgroup *rows = cgroups_rows(cgroups, &n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].path, "/a/b") == 0)
            headroom = rows[i].figures[CGROUP_HEADROOM];
    cgroups_free(cgroups);
    return headroom;
}

static uint64_t asked_by_host(const char *cgroups_root)
{
    struct host *host;
    assert_int_equal(
        host_new(&(struct host_options){.proc = tree_root, .cgroups = cgroups_root}, &host), 0);
    assert_int_equal(host_refresh(host), 0);
    assert_true(host_refine(host, 100 * NS_PER_S));
    assert_int_equal(host_refresh(host), 0);
    const struct host_process *p = host_process_find(host, 10);
    assert_non_null(p);
    assert_non_null(p->cgroup);
    assert_true(p->cgroup->known && p->cgroup->limited);
    uint64_t headroom = p->cgroup->headroom_bytes;
    host_free(host);
    return headroom;
}

static void everyone_gets_one_answer(bool v1, const char *a_inactive, uint64_t expected)
{
    char root[128];
    snprintf(root, sizeof(root), "%s/cgroups", tree_root);
    tree_process(&(struct tree_process){.pid = 10, .start = 1, .rss_pages = 100, .uid = 1000});
    tree_printf("10/cgroup", v1 ? "4:memory:/a/b\n" : "0::/a/b\n");
    tree_printf("self/cgroup", v1 ? "4:memory:/a/b\n" : "0::/a/b\n");
    if (v1)
        cgroup_write("memory", "9223372036854771712", "5", "0", true);
    else
        tree_printf("cgroups/cgroup.controllers", "memory\n");
    cgroup_write(v1 ? "memory/a" : "a", "1000000", "900000", a_inactive, v1);
    cgroup_write(v1 ? "memory/a/b" : "a/b", v1 ? "9223372036854771712" : "max", "800000", "0", v1);

    struct pressure_inputs in = {0};
    pressure_source_cgroup(tree_root, root, true, &in);
    assert_int_equal(in.headroom_bytes, expected);
    assert_int_equal(in.limit_bytes, 1000000);
    struct headroom h = headroom_below(tree_root, root, 10);
    assert_int_equal(h.kind, HEADROOM_CGROUP);
    assert_int_equal(h.bytes, expected);
    assert_int_equal(h.limit_bytes, 1000000);
    assert_int_equal(asked_by_table(root), expected);
    assert_int_equal(asked_by_host(root), expected);
}

static void version_two_has_one_headroom(void **state)
{
    everyone_gets_one_answer(false, "500000", 600000);
    everyone_gets_one_answer(false, "0", 100000);
}

static void version_one_has_one_headroom(void **state)
{
    everyone_gets_one_answer(true, "500000", 600000);
    everyone_gets_one_answer(true, "0", 100000);
}

static void unreadable_limit_is_an_error_and_an_absent_one_is_not(void **state)
{
    char folder[256];
    struct cgroup_memory memory;
    snprintf(folder, sizeof(folder), "%s/cgroups/a", tree_root);
    assert_int_equal(cgroup_memory_read(folder, false, &memory), -ENOENT);
    cgroup_write("a", "lots", "5", "0", false);
    assert_int_equal(cgroup_memory_read(folder, false, &memory), -EBADMSG);
    cgroup_write("a", "9", "5", "x", false); /* no inactive files are known: none are subtracted */
    assert_int_equal(cgroup_memory_read(folder, false, &memory), 0);
    assert_int_equal(cgroup_memory_headroom(&memory), 4);
}

/* Version 1 writes "no limit" as a number near 2^63, rounded down to pages. */
static void limit_near_the_largest_number_is_none(void **state)
{
    static const struct {
        const char *limit;
        uint64_t bytes;
    } cases[] = {
        {"9223372036854771712", UINT64_MAX},
        {"1152921504606846976", UINT64_MAX}, /* 2^60 */
        {"1152921504606846975", 1152921504606846975},
        {"18446744073709551616", UINT64_MAX},
    };
    for (int v1 = 0; v1 < 2; v1++)
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            char folder[256];
            struct cgroup_memory memory;
            cgroup_write(v1 ? "memory/a" : "a", cases[i].limit, "5", "0", v1);
            snprintf(folder, sizeof(folder), "%s/cgroups%s/a", tree_root, v1 ? "/memory" : "");
            assert_int_equal(cgroup_memory_read(folder, v1, &memory), 0);
            assert_int_equal(memory.limit_bytes, cases[i].bytes);
            assert_int_equal(memory.used_bytes, 5);
        }
}

/* /proc/PID/cgroup of both versions; the memory controller may share a hierarchy. */
static void path_is_that_of_the_memory_controller(void **state)
{
    static const struct {
        const char *text, *path;
        bool v1;
    } cases[] = {
        {"0::/two\n", "/two", false},
        {"4:memory:/one\n", "/one", true},
        {"4:cpu,memory:/one\n", "/one", true},
        {"4:memory,cpu:/one\n", "/one", true},
        {"4:memory:/one\n0::/two\n", "/one", true},
        {"0::/two\n4:memory:/one\n", "/one", true},
        {"4:memoryx:/wrong\n0::/two\n", "/two", false},
        {"4:mapped:/wrong\n0::/two\n", "/two", false}, /* as long as "memory" */
        {"4:name=memory:/wrong\n0::/two\n", "/two", false},
        {"0::/1234567\n", NULL, false},
        {"0::/123456\n", "/123456", false},
        {"0::relative\n", NULL, false},
        {"4:cpu:/wrong\n", NULL, false},
        {"nonsense\n0:nonsense\n", NULL, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char path[8] = "none";
        bool v1 = !cases[i].v1;
        struct lines lines = {.fd = -1, .data = cases[i].text, .n = strlen(cases[i].text)};
        assert_int_equal(cgroup_path_parse(&lines, path, sizeof(path), &v1), !!cases[i].path);
        assert_string_equal(path, cases[i].path ? cases[i].path : "none");
        assert_int_equal(v1, cases[i].path ? cases[i].v1 : !cases[i].v1);
    }
}

static size_t descriptors(void)
{
    size_t n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void path_of_a_process_is_found_or_not(void **state)
{
    static const struct {
        const char *process, *text;
        int r;
    } cases[] = {
        {"10", "0::/a\n", 0},
        {"10", "nonsense\n", -ENOENT},
        {"10", "", -ENOENT},
        {"10", "0::/longer than there is room for\n", -ENOENT},
        {"11", NULL, -ENOENT},
        {"10000000000000000000000000", NULL, -ENAMETOOLONG}, /* with "/cgroup" 33 bytes */
    };
    size_t before = descriptors();
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char path[8] = "none";
        bool v1 = true;
        if (cases[i].text)
            tree_printf("10/cgroup", "%s", cases[i].text);
        assert_int_equal(cgroup_path_read(tree_root, cases[i].process, path, sizeof(path), &v1),
                         cases[i].r);
        assert_string_equal(path, cases[i].r ? "none" : "/a");
        assert_int_equal(v1, cases[i].r != 0);
    }
    assert_int_equal(descriptors(), before);
}

static void process_of_no_cgroup_has_the_machines_headroom(void **state)
{
    char root[128];
    snprintf(root, sizeof(root), "%s/cgroups", tree_root);
    cgroup_write("", "50", "1", "0", false);
    tree_printf("meminfo", "MemTotal: 5 kB\nMemAvailable: 4 kB\n");
    tree_printf("10/cgroup", "nonsense\n");
    struct headroom h = headroom_below(tree_root, root, 10);
    assert_int_equal(h.kind, HEADROOM_MACHINE);
    assert_int_equal(h.bytes, 4096);
    assert_int_equal(h.limit_bytes, 5120);
    tree_printf("10/cgroup", "0::/../a\n"); /* of another namespace: its limits cannot be seen */
    assert_int_equal(headroom_below(tree_root, root, 10).kind, HEADROOM_MACHINE);
    tree_printf("10/cgroup", "0::/\n");
    h = headroom_below(tree_root, root, 10);
    assert_int_equal(h.kind, HEADROOM_CGROUP);
    assert_int_equal(h.bytes, 49);
    assert_int_equal(h.limit_bytes, 50);
    /* The one with less decides; the first of two that are equal. */
    tree_printf("meminfo", "MemTotal: 1 kB\nMemAvailable: 0 kB\n");
    assert_int_equal(headroom_below(tree_root, root, 10).kind, HEADROOM_MACHINE);
    cgroup_write("", "50", "50", "0", false);
    assert_int_equal(headroom_below(tree_root, root, 10).kind, HEADROOM_MACHINE);
}

struct seen {
    size_t n;
    uint64_t limits[4];
};

static void note(const struct cgroup_memory *memory, void *context)
{
    struct seen *seen = context;
    assert_true(seen->n < 4);
    seen->limits[seen->n++] = memory->limit_bytes;
}

static int walk(const char *path, struct seen *ret_seen)
{
    char root[128], folder[CGROUP_FOLDER_MAX];
    *ret_seen = (struct seen){0};
    snprintf(root, sizeof(root), "%s/cgroups", tree_root);
    int top = cgroup_folder(root, false, path, folder, sizeof(folder));
    assert_true(top > 0);
    return cgroup_memory_each(folder, (size_t)top, false, note, ret_seen);
}

/* From the cgroup up to the root, each once, whatever slashes the path has; one that cannot be read does not hide the
 * others, and the first error is told. */
static void all_above_are_read_and_the_first_error_is_told(void **state)
{
    struct seen seen;
    cgroup_write("", "3", "1", "0", false);
    cgroup_write("a", "2", "1", "0", false);
    cgroup_write("a/b", "1", "1", "0", false);
    static const char *const paths[] = {"/a/b", "/a/b/", "/a/b//"};
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
        assert_int_equal(walk(paths[i], &seen), 0);
        assert_int_equal(seen.n, 3);
        assert_int_equal(seen.limits[0], 1);
        assert_int_equal(seen.limits[2], 3);
    }
    assert_int_equal(walk("/a/none", &seen), 0);
    assert_int_equal(seen.n, 2);
    assert_int_equal(walk("/", &seen), 0);
    assert_int_equal(seen.n, 1);
    cgroup_write("a", "lots", "1", "0", false);
    assert_int_equal(walk("/a/b", &seen), -EBADMSG);
    assert_int_equal(seen.n, 2);
    cgroup_write("", "many", "1", "0", false);
    assert_int_equal(walk("/a/b", &seen), -EBADMSG);
    assert_int_equal(seen.n, 1);
    tree_printf("cgroups/a/file", "no folder\n");
    assert_int_equal(walk("/a/file", &seen), -ENOTDIR);
    assert_int_equal(seen.n, 0);
}

/* ---- the rows that the process table keeps ---- */

static void tightest_limit_of_all_above_is_told(void **state)
{
    static const struct {
        const char *root, *a, *b;
        uint64_t limit, headroom;
    } cases[] = {
        {"300", "200", "100", 100, 90}, {"100", "200", "300", 100, 90},
        {"200", "100", "300", 100, 90}, {"max", "max", "300", 300, 290},
        {"max", "70", "max", 70, 60},
    };
    struct host_cgroups *cgroups;
    char root[128];
    snprintf(root, sizeof(root), "%s/cgroups", tree_root);
    assert_int_equal(host_cgroups_new(root, &cgroups), 0);
    const struct host_cgroup *g = host_cgroup_ref(cgroups, "/a/b", false);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        cgroup_write("", cases[i].root, "10", "0", false);
        cgroup_write("a", cases[i].a, "10", "0", false);
        cgroup_write("a/b", cases[i].b, "10", "0", false);
        host_cgroups_refresh(cgroups, i + 1, 0, 1);
        assert_true(g->known && g->limited && g->has_used);
        assert_int_equal(g->used_bytes, 10);
        assert_int_equal(g->limit_bytes, cases[i].limit);
        assert_int_equal(g->headroom_bytes, cases[i].headroom);
    }
    /* What is gone is not told any more. */
    cgroup_write("", "max", "10", "0", false);
    cgroup_write("a", "max", "10", "0", false);
    cgroup_write("a/b", "lots", "many", "0", false);
    host_cgroups_refresh(cgroups, 100, 0, 1);
    assert_false(g->known || g->limited || g->has_used);
    assert_int_equal(g->used_bytes | g->limit_bytes | g->headroom_bytes, 0);
    host_cgroup_unref(cgroups, g);
    host_cgroups_free(cgroups);
    host_cgroups_free(NULL);
}

/* How many rows were read at `now_ns`. */
static size_t read_at(const struct host_cgroup *const *rows, size_t n, uint64_t now_ns)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++)
        found += rows[i] && rows[i]->read_ns == now_ns;
    return found;
}

static void figures_are_read_in_turn_when_they_are_old(void **state)
{
    struct host_cgroups *cgroups;
    const struct host_cgroup *rows[5];
    assert_int_equal(host_cgroups_new(tree_root, &cgroups), 0);
    for (size_t i = 0; i < 5; i++) {
        char path[8];
        snprintf(path, sizeof(path), "/%zu", i);
        rows[i] = host_cgroup_ref(cgroups, path, false);
        assert_ptr_equal(host_cgroup_ref(cgroups, path, false), rows[i]); /* one for each path */
        assert_ptr_not_equal(rows[i], i ? rows[0] : NULL);
    }
    const struct host_cgroup *v1 = host_cgroup_ref(cgroups, "/0", true);
    assert_ptr_not_equal(v1, rows[0]);
    host_cgroup_unref(cgroups, v1);

    host_cgroups_refresh(cgroups, 1, 1000, 2); /* never read yet, however young the clock is */
    assert_int_equal(read_at(rows, 5, 1), 2);
    host_cgroups_refresh(cgroups, 2, 1000, 2);
    assert_int_equal(read_at(rows, 5, 2), 2);
    assert_int_equal(read_at(rows, 5, 1), 2); /* the others' turn */
    host_cgroups_refresh(cgroups, 3, 1000, 9);
    assert_int_equal(read_at(rows, 5, 3), 1);
    host_cgroups_refresh(cgroups, 1001, 1000, 9);
    assert_int_equal(read_at(rows, 5, 1001), 2); /* those that are as old as that */
    host_cgroups_refresh(cgroups, 1002, 5000, 9);
    assert_int_equal(read_at(rows, 5, 1002), 0);

    /* A row stays until the last one gives it back; the turn goes on without it. */
    host_cgroups_refresh(cgroups, 5000, 100, 1);
    for (size_t i = 0; i < 4; i++) {
        host_cgroup_unref(cgroups, rows[i]);
        assert_ptr_equal(host_cgroup_ref(cgroups, rows[i]->path, false), rows[i]);
        host_cgroup_unref(cgroups, rows[i]);
        host_cgroup_unref(cgroups, rows[i]);
        rows[i] = NULL;
        host_cgroups_refresh(cgroups, 6000 + i, 0, 1);
        assert_int_equal(read_at(rows, 5, 6000 + i), 1);
    }
    host_cgroup_unref(cgroups, NULL);
    host_cgroups_free(cgroups);
}

static void rows_are_limited_in_number_and_in_length(void **state)
{
    struct host_cgroups *cgroups;
    char path[32], root[CGROUP_ROOT_MAX + 8];
    assert_int_equal(host_cgroups_new(tree_root, &cgroups), 0);
    for (size_t i = 0; i <= HOST_CGROUPS_MAX; i++) {
        snprintf(path, sizeof(path), "/%zu", i);
        assert_int_equal(host_cgroup_ref(cgroups, path, false) != NULL, i < HOST_CGROUPS_MAX);
    }
    assert_non_null(host_cgroup_ref(cgroups, "/0", false)); /* one that is there already */
    host_cgroups_free(cgroups);
    memset(root, 'r', sizeof(root));
    root[sizeof(root) - 1] = '\0';
    assert_int_equal(host_cgroups_new(root, &cgroups), 0);
    const struct host_cgroup *g = host_cgroup_ref(cgroups, "/a", false);
    host_cgroups_refresh(cgroups, 1, 0, 1);
    assert_false(g->known);
    host_cgroups_free(cgroups);
}

static void lines_may_be_empty_cut_or_without_an_end(void **state)
{
    struct lines lines = {.fd = -1, .data = "\nabc\n\0z", .n = 7};
    char line[4];
    bool cut;
    assert_true(lines_next(&lines, line, sizeof(line), &cut));
    assert_string_equal(line, "");
    assert_false(cut);
    assert_true(lines_next(&lines, line, sizeof(line), &cut));
    assert_string_equal(line, "abc");
    assert_false(cut);
    assert_true(lines_next(&lines, line, sizeof(line), &cut));
    assert_string_equal(line, "?z");
    assert_false(lines_next(&lines, line, sizeof(line), &cut));
    lines = (struct lines){.fd = -1, .data = "abcd", .n = 4};
    assert_true(lines_next(&lines, line, sizeof(line), &cut));
    assert_string_equal(line, "abc");
    assert_true(cut);
    uint64_t n;
    const char *end;
    assert_true(lines_number("18446744073709551615x", &n, &end));
    assert_true(n == UINT64_MAX && *end == 'x');
    assert_true(lines_number("99999999999999999999", &n, NULL));
    assert_true(n == UINT64_MAX);
    assert_false(lines_number("x1", &n, NULL));
    assert_false(lines_number("/1", &n, NULL));
    assert_false(lines_number(":1", &n, NULL));
}

/* Longer than a chunk, up to the limit; and no descriptor stays open, whatever is found. */
static void long_files_are_read_up_to_a_limit(void **state)
{
    static char text[LINES_TEXT_MAX + 4096];
    size_t len = 0, before = descriptors();
    uint64_t n = 0;
    while (len < 3 * LINES_CHUNK)
        len += (size_t)sprintf(text + len, "other %zu\n", len);
    len += (size_t)sprintf(text + len, "key 42\n");
    tree_write("f", text, len);
    assert_int_equal(number_read("f", "key", &n), 0);
    assert_int_equal(n, 42);
    while (len < LINES_TEXT_MAX + 100)
        len += (size_t)sprintf(text + len, "other %zu\n", len);
    len += (size_t)sprintf(text + len, "late 43\n");
    tree_write("f", text, len);
    assert_int_equal(number_read("f", "key", &n), 0);
    assert_int_equal(number_read("f", "late", &n), -ENOENT);
    assert_int_equal(headroom_below(tree_root, tree_root, 10).kind, HEADROOM_UNKNOWN);
    tree_printf("meminfo", "MemTotal: 5 kB\nMemAvailable: 4 kB\n");
    tree_printf("10/cgroup", "nonsense\n");
    struct headroom h = headroom_below(tree_root, tree_root, 10);
    assert_int_equal(h.kind, HEADROOM_MACHINE);
    assert_int_equal(h.bytes, 4096);
    assert_int_equal(descriptors(), before);
}

static void folder_has_room_or_says_so(void **state)
{
    char folder[32];
    assert_int_equal(cgroup_folder("/r", true, "/a", folder, sizeof(folder)), 9);
    assert_string_equal(folder, "/r/memory/a");
    assert_int_equal(cgroup_folder("/r", false, "/a", folder, 5), 2);
    assert_string_equal(folder, "/r/a");
    assert_int_equal(cgroup_folder("/r", false, "/a", folder, 4), -ENAMETOOLONG);
    char root[CGROUP_ROOT_MAX + 1], large[CGROUP_FOLDER_MAX];
    memset(root, 'r', sizeof(root));
    root[CGROUP_ROOT_MAX] = '\0';
    assert_int_equal(cgroup_folder(root, false, "/a", large, sizeof(large)), -ENAMETOOLONG);
    root[CGROUP_ROOT_MAX - 1] = '\0';
    assert_int_equal(cgroup_folder(root, false, "/a", large, sizeof(large)), CGROUP_ROOT_MAX - 1);
}

int main(void)
{
#define TREE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headroom_leaves_out_what_can_be_reclaimed),
        TREE_TEST(numbers_are_read_from_files_and_lines),
        TREE_TEST(several_numbers_are_read_in_one_pass),
        TREE_TEST(limit_near_the_largest_number_is_none),
        TREE_TEST(version_two_has_one_headroom),
        TREE_TEST(version_one_has_one_headroom),
        TREE_TEST(unreadable_limit_is_an_error_and_an_absent_one_is_not),
        cmocka_unit_test(path_is_that_of_the_memory_controller),
        TREE_TEST(path_of_a_process_is_found_or_not),
        TREE_TEST(process_of_no_cgroup_has_the_machines_headroom),
        TREE_TEST(all_above_are_read_and_the_first_error_is_told),
        TREE_TEST(tightest_limit_of_all_above_is_told),
        TREE_TEST(figures_are_read_in_turn_when_they_are_old),
        TREE_TEST(rows_are_limited_in_number_and_in_length),
        cmocka_unit_test(lines_may_be_empty_cut_or_without_an_end),
        TREE_TEST(long_files_are_read_up_to_a_limit),
        cmocka_unit_test(folder_has_room_or_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
