/* The writer of history: pictures move from the loop's thread to its own while it writes, and nothing that happens to
 * its file stops the loop. */
#include <dirent.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/history.h"
#include "daemon/hosts.h"
#include "history/read.h"
#include "ledger_world.h"

static const struct history_settings settings = {
    .limits = {UINT64_C(64) << 20, {3600, 86400, 30 * 86400}},
    .flush_ns = 50 * NS_PER_MS,
    .per_user_max = 1000,
};

static struct hosts *hosts; /* nobody is probed */

static int group_setup(void **state)
{
    return hosts_new(true, 0, &hosts);
}

static int group_teardown(void **state)
{
    hosts_free(hosts);
    return 0;
}

static void pause_ms(unsigned ms)
{
    struct timespec t = {0, (long)ms * 1000000};
    nanosleep(&t, NULL);
}

static void account(struct world *w)
{
    struct book_builder b;
    book_begin(w, &b, "1.book", BOOK_SOURCE_CLIENT);
    account_add(&b, MEMOIR_SPACE_HEAP, 0, 3, 3000);
    builder_publish(&b);
    ledger_update_state(w->ledger, add(w, "1.book")->process);
    ledger_refresh(w->ledger);
}

/* The newest value of this process's heap and resident size. */
static bool look(struct world *w, uint64_t *ret_heap, uint64_t *ret_rss)
{
    char path[128];
    struct read_result result = {0};
    uint64_t now_s = clock_real_ns() / NS_PER_S;
    struct read_query query = {.since_s = now_s - 60,
                               .until_s = now_s + 2,
                               .step_s = 1,
                               .by = READ_BY_PROCESS,
                               .pid = getpid()};
    snprintf(path, sizeof(path), "%s/%s", w->dir, HISTORY_FILE);
    if (read_history(path, &query, &result) < 0)
        return false;
    bool found = result.n_lines == 2;
    for (size_t i = 0; i < result.n_lines; i++)
        *(result.lines[i].space ? ret_heap : ret_rss) = result.lines[i].last;
    read_release(&result);
    return found;
}

/* Let it work until `seconds` pictures were taken. */
static void work(struct world *w, struct history *history, uint64_t seconds)
{
    uint64_t until = history_counts(history).taken + seconds;
    for (int i = 0; history_counts(history).taken < until && i < 3000; i++) {
        history_take(history, w->ledger);
        pause_ms(10);
    }
}

static void pictures_reach_the_file_while_both_threads_work(void **state)
{
    struct world *w = *state;
    struct history *history = NULL;
    uint64_t heap = 0, rss = 0;
    account(w);
    assert_int_equal(history_new(w->dir, &settings, hosts, &history), 0);
    work(w, history, 3);
    struct history_settings other = settings;
    other.flush_ns = 20 * NS_PER_MS;
    other.limits.bytes_max = 1 << 20;
    history_set(history, &other);
    work(w, history, 1);
    struct history_counts counts = history_counts(history);
    assert_int_equal(counts.lost, 0);
    assert_int_equal(counts.left_out, 0);
    assert_false(counts.stopped);
    history_free(history);
    assert_true(look(w, &heap, &rss));
    assert_int_equal(heap, 3000);
    assert_in_range(rss, 100000, UINT32_MAX);
}

static void last_picture_is_written_at_the_end(void **state)
{
    struct world *w = *state;
    struct history *history = NULL;
    struct history_settings slow = settings;
    uint64_t heap = 0, rss = 0;
    slow.flush_ns = 60 * NS_PER_S;
    account(w);
    assert_int_equal(history_new(w->dir, &slow, hosts, &history), 0);
    history_take(history, w->ledger);
    history_free(history);
    assert_true(look(w, &heap, &rss));
    assert_int_equal(heap, 3000);
}

static void a_place_that_cannot_be_written_stops_nothing(void **state)
{
    struct world *w = *state;
    struct history *history = NULL;
    char path[128];
    log_set_level(LOG_LEVEL_ERROR);
    snprintf(path, sizeof(path), "%s/none/here", w->dir);
    account(w);
    assert_int_equal(history_new(path, &settings, hosts, &history), 0);
    for (int i = 0; !history_counts(history).stopped && i < 3000; i++)
        pause_ms(1);
    work(w, history, 2);
    assert_true(history_counts(history).stopped);
    assert_int_equal(history_counts(history).lost, 0);
    /* When there is one, it goes on. */
    snprintf(path, sizeof(path), "%s/none", w->dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/none/here", w->dir);
    assert_int_equal(mkdir(path, 0700), 0);
    for (int i = 0; history_counts(history).stopped && i < 3000; i++)
        pause_ms(1);
    assert_false(history_counts(history).stopped);
    history_free(history);
}

static void damaged_file_is_kept_aside_and_a_new_one_begun(void **state)
{
    struct world *w = *state;
    struct history *history = NULL;
    char path[128];
    uint64_t heap = 0, rss = 0;
    log_set_level(LOG_LEVEL_ERROR);
    account(w);
    snprintf(path, sizeof(path), "%s/%s", w->dir, HISTORY_FILE);
    FILE *file = fopen(path, "we");
    for (int i = 0; i < 5000; i++)
        fputc('?', file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(history_new(w->dir, &settings, hosts, &history), 0);
    work(w, history, 1);
    history_free(history);
    assert_true(look(w, &heap, &rss));
    DIR *dir = opendir(w->dir);
    int aside = 0;
    for (struct dirent *e; (e = readdir(dir));)
        aside += strncmp(e->d_name, HISTORY_FILE ".bad-", strlen(HISTORY_FILE ".bad-")) == 0;
    closedir(dir);
    assert_int_equal(aside, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(pictures_reach_the_file_while_both_threads_work),
        TEST(last_picture_is_written_at_the_end),
        TEST(a_place_that_cannot_be_written_stops_nothing),
        TEST(damaged_file_is_kept_aside_and_a_new_one_begun),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
