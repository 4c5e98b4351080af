/* The file of history: windows close, tiers roll up, caps hold, and neither a kill nor garbage spoils it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "check.h"
#include "fault.h"
#include "history/pack.h"
#include "history/recorder.h"
#include "history/steady.h"
#include "history/store.h"

/* The start of a window of every tier. */
enum { T0 = 1800000000 - 1800000000 % 7200 };

struct world {
    char dir[64], path[128];
    struct store_limits limits;
    struct store *store;
    struct recorder *recorder;
    struct sample sample;
};

static const struct store_limits usual = {UINT64_C(1) << 30, {3600, 86400, 30 * 86400}};

static void world_open(struct world *w)
{
    assert_int_equal(store_open(w->path, &w->limits, &w->store), 0);
    assert_int_equal(recorder_new(1, 10, &w->recorder), 0);
}

static void world_close(struct world *w)
{
    recorder_free(w->recorder);
    store_free(w->store);
    w->recorder = NULL;
    w->store = NULL;
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    strcpy(w->dir, "/dev/shm/memoir-history-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    snprintf(w->path, sizeof(w->path), "%s/%s", w->dir, HISTORY_FILE);
    w->limits = usual;
    sample_init(&w->sample);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    char command[128];
    world_close(w);
    sample_release(&w->sample);
    snprintf(command, sizeof(command), "rm -rf %s", w->dir);
    assert_int_equal(system(command), 0);
    free(w);
    return 0;
}

/* One process with one value on one device; the machine's sum is the same. */
static void picture(struct world *w, uint64_t time_s, pid_t pid, uint64_t value)
{
    sample_reset(&w->sample, time_s * NS_PER_S);
    struct sample_device *device = sample_add_device(&w->sample);
    strcpy(device->uid, "one");
    struct sample_process *process = sample_add_process(&w->sample);
    process->pid = pid;
    process->start_ticks = 7;
    strcpy(process->program, "program");
    sample_add_value(&w->sample, 1, 16, HISTORY_BYTES, value);
    sample_totals(&w->sample);
    sample_add_value(&w->sample, 1, 16, HISTORY_BYTES, value);
}

static int add(struct world *w, uint64_t time_s, pid_t pid, uint64_t value)
{
    picture(w, time_s, pid, value);
    int r = recorder_add(w->recorder, &w->sample);
    if (r == -EAGAIN && (r = recorder_flush(w->recorder, w->store, time_s)) == 0)
        r = recorder_add(w->recorder, &w->sample);
    return r;
}

static uint64_t value_at(uint64_t second)
{
    return 1000000 + second % 10 * 4096; /* within ten seconds, the last is the largest */
}

static void run_for(struct world *w, uint64_t from, uint64_t seconds)
{
    for (uint64_t i = from; i < from + seconds; i++)
        assert_int_equal(add(w, T0 + i, 100, value_at(i)), 0);
    assert_int_equal(recorder_flush(w->recorder, w->store, T0 + from + seconds), 0);
}

/* A number by SQL, from a connection of its own. */
static int64_t ask(const struct world *w, const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *s = NULL;
    assert_int_equal(sqlite3_open_v2(w->path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK);
    int code = sqlite3_step(s);
    int64_t n = code == SQLITE_ROW ? sqlite3_column_int64(s, 0) : -1;
    sqlite3_finalize(s);
    sqlite3_close(db);
    return n;
}

/* Every point of a series, found by time. */
static unsigned points_of(const struct world *w, unsigned tier, int64_t series,
                          void (*each)(uint64_t time_s, uint64_t last, uint64_t max))
{
    sqlite3 *db = NULL;
    sqlite3_stmt *s = NULL;
    char sql[96];
    unsigned n = 0;
    snprintf(sql, sizeof(sql), "SELECT id, data FROM chunk%u WHERE id & 0xffffffff = ?", tier);
    assert_int_equal(sqlite3_open_v2(w->path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK);
    sqlite3_bind_int64(s, 1, series);
    while (sqlite3_step(s) == SQLITE_ROW) {
        struct pack_points points;
        uint64_t start = (uint64_t)(sqlite3_column_int64(s, 0) >> 32) * history_window_s(tier);
        assert_int_equal(
            pack_decode(sqlite3_column_blob(s, 1), (size_t)sqlite3_column_bytes(s, 1), &points), 0);
        for (unsigned i = 0; i < points.n; i++, n++)
            each(start + points.slot[i] * history_step_s[tier], points.last[i], points.max[i]);
    }
    sqlite3_finalize(s);
    sqlite3_close(db);
    return n;
}

static void assert_second(uint64_t time_s, uint64_t last, uint64_t max)
{
    assert_true(last == value_at(time_s - T0) && max == last);
}

static void windows_close_into_chunks(void **state)
{
    struct world *w = *state;
    world_open(w);
    run_for(w, 0, 119);
    assert_int_equal(ask(w, "SELECT count(*) FROM chunk0"), 0);
    assert_true(ask(w, "SELECT count(*) FROM recent") > 5);
    run_for(w, 119, 241);
    assert_int_equal(ask(w, "SELECT count(*) FROM series"), 2); /* of the process, of the device */
    assert_int_equal(ask(w, "SELECT count(*) FROM chunk0"), 2 * 3);
    assert_int_equal(ask(w, "SELECT count(*) FROM recent"), 0);
    assert_int_equal(points_of(w, 0, 1, assert_second), 360);
    assert_int_equal(points_of(w, 0, 2, assert_second), 360);
}

static void assert_ten_seconds(uint64_t time_s, uint64_t last, uint64_t max)
{
    /* From T0 + 1200 on values fall within ten seconds, so that the first is the largest. */
    assert_true(last == (time_s < T0 + 1200 ? value_at(9) : 0));
    assert_true(max == value_at(9));
}

static void coarser_tiers_keep_last_and_largest(void **state)
{
    struct world *w = *state;
    world_open(w);
    run_for(w, 0, 1200);
    for (uint64_t i = 1200; i < 2400; i++)
        assert_int_equal(add(w, T0 + i, 100, i % 10 ? 9 - i % 10 : value_at(9)), 0);
    assert_int_equal(recorder_flush(w->recorder, w->store, T0 + 2400), 0);
    assert_int_equal(points_of(w, 1, 1, assert_ten_seconds), 240);
    assert_int_equal(ask(w, "SELECT count(*) FROM chunk2"), 0);
    for (uint64_t i = 2400; i < 7200; i += 5)
        assert_int_equal(add(w, T0 + i, 100, 5), 0);
    assert_int_equal(recorder_flush(w->recorder, w->store, T0 + 7200), 0);
    assert_int_equal(ask(w, "SELECT count(*) FROM chunk2"), 2);
    assert_int_equal(ask(w, "SELECT closed * 7200 FROM tier WHERE tier = 2"), T0 + 7200);
}

static void what_is_too_old_goes_but_not_before_it_was_rolled_up(void **state)
{
    struct world *w = *state;
    w->limits.keep_s[0] = 60; /* less than a window of the next tier */
    world_open(w);
    run_for(w, 0, 1190);
    assert_int_equal(ask(w, "SELECT count(*) FROM chunk0"), 2 * 9);
    run_for(w, 1190, 200);
    assert_int_equal(ask(w, "SELECT count(*) FROM chunk1"), 2);
    assert_int_equal(ask(w, "SELECT count(*) FROM chunk0"), 2); /* since the 20 minutes ended */
}

static void names_of_who_has_no_points_are_forgotten(void **state)
{
    struct world *w = *state;
    w->limits = (struct store_limits){UINT64_C(1) << 30, {60, 60, 60}};
    world_open(w);
    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(add(w, T0 + i, 100, 1), 0);
    for (uint64_t i = 10; i < 3 * 7200; i += 7)
        assert_int_equal(add(w, T0 + i, 200, 1), 0);
    assert_int_equal(recorder_flush(w->recorder, w->store, T0 + 3 * 7200), 0);
    assert_int_equal(ask(w, "SELECT count(*) FROM process"), 1);
    assert_int_equal(ask(w, "SELECT pid FROM process"), 200);
    assert_int_equal(ask(w, "SELECT count(*) FROM series"), 2);
    assert_int_equal(ask(w, "SELECT count(*) FROM device"), 1);
}

static void next_writer_goes_on_with_the_same_series(void **state)
{
    struct world *w = *state;
    world_open(w);
    run_for(w, 0, 100);
    world_close(w);
    world_open(w);
    run_for(w, 100, 140);
    assert_int_equal(ask(w, "SELECT count(*) FROM process"), 1);
    assert_int_equal(points_of(w, 0, 1, assert_second), 240);
}

/* A writer killed at any moment: in the child, so that nothing is closed in order. */
static void killed_writer_loses_only_what_was_not_flushed(void **state)
{
    struct world *w = *state;
    for (int round = 0; round < 5; round++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            world_open(w);
            for (uint64_t i = (uint64_t)round * 300; i < (uint64_t)round * 300 + 295; i++)
                if (add(w, T0 + i, 100, value_at(i)) < 0)
                    _exit(1);
            raise(SIGKILL);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
    }
    world_open(w);
    assert_int_equal(recorder_flush(w->recorder, w->store, T0 + 1560), 0);
    /* Flushes come when twelve moments are pending, or with a new window. */
    assert_in_range(points_of(w, 0, 1, assert_second), 5 * (295 - 12), 5 * 295);
    assert_int_equal(ask(w, "SELECT count(*) FROM recent"), 0);
}

static void of_one_second_the_last_counts_and_an_earlier_one_is_not_lost(void **state)
{
    struct world *w = *state;
    world_open(w);
    assert_int_equal(add(w, T0 + 3, 100, value_at(3)), 0);
    assert_int_equal(add(w, T0 + 5, 100, 1), 0);
    assert_int_equal(add(w, T0 + 5, 100, value_at(5)), 0);
    assert_int_equal(add(w, T0 + 130, 100, value_at(130)), 0);
    assert_int_equal(add(w, T0 + 7, 100, value_at(7)), 0); /* the clock was put back */
    assert_int_equal(add(w, T0 + 5, 100, value_at(5)), 0);
    assert_int_equal(add(w, T0 + 300, 100, value_at(300)), 0);
    assert_int_equal(recorder_flush(w->recorder, w->store, T0 + 1200), 0);
    assert_int_equal(points_of(w, 0, 1, assert_second), 5);
    assert_int_equal(ask(w, "SELECT count(*) FROM chunk1"), 2);
}

static void a_clock_that_was_ahead_for_a_while_stops_nothing(void **state)
{
    struct world *w = *state;
    w->limits.keep_s[0] = 60;
    world_open(w);
    assert_int_equal(add(w, T0 + 400 * 86400, 100, 1), 0);
    assert_int_equal(recorder_flush(w->recorder, w->store, T0 + 400 * 86400 + 7200), 0);
    run_for(w, 0, 3600);
    assert_int_equal(ask(w, "SELECT count(*) FROM recent"), 0);
    /* Seconds were rolled up into tens, and went. */
    assert_int_equal(ask(w, "SELECT count(*) FROM chunk1 WHERE id >> 32 < 1510000"), 2 * 3);
    assert_in_range(ask(w, "SELECT count(*) FROM chunk0"), 2, 8);
}

static void a_clock_that_is_years_ahead_costs_little(void **state)
{
    struct world *w = *state;
    world_open(w);
    for (uint64_t i = 0; i < 5 * 7200; i += 30)
        assert_int_equal(add(w, T0 + i, 100, value_at(i)), 0);
    assert_int_equal(recorder_flush(w->recorder, w->store, T0 + 5 * 7200), 0);
    int64_t tens = ask(w, "SELECT count(*) FROM chunk1");
    assert_int_equal(ask(w, "SELECT count(*) FROM chunk2"), 2 * 5);
    for (uint64_t i = 0; i < 2; i++) {
        uint64_t ahead = T0 + 10 * 365 * UINT64_C(86400) + i * 120;
        assert_int_equal(add(w, ahead, 100, 1), 0);
        assert_int_equal(recorder_flush(w->recorder, w->store, ahead), 0);
    }
    assert_in_range(ask(w, "SELECT count(*) FROM chunk1 WHERE id >> 32 < 2000000"), tens - 8, tens);
    assert_in_range(ask(w, "SELECT count(*) FROM chunk2 WHERE id >> 32 < 300000"), 2 * 3, 2 * 5);
    assert_int_equal(ask(w, "SELECT count(*) FROM process"), 1);
}

static void a_clock_that_is_years_ahead_for_seconds_costs_nothing(void **state)
{
    struct world *w = *state;
    struct steady steady = {0};
    uint64_t boot = 1000 * NS_PER_S, ahead = T0 + 10 * 365 * UINT64_C(86400);
    world_open(w);
    assert_false(steady_look(&steady, T0 * NS_PER_S, boot)); /* it may be wrong from the start */
    for (uint64_t i = 0; i < 3600; i++)
        assert_int_equal(add(w, T0 + i, 100, value_at(i)), 0);
    assert_true(steady_look(&steady, (T0 + 3600) * NS_PER_S, boot + 3600 * NS_PER_S));
    assert_int_equal(recorder_flush(w->recorder, w->store, T0 + 3600), 0);
    int64_t seconds = ask(w, "SELECT count(*) FROM chunk0");
    assert_true(seconds >= 2 * 29);
    for (uint64_t i = 0; i < 6; i++) {
        uint64_t now = ahead + 120 * i;
        store_hold_age(w->store,
                       !steady_look(&steady, now * NS_PER_S, boot + (3601 + i) * NS_PER_S));
        assert_int_equal(add(w, now, 100, 1), 0);
        assert_int_equal(recorder_flush(w->recorder, w->store, now), 0);
    }
    assert_int_equal(ask(w, "SELECT count(*) FROM chunk0 WHERE id >> 32 < 16000000"), seconds);
    assert_false(steady_look(&steady, (T0 + 3607) * NS_PER_S, boot + 3607 * NS_PER_S));
    assert_false(steady_look(&steady, (T0 + 4200) * NS_PER_S, boot + 4200 * NS_PER_S));
    assert_true(steady_look(&steady, (T0 + 4207) * NS_PER_S, boot + 4207 * NS_PER_S));
}

/* ---- limits ---- */

static void crowd(struct world *w, uint64_t time_s, unsigned processes)
{
    sample_reset(&w->sample, time_s * NS_PER_S);
    for (unsigned p = 0; p < processes; p++) {
        struct sample_process *process = sample_add_process(&w->sample);
        process->pid = (pid_t)p + 1;
        for (unsigned i = 0; i < 10; i++)
            sample_add_value(&w->sample, 0, i, HISTORY_BYTES,
                             (time_s * 2654435761u + p * 40503u + i) % 100000);
    }
    sample_totals(&w->sample);
    int r = recorder_add(w->recorder, &w->sample);
    if (r == -EAGAIN && (r = recorder_flush(w->recorder, w->store, time_s)) == 0)
        r = recorder_add(w->recorder, &w->sample);
    assert_int_equal(r, 0);
}

static void file_stays_below_its_limit_and_loses_the_oldest(void **state)
{
    struct world *w = *state;
    w->limits.bytes_max = 4 << 20;
    world_open(w);
    for (uint64_t i = 0; i < 3000; i++) {
        crowd(w, T0 + i, 150);
        assert_true(store_bytes(w->store) < (4 << 20) + (12 << 20)); /* with its log */
    }
    assert_int_equal(recorder_flush(w->recorder, w->store, T0 + 3000), 0);
    assert_true(ask(w, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size") <=
                4 << 20);
    int64_t newest = ask(w, "SELECT max(id) >> 32 FROM chunk0");
    assert_int_equal(newest, (T0 + 2999) / 120);
    assert_true(ask(w, "SELECT min(id) >> 32 FROM chunk0") > T0 / 120);
}

/* The kernel refuses to let files grow; SQLite does not always say why. */
static void assert_full(int r)
{
    assert_true(r == -ENOSPC || r == -EIO);
}

static void full_disk_is_an_error_and_room_makes_it_go_on(void **state)
{
    struct world *w = *state;
    signal(SIGXFSZ, SIG_IGN);
    world_open(w);
    run_for(w, 0, 30);
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = (struct rlimit){1, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    int r = 0;
    uint64_t i = 30;
    for (; i < 60 && r == 0; i++)
        r = add(w, T0 + i, 100, value_at(i));
    /* Somebody new, whose numbers are given out and taken back. */
    picture(w, T0 + i - 2, 200, value_at(i - 2));
    int added = recorder_add(w->recorder, &w->sample);
    uint64_t pending = recorder_pending(w->recorder);
    int again = recorder_flush(w->recorder, w->store, T0 + 60);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_full(r);
    assert_int_equal(added, 0);
    assert_full(again);
    assert_true(store_error(w->store)[0]);
    assert_int_equal(recorder_pending(w->recorder), pending); /* kept for the next try */
    assert_int_equal(recorder_flush(w->recorder, w->store, T0 + 60), 0);
    run_for(w, i - 1, 120 - (i - 1));
    assert_int_equal(points_of(w, 0, 1, assert_second), 120);
    assert_int_equal(ask(w, "SELECT count(*) FROM process"), 2);
    assert_int_equal(ask(w, "SELECT count(*) FROM series WHERE process NOT IN (SELECT 0 UNION "
                            "SELECT id FROM process)"),
                     0);
    assert_int_equal(recorder_drop(w->recorder), 0);
}

/* ---- files that are not ours ---- */

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int set_aside_and_open(struct world *w)
{
    char name[STORE_PATH_MAX];
    assert_int_equal(store_open(w->path, &w->limits, &w->store), -EBADMSG);
    assert_int_equal(store_set_aside(w->path, name), 0);
    assert_int_equal(access(name, F_OK), 0);
    assert_int_equal(access(w->path, F_OK), -1);
    world_open(w);
    run_for(w, 0, 20);
    return 0;
}

static void garbage_is_set_aside(void **state)
{
    struct world *w = *state;
    write_file(w->path,
               "This is no database, though it is long enough to have a header of one.....\n"
               "................................................................\n");
    set_aside_and_open(w);
}

static void foreign_database_is_set_aside(void **state)
{
    struct world *w = *state;
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(w->path, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(db, "CREATE TABLE bookmarks(x); PRAGMA user_version=1", NULL, NULL, NULL),
        SQLITE_OK);
    sqlite3_close(db);
    set_aside_and_open(w);
}

static void newer_version_is_set_aside(void **state)
{
    struct world *w = *state;
    sqlite3 *db = NULL;
    world_open(w);
    world_close(w);
    assert_int_equal(sqlite3_open(w->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "PRAGMA user_version=99", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    set_aside_and_open(w);
}

static void half_a_file_is_noticed(void **state)
{
    struct world *w = *state;
    world_open(w);
    run_for(w, 0, 1300);
    world_close(w);
    struct stat st;
    assert_int_equal(stat(w->path, &st), 0);
    assert_int_equal(truncate(w->path, st.st_size / 2), 0);
    int r = store_open(w->path, &w->limits, &w->store);
    if (r == 0) {
        assert_int_equal(recorder_new(1, 10, &w->recorder), 0);
        for (uint64_t i = 1300; i < 4000 && r == 0; i++)
            r = add(w, T0 + i, 100, value_at(i));
        world_close(w);
    }
    assert_int_equal(r, -EBADMSG);
}

static void only_the_latest_two_are_kept_aside(void **state)
{
    struct world *w = *state;
    char name[STORE_PATH_MAX], command[256];
    for (int i = 0; i < 5; i++) {
        write_file(w->path, "x");
        assert_int_equal(store_set_aside(w->path, name), 0);
    }
    assert_int_equal(access(name, F_OK), 0);
    snprintf(command, sizeof(command), "test $(ls %s | grep -c bad-) = 2", w->dir);
    assert_int_equal(system(command), 0);
}

static void nobody_else_may_read_it_and_no_link_is_followed(void **state)
{
    struct world *w = *state;
    struct stat st;
    umask(0);
    world_open(w);
    run_for(w, 0, 20);
    assert_int_equal(stat(w->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    char path[160], log[160];
    snprintf(log, sizeof(log), "%s-wal", w->path);
    assert_int_equal(stat(log, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    world_close(w);
    snprintf(path, sizeof(path), "%s/elsewhere", w->dir);
    assert_int_equal(rename(w->path, path), 0);
    assert_int_equal(symlink(path, w->path), 0);
    assert_int_equal(store_open(w->path, &w->limits, &w->store), -EBADMSG);
}

/* ---- the n-th failure ---- */

static int write_some(struct world *w)
{
    struct store *store = NULL;
    struct recorder *recorder = NULL;
    int r = store_open(w->path, &w->limits, &store);
    if (r == 0)
        r = recorder_new(1, 10, &recorder);
    for (uint64_t i = 0; r == 0 && i < 125; i++) {
        picture(w, T0 + i, 100, value_at(i));
        r = recorder_add(recorder, &w->sample);
        if (r == -EAGAIN && (r = recorder_flush(recorder, store, T0 + i)) == 0)
            r = recorder_add(recorder, &w->sample);
    }
    if (r == 0)
        r = recorder_flush(recorder, store, T0 + 240);
    recorder_free(recorder);
    store_free(store);
    return r;
}

static void every_failing_call_is_an_error_and_spoils_nothing(void **state)
{
    struct world *w = *state;
    char log[160];
    snprintf(log, sizeof(log), "%s-wal", w->path);
    picture(w, T0, 100, 1); /* its memory is there already */
    int nth = 0;
    for (; fault_arm(nth); nth++) {
        int r = write_some(w);
        fault_disarm();
        assert_true(r == 0 || fault_fired());
        assert_int_equal(write_some(w), 0);
        assert_int_equal(points_of(w, 0, 1, assert_second), 125);
        unlink(w->path);
        unlink(log);
    }
    assert_true(nth > 10);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(windows_close_into_chunks),
        TEST(coarser_tiers_keep_last_and_largest),
        TEST(what_is_too_old_goes_but_not_before_it_was_rolled_up),
        TEST(names_of_who_has_no_points_are_forgotten),
        TEST(next_writer_goes_on_with_the_same_series),
        TEST(killed_writer_loses_only_what_was_not_flushed),
        TEST(of_one_second_the_last_counts_and_an_earlier_one_is_not_lost),
        TEST(a_clock_that_was_ahead_for_a_while_stops_nothing),
        TEST(a_clock_that_is_years_ahead_costs_little),
        TEST(a_clock_that_is_years_ahead_for_seconds_costs_nothing),
        TEST(file_stays_below_its_limit_and_loses_the_oldest),
        TEST(full_disk_is_an_error_and_room_makes_it_go_on),
        TEST(every_failing_call_is_an_error_and_spoils_nothing),
        TEST(garbage_is_set_aside),
        TEST(foreign_database_is_set_aside),
        TEST(newer_version_is_set_aside),
        TEST(half_a_file_is_noticed),
        TEST(only_the_latest_two_are_kept_aside),
        TEST(nobody_else_may_read_it_and_no_link_is_followed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
