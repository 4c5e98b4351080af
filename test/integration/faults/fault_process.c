/* Processes that become others: exec, every way to fork, another user, a reused PID. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "faults.h"

extern char **environ;

enum { NOBODY = 65534 };

/* exec N: N images after this one; each has 10 blocks more than the one before. */
static int run_exec(int argc, char **argv)
{
    int left = argc > 0 ? atoi(argv[0]) : 0, image = argc > 1 ? atoi(argv[1]) : 1;
    int gpu = declare(0);
    char next_left[16], next_image[16];
    report(gpu, 1, (uint64_t)(10 * image));
    tell("image", gpu);
    wait_line();
    if (left == 0)
        return 0;
    snprintf(next_left, sizeof(next_left), "%d", left - 1);
    snprintf(next_image, sizeof(next_image), "%d", image + 1);
    execl("/proc/self/exe", "fault_process", "exec", next_left, next_image, (char *)NULL);
    return 1;
}

/* plain N: report, tell, wait. */
static int run_plain(int argc, char **argv)
{
    int gpu = declare(0);
    report(gpu, 1, argc > 0 ? strtoull(argv[0], NULL, 10) : 10);
    tell("plain", gpu);
    wait_line();
    return 0;
}

/* short: enough for a book, and away. */
static int run_short(int argc, char **argv)
{
    report(0, 1, 100);
    if (argc > 0 && strcmp(argv[0], "_exit") == 0)
        _exit(0);
    if (argc > 0 && strcmp(argv[0], "kill") == 0)
        raise(SIGKILL);
    return 0;
}

/* ---- fork and its kin ---- */

static pid_t raw_clone(void)
{
    return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

static int heir_pipe[2];

/* The parent's device by the parent's number, then the host's heap. */
static void child(int gpu)
{
    report(gpu, 5000, 7);
    report(0, 1, 3);
    memoir_free(gpu, DRAM, 1); /* the parent's: nothing of ours */
    tell("child", gpu);
    char byte;
    close(heir_pipe[1]);
    while (read(heir_pipe[0], &byte, 1) > 0)
        ;
    exit(0);
}

static pid_t spawn_plain(int by_vfork)
{
    pid_t pid;
    char name[] = "fault_process", what[] = "plain", blocks[] = "5";
    char *arguments[] = {name, what, blocks, NULL};
    if (by_vfork) {
        pid = vfork();
        if (pid == 0) {
            execv("/proc/self/exe", arguments);
            _exit(1);
        }
        return pid;
    }
    return posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ) == 0 ? pid : -1;
}

/* fork KIND [before]: with 100 blocks on a device; `before` makes no book until the child has one. */
static int run_fork(int argc, char **argv)
{
    const char *kind = argv[0];
    int gpu = 0;
    if (argc < 2) {
        declare(3); /* so that numbers are not what a fresh process would give */
        gpu = declare(0);
        memoir_tag_push("parent");
        report(gpu, 1, 100);
        report(0, 1, 10);
        memoir_tag_pop();
    }
    must(pipe2(heir_pipe, 0) == 0, "pipe");
    pid_t pid;
    if (strcmp(kind, "fork") == 0)
        pid = fork();
    else if (strcmp(kind, "_Fork") == 0)
        pid = _Fork();
    else if (strcmp(kind, "clone") == 0)
        pid = raw_clone();
    else
        pid = spawn_plain(strcmp(kind, "vfork") == 0);
    must(pid >= 0, kind);
    if (pid == 0)
        child(gpu);
    close(heir_pipe[0]);
    report(gpu, 1000, 1); /* both write at the same time */
    wait_line();
    tell("parent", gpu);
    wait_line();
    close(heir_pipe[1]);
    int status;
    must(waitpid(pid, &status, 0) == pid && status == 0, "child");
    memoir_free(gpu, DRAM, 1000);
    tell("after", gpu);
    wait_line();
    return 0;
}

/* ---- another user ---- */

/* setuid late|early: root until the book is there, or until just before. */
static int run_setuid(int argc, char **argv)
{
    int late = strcmp(argv[0], "late") == 0, gpu = 0;
    if (late) {
        gpu = declare(0);
        report(gpu, 1, 100);
    } else {
        report(0, 1, 3); /* counted, but no book yet */
    }
    must(setresgid(NOBODY, NOBODY, NOBODY) == 0, "setresgid");
    must(setresuid(NOBODY, NOBODY, NOBODY) == 0, "setresuid");
    report(gpu, 1000, 100000);
    tell("nobody", gpu);
    wait_line();
    return 0;
}

/* ---- PID reuse ---- */

static pid_t with_pid(pid_t wanted)
{
    if (wanted > 0) {
        int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY);
        must(fd >= 0 && dprintf(fd, "%d", wanted - 1) > 0, "ns_last_pid");
        close(fd);
    }
    pid_t pid = fork();
    must(pid >= 0, "fork");
    if (pid == 0) {
        int gpu = declare(0);
        report(gpu, 1, wanted > 0 ? 20 : 10);
        tell(wanted > 0 ? "second" : "first", gpu);
        pause();
    }
    return pid;
}

/* reuse: a process is killed and another one gets its PID. In a pid namespace of its own. */
static int run_reuse(int argc, char **argv)
{
    must(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0, "prctl");
    pid_t first = with_pid(0);
    wait_line();
    kill(first, SIGKILL);
    must(waitpid(first, NULL, 0) == first, "waitpid");
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* start times count in ticks */
    pid_t second = with_pid(first);
    must(second == first, "the same PID");
    wait_line();
    kill(second, SIGKILL);
    must(waitpid(second, NULL, 0) == second, "waitpid");
    return 0;
}

/* crowd N HOW PROGRAM: N short processes, a few at a time. HOW: return, _exit, kill. */
static int run_crowd(int argc, char **argv)
{
    enum { AT_ONCE = 8 };
    long left = atol(argv[0]);
    int running = 0;
    char name[] = "fault_process", what[] = "short";
    char *arguments[] = {name, what, argv[1], NULL};
    while (left > 0 || running > 0) {
        if (left > 0 && running < AT_ONCE) {
            pid_t pid;
            must(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ) == 0, "spawn");
            left--;
            running++;
        } else {
            int status;
            must(wait(&status) > 0, "wait");
            must(status == (strcmp(argv[1], "kill") == 0 ? SIGKILL : 0), "a short process");
            running--;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {
        {"exec", run_exec},     {"plain", run_plain}, {"short", run_short}, {"fork", run_fork},
        {"setuid", run_setuid}, {"reuse", run_reuse}, {"crowd", run_crowd}, {NULL, NULL},
    };
    return scenario_run(scenarios, argc, argv);
}
