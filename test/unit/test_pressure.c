/* From what the kernel says to a level of memory pressure, and the word that tells it to others. */
#include <errno.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "book/cgroup.h"
#include "book/lines.h"
#include "book/pressure_level.h"
#include "book/pressure_source.h"
#include "book/pressure_word.h"
#include "host_tree.h"

#define GB (UINT64_C(1) << 30)

static const struct pressure_limits *const limits = &pressure_limits_default;

static int tree_setup(void **state)
{
    tree_make();
    return 0;
}

static int tree_teardown(void **state)
{
    tree_remove();
    return 0;
}

/* ---- levels ---- */

static struct pressure_inputs memory(uint64_t available, uint64_t total)
{
    return (struct pressure_inputs){
        .valid = PRESSURE_HAS_MEMORY, .total_bytes = total, .available_bytes = available};
}

static struct pressure_inputs stalled(uint32_t some_percent)
{
    struct pressure_inputs in = memory(40 * GB, 100 * GB);
    in.valid |= PRESSURE_HAS_STALL;
    in.some_avg10 = PRESSURE_PERCENT(some_percent);
    return in;
}

static unsigned judge(struct pressure_inputs in)
{
    return pressure_judge(limits, &in, false);
}

static void less_left_makes_a_higher_level(void **state)
{
    assert_int_equal(judge(memory(20 * GB, 100 * GB)), PRESSURE_PLENTY);
    assert_int_equal(judge(memory(20 * GB - 1, 100 * GB)), PRESSURE_SOME);
    assert_int_equal(judge(memory(10 * GB - GB / 10, 100 * GB)), PRESSURE_HIGH);
    assert_int_equal(judge(memory(5 * GB - GB / 10, 100 * GB)), PRESSURE_CRITICAL);
    assert_int_equal(judge(memory(0, 100 * GB)), PRESSURE_CRITICAL);
}

static void much_is_left_of_a_large_machine_whatever_the_share(void **state)
{
    assert_int_equal(judge(memory(40 * GB, 4096 * GB)), PRESSURE_PLENTY);
    assert_int_equal(judge(memory(31 * GB, 4096 * GB)), PRESSURE_SOME);
    assert_int_equal(judge(memory(9 * GB, 4096 * GB)), PRESSURE_HIGH);
    assert_int_equal(judge(memory(7 * GB, 4096 * GB)), PRESSURE_CRITICAL);
    assert_int_equal(judge(memory(UINT64_MAX / 2, UINT64_MAX)), PRESSURE_PLENTY);
    assert_int_equal(judge(memory(1, UINT64_MAX)), PRESSURE_CRITICAL);
}

static void thresholds_say_never_and_always(void **state)
{
    struct pressure_limits set = {.stall = {0, 10000, 10000, 10000}};
    struct pressure_inputs none = memory(0, 4096 * GB), all = memory(4096 * GB, 4096 * GB);
    assert_int_equal(pressure_judge(&set, &none, false), PRESSURE_PLENTY);
    set.left[PRESSURE_HIGH] = PRESSURE_PERCENT(100);
    assert_int_equal(pressure_judge(&set, &all, false), PRESSURE_HIGH);
    assert_int_equal(pressure_judge(&set, &all, true), PRESSURE_HIGH);
}

static void waiting_for_memory_makes_a_level(void **state)
{
    assert_int_equal(judge(stalled(1)), PRESSURE_PLENTY);
    assert_int_equal(judge(stalled(2)), PRESSURE_SOME);
    assert_int_equal(judge(stalled(10)), PRESSURE_HIGH);
    assert_int_equal(judge(stalled(30)), PRESSURE_CRITICAL);
}

static void last_second_counts_as_well_as_the_last_ten(void **state)
{
    struct pressure_inputs in = stalled(0);
    in.some_last = PRESSURE_PERCENT(12);
    assert_int_equal(judge(in), PRESSURE_HIGH);
}

static void time_in_which_nobody_ran_weighs_twice(void **state)
{
    struct pressure_inputs in = stalled(9);
    in.full_avg10 = PRESSURE_PERCENT(5);
    assert_int_equal(judge(in), PRESSURE_HIGH);
}

