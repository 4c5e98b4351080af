/* Reading history while something fails, while a writer goes on, and from places where nothing can be written: an answer is
 * whole, or an error. */
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault.h"
#include "history_file.h"

enum { T0 = FILE_T0 };

/* ---- hooks into the reader's connection ---- */

/* What happens to connections that are opened while it is set. */
static struct {
    enum { NO_HOOK, STOP_AT_OPERATION, DENY_FROM, WRITE_AT_STATEMENT, TELL } kind;
    int left; /* how often nothing happens before */
    bool fired;
    struct file *file;
    sem_t opened;
} hook;

static bool due(void)
{
    if (hook.left-- > 0)
        return false;
    hook.fired = true;
    return true;
}

static int on_progress(void *unused)
{
    return !hook.fired && due();
}

static int on_authorize(void *unused, int action, const char *a, const char *b, const char *c,
                        const char *d)
{
    return hook.fired || due() ? SQLITE_DENY : SQLITE_OK;
}

static void write_state(struct file *f, int state);

static int on_statement(unsigned kind, void *unused, void *statement, void *sql)
{
    if (!hook.fired && due())
        write_state(hook.file, 2);
    return 0;
}

static int on_open(sqlite3 *db, char **error, const void *api)
{
    if (hook.kind == STOP_AT_OPERATION)
        sqlite3_progress_handler(db, 1, on_progress, NULL);
    else if (hook.kind == DENY_FROM)
        sqlite3_set_authorizer(db, on_authorize, NULL);
    else if (hook.kind == WRITE_AT_STATEMENT)
        sqlite3_trace_v2(db, SQLITE_TRACE_STMT, on_statement, NULL);
    else if (hook.kind == TELL)
        sem_post(&hook.opened);
    return SQLITE_OK;
}

static void hook_set(int kind, int left, struct file *file)
{
    hook.kind = kind;
    hook.left = left;
    hook.fired = false;
    hook.file = file;
}

/* ---- a file with something in every tier ---- */

/* Two series whose values are all `state`. In the first state a window of seconds is not closed yet, in the second it is. */
static void write_state(struct file *f, int state)
{
    static const unsigned tiers[2][4] = {{2, 1, 0, FILE_RECENT}, {2, 1, 0, 0}};
    static const uint64_t times[4] = {T0 - 60, T0, T0 + 1200, T0 + 1320};
    file_run(f, "BEGIN; DELETE FROM chunk0; DELETE FROM chunk1; DELETE FROM chunk2; "
                "DELETE FROM recent; UPDATE tier SET closed=0");
    for (int64_t series = 1; series <= 2; series++)
        for (int i = 0; i < 4; i++)
            file_put(f, tiers[state - 1][i], series, times[i], (uint64_t)state, (uint64_t)state);
    file_run(f, "COMMIT");
}

static int setup(void **state)
{
    hook_set(NO_HOOK, 0, NULL);
    file_setup(state);
    struct file *f = *state;
    for (int i = 0; i < 2; i++)
        file_series(f, file_process(f, (struct file_process){.pid = 5, .exec = i, .uid = 3}), 0,
                    i ? 0 : 1, i ? HISTORY_RSS : HISTORY_BYTES);
    write_state(f, 1);
    return 0;
}

static const struct read_query question = {
    .since_s = T0 - 60, .until_s = T0 + 1380, .step_s = 60, .by = READ_BY_PROCESS, .pid = 5};

/* Read, and check that the answer is whole: all of one state. */
static int read_whole(struct file *f, uint64_t *ret_state)
{
    struct read_result result = {0};
    uint64_t state = 0;
    int r = read_history(f->path, &question, &result);
    if (r < 0) {
        assert_null(result.lines);
        return r;
    }
    assert_int_equal(result.n_lines, 2);
    assert_true(result.pid_known);
    assert_int_equal(result.oldest_s, T0 - 7200);
    assert_int_equal(result.damaged, 0);
    for (size_t i = 0; i < 2; i++) {
        size_t n = 0;
        state = result.lines[0].last;
        for (size_t k = 0; k < result.n_steps; k++) {
            if (!result.lines[i].points[k].present)
                continue;
            assert_int_equal(result.lines[i].points[k].last, state);
            n++;
        }
        assert_int_equal(n, 4);
    }
    *ret_state = state;
    read_release(&result);
    return 0;
}

