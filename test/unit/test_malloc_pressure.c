/* The allocator's question how scarce memory is: with a word that somebody publishes, and without. */
#include "malloc/pressure.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "book/pressure_level.h"
#include "book/pressure_word.h"
#include "host_tree.h"
#include "malloc/settings.h"

static struct pressure_page *page; /* as a memoird has it */
static char proc[96], cgroups[96];

/* A machine and a cgroup with plenty of memory, and an empty directory for the word. */
static int setup(void **state)
{
    tree_make();
    snprintf(proc, sizeof(proc), "%s/proc", tree_root);
    snprintf(cgroups, sizeof(cgroups), "%s/cgroups", tree_root);
    tree_printf("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 900 kB\n");
    tree_printf("proc/self/cgroup", "0::/job\n");
    tree_printf("cgroups/job/memory.max", "1000\n");
    tree_printf("cgroups/job/memory.current", "100\n");
    setenv("MEMOIR_DIR", tree_root, 1);
    page = NULL;
    return 0;
}

static int teardown(void **state)
{
    if (page)
        munmap(page, PRESSURE_FILE_BYTES);
    tree_remove();
    return 0;
}

static void word_make(void)
{
    static const char zero[PRESSURE_FILE_BYTES];
    char path[128];
    tree_write(PRESSURE_FILE_NAME, zero, sizeof(zero));
    snprintf(path, sizeof(path), "%s/%s", tree_root, PRESSURE_FILE_NAME);
    assert_int_equal(chmod(path, 0644), 0);
    int fd = open(path, O_RDWR);
    page = mmap(NULL, PRESSURE_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(page != MAP_FAILED);
    close(fd);
    page->version = PRESSURE_VERSION;
    page->bytes = sizeof(*page);
    memcpy(page->magic, PRESSURE_MAGIC, sizeof(page->magic));
}

/* The module keeps its state for the life of a process, so each case has a child of its own: what it returns is its
 * level, or what went wrong. */
static unsigned in_child(unsigned (*body)(void))
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        pressure_roots(proc, cgroups);
        _exit((int)body());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return (unsigned)WEXITSTATUS(status);
}

enum { WRONG = 100 };
#define NEED(condition)   \
    do {                  \
        if (!(condition)) \
            return WRONG; \
    } while (0)

static const uint64_t t0 = 1000 * NS_PER_S;

static void publish(unsigned level, uint64_t now_ns)
{
    store_release(&page->word, pressure_word(level, now_ns));
}

/* ---- with a word ---- */

static unsigned follow_body(void)
{
    publish(PRESSURE_PLENTY, t0);
    NEED(pressure_level_at(t0) == PRESSURE_PLENTY);
    publish(PRESSURE_HIGH, t0);
    NEED(pressure_level_at(t0) == PRESSURE_HIGH); /* at once: no look in between */
    publish(PRESSURE_SOME, t0 + NS_PER_S);
    return pressure_level_at(t0 + NS_PER_S);
}

static void word_is_followed_at_once(void **state)
{
    word_make();
    assert_int_equal(in_child(follow_body), PRESSURE_SOME);
}

static unsigned critical_body(void)
{
    publish(PRESSURE_CRITICAL, t0);
    return pressure_level_at(t0);
}

/* The same directory by a name of so many bytes: what is left of it, were it cut, would be the same still. */
static void dir_set(size_t length)
{
    char dir[2 * PRESSURE_WORD_DIR_MAX];
    size_t n = strlen(tree_root);
    memcpy(dir, tree_root, n);
    while (n < length)
        dir[n++] = '/';
    dir[n] = '\0';
    setenv("MEMOIR_DIR", dir, 1);
}

static void directory_with_too_long_a_name_is_none(void **state)
{
    word_make();
    dir_set(PRESSURE_WORD_DIR_MAX - 1);
    assert_int_equal(in_child(critical_body), PRESSURE_CRITICAL);
    dir_set(PRESSURE_WORD_DIR_MAX);
    assert_int_equal(in_child(critical_body), PRESSURE_PLENTY);
}

static unsigned changed_body(void)
{
    pressure_init();
    setenv("MEMOIR_DIR", "/nowhere", 1);
    return critical_body();
}