static void stalls_on_a_machine_with_room_are_somebodys_own(void **state)
{
    struct pressure_inputs in = stalled(90);
    in.available_bytes = 76 * GB;
    assert_int_equal(judge(in), PRESSURE_PLENTY);
    in.available_bytes = 75 * GB;
    assert_int_equal(judge(in), PRESSURE_SOME);
    in.available_bytes = 51 * GB;
    assert_int_equal(judge(in), PRESSURE_SOME);
    in.available_bytes = 50 * GB;
    assert_int_equal(judge(in), PRESSURE_CRITICAL);
}

static void headroom_of_a_cgroup_counts_like_memory(void **state)
{
    struct pressure_inputs in = memory(90 * GB, 100 * GB);
    in.valid |= PRESSURE_HAS_LIMIT;
    in.limit_bytes = GB;
    in.headroom_bytes = GB / 2;
    assert_int_equal(judge(in), PRESSURE_PLENTY);
    in.headroom_bytes = GB / 12;
    assert_int_equal(judge(in), PRESSURE_HIGH);
    in.valid = 0; /* what is not known makes no level */
    assert_int_equal(judge(in), PRESSURE_PLENTY);
}

static unsigned step(struct pressure_state *state, struct pressure_inputs in, uint64_t now_ms)
{
    pressure_step(state, limits, &in, now_ms * NS_PER_MS);
    return state->level;
}

static void level_rises_at_once_and_falls_step_by_step(void **unused)
{
    struct pressure_state state = {0};
    assert_int_equal(step(&state, stalled(40), 1000), PRESSURE_CRITICAL);
    assert_int_equal(step(&state, stalled(0), 2000), PRESSURE_CRITICAL);
    assert_int_equal(step(&state, stalled(0), 2000 + PRESSURE_CALM_MS - 1), PRESSURE_CRITICAL);
    assert_int_equal(step(&state, stalled(0), 2000 + PRESSURE_CALM_MS), PRESSURE_HIGH);
    assert_int_equal(step(&state, stalled(0), 2001 + PRESSURE_CALM_MS), PRESSURE_HIGH);
    assert_int_equal(step(&state, stalled(0), 2000 + 2 * PRESSURE_CALM_MS), PRESSURE_SOME);
    assert_int_equal(step(&state, stalled(0), 2000 + 3 * PRESSURE_CALM_MS), PRESSURE_PLENTY);
    assert_int_equal(step(&state, stalled(0), 2000 + 4 * PRESSURE_CALM_MS), PRESSURE_PLENTY);
}

static void level_stays_while_things_are_only_a_little_better(void **unused)
{
    struct pressure_state state = {0};
    assert_int_equal(step(&state, memory(99, 1000), 1000), PRESSURE_HIGH);
    for (uint64_t ms = 2000; ms < 60000; ms += 1000) /* 11 %: above 10, below 12.5 */
        assert_int_equal(step(&state, memory(110, 1000), ms), PRESSURE_HIGH);
    assert_int_equal(step(&state, memory(130, 1000), 61000), PRESSURE_HIGH);
    assert_int_equal(step(&state, memory(130, 1000), 61000 + PRESSURE_CALM_MS), PRESSURE_SOME);
}

static void calm_that_was_interrupted_begins_again(void **unused)
{
    struct pressure_state state = {0};
    step(&state, stalled(12), 1000);
    step(&state, stalled(0), 2000);
    step(&state, stalled(6), 4000); /* more than half of the threshold */
    assert_int_equal(step(&state, stalled(0), 2000 + PRESSURE_CALM_MS), PRESSURE_HIGH);
    assert_int_equal(step(&state, stalled(0), 2000 + 2 * PRESSURE_CALM_MS), PRESSURE_SOME);
}

/* ---- the kernel's texts ---- */

static struct lines text_of(const char *data, size_t len)
{
    return (struct lines){.fd = -1, .data = data, .n = len};
}

