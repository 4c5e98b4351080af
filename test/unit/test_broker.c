/* The broker: what it opens for whom, and what a user can do to it. As root only, since nobody else has one. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "daemon/broker.h"
#include "daemon/broker_account.h"
#include "daemon/heap_ages.h"

enum { NOBODY = 65534, STRANGER = 65533, SKIPPED = 77 };

static char dir[64];

/* In a process of its own, since starting a broker gives up rights for good. */
#define NEED(what)                                                             \
    do {                                                                       \
        if (!(what)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
            return 1;                                                          \
        }                                                                      \
    } while (0)

static void run_apart(int (*run)(void))
{
    int status;
    if (geteuid() != 0)
        skip();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        exit(run());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
        skip();
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static const char *in_dir(const char *name)
{
    static char paths[8][128];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
    return path;
}

static int file_make(const char *name, mode_t mode, uid_t uid, gid_t gid)
{
    int fd = open(in_dir(name), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, name, strlen(name)) < 0 || fchown(fd, uid, gid) < 0 ||
        fchmod(fd, mode) < 0)
        return -1;
    return close(fd);
}

static int open_as(struct broker *broker, uint32_t uid, const char *name)
{
    return broker_open(broker, uid, &(struct symbol_wanted){.mapped = -1, .path = in_dir(name)});
}

/* ---- rights ---- */

static uint64_t permitted(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {0};
    syscall(SYS_capget, &header, data);
    return data[0].permitted;
}

static int rights_run(void)
{
    struct broker *broker = NULL;
    uint64_t setters = 1u << CAP_SETUID | 1u << CAP_SETGID, before = permitted();
    NEED(broker_start(&broker) == 0 && broker);
    NEED(permitted() == (before & ~setters));
    NEED(setresuid(NOBODY, NOBODY, NOBODY) < 0 && errno == EPERM);
    /* Not by starting a program either. */
    NEED(system("grep -q 'NoNewPrivs:.1' /proc/self/status && "
                "! setpriv --reuid=65534 --clear-groups true 2>/dev/null") == 0);
    broker_free(broker);
    return 0;
}

static void rights_to_become_others_are_given_up_for_good(void **state)
{
    run_apart(rights_run);
}

static int user_run(void)
{
    struct broker *broker = (void *)1;
    NEED(setresuid(NOBODY, NOBODY, NOBODY) == 0);
    NEED(broker_start(&broker) == 0 && !broker);
    NEED(open_as(NULL, NOBODY, "plain") == -EPERM);
    broker_rest(NULL);
    broker_free(NULL);
    return 0;
}

static void plain_user_has_no_broker(void **state)
{
    run_apart(user_run);
}

/* ---- files ---- */

static int files_run(void)
{
    static const struct {
        const char *name;
        uint32_t uid;
        int result; /* 0: opened */
    } cases[] = {
        {"plain", NOBODY, 0},
        {"secret", NOBODY, -EACCES},
        {"run-only", NOBODY, -EACCES},
        {"home/plain", NOBODY, -EACCES},
        {"link", NOBODY, -EACCES},
        {"nobodys", NOBODY, 0},
        {"nobodys", STRANGER, -EACCES},
        {"group", NOBODY, 0},
        {"other-group", NOBODY, -EACCES},
        {"none", NOBODY, -ENOENT},
        {"fifo", NOBODY, -EBADMSG},
        {".", NOBODY, -EBADMSG},
        {"plain", 0, -EPERM},
        {"plain", UINT32_MAX, -EPERM},
    };
    struct broker *broker;
    NEED(mkdir(in_dir("home"), 0700) == 0 && mkfifo(in_dir("fifo"), 0666) == 0);
    NEED(file_make("plain", 0644, 0, 0) == 0 && file_make("secret", 0600, 0, 0) == 0);
    NEED(file_make("run-only", 0711, 0, 0) == 0 && file_make("home/plain", 0755, 0, 0) == 0);
    NEED(file_make("nobodys", 0600, NOBODY, 0) == 0 && file_make("group", 0640, 0, NOBODY) == 0);
    NEED(file_make("other-group", 0640, 0, STRANGER) == 0);
    NEED(symlink("home/plain", in_dir("link")) == 0);
    NEED(broker_start(&broker) == 0 && broker);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        int fd = open_as(broker, cases[i].uid, cases[i].name);
        if ((fd >= 0 ? 0 : fd) != cases[i].result)
            fprintf(stderr, "%s for %u: %d\n", cases[i].name, cases[i].uid, fd);
        NEED((fd >= 0 ? 0 : fd) == cases[i].result);
        char text[32];
        NEED(fd < 0 || read(fd, text, sizeof(text)) == (ssize_t)strlen(cases[i].name));
        if (fd >= 0)
            close(fd);
    }
    broker_free(broker);
    return 0;
}