static void what_the_environment_said_at_the_start_counts(void **state)
{
    word_make();
    assert_int_equal(in_child(changed_body), PRESSURE_CRITICAL);
}

static unsigned stale_body(void)
{
    publish(PRESSURE_CRITICAL, t0);
    NEED(pressure_level_at(t0) == PRESSURE_CRITICAL);
    uint64_t later = t0 + (PRESSURE_STALE_MS + 1) * NS_PER_MS;
    return pressure_level_at(later); /* the machine has plenty, and that is looked at now */
}

static void word_of_a_dead_daemon_counts_no_more(void **state)
{
    word_make();
    assert_int_equal(in_child(stale_body), PRESSURE_PLENTY);
}

static unsigned renewed_body(void)
{
    publish(PRESSURE_PLENTY, t0);
    NEED(pressure_level_at(t0) == PRESSURE_PLENTY);
    /* Its directory is made anew: another file, of which the old mapping knows nothing. */
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", tree_root, PRESSURE_FILE_NAME);
    unlink(path);
    word_make();
    uint64_t later = t0 + 2 * PRESSURE_STALE_MS * NS_PER_MS;
    publish(PRESSURE_HIGH, later);
    return pressure_level_at(later);
}

static void another_file_is_found_when_the_first_is_stale(void **state)
{
    word_make();
    assert_int_equal(in_child(renewed_body), PRESSURE_HIGH);
}

static unsigned late_body(void)
{
    NEED(pressure_level_at(t0) == PRESSURE_PLENTY);
    word_make();
    publish(PRESSURE_HIGH, t0);
    NEED(pressure_level_at(t0 + PRESSURE_LOOK_MS * NS_PER_MS) ==
         PRESSURE_PLENTY); /* not so often */
    return pressure_level_at(t0 + PRESSURE_MAP_MS * NS_PER_MS);
}

static void daemon_that_starts_later_is_found(void **state)
{
    assert_int_equal(in_child(late_body), PRESSURE_HIGH);
}

static unsigned worse_body(void)
{
    publish(PRESSURE_SOME, t0);
    tree_printf("cgroups/job/memory.current", "980\n");
    NEED(pressure_level_at(t0) == PRESSURE_CRITICAL);
    publish(PRESSURE_SOME, t0 + NS_PER_S);
    tree_printf("cgroups/job/memory.current", "10\n");
    return pressure_level_at(t0 + NS_PER_S); /* not so soon */
}

static void own_cgroup_counts_when_it_is_worse(void **state)
{
    word_make();
    assert_int_equal(in_child(worse_body), PRESSURE_CRITICAL);
}