static void every_failed_operation_is_an_error(void **state)
{
    uint64_t of = 0;
    int nth = 0;
    do {
        hook_set(STOP_AT_OPERATION, nth++, NULL);
        int r = read_whole(*state, &of);
        assert_int_equal(r < 0, hook.fired);
        if (hook.fired)
            assert_int_equal(r, -EINVAL); /* interrupted */
    } while (hook.fired);
    assert_in_range(nth, 30, 100000);
    do { /* the same where only the step is asked for */
        uint64_t step_s = 0;
        struct read_query query = question;
        query.step_s = 1;
        hook_set(STOP_AT_OPERATION, nth++, NULL);
        int r = read_history_step(((struct file *)*state)->path, &query, &step_s);
        assert_int_equal(r, hook.fired ? -EINVAL : 0);
        assert_int_equal(step_s, hook.fired ? 0 : 60);
        nth -= nth > 100000 ? nth : 0;
    } while (hook.fired);
}

static void every_statement_that_is_refused_is_an_error(void **state)
{
    uint64_t of = 0;
    int nth = 0;
    do {
        hook_set(DENY_FROM, nth++, NULL);
        int r = read_whole(*state, &of);
        assert_true(hook.fired ? r == -EACCES || r == -EBADMSG : r == 0);
    } while (hook.fired);
    assert_in_range(nth, 30, 100000);
}

static void an_answer_is_of_one_moment_while_a_writer_goes_on(void **state)
{
    struct file *f = *state;
    uint64_t of = 0;
    int nth = 0;
    do {
        hook_set(NO_HOOK, 0, NULL);
        write_state(f, 1);
        hook_set(WRITE_AT_STATEMENT, nth++, f);
        assert_int_equal(read_whole(f, &of), 0);
        assert_in_range(of, 1, 2);
    } while (hook.fired);
    assert_in_range(nth, 10, 1000);
}

static void want_of_memory_is_an_error(void **state)
{
    uint64_t of = 0;
    for (int nth = 0; fault_arm(nth); nth++) {
        int r = read_whole(*state, &of);
        fault_disarm();
        assert_int_equal(r, fault_fired() ? -ENOMEM : 0);
    }
}

/* ---- places ---- */

static void *hold(void *context)
{
    sqlite3 *db = context;
    sem_wait(&hook.opened); /* the reader is about to meet the lock */
    usleep(20000);
    sqlite3_close(db);
    return NULL;
}

static void a_locked_file_is_waited_for(void **state)
{
    struct file *f = *state;
    sqlite3 *db = NULL;
    pthread_t thread;
    uint64_t of = 0;
    sqlite3_close(f->db);
    f->db = NULL;
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db,
                                  "PRAGMA locking_mode=EXCLUSIVE; UPDATE tier SET closed=closed",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sem_init(&hook.opened, 0, 0);
    hook_set(TELL, 0, NULL);
    assert_int_equal(pthread_create(&thread, NULL, hold, db), 0);
    assert_int_equal(read_whole(f, &of), 0);
    assert_int_equal(of, 1);
    pthread_join(thread, NULL);
}

/* A name that an URI would take apart, in a directory where no log can be made. */
static void a_file_where_nothing_can_be_written_is_read_as_it_is(void **state)
{
    struct file *f = *state, odd = *f;
    char command[512];
    uint64_t of = 0;
    sqlite3_close(f->db);
    f->db = NULL;
    snprintf(odd.path, sizeof(odd.path), "%s/100%%41?mode=rw#x", f->dir);
    snprintf(command, sizeof(command), "mv '%s' '%s' && chmod 0644 '%s' && chmod 0555 '%s'",
             f->path, odd.path, odd.path, f->dir);
    assert_int_equal(system(command), 0);
    bool root = geteuid() == 0;
    if (root && seteuid(65534) < 0)
        skip();
    int r = read_whole(&odd, &of);
    if (root)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(f->dir, 0755), 0);
    assert_int_equal(r, 0);
    assert_int_equal(of, 1);
    snprintf(command, sizeof(command), "test $(ls '%s' | wc -l) = 1", f->dir);
    assert_int_equal(system(command), 0);
}