static void files_are_opened_with_the_rights_of_the_user(void **state)
{
    run_apart(files_run);
}

/* A process of that user that waits to be killed. */
static pid_t process_of(uid_t uid)
{
    int ready[2];
    char byte = 'x';
    if (pipe2(ready, O_CLOEXEC) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        if (setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
            _exit(1);
        close(ready[0]);
        execl("/bin/sleep", "sleep", "1000",
              NULL); /* closes the pipe; a plain process again, which its user may trace */
        _exit(1);
    }
    close(ready[1]);
    ssize_t n = read(ready[0], &byte, 1);
    close(ready[0]);
    return n == 0 ? pid : -1;
}

static int mapped_run(void)
{
    struct broker *broker;
    NEED(mkdir(in_dir("home"), 0700) == 0 && file_make("home/plain", 0755, 0, 0) == 0);
    NEED(file_make("home/run-only", 0711, 0, 0) == 0);
    pid_t own = process_of(NOBODY), other = process_of(STRANGER);
    NEED(own > 0 && other > 0);
    /* As what one of them has mapped. */
    int plain = open(in_dir("home/plain"), O_PATH | O_CLOEXEC);
    int run_only = open(in_dir("home/run-only"), O_PATH | O_CLOEXEC);
    NEED(broker_start(&broker) == 0 && broker);
    struct symbol_wanted wanted = {.pid = own, .mapped = plain};
    int fd = broker_open(broker, NOBODY, &wanted);
    NEED(fd >= 0);
    wanted.pid = other;
    NEED(broker_open(broker, NOBODY, &wanted) < 0);
    wanted.pid = getpid();
    NEED(broker_open(broker, NOBODY, &wanted) < 0);
    wanted = (struct symbol_wanted){.pid = own, .mapped = run_only};
    NEED(broker_open(broker, NOBODY, &wanted) == -EACCES);
    /* The root of a process that the user may not trace is closed to it, too. */
    NEED(file_make("plain", 0644, 0, 0) == 0);
    wanted = (struct symbol_wanted){.pid = own, .mapped = -1, .in_root = in_dir("plain")};
    NEED(broker_open(broker, NOBODY, &wanted) >= 0);
    wanted.pid = other;
    NEED(broker_open(broker, NOBODY, &wanted) == -EACCES);
    broker_free(broker);
    kill(own, SIGKILL);
    kill(other, SIGKILL);
    return 0;
}

static void mapped_file_is_for_who_may_trace_the_process(void **state)
{
    run_apart(mapped_run);
}

/* ---- memory ---- */

static int memory_run(void)
{
    struct broker *broker;
    struct heap_ages_found found = {.searched = 0};
    pid_t own = process_of(NOBODY), other = process_of(STRANGER);
    NEED(own > 0 && other > 0);
    NEED(broker_start(&broker) == 0 && broker);
    struct heap_ages_wish wish = {.pid = own, .trailer_format = 2, .now_ns = 1};
    NEED(broker_ages(broker, NOBODY, &wish, 5000, &found) == 0);
    NEED(found.searched > 0 && !found.late);
    wish.pid = other;
    NEED(broker_ages(broker, NOBODY, &wish, 5000, &found) == -EACCES);
    wish.pid = getpid();
    NEED(broker_ages(broker, NOBODY, &wish, 5000, &found) == -EACCES);
    wish.pid = own;
    NEED(broker_ages(broker, 0, &wish, 5000, &found) == -EPERM);
    broker_free(broker);
    kill(own, SIGKILL);
    kill(other, SIGKILL);
    return 0;
}

static void memory_is_read_with_the_rights_of_the_user(void **state)
{
    run_apart(memory_run);
}

/* ---- what a user can do to it ---- */

/* The youngest child of a process; 0: none. Those before it may have ended. */
static pid_t child_of(pid_t pid)
{
    char path[64];
    int child = 0, next;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
    FILE *children = fopen(path, "re");
    while (children && fscanf(children, "%d", &next) == 1)
        child = next;
    if (children)
        fclose(children);
    return child;
}

/* Signal the child that acts as a user, as the user can. It is the only one of the broker, which is our only one. */
static int child_signal(int number)
{
    pid_t child = child_of(child_of(getpid()));
    return child > 0 ? kill(child, number) : -1;
}

/* Wait until the child waits for a question: before, it has more time than memoird waits for it. */
static int child_idle(void)
{
    char path[64], state = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)child_of(child_of(getpid())));
    while (state != 'S') {
        FILE *stat = fopen(path, "re");
        if (!stat)
            return -1;
        (void)!fscanf(stat, "%*d %*s %c", &state);
        fclose(stat);
    }
    return 0;
}