static bool parse_stall(const char *text, struct pressure_stall *some, struct pressure_stall *full)
{
    struct lines t = text_of(text, strlen(text));
    return pressure_parse_stall(&t, some, full);
}

static void stalls_are_read(void **state)
{
    struct pressure_stall some, full;
    assert_true(parse_stall("some avg10=12.34 avg60=1.00 avg300=100.00 total=57108526\n"
                            "full avg10=0.05 avg60=0.01 avg300=0.00 total=19582559\n",
                            &some, &full));
    assert_int_equal(some.avg10, 1234);
    assert_int_equal(some.avg60, 100);
    assert_int_equal(some.avg300, 10000);
    assert_int_equal(some.total_us, 57108526);
    assert_int_equal(full.avg10, 5);
    assert_int_equal(full.avg60, 1);
    assert_int_equal(full.total_us, 19582559);
}

static void stalls_that_make_no_sense_change_nothing(void **state)
{
#define REST "avg60=0.00 avg300=0.00 total=5\n"
#define FULL "full avg10=0.00 " REST
    static const char *const texts[] = {
        "",
        "some",
        "some avg10=",
        "some avg10=1.00 " REST,
        "some avg10=1.00 " REST "full avg10=1 " REST,
        "some avg10=1.00 " REST "full avg10=1.0x " REST,
        "some avg10=1.00 total=5\n" FULL,
        "some avg10=1.00 avg60=1.00 total=5\n" FULL,
        "some avg10=101.00 " REST FULL,
        "some avg10=-1.00 " REST FULL,
        "some avg10=99999999999999999999999.00 " REST FULL,
        "some avg10=1.00 avg60=0.00 avg300=0.00 total=\n" FULL,
        "some avg10=1.00 avg60=0.00 avg300=0.00 total=x\n" FULL,
        "somewhat avg10=1.00 " REST "fully avg10=0.00 " REST,
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        struct pressure_stall some = {.avg10 = 77}, full = {.total_us = 99};
        assert_false(parse_stall(texts[i], &some, &full));
        assert_int_equal(some.avg10, 77);
        assert_int_equal(full.total_us, 99);
    }
    struct pressure_stall some, full;
    assert_true(parse_stall("some avg10=1.00 " REST FULL, &some, &full));
}

static bool parse_meminfo(const char *text, struct pressure_inputs *in)
{
    struct lines t = text_of(text, strlen(text));
    return pressure_parse_meminfo(&t, in);
}

static void memory_is_read_whatever_stands_around_it(void **state)
{
    struct pressure_inputs in = {0};
    assert_true(
        parse_meminfo("MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:\t 250 kB\nx: 1\n", &in));
    assert_int_equal(in.total_bytes, 1024000);
    assert_int_equal(in.available_bytes, 256000);
    assert_true(parse_meminfo("MemAvailable: 9999 kB\nMemTotal: 1000 kB", &in));
    assert_int_equal(in.available_bytes, 1024000); /* not more than there is */
    char *lines = malloc(100000);
    memset(lines, 'y', 99999);
    lines[99999] = '\0';
    assert_false(parse_meminfo(lines, &in));
    strcpy(lines + 1000, "\nMemTotal: 2 kB\nMemAvailable: 1 kB\n");
    assert_true(parse_meminfo(lines, &in));
    assert_int_equal(in.total_bytes, 2048);
    free(lines);
}

static void memory_that_makes_no_sense_is_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "MemTotal:",
        "MemTotal: 0 kB\nMemAvailable: 0 kB\n",
        "MemTotal: 5 kB\n",
        "MemTotal: 5 kB\nMemAvailable: lots\n",
        "MemTotal: 99999999999999999999 kB\nMemAvailable: 1 kB\n",
        " MemTotal: 5 kB\n MemAvailable: 5 kB\n",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        struct pressure_inputs in = {0};
        assert_false(parse_meminfo(texts[i], &in));
        assert_int_equal(in.valid, 0);
    }
}

static bool parse_cgroup(const char *text, size_t len, char *path, bool *v1)
{
    struct lines t = text_of(text, len);
    return cgroup_path_parse(&t, path, LINES_PATH_MAX, v1);
}
#define PARSE_CGROUP(text) parse_cgroup(text, sizeof(text) - 1, path, &v1)