/* The child's status: 0, or the number of what went wrong; 100: it has no rights to mount. */
static int read_mounted(struct file *f)
{
    uint64_t of = 0;
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount(f->dir, f->dir, NULL, MS_BIND, NULL) < 0 ||
        mount(NULL, f->dir, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) < 0)
        return 100;
    return read_whole(f, &of) == 0 && of == 1 ? 0 : 1;
}

static void a_file_on_a_read_only_disk_is_read_as_it_is(void **state)
{
    struct file *f = *state;
    int status = 0;
    sqlite3_close(f->db);
    f->db = NULL;
    pid_t child = fork();
    if (child == 0)
        _exit(read_mounted(f));
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 100)
        skip();
    assert_int_equal(status, 0);
}

static unsigned open_files(void)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* A statement that is not ended keeps the file open. */
static void reading_leaves_no_file_open(void **state)
{
    struct file *f = *state;
    uint64_t of = 0, step_s;
    sqlite3_close(f->db); /* SQLite keeps files open for others of the process */
    f->db = NULL;
    unsigned before = open_files();
    assert_int_equal(read_whole(f, &of), 0);
    assert_int_equal(open_files(), before);
    assert_int_equal(read_history_step(f->path, &question, &step_s), 0);
    assert_int_equal(open_files(), before);
    for (int nth = 0; nth < 200; nth += 10) {
        hook_set(STOP_AT_OPERATION, nth, NULL);
        (void)read_whole(f, &of);
        assert_int_equal(open_files(), before);
    }
}

static void a_file_that_may_not_be_read_is_an_error(void **state)
{
    struct file *f = *state;
    uint64_t of = 0;
    assert_int_equal(chmod(f->path, 0), 0);
    assert_int_equal(chmod(f->dir, 0755), 0);
    bool root = geteuid() == 0;
    if (root && seteuid(65534) < 0)
        skip();
    int r = read_whole(f, &of);
    if (root)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(r, -EACCES);
}

static void what_is_no_history_is_told_apart_from_none(void **state)
{
    struct file *f = *state, other = *f;
    uint64_t of = 0;
    snprintf(other.path, sizeof(other.path), "%s/none", f->dir);
    assert_int_equal(read_whole(&other, &of), -ENOENT);
    FILE *file = fopen(other.path, "we"); /* being begun */
    assert_int_equal(read_whole(&other, &of), -ENOENT);
    for (int i = 0; i < 2000; i++)
        fputc('x', file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(read_whole(&other, &of), -EBADMSG);
    snprintf(other.path, sizeof(other.path), "%s", f->dir);
    assert_true(read_whole(&other, &of) < 0);
    memset(other.path, 'x', sizeof(other.path) - 1);
    other.path[sizeof(other.path) - 1] = '\0';
    assert_int_equal(read_whole(&other, &of), -ENOENT);
    char longest[4 * STORE_PATH_MAX];
    struct read_result result = {0};
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    assert_true(read_history(longest, &question, &result) < 0);
    file_run(f, "DROP TABLE recent");
    assert_int_equal(read_whole(f, &of), -EBADMSG);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, file_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_failed_operation_is_an_error),
        TEST(every_statement_that_is_refused_is_an_error),
        TEST(an_answer_is_of_one_moment_while_a_writer_goes_on),
        TEST(want_of_memory_is_an_error),
        TEST(a_locked_file_is_waited_for),
        TEST(a_file_where_nothing_can_be_written_is_read_as_it_is),
        TEST(a_file_on_a_read_only_disk_is_read_as_it_is),
        TEST(reading_leaves_no_file_open),
        TEST(a_file_that_may_not_be_read_is_an_error),
        TEST(what_is_no_history_is_told_apart_from_none),
    };
    sqlite3_auto_extension((void (*)(void))on_open);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