static int killed_run(void)
{
    struct broker *broker;
    NEED(file_make("plain", 0644, 0, 0) == 0);
    NEED(broker_start(&broker) == 0 && broker);
    NEED(open_as(broker, STRANGER, "plain") >= 0);
    NEED(child_signal(SIGKILL) == 0);
    NEED(open_as(broker, STRANGER, "plain") >= 0); /* another one */
    /* One that is stopped does not answer, but it ends all the same and leaves its place to others. */
    pid_t stopped = child_of(child_of(getpid()));
    NEED(child_signal(SIGSTOP) == 0);
    NEED(open_as(broker, NOBODY, "plain") >= 0);
    uint64_t begin_ns = clock_monotonic_ns();
    while (kill(stopped, 0) == 0)
        NEED(clock_monotonic_ns() - begin_ns < 20 * NS_PER_S && usleep(1000) == 0);
    NEED(open_as(broker, STRANGER, "plain") >= 0);
    broker_free(broker);
    return 0;
}

static void user_who_stops_its_child_harms_only_itself(void **state)
{
    run_apart(killed_run);
}

/* A child that is stopped before a question ends when it was idle for too long: the answer then comes late, by another one. */
static int late_run(void)
{
    struct broker *broker;
    bool closed = false;
    int late = 0;
    NEED(file_make("plain", 0644, 0, 0) == 0);
    NEED(broker_start(&broker) == 0 && broker);
    uint64_t begin_ns = clock_monotonic_ns();
    while (!closed) {
        uint64_t asked_ns = clock_monotonic_ns();
        int fd = open_as(broker, STRANGER, "plain");
        uint64_t took_ns = clock_monotonic_ns() - asked_ns;
        late += fd >= 0 && took_ns > NS_PER_S;
        if (fd == -ETIMEDOUT && took_ns < NS_PER_S) { /* one caller has waited long enough, */
            broker_rest(broker);                      /* but another one may still ask */
            fd = open_as(broker, STRANGER, "plain");
            closed = fd == -ETIMEDOUT;
        }
        NEED(fd >= 0 || fd == -ETIMEDOUT);
        NEED(fd < 0 || (close(fd) == 0 && child_idle() == 0 && child_signal(SIGSTOP) == 0));
        NEED(clock_monotonic_ns() - begin_ns < 3 * BROKER_TIME_MS * NS_PER_MS);
    }
    NEED(late > 0);
    NEED(open_as(broker, NOBODY, "plain") >= 0);
    broker_free(broker);
    return 0;
}

static void answers_that_come_late_use_up_the_time_of_their_user(void **state)
{
    run_apart(late_run);
}

static int text_put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return -1;
    ssize_t n = write(fd, text, strlen(text));
    close(fd);
    return n == (ssize_t)strlen(text) ? 0 : -1;
}

/* A file system whose server never answers. */
static int hanging_mount(const char *path)
{
    char options[128];
    int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fuse < 0 || unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -1;
    snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=%d,group_id=%d", fuse,
             STRANGER, NOBODY); /* the group of users without an account */
    return mount("fuse", path, "fuse", MS_NOSUID | MS_NODEV, options) < 0 ? -1 : fuse;
}