static unsigned child_body(void)
{
    int status;
    publish(PRESSURE_SOME, t0);
    NEED(pressure_level_at(t0) == PRESSURE_SOME);
    pid_t pid = fork();
    if (pid == 0) {
        publish(PRESSURE_HIGH, t0);
        _exit((int)pressure_level_at(t0));
    }
    NEED(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    NEED(WEXITSTATUS(status) == PRESSURE_HIGH);
    return pressure_level_at(t0);
}

static void children_of_fork_go_on_reading(void **state)
{
    word_make();
    assert_int_equal(in_child(child_body), PRESSURE_HIGH);
}

/* ---- without one ---- */

static unsigned direct_body(void)
{
    tree_printf("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 80 kB\n");
    NEED(pressure_level_at(t0) == PRESSURE_HIGH);
    tree_printf("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 10 kB\n");
    NEED(pressure_level_at(t0 + (PRESSURE_LOOK_MS - 1) * NS_PER_MS) ==
         PRESSURE_HIGH); /* not so often */
    return pressure_level_at(t0 + PRESSURE_LOOK_MS * NS_PER_MS);
}

static void kernel_is_asked_where_nobody_publishes(void **state)
{
    assert_int_equal(in_child(direct_body), PRESSURE_CRITICAL);
}

static unsigned stall_body(void)
{
    tree_printf("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 400 kB\n");
    tree_printf(
        "proc/pressure/memory",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
    NEED(pressure_level_at(t0) == PRESSURE_PLENTY);
    tree_printf(
        "proc/pressure/memory",
        "some avg10=0.50 avg60=0.00 avg300=0.00 total=151000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
    return pressure_level_at(t0 + NS_PER_S); /* 150 ms of that second */
}

static void stall_of_the_last_second_is_seen(void **state)
{
    assert_int_equal(in_child(stall_body), PRESSURE_HIGH);
}

static unsigned blind_body(void)
{
    pressure_roots("/nonexistent", "/nonexistent");
    NEED(pressure_level_at(t0) == PRESSURE_PLENTY);
    pressure_roots(proc, cgroups);
    tree_printf("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 10 kB\n");
    NEED(pressure_level_at(t0 + 5 * NS_PER_S) == PRESSURE_PLENTY);
    return pressure_level_at(t0 + PRESSURE_BLIND_MS * NS_PER_MS);
}

static void who_cannot_see_asks_seldom(void **state)
{
    assert_int_equal(in_child(blind_body), PRESSURE_CRITICAL);
}

/* ---- in a sandbox ---- */

/* Twice, of which one is taken back: as a program does that asks first whether there are filters. */
static unsigned sandbox_body(void)
{
    NEED(pressure_level_at(t0) == PRESSURE_CRITICAL);
    pressure_blind();
    NEED(pressure_level_at(t0) == PRESSURE_PLENTY);
    NEED(pressure_level_at(t0 + 60 * NS_PER_S) == PRESSURE_PLENTY);
    pressure_blind();
    pressure_see();
    NEED(pressure_level_at(t0 + 60 * NS_PER_S) == PRESSURE_PLENTY);
    pressure_see();
    NEED(pressure_level_at(t0 + 60 * NS_PER_S) == PRESSURE_CRITICAL);
    pressure_blind();
    return pressure_level_at(t0 + 120 * NS_PER_S);
}

static void who_is_locked_up_has_plenty(void **state)
{
    tree_printf("cgroups/job/memory.current", "999\n");
    assert_int_equal(in_child(sandbox_body), PRESSURE_PLENTY);
}

static void *ask_on(void *stop)
{
    for (uint64_t now = clock_monotonic_ns() + NS_PER_S; !load_relaxed((int *)stop);
         now += PRESSURE_LOOK_MS * NS_PER_MS)
        (void)pressure_level_at(now);
    return NULL;
}

static bool was_opened(int watch)
{
    char events[4096];
    bool any = false;
    while (read(watch, events, sizeof(events)) > 0)
        any = true;
    return any;
}

/* Who is at it when the sandbox comes has ended before it does, unless its thread did not run for so long that nobody waited. */
static unsigned ends_body(void)
{
    enum { SANDBOXES = 300, WAIT_MS = 10, AFTER_US = 500 };
    int stop = 0, watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    pthread_t thread;
    char path[128];
    snprintf(path, sizeof(path), "%s/self/cgroup", proc);
    NEED(watch >= 0 && inotify_add_watch(watch, path, IN_OPEN) >= 0);
    snprintf(path, sizeof(path), "%s/job/memory.max", cgroups);
    NEED(inotify_add_watch(watch, path, IN_OPEN) >= 0);
    NEED(pthread_create(&thread, NULL, ask_on, &stop) == 0);
    for (int i = 0; i < SANDBOXES; i++) {
        for (int tries = 0; tries < 100000 && !was_opened(watch); tries++)
            sched_yield();
        uint64_t before_ns = clock_monotonic_ns();
        pressure_blind();
        bool waited = clock_monotonic_ns() - before_ns >= WAIT_MS * NS_PER_MS;
        (void)was_opened(watch);
        usleep(AFTER_US);
        NEED(!was_opened(watch) || waited);
        pressure_see();
    }
    store_relaxed(&stop, 1);
    pthread_join(thread, NULL);
    return 0;
}

static void no_file_is_opened_once_it_is_locked_up(void **state)
{
    assert_int_equal(in_child(ends_body), 0);
}

/* ---- manners ---- */

static unsigned manners_body(void)
{
    publish(PRESSURE_HIGH, t0);
    int before = dup(0);
    close(before);
    errno = EXDEV;
    NEED(pressure_level_at(t0) == PRESSURE_HIGH);
    pressure_roots("/nonexistent", "/nonexistent");
    NEED(pressure_level_at(t0 + 60 * NS_PER_S) <= PRESSURE_HIGH);
    NEED(errno == EXDEV);
    int after = dup(0);
    close(after);
    NEED(before == after);
    /* Neither does it need one where the program has none left. */
    struct rlimit none = {0, 0};
    NEED(setrlimit(RLIMIT_NOFILE, &none) == 0);
    NEED(pressure_level_at(t0 + 120 * NS_PER_S) == PRESSURE_PLENTY);
    publish(PRESSURE_SOME, t0 + 120 * NS_PER_S);
    return pressure_level_at(t0 + 120 * NS_PER_S);
}

static void errno_and_descriptors_stay_as_they_were(void **state)
{
    word_make();
    assert_int_equal(in_child(manners_body), PRESSURE_SOME);
}

static unsigned override_body(void)
{
    publish(PRESSURE_HIGH, t0);
    malloc_settings.pressure = PRESSURE_SET_CRITICAL;
    NEED(pressure_level_at(t0) == PRESSURE_CRITICAL);
    pressure_override(PRESSURE_PLENTY);
    NEED(pressure_level_at(t0) == PRESSURE_PLENTY);
    pressure_override(PRESSURE_AUTO);
    NEED(pressure_level_at(t0) == PRESSURE_CRITICAL);
    malloc_settings.pressure = PRESSURE_SET_NONE;
    NEED(pressure_level_at(t0) == PRESSURE_PLENTY);
    malloc_settings.pressure = PRESSURE_SET_AUTO;
    return pressure_level_at(t0);
}

static void settings_win_over_what_is_found(void **state)
{
    word_make();
    assert_int_equal(in_child(override_body), PRESSURE_HIGH);
}

/* ---- threads ---- */

enum { THREADS = 4, ASKS = 2000 };

static void *ask(void *wrong)
{
    /* Every ask finds a look due: looks, the first mapping and new ones overlap. */
    for (unsigned i = 0; i < ASKS; i++) {
        uint64_t now = t0 + (uint64_t)i * PRESSURE_LOOK_MS * NS_PER_MS;
        if (pressure_level_at(now) >= PRESSURE_LEVELS)
            store_relaxed((int *)wrong, 1);
    }
    return NULL;
}

static unsigned threads_body(void)
{
    pthread_t threads[THREADS];
    int wrong = 0;
    for (int i = 0; i < THREADS; i++)
        NEED(pthread_create(&threads[i], NULL, ask, &wrong) == 0);
    for (unsigned i = 0; i < 1000; i++)
        publish(i % PRESSURE_LEVELS, t0 + i * NS_PER_S);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return (unsigned)load_relaxed(&wrong);
}

static void threads_ask_side_by_side(void **state)
{
    word_make();
    assert_int_equal(in_child(threads_body), 0);
}

static void the_real_machine_has_a_level(void **state)
{
    unsetenv("MEMOIR_DIR");
    assert_true(pressure_level() < PRESSURE_LEVELS);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(word_is_followed_at_once),
        CASE(directory_with_too_long_a_name_is_none),
        CASE(what_the_environment_said_at_the_start_counts),
        CASE(word_of_a_dead_daemon_counts_no_more),
        CASE(another_file_is_found_when_the_first_is_stale),
        CASE(daemon_that_starts_later_is_found),
        CASE(own_cgroup_counts_when_it_is_worse),
        CASE(children_of_fork_go_on_reading),
        CASE(kernel_is_asked_where_nobody_publishes),
        CASE(stall_of_the_last_second_is_seen),
        CASE(who_cannot_see_asks_seldom),
        CASE(who_is_locked_up_has_plenty),
        CASE(no_file_is_opened_once_it_is_locked_up),
        CASE(errno_and_descriptors_stay_as_they_were),
        CASE(settings_win_over_what_is_found),
        CASE(threads_ask_side_by_side),
        CASE(the_real_machine_has_a_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
