/* Sweeping: books of the dead that stand among books of the living. */
#include "book/sweep.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "book/layout.h"
#include "check.h"

enum {
    LIVING = 99,
    BOOKS = LIVING + 1,
    CANDIDATES = 40 * BOOKS,
    SWEEPS = 1000, /* each sees 8 of 100: to miss one is once in 10^36 */
};

struct place {
    char path[64];
    int directory;
    int locks[LIVING]; /* who holds one lives */
    int n;
};

static void place_init(struct place *place)
{
    *place = (struct place){0};
    snprintf(place->path, sizeof(place->path), "/dev/shm/memoir-test-sweep-XXXXXX");
    assert_non_null(mkdtemp(place->path));
    place->directory = open(place->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(place->directory >= 0);
}

static void book_path(const struct place *place, int pid, char path[128])
{
    snprintf(path, 128, "%s/%d-1-1-0000000000000001.book", place->path, pid);
}

static int book_make(const struct place *place, int pid, ino_t *ret_ino)
{
    char path[128];
    struct stat st;
    book_path(place, pid, path);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    *ret_ino = st.st_ino;
    return fd;
}

static void book_remove(const struct place *place, int pid)
{
    char path[128];
    book_path(place, pid, path);
    unlink(path);
}

static bool book_there(const struct place *place, int pid)
{
    char path[128];
    book_path(place, pid, path);
    return access(path, F_OK) == 0;
}

/* Who was killed while he made his book: an empty file, too old to be in the making. */
static ino_t make_stillborn(const struct place *place, int pid)
{
    ino_t ino;
    int fd = book_make(place, pid, &ino);
    struct timespec old = {.tv_sec = time(NULL) - 60};
    assert_int_equal(futimens(fd, (struct timespec[]){old, old}), 0);
    close(fd);
    return ino;
}

/* Books of the living, as many as there is room for, whose inodes fall `near` that of another when counted
 * around in circles of BOOKS. Processes that come and go leave such patterns by chance. */
static void make_living(struct place *place, ino_t ino, ino_t near)
{
    for (int pid = 1000; pid < 1000 + CANDIDATES && place->n < LIVING; pid++) {
        ino_t own;
        int fd = book_make(place, pid, &own);
        if ((own - ino + near) % BOOKS <= 2 * near && flock(fd, LOCK_EX | LOCK_NB) == 0) {
            place->locks[place->n++] = fd;
            continue;
        }
        close(fd);
        book_remove(place, pid);
    }
}

static void place_release(struct place *place)
{
    for (int i = 0; i < place->n; i++)
        close(place->locks[i]);
    for (int pid = 1; pid < 1000 + CANDIDATES; pid++)
        book_remove(place, pid);
    close(place->directory);
    assert_int_equal(rmdir(place->path), 0);
}

static void sweep(const struct place *place, int times)
{
    struct book_header self = {.pid = 1, .start_ticks = 1, .pid_ns = 1, .source = 1};
    for (int i = 0; i < times; i++) {
        self.hash_seed = hash_combine(4711, (uint64_t)i);
        lseek(place->directory, 0, SEEK_SET);
        book_sweep(place->directory, &self);
    }
}

static void stillborn_goes_whatever_the_inodes_of_the_living(void **unused)
{
    struct place place;
    place_init(&place);
    ino_t ino = make_stillborn(&place, 2);
    make_living(&place, ino, 12);
    assert_int_equal(place.n, LIVING);
    sweep(&place, SWEEPS);
    assert_false(book_there(&place, 2));
    place_release(&place);
}

static void stillborn_goes_wherever_it_stands(void **unused)
{
    struct place place;
    place_init(&place);
    for (int pid = 2; pid < 102; pid++)
        make_stillborn(&place, pid);
    make_living(&place, 0, BOOKS);
    sweep(&place, SWEEPS);
    for (int pid = 2; pid < 102; pid++)
        assert_false(book_there(&place, pid));
    place_release(&place);
}

static void stillborn_of_many_directories_full_goes(void **unused)
{
    struct place place;
    place_init(&place);
    int dead[] = {2, 3, 4, 5};
    for (size_t i = 0; i < sizeof(dead) / sizeof(dead[0]); i++)
        make_stillborn(&place, dead[i]);
    ino_t ino;
    for (int pid = 1000; pid < 1000 + 900; pid++) { /* young: may be in the making */
        int fd = book_make(&place, pid, &ino);
        close(fd);
    }
    sweep(&place, SWEEPS);
    for (size_t i = 0; i < sizeof(dead) / sizeof(dead[0]); i++)
        assert_false(book_there(&place, dead[i]));
    for (int pid = 1000; pid < 1000 + 900; pid++)
        assert_true(book_there(&place, pid));
    place_release(&place);
}

static void one_in_the_making_stays(void **unused)
{
    struct place place;
    place_init(&place);
    ino_t ino;
    int locked = book_make(&place, 2, &ino);
    assert_int_equal(flock(locked, LOCK_EX), 0);
    struct timespec old = {.tv_sec = time(NULL) - 7200};
    assert_int_equal(futimens(locked, (struct timespec[]){old, old}), 0);
    int young = book_make(&place, 3, &ino);
    sweep(&place, 10);
    assert_true(book_there(&place, 2));
    assert_true(book_there(&place, 3));
    close(locked);
    close(young);
    place_release(&place);
}

/* A book whose writer died so many seconds ago. */
static void make_dead(const struct place *place, int pid, uint32_t incompat, time_t age)
{
    ino_t ino;
    struct book_header header = {
        .incompat = incompat, .pid = pid, .pid_ns = 1, .start_ticks = 1, .source = 1};
    memcpy(header.magic, BOOK_MAGIC, sizeof(header.magic));
    int fd = book_make(place, pid, &ino);
    assert_int_equal(write(fd, &header, sizeof(header)), sizeof(header));
    struct timespec old = {.tv_sec = time(NULL) - age};
    assert_int_equal(futimens(fd, (struct timespec[]){old, old}), 0);
    close(fd);
}

static void book_of_a_later_version_is_left_alone_for_a_day(void **unused)
{
    struct place place;
    place_init(&place);
    make_dead(&place, 1, 1u << 31, 7200); /* the sweeper's own number: an earlier image, else */
    make_dead(&place, 2, 1u << 31, 7200);
    make_dead(&place, 3, 1u << 31, 2 * 86400);
    make_dead(&place, 4, 0, 7200);
    sweep(&place, 10);
    assert_true(book_there(&place, 1));
    assert_true(book_there(&place, 2));
    assert_false(book_there(&place, 3));
    assert_false(book_there(&place, 4));
    /* Nor is it taken for an earlier image of the sweeper: where it counts them is not known. */
    struct book_header self = {.pid = 1, .start_ticks = 1, .pid_ns = 1, .source = 1};
    lseek(place.directory, 0, SEEK_SET);
    assert_int_equal(book_sweep(place.directory, &self), 0);
    for (int pid = 10; pid < 110; pid++) /* too many */
        make_dead(&place, pid, 0, 7200);
    sweep(&place, 200);
    assert_true(book_there(&place, 2));
    place_release(&place);
}

/* A dead book that a daemon in this PID namespace has marked. */
static void make_watched(const struct place *place, int pid, uint64_t pid_ns, pid_t daemon,
                         time_t age)
{
    char path[128];
    struct book_header header = {.pid = pid, .pid_ns = 1, .start_ticks = 1, .source = 1};
    struct book_control control = {
        .flags = BOOK_CONTROL_WATCHED,
        .watchers = {{.pid = daemon, .flags = BOOK_CONTROL_WATCHED, .pid_ns = pid_ns}}};
    make_dead(place, pid, 0, age);
    book_path(place, pid, path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    memcpy(header.magic, BOOK_MAGIC, sizeof(header.magic));
    header.sections[0] = (struct book_section){.kind = BOOK_SECTION_CONTROL, .offset = 8192};
    assert_int_equal(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
    assert_int_equal(pwrite(fd, &control, sizeof(control), 8192), sizeof(control));
    struct timespec old = {.tv_sec = time(NULL) - age};
    assert_int_equal(futimens(fd, (struct timespec[]){old, old}), 0);
    close(fd);
}

static void watched_book_stays_while_its_daemon_may_live(void **unused)
{
    enum { HOURS_2 = 7200, DAYS_2 = 2 * 86400, NO_PID = (1 << 22) + 1 };
    struct place place;
    place_init(&place);
    make_watched(&place, 2, 1, getpid(), DAYS_2);  /* it lives */
    make_watched(&place, 3, 1, NO_PID, HOURS_2);   /* it is dead */
    make_watched(&place, 4, 9, getpid(), HOURS_2); /* of another namespace: not known */
    make_watched(&place, 5, 9, getpid(), DAYS_2);  /* it would have retired the book by now */
    sweep(&place, 10);
    assert_true(book_there(&place, 2));
    assert_false(book_there(&place, 3));
    assert_true(book_there(&place, 4));
    assert_false(book_there(&place, 5));
    place_release(&place);
}

static void sweeping_nothing_is_fine(void **unused)
{
    struct place place;
    place_init(&place);
    sweep(&place, 3);
    place_release(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stillborn_goes_whatever_the_inodes_of_the_living),
        cmocka_unit_test(stillborn_goes_wherever_it_stands),
        cmocka_unit_test(stillborn_of_many_directories_full_goes),
        cmocka_unit_test(one_in_the_making_stays),
        cmocka_unit_test(book_of_a_later_version_is_left_alone_for_a_day),
        cmocka_unit_test(watched_book_stays_while_its_daemon_may_live),
        cmocka_unit_test(sweeping_nothing_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