struct asker {
    struct broker *broker;
    atomic_bool ended;
    int result;
};

static void *hanging_ask(void *context)
{
    struct asker *asker = context;
    asker->result = open_as(asker->broker, STRANGER, "fuse/file");
    broker_rest(asker->broker);
    atomic_store(&asker->ended, true);
    return NULL;
}

static int hanging_run(void)
{
    struct asker asker = {0};
    pthread_t thread;
    NEED(mkdir(in_dir("fuse"), 0755) == 0 && file_make("plain", 0644, 0, 0) == 0);
    int fuse = hanging_mount(in_dir("fuse"));
    if (fuse < 0)
        return SKIPPED;
    NEED(text_put(in_dir("subuid"), "65533:200000:10\n") == 0);
    bool sub = mount(in_dir("subuid"), "/etc/subuid", NULL, MS_BIND, NULL) == 0;
    struct broker *broker = NULL;
    NEED(broker_start(&broker) == 0 && broker);
    asker.broker = broker;
    NEED(pthread_create(&thread, NULL, hanging_ask, &asker) == 0);
    while (child_of(child_of(getpid())) == 0)
        usleep(1000);
    for (int i = 0; i < 20; i++) {
        NEED(open_as(broker, NOBODY, "plain") >= 0);
        broker_rest(broker);
    }
    NEED(!atomic_load(&asker.ended)); /* other threads do not wait for it */
    NEED(pthread_join(thread, NULL) == 0 && asker.result == -ETIMEDOUT);
    NEED(open_as(broker, STRANGER, "plain") >= 0); /* there is time left */
    NEED(open_as(broker, STRANGER, "fuse/file") == -ETIMEDOUT);
    if (sub) /* a uid of the same user, where there is a table of them */
        NEED(open_as(broker, 200003, "plain") == -ETIMEDOUT);
    NEED(open_as(broker, NOBODY, "plain") >= 0);
    NEED(open_as(broker, STRANGER, "plain") == -ETIMEDOUT); /* for a while */
    close(fuse);                                            /* whoever waits for it gets an error */
    broker_free(broker);
    return 0;
}

static void file_that_hangs_holds_up_its_user_only(void **state)
{
    run_apart(hanging_run);
}

/* Answers each question of a file system after a while: there is no such file. */
static void slow_serve(int fuse)
{
    static char question[1 << 17];
    struct {
        struct fuse_out_header header;
        struct fuse_init_out init;
    } answer;
    while (read(fuse, question, sizeof(question)) > 0) {
        const struct fuse_in_header *asked = (const void *)question;
        memset(&answer, 0, sizeof(answer));
        answer.header.unique = asked->unique;
        answer.header.len = sizeof(answer.header);
        if (asked->opcode == FUSE_INIT) {
            answer.init.major = FUSE_KERNEL_VERSION;
            answer.init.minor = FUSE_KERNEL_MINOR_VERSION;
            answer.init.max_write = 4096;
            answer.header.len = sizeof(answer);
        } else {
            usleep(BROKER_OPEN_MS * 300);
            answer.header.error = -ENOENT;
        }
        if (write(fuse, &answer, answer.header.len) < 0)
            break;
    }
    _exit(0);
}

static int slow_run(void)
{
    struct broker *broker;
    int r = 0, i = 0;
    NEED(mkdir(in_dir("fuse"), 0755) == 0);
    int fuse = hanging_mount(in_dir("fuse"));
    if (fuse < 0)
        return SKIPPED;
    NEED(broker_start(&broker) == 0 && broker);
    pid_t server = fork();
    if (server == 0)
        slow_serve(fuse);
    close(fuse);
    uint64_t begin_ns = clock_monotonic_ns();
    for (; i < 50 && r != -ETIMEDOUT; i++)
        r = open_as(broker, STRANGER, "fuse/file");
    NEED(i > 2 && r == -ETIMEDOUT);
    NEED(clock_monotonic_ns() - begin_ns < 3 * BROKER_TIME_MS * NS_PER_MS);
    kill(server, SIGKILL);
    broker_free(broker);
    return 0;
}

static void files_that_are_slow_hold_up_their_user_only(void **state)
{
    run_apart(slow_run);
}