static void memory_controller_of_version_1_wins(void **state)
{
    char path[LINES_PATH_MAX];
    bool v1;
    assert_true(PARSE_CGROUP("0::/unified\n9:cpu,memory:/a/b\n3:memoryx:/no\n"));
    assert_true(v1);
    assert_string_equal(path, "/a/b");
    assert_true(PARSE_CGROUP("3:cpuset:/x\n0::/user.slice/a:b\n"));
    assert_false(v1);
    assert_string_equal(path, "/user.slice/a:b");
    assert_false(cgroup_path_outside(path));
    assert_true(PARSE_CGROUP("0::/../../elsewhere\n"));
    assert_true(cgroup_path_outside(path));
    assert_true(cgroup_path_outside("/a/.."));
    assert_false(cgroup_path_outside("/..a/b..c/..."));
}

static void cgroups_that_make_no_sense_are_refused(void **state)
{
    char path[LINES_PATH_MAX], text[3000];
    bool v1;
    assert_false(PARSE_CGROUP(""));
    assert_false(PARSE_CGROUP("0:"));
    assert_false(PARSE_CGROUP("0::"));
    assert_false(PARSE_CGROUP("0::relative"));
    assert_false(PARSE_CGROUP("1:cpu:/x\n:\n::\n"));
    memset(text, 'a', sizeof(text));
    memcpy(text, "0::/", 4);
    assert_false(parse_cgroup(text, sizeof(text), path, &v1)); /* cut: not that of another */
    memcpy(text + 2000, "\n0::/b\0c", 8);
    assert_true(parse_cgroup(text, 2008, path, &v1));
    assert_string_equal(path, "/b?c");
}

/* ---- trees ---- */

static struct pressure_inputs look(bool own)
{
    struct pressure_inputs in = {0};
    char cgroups[128];
    snprintf(cgroups, sizeof(cgroups), "%s/cgroups", tree_root);
    pressure_source_cgroup(tree_root, cgroups, own, &in);
    return in;
}

static void tightest_cgroup_of_version_2_counts(void **state)
{
    tree_printf("self/cgroup", "0::/top/job/task\n");
    tree_printf("cgroups/top/memory.max", "1000000\n");
    tree_printf("cgroups/top/memory.current", "950000\n");
    tree_printf("cgroups/top/job/memory.max", "max\n");
    tree_printf("cgroups/top/job/memory.current", "10\n");
    tree_printf("cgroups/top/job/task/memory.max", "1000\n");
    tree_printf("cgroups/top/job/task/memory.current", "200\n");
    struct pressure_inputs in = look(true);
    assert_int_equal(in.valid, PRESSURE_HAS_LIMIT);
    assert_int_equal(in.limit_bytes, 1000000);
    assert_int_equal(in.headroom_bytes, 50000);
    assert_int_equal(look(false).valid, 0);
}

static void files_that_can_go_are_headroom(void **state)
{
    tree_printf("self/cgroup", "0::/\n");
    tree_printf("cgroups/memory.max", "1000000\n");
    tree_printf("cgroups/memory.current", "990000\n");
    tree_printf("cgroups/memory.stat", "anon 1\nactive_file 5\ninactive_file 300000\nslab 4\n");
    assert_int_equal(look(true).headroom_bytes, 310000);
    assert_int_equal(look(false).headroom_bytes, 310000); /* a container's own root */
}

static void version_1_says_no_limit_by_a_large_number(void **state)
{
    tree_printf("self/cgroup", "0::/\n4:memory:/docker/abc\n");
    tree_printf("cgroups/memory/memory.limit_in_bytes", "9223372036854771712\n");
    tree_printf("cgroups/memory/memory.usage_in_bytes", "5\n");
    assert_int_equal(look(true).valid, 0);
    tree_printf("cgroups/memory/docker/abc/memory.limit_in_bytes", "1000\n");
    tree_printf("cgroups/memory/docker/abc/memory.usage_in_bytes", "2000\n");
    tree_printf("cgroups/memory/docker/abc/memory.stat",
                "inactive_file 999\ntotal_inactive_file 100\n");
    struct pressure_inputs in = look(true);
    assert_int_equal(in.valid, PRESSURE_HAS_LIMIT);
    assert_int_equal(in.headroom_bytes, 0); /* above its limit: nothing left, not much below 0 */
}

