/* Where books are looked for, and what in those places is not even opened. */
#include "book/finder.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "book/reader.h"
#include "book_builder.h"
#include "check.h"

enum { SOMEBODY = 12345, NOBODY = 65534, TRIES = 100 };

static char root[64];

static int run(const char *format, const char *argument)
{
    char command[512];
    snprintf(command, sizeof(command), format, argument);
    return system(command);
}

static int enter(void **unused)
{
    unsetenv("MEMOIR_DIR");
    unsetenv("XDG_RUNTIME_DIR");
    strcpy(root, "/dev/shm/memoir-test-finder-XXXXXX");
    return mkdtemp(root) && chmod(root, 0755) == 0 ? 0 : -1;
}

static int leave(void **unused)
{
    return run("rm -rf '%s'", root);
}

static const char *below(const char *name)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    return path;
}

static void make_dir(const char *name, uid_t owner, mode_t mode)
{
    const char *path = below(name);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chmod(path, mode), 0);
    if (geteuid() == 0)
        assert_int_equal(chown(path, owner, (gid_t)-1), 0);
}

static void make_book(const char *path, uid_t owner, uint32_t compat)
{
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    struct book_builder b;
    builder_sample(&b, fd);
    b.h.compat = compat;
    builder_header(&b);
    if (geteuid() == 0)
        assert_int_equal(fchown(fd, owner, (gid_t)-1), 0);
}

static bool has_place(const struct book_places *places, const char *path, uint32_t uid)
{
    for (size_t i = 0; i < places->n; i++)
        if (strcmp(places->places[i].path, path) == 0 && places->places[i].uid == uid)
            return true;
    return false;
}

/* Most rules are about other people's files, which only root can make. */
static void needs_root(void)
{
    if (geteuid() != 0)
        skip();
}

/* ---- places ---- */

static void places_are_directories_named_after_their_uid(void **unused)
{
    needs_root();
    make_dir("0", 0, 0700);
    make_dir("12345", SOMEBODY, 0700);
    make_dir("12346", 0, 0755);        /* root keeps it for him */
    make_dir("12347", SOMEBODY, 0700); /* squatted */
    make_dir("12348", 12348, 0720);    /* his group may write */
    make_dir("12349", 12349, 0702);    /* everybody may write */
    make_dir("012350", 12350, 0700);   /* not how we write it */
    make_dir("4294967295", 0, 0700);   /* no uid */
    make_dir("99999999999", 0, 0700);
    make_dir("ann", 0, 0700);
    assert_int_equal(symlink("12345", below("12351")), 0);
    assert_int_equal(mkfifo(below("12352"), 0600), 0);
    struct book_places places;
    assert_int_equal(book_places_find(root, &places), 0);
    assert_int_equal(places.n, 3);
    assert_true(has_place(&places, below("0"), 0));
    assert_true(has_place(&places, below("12345"), SOMEBODY));
    assert_true(has_place(&places, below("12346"), 12346));
    book_places_release(&places);
}

static void place_must_lie_in_memory(void **unused)
{
    char dir[] = "/var/tmp/memoir-test-XXXXXX", own[64];
    assert_non_null(mkdtemp(dir));
    snprintf(own, sizeof(own), "%s/%u", dir, geteuid());
    assert_int_equal(mkdir(own, 0700), 0);
    MEMOIR_CLEANUP(closep)
    int fd = open(dir, O_RDONLY | O_DIRECTORY);
    bool memory = fs_is_tmpfs(fd) == 1;
    struct book_places places;
    int r = book_places_find(dir, &places);
    run("rm -rf '%s'", dir);
    assert_int_equal(r, 0);
    assert_int_equal(places.n, memory ? 1 : 0);
    book_places_release(&places);
}

static void environment_names_the_directory(void **unused)
{
    char own[32];
    snprintf(own, sizeof(own), "%u", geteuid());
    mkdir(below(own), 0700);
    setenv("MEMOIR_DIR", root, 1);
    struct book_places places;
    assert_int_equal(book_places_find(NULL, &places), 0);
    unsetenv("MEMOIR_DIR");
    assert_true(has_place(&places, below(own), geteuid()));
    for (size_t i = 0; i < places.n; i++)
        assert_memory_equal(places.places[i].path, root, strlen(root));
    book_places_release(&places);
}

static void runtime_directory_is_a_usual_place(void **unused)
{
    assert_int_equal(mkdir(below("memoir"), 0700), 0);
    setenv("XDG_RUNTIME_DIR", root, 1);
    struct book_places places, roots;
    assert_int_equal(book_places_find(NULL, &places), 0);
    assert_int_equal(book_roots_find(NULL, &roots), 0);
    unsetenv("XDG_RUNTIME_DIR");
    assert_true(has_place(&places, below("memoir"), geteuid()));
    assert_true(has_place(&roots, root, geteuid()));
    assert_true(has_place(&roots, "/dev/shm", 0));
    book_places_release(&places);
    book_places_release(&roots);
}