/* A file "overlay/all/file" that lies on overlayfs. */
static int overlay_mount(void)
{
    return mount("t", in_dir("overlay"), "tmpfs", 0, "mode=755") == 0 &&
                   chdir(in_dir("overlay")) == 0 && mkdir("low", 0755) == 0 &&
                   mkdir("high", 0755) == 0 && mkdir("work", 0755) == 0 &&
                   mkdir("all", 0755) == 0 && text_put("low/file", "x") == 0 &&
                   mount("o", "all", "overlay", 0, "lowerdir=low,upperdir=high,workdir=work") == 0
               ? 0
               : -1;
}

/* A process of a user, in namespaces of its own, which has mounted overlayfs there. */
static pid_t overlay_process(uid_t uid)
{
    int ready[2];
    char map[32], byte = 'x';
    if (pipe2(ready, O_CLOEXEC) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        snprintf(map, sizeof(map), "0 %d 1", (int)uid);
        bool made = setresgid(uid, uid, uid) == 0 && setresuid(uid, uid, uid) == 0 &&
                    prctl(PR_SET_DUMPABLE, 1) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 &&
                    unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 &&
                    text_put("/proc/self/setgroups", "deny") == 0 &&
                    text_put("/proc/self/uid_map", map) == 0 &&
                    text_put("/proc/self/gid_map", map) == 0 && overlay_mount() == 0;
        if (made && write(ready[1], &byte, 1) == 1)
            pause();
        _exit(1);
    }
    close(ready[1]);
    ssize_t n = read(ready[0], &byte, 1);
    close(ready[0]);
    return n == 1 ? pid : -1;
}

static int overlay_run(void)
{
    struct broker *broker;
    NEED(mkdir(in_dir("overlay"), 0777) == 0 && chmod(in_dir("overlay"), 0777) == 0);
    pid_t pid = overlay_process(STRANGER);
    if (pid < 0 || unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return SKIPPED;
    pid_t plain = process_of(STRANGER); /* in the namespace as root made it */
    bool mounted = overlay_mount() == 0;
    NEED(plain > 0);
    NEED(broker_start(&broker) == 0 && broker);
    struct symbol_wanted wanted = {.pid = pid, .mapped = -1, .in_root = in_dir("overlay/low/file")};
    NEED(broker_open(broker, STRANGER, &wanted) >= 0);
    wanted.in_root = in_dir("overlay/all/file");
    NEED(broker_open(broker, STRANGER, &wanted) == -EOPNOTSUPP);
    char other[256];
    snprintf(other, sizeof(other), "/proc/%d/root%s", (int)pid, in_dir("overlay/all/file"));
    wanted = (struct symbol_wanted){.pid = plain, .mapped = -1, .path = other};
    NEED(broker_open(broker, STRANGER, &wanted) == -EOPNOTSUPP);
    wanted =
        (struct symbol_wanted){.pid = plain, .mapped = -1, .in_root = in_dir("overlay/all/file")};
    NEED(!mounted || broker_open(broker, STRANGER, &wanted) >= 0);
    broker_free(broker);
    kill(pid, SIGKILL);
    kill(plain, SIGKILL);
    return 0;
}

static void overlay_of_a_user_may_hide_what_hangs(void **state)
{
    run_apart(overlay_run);
}

static int setup(void **state)
{
    strcpy(dir, "/tmp/memoir-broker-XXXXXX");
    return mkdtemp(dir) && chmod(dir, 0755) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    return system(command);
}

#define BROKER_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BROKER_TEST(rights_to_become_others_are_given_up_for_good),
        BROKER_TEST(plain_user_has_no_broker),
        BROKER_TEST(files_are_opened_with_the_rights_of_the_user),
        BROKER_TEST(mapped_file_is_for_who_may_trace_the_process),
        BROKER_TEST(memory_is_read_with_the_rights_of_the_user),
        BROKER_TEST(user_who_stops_its_child_harms_only_itself),
        BROKER_TEST(answers_that_come_late_use_up_the_time_of_their_user),
        BROKER_TEST(file_that_hangs_holds_up_its_user_only),
        BROKER_TEST(files_that_are_slow_hold_up_their_user_only),
        BROKER_TEST(overlay_of_a_user_may_hide_what_hangs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