static void container_without_its_own_namespace_is_found_at_the_root(void **state)
{
    tree_printf("self/cgroup",
                "4:memory:/docker/abc\n"); /* whose folders are not to be seen here */
    tree_printf("cgroups/memory/memory.limit_in_bytes", "1000\n");
    tree_printf("cgroups/memory/memory.usage_in_bytes", "400\n");
    assert_int_equal(look(true).headroom_bytes, 600);
}

static void nothing_to_read_is_nothing_known(void **state)
{
    struct pressure_inputs in = {0};
    uint64_t us = 5;
    assert_int_equal(look(true).valid, 0);
    pressure_source_machine(tree_root, &in, &us);
    assert_int_equal(in.valid, 0);
    assert_int_equal(us, 0);
    tree_printf("self/cgroup", "0::/x\n");
    tree_printf("cgroups/x/memory.max", "-5\n");
    assert_int_equal(look(true).valid, 0);
}

static void share_of_the_time_between_two_looks(void **state)
{
    assert_int_equal(pressure_source_share(1000, NS_PER_S, 51000, 2 * NS_PER_S), 500);
    assert_int_equal(pressure_source_share(0, 0, 51000, 2 * NS_PER_S), 0); /* none before */
    assert_int_equal(pressure_source_share(9, 5, 8, 6 * NS_PER_S), 0);     /* backwards */
    assert_int_equal(pressure_source_share(0, 5, UINT64_MAX, 6 * NS_PER_S), 10000);
    assert_int_equal(pressure_source_share(0, 5, 1, 5), 0);
}

/* ---- the word ---- */

static void word_tells_level_and_age(void **state)
{
    uint64_t now = 1000 * NS_PER_S, word = pressure_word(PRESSURE_HIGH, now);
    unsigned level = 9;
    assert_true(pressure_word_level(word, now, &level));
    assert_int_equal(level, PRESSURE_HIGH);
    assert_true(pressure_word_level(word, now + PRESSURE_STALE_MS * NS_PER_MS, &level));
    assert_true(pressure_word_level(word, now - 10 * NS_PER_MS, &level)); /* a coarse clock */
    level = 9;
    assert_false(pressure_word_level(word, now + (PRESSURE_STALE_MS + 1) * NS_PER_MS, &level));
    assert_false(pressure_word_level(word, now - 10 * NS_PER_S, &level)); /* another machine's */
    assert_false(pressure_word_level(0, 1, &level));
    assert_false(pressure_word_level(pressure_word(PRESSURE_LEVELS, now), now, &level));
    assert_false(pressure_word_level(UINT64_MAX, now, &level));
    assert_int_equal(level, 9);
}

static struct pressure_page page_of(unsigned level)
{
    struct pressure_page page = {.version = PRESSURE_VERSION, .bytes = sizeof(page)};
    memcpy(page.magic, PRESSURE_MAGIC, sizeof(page.magic));
    page.word = pressure_word(level, clock_monotonic_ns());
    page.inputs = memory(5, 10);
    return page;
}

static char *word_path(void)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", tree_root, PRESSURE_FILE_NAME);
    return path;
}

static void word_write(const struct pressure_page *page, size_t bytes, mode_t mode)
{
    char file[PRESSURE_FILE_BYTES] = {0};
    memcpy(file, page, sizeof(*page));
    (void)unlink(word_path());
    tree_write(PRESSURE_FILE_NAME, file, bytes);
    assert_int_equal(chmod(word_path(), mode), 0);
}

static int word_try(void)
{
    const struct pressure_page *page = NULL;
    int r = pressure_word_map(tree_root, NULL, &page);
    if (r == 0) {
        struct pressure_page copy;
        assert_int_equal(pressure_page_read(page, &copy), 0);
        assert_int_equal(copy.inputs.available_bytes, 5);
        pressure_word_unmap(page);
    }
    return r;
}