static void directories_in_shm_are_usual_places(void **unused)
{
    needs_root();
    const char *path = "/dev/shm/memoir-54321", *trap = "/dev/shm/memoir-54322";
    mkdir(path, 0700);
    mkdir(trap, 0700);
    assert_int_equal(chown(path, 54321, (gid_t)-1), 0);
    assert_int_equal(chown(trap, 54321, (gid_t)-1), 0);
    struct book_places places;
    int r = book_places_find(NULL, &places);
    rmdir(path);
    rmdir(trap);
    assert_int_equal(r, 0);
    assert_true(has_place(&places, path, 54321));
    assert_false(has_place(&places, trap, 54322));
    book_places_release(&places);
}

static void users_look_at_their_own_places_only(void **unused)
{
    needs_root();
    make_dir("0", 0, 0755);
    make_dir("65534", NOBODY, 0700);
    pid_t pid = fork();
    if (pid == 0) {
        struct book_places places;
        if (setgid(NOBODY) < 0 || setuid(NOBODY) < 0 || book_places_find(root, &places) < 0)
            _exit(1);
        _exit(places.n == 1 && places.places[0].uid == NOBODY ? 0 : 2);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void roots_of_a_directory_are_itself(void **unused)
{
    struct book_places roots;
    assert_int_equal(book_roots_find(root, &roots), 0);
    assert_int_equal(roots.n, 1);
    assert_string_equal(roots.places[0].path, root);
    book_places_release(&roots);
    assert_int_equal(book_roots_find(below("missing"), &roots), 0);
    assert_int_equal(roots.n, 0);
    book_places_release(&roots);
}

/* ---- scans ---- */

struct names {
    char list[8][64];
    size_t n;
    int stop;
    bool remove;
};

static int note_name(int dirfd, const char *name, void *context)
{
    struct names *names = context;
    if (names->n < 8)
        snprintf(names->list[names->n], sizeof(names->list[0]), "%s", name);
    names->n++;
    if (names->remove)
        assert_int_equal(unlinkat(dirfd, name, 0), 0);
    return names->stop;
}

static struct book_place own_place(void)
{
    struct book_place place = {.uid = geteuid()};
    snprintf(place.path, sizeof(place.path), "%s/%u", root, geteuid());
    mkdir(place.path, 0700);
    return place;
}

static void scan_offers_regular_files_of_the_owner(void **unused)
{
    struct book_place place = own_place();
    assert_int_equal(chdir(place.path), 0);
    make_book("1-2-1-a.book", geteuid(), 0);
    make_book("1-2-1-a.book.tmp", geteuid(), 0);
    make_book(".book", geteuid(), 0);
    assert_int_equal(symlink("1-2-1-a.book", "link.book"), 0);
    assert_int_equal(mkfifo("fifo.book", 0600), 0);
    assert_int_equal(mkdir("directory.book", 0700), 0);
    if (geteuid() == 0)
        make_book("other.book", SOMEBODY, 0);
    struct names names = {0};
    size_t skipped = 99;
    assert_int_equal(book_place_scan(&place, 10, note_name, &names, &skipped), 0);
    assert_int_equal(names.n, 1);
    assert_string_equal(names.list[0], "1-2-1-a.book");
    assert_int_equal(skipped, 0);
    assert_int_equal(chdir("/"), 0);
}

static void scan_ends_when_told(void **unused)
{
    struct book_place place = own_place();
    assert_int_equal(chdir(place.path), 0);
    make_book("1.book", geteuid(), 0);
    make_book("2.book", geteuid(), 0);
    assert_int_equal(chdir("/"), 0);
    struct names names = {.stop = -ECANCELED};
    assert_int_equal(book_place_scan(&place, 10, note_name, &names, NULL), -ECANCELED);
    assert_int_equal(names.n, 1);
}

static void scan_judges_the_directory_again(void **unused)
{
    struct book_place place = own_place();
    struct names names = {0};
    assert_int_equal(chmod(place.path, 0777), 0);
    assert_int_equal(book_place_scan(&place, 10, note_name, &names, NULL), -EPERM);
    assert_int_equal(chmod(place.path, 0700), 0);
    assert_int_equal(rename(place.path, below("moved")), 0);
    assert_int_equal(symlink("moved", place.path), 0);
    assert_true(book_place_scan(&place, 10, note_name, &names, NULL) < 0);
    assert_int_equal(unlink(place.path), 0);
    assert_int_equal(book_place_scan(&place, 10, note_name, &names, NULL), -ENOENT);
}

static void scan_stands_a_hundred_thousand_files(void **unused)
{
    struct book_place place = own_place();
    assert_int_equal(chdir(place.path), 0);
    for (int i = 0; i < 100000; i++) {
        char name[32];
        snprintf(name, sizeof(name), "%d.book", i);
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        close(fd);
    }
    assert_int_equal(chdir("/"), 0);
    struct names names = {0};
    size_t skipped;
    assert_int_equal(book_place_scan(&place, 1000, note_name, &names, &skipped), 0);
    assert_int_equal(names.n, 1000);
    assert_int_equal(skipped, 99000);
    names = (struct names){.remove = true};
    assert_int_equal(book_place_scan(&place, SIZE_MAX, note_name, &names, &skipped), 0);
    assert_int_equal(names.n, 100000);
    assert_int_equal(rmdir(place.path), 0);
}

/* ---- opening ---- */

static int open_in(const struct book_place *place, const char *name, bool with_fd)
{
    MEMOIR_CLEANUP(closep)
    int dir = open(place->path, O_RDONLY | O_DIRECTORY);
    MEMOIR_CLEANUP(closep)
    int fd = -1;
    MEMOIR_CLEANUP(book_reader_freep)
    struct book_reader *reader = NULL;
    int r = book_place_open_reader(place, dir, name, &reader, with_fd ? &fd : NULL);
    assert_true((r == 0) == (reader != NULL));
    assert_true((r == 0 && with_fd) == (fd >= 0));
    return r;
}

static void owner_of_a_book_must_fit_its_place(void **unused)
{
    needs_root();
    make_dir("12345", SOMEBODY, 0700);
    struct book_place place = {.uid = SOMEBODY};
    strcpy(place.path, below("12345"));
    make_book(below("12345/his.book"), SOMEBODY, 0);
    make_book(below("12345/others.book"), NOBODY, 0);
    make_book(below("12345/pretender.book"), NOBODY, BOOK_COMPAT_ON_BEHALF);
    make_book(below("12345/roots.book"), 0, 0);
    make_book(below("12345/behalf.book"), 0, BOOK_COMPAT_ON_BEHALF);
    assert_int_equal(mkfifo(below("12345/fifo.book"), 0600), 0);
    assert_int_equal(symlink("his.book", below("12345/link.book")), 0);
    assert_int_equal(open_in(&place, "his.book", true), 0);
    assert_int_equal(open_in(&place, "his.book", false), 0);
    assert_int_equal(open_in(&place, "others.book", true), -EPERM);
    assert_int_equal(open_in(&place, "pretender.book", true), -EPERM);
    assert_int_equal(open_in(&place, "roots.book", true), -EPERM);
    assert_int_equal(open_in(&place, "behalf.book", true), 0);
    assert_int_equal(open_in(&place, "fifo.book", true), -EBADMSG);
    assert_int_equal(open_in(&place, "link.book", true), -ELOOP);
    assert_int_equal(open_in(&place, "../x.book", true), -EINVAL);
    assert_int_equal(open_in(&place, "", true), -EINVAL);
}

static void another_users_book_cannot_be_opened(void **unused)
{
    needs_root();
    make_dir("0", 0, 0755);
    make_book(below("0/secret.book"), 0, 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct book_reader *reader = NULL;
        int dir = open(below("0"), O_RDONLY | O_DIRECTORY);
        if (setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
            _exit(1);
        _exit(book_reader_open(dir, "secret.book", &reader) == -EACCES ? 0 : 2);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void names_of_books(void **unused)
{
    assert_true(book_name_check("4242-123456-1-9f3ac2.book"));
    assert_true(book_name_check("1-2-malloc-x0.book"));
    static const char *const others[] = {"",
                                         ".book",
                                         "1-2-3.book",
                                         "a-2-1-f.book",
                                         "1--1-f.book",
                                         "1-2-1-f.book ",
                                         "1-2-1-f.boo",
                                         "1-2-1-.book",
                                         "-1-2-1-f.book",
                                         "1-2-1-F.book",
                                         "1-2-1-f-3.book"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_false(book_name_check(others[i]));
}

/* ---- other mount namespaces ---- */

struct foreign {
    uint64_t inode; /* the book to look for */
    int pid;
    size_t found;
    int answer;
};

static int note_foreign(int fd, int pid, const char *map_path, void *context)
{
    struct foreign *f = context;
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    assert_true(S_ISREG(st.st_mode));
    assert_int_not_equal(pid, getpid()); /* its books are found by their path */
    if (st.st_ino != f->inode || pid != f->pid)
        return 0; /* of a container on this machine */
    MEMOIR_CLEANUP(book_reader_freep)
    struct book_reader *reader = NULL;
    assert_int_equal(book_reader_open_fd(fd, &reader), 0);
    assert_int_equal(book_reader_identity(reader)->pid, 4242);
    assert_non_null(strstr(map_path, "4242-123456-1-abc.book"));
    f->found++;
    return f->answer;
}

/* A container in small: its own mounts, a tmpfs that nobody else sees, a mapped book in it. */
static void container(int report)
{
    struct stat st = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* should the test fail before it ends this */
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", root, "tmpfs", 0, NULL) < 0 || chdir(root) < 0)
        goto out;
    make_book("4242-123456-1-abc.book", 0, 0);
    make_book("ordinary.dat", 0, 0);
    mknod("1-1-1-a.book", S_IFCHR | 0600, makedev(1, 5)); /* /dev/zero */
    static const char *const names[] = {"4242-123456-1-abc.book", "ordinary.dat", "1-1-1-a.book"};
    for (int i = 2; i >= 0; i--) {
        int fd = open(names[i], O_RDWR);
        fstat(fd, &st);
        if (mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED)
            st.st_ino = 0;
        close(fd);
    }
out:
    if (write(report, &st.st_ino, sizeof(st.st_ino)) < 0)
        _exit(1);
    pause();
}

static void books_of_containers_are_found_by_their_mappings(void **unused)
{
    needs_root();
    int report[2];
    assert_int_equal(pipe(report), 0);
    struct foreign f = {.pid = fork()};
    if (f.pid == 0) {
        container(report[1]);
        _exit(0);
    }
    assert_int_equal(read(report[0], &f.inode, 8), 8);
    make_book(below("1-1-1-b.book"), 0, 0);
    MEMOIR_CLEANUP(closep)
    int own_fd = open(below("1-1-1-b.book"), O_RDONLY);
    void *own = mmap(NULL, 4096, PROT_READ, MAP_SHARED, own_fd, 0);
    assert_ptr_not_equal(own, MAP_FAILED);
    struct book_seen *seen = NULL;
    assert_int_equal(book_seen_new(&seen), 0);
    if (f.inode) { /* else mounting is not allowed here */
        /* A look that was interrupted for long is taken for a slow one, and not soon repeated: then anew. */
        for (int tries = 0; tries == 0 || (f.found < 4 && tries < TRIES); tries++) {
            book_seen_free(seen);
            assert_int_equal(book_seen_new(&seen), 0);
            f.found = 0;
            f.answer = -EAGAIN;
            for (int i = 0; i < 5; i++) /* not ready: offered at every second scan */
                assert_int_equal(book_foreign_scan(seen, note_foreign, &f), 0);
            assert_in_range(f.found, 1, 3);
            f.answer = 0;
            for (int i = 0; i < 10; i++) /* once more, and then no more */
                assert_int_equal(book_foreign_scan(seen, note_foreign, &f), 0);
        }
        assert_int_equal(f.found, 4);
        f.found = 0;
        book_seen_free(seen);
        assert_int_equal(book_seen_new(&seen), 0);
        f.answer = 1; /* ends the scan, and is offered again */
        assert_int_equal(book_foreign_scan(seen, note_foreign, &f), 1);
        assert_int_equal(book_foreign_scan(seen, note_foreign, &f), 1);
        assert_int_equal(f.found, 2);
    }
    book_seen_free(seen);
    munmap(own, 4096);
    kill(f.pid, SIGKILL);
    waitpid(f.pid, NULL, 0);
    close(report[0]);
    close(report[1]);
    if (!f.inode)
        skip();
}

static void only_root_looks_into_containers(void **unused)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct book_seen *seen = NULL;
        if (geteuid() == 0 && setuid(NOBODY) < 0)
            _exit(1);
        _exit(book_seen_new(&seen) == 0 && book_foreign_scan(seen, NULL, NULL) == -EPERM ? 0 : 2);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, enter, leave)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(places_are_directories_named_after_their_uid),
        T(place_must_lie_in_memory),
        T(environment_names_the_directory),
        T(runtime_directory_is_a_usual_place),
        T(directories_in_shm_are_usual_places),
        T(users_look_at_their_own_places_only),
        T(roots_of_a_directory_are_itself),
        T(scan_offers_regular_files_of_the_owner),
        T(scan_ends_when_told),
        T(scan_judges_the_directory_again),
        T(scan_stands_a_hundred_thousand_files),
        T(owner_of_a_book_must_fit_its_place),
        T(another_users_book_cannot_be_opened),
        T(names_of_books),
        T(books_of_containers_are_found_by_their_mappings),
        T(only_root_looks_into_containers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