static void word_of_ones_own_is_read(void **state)
{
    struct pressure_page page = page_of(PRESSURE_SOME);
    assert_int_equal(word_try(), -ENOENT);
    word_write(&page, PRESSURE_FILE_BYTES, 0644);
    assert_int_equal(word_try(), 0);
    assert_int_equal(chmod(tree_root, 01777), 0); /* as /run/memoir is */
    assert_int_equal(word_try(), 0);
}

static void word_that_others_could_write_is_not_believed(void **state)
{
    struct pressure_page page = page_of(PRESSURE_SOME);
    word_write(&page, PRESSURE_FILE_BYTES, 0664);
    assert_int_equal(word_try(), -EPERM);
    word_write(&page, PRESSURE_FILE_BYTES, 0646);
    assert_int_equal(word_try(), -EPERM);
    word_write(&page, PRESSURE_FILE_BYTES, 0644);
    assert_int_equal(chmod(tree_root, 0777), 0);
    assert_int_equal(word_try(), -EPERM);
    assert_int_equal(chmod(tree_root, 0770), 0);
    assert_int_equal(word_try(), -EPERM);
}

static void word_of_another_user_is_not_believed(void **state)
{
    struct pressure_page page = page_of(PRESSURE_CRITICAL);
    if (geteuid() != 0)
        skip();
    word_write(&page, PRESSURE_FILE_BYTES, 0644);
    assert_int_equal(chown(word_path(), 12345, 12345), 0);
    assert_int_equal(word_try(), -EPERM);
    assert_int_equal(chown(word_path(), 0, 0), 0);
    assert_int_equal(chown(tree_root, 12345, 12345), 0);
    assert_int_equal(word_try(), -EPERM);
    assert_int_equal(chown(tree_root, 0, 0), 0);
    assert_int_equal(word_try(), 0);
}

static void word_must_be_a_whole_plain_file(void **state)
{
    struct pressure_page page = page_of(PRESSURE_SOME);
    char target[160];
    word_write(&page, PRESSURE_FILE_BYTES - 1, 0644);
    assert_int_equal(word_try(), -EBADMSG); /* mapped, its end would be a SIGBUS */
    word_write(&page, PRESSURE_FILE_BYTES, 0644);
    snprintf(target, sizeof(target), "%s/elsewhere", tree_root);
    assert_int_equal(rename(word_path(), target), 0);
    assert_int_equal(symlink(target, word_path()), 0);
    assert_int_equal(word_try(), -EPERM);
    assert_int_equal(unlink(word_path()), 0);
    assert_int_equal(mkfifo(word_path(), 0644), 0);
    assert_int_equal(word_try(), -EPERM);
    assert_int_equal(unlink(word_path()), 0);
    assert_int_equal(mkdir(word_path(), 0755), 0);
    assert_int_equal(word_try(), -EPERM);
}

static void word_of_another_layout_is_refused(void **state)
{
    struct pressure_page page = page_of(PRESSURE_SOME);
    page.version++;
    word_write(&page, PRESSURE_FILE_BYTES, 0644);
    assert_int_equal(word_try(), -EBADMSG);
    page = page_of(PRESSURE_SOME);
    page.magic[0] ^= 1;
    word_write(&page, PRESSURE_FILE_BYTES, 0644);
    assert_int_equal(word_try(), -EBADMSG);
    page = page_of(PRESSURE_SOME);
    page.bytes = sizeof(page) - 8;
    word_write(&page, PRESSURE_FILE_BYTES, 0644);
    assert_int_equal(word_try(), -EBADMSG);
    page.bytes = sizeof(page) + 8; /* what a later one adds is not in our way */
    word_write(&page, PRESSURE_FILE_BYTES, 0644);
    assert_int_equal(word_try(), 0);
}

static void word_half_written_for_ever_is_given_up(void **state)
{
    struct pressure_page page = page_of(PRESSURE_SOME), copy;
    page.sequence = 7;
    assert_int_equal(pressure_page_read(&page, &copy), -EAGAIN);
    page.sequence = 8;
    assert_int_equal(pressure_page_read(&page, &copy), 0);
}

/* ---- the page about it ---- */

struct field {
    const char *name;
    size_t offset, bytes;
};

#define FIELD(f)                                                                            \
    {                                                                                       \
#f, offsetof(struct pressure_page, f), sizeof(((const struct pressure_page *)0)->f) \
    }

static void page_in_doc_tells_the_layout(void **state)
{
    static const struct field fields[] = {
        FIELD(magic),
        FIELD(version),
        FIELD(bytes),
        FIELD(word),
        FIELD(sequence),
        FIELD(since_ns),
        FIELD(changes),
        FIELD(daemon_pid),
        FIELD(daemon_start),
        FIELD(inputs.total_bytes),
        FIELD(inputs.available_bytes),
        FIELD(inputs.limit_bytes),
        FIELD(inputs.headroom_bytes),
        FIELD(inputs.some_avg10),
        FIELD(inputs.full_avg10),
        FIELD(inputs.some_last),
        FIELD(inputs.valid),
    };
    char path[512], row[128];
    snprintf(path, sizeof(path), "%s/doc/pressure.md", getenv("MEMOIR_SOURCE_ROOT"));
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(1 << 20);
    assert_int_equal(fs_read_file(path, &text), 0);
    size_t end = 0;
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
        assert_int_equal(fields[i].offset, end); /* no hole, nothing left out */
        end += fields[i].bytes;
        snprintf(row, sizeof(row), "| %zu | %zu | %s |", fields[i].offset, fields[i].bytes,
                 fields[i].name);
        if (!strstr(buffer_string(&text), row))
            fail_msg("doc/pressure.md has no row \"%s\"", row);
    }
    assert_int_equal(end, sizeof(struct pressure_page));
}

int main(void)
{
#define WITH_TREE(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(less_left_makes_a_higher_level),
        cmocka_unit_test(much_is_left_of_a_large_machine_whatever_the_share),
        cmocka_unit_test(thresholds_say_never_and_always),
        cmocka_unit_test(waiting_for_memory_makes_a_level),
        cmocka_unit_test(last_second_counts_as_well_as_the_last_ten),
        cmocka_unit_test(time_in_which_nobody_ran_weighs_twice),
        cmocka_unit_test(stalls_on_a_machine_with_room_are_somebodys_own),
        cmocka_unit_test(headroom_of_a_cgroup_counts_like_memory),
        cmocka_unit_test(level_rises_at_once_and_falls_step_by_step),
        cmocka_unit_test(level_stays_while_things_are_only_a_little_better),
        cmocka_unit_test(calm_that_was_interrupted_begins_again),
        cmocka_unit_test(stalls_are_read),
        cmocka_unit_test(stalls_that_make_no_sense_change_nothing),
        cmocka_unit_test(memory_is_read_whatever_stands_around_it),
        cmocka_unit_test(memory_that_makes_no_sense_is_refused),
        cmocka_unit_test(memory_controller_of_version_1_wins),
        cmocka_unit_test(cgroups_that_make_no_sense_are_refused),
        WITH_TREE(tightest_cgroup_of_version_2_counts),
        WITH_TREE(files_that_can_go_are_headroom),
        WITH_TREE(version_1_says_no_limit_by_a_large_number),
        WITH_TREE(container_without_its_own_namespace_is_found_at_the_root),
        WITH_TREE(nothing_to_read_is_nothing_known),
        cmocka_unit_test(share_of_the_time_between_two_looks),
        cmocka_unit_test(word_tells_level_and_age),
        WITH_TREE(word_of_ones_own_is_read),
        WITH_TREE(word_that_others_could_write_is_not_believed),
        WITH_TREE(word_of_another_user_is_not_believed),
        WITH_TREE(word_must_be_a_whole_plain_file),
        WITH_TREE(word_of_another_layout_is_refused),
        cmocka_unit_test(word_half_written_for_ever_is_given_up),
        cmocka_unit_test(page_in_doc_tells_the_layout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
