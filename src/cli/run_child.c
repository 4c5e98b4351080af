/* Run a program and wait for it. See run_child.h. */
#include "cli/run_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/command.h"

enum { OTHERS_END_MS = 2000 };

/* Dispositions that main() or we changed, and the mask, as we got them. */
struct inherited {
    sigset_t mask;
    struct sigaction child;
};

/* All signals that another process may send. Faults are our own. */
static sigset_t handed_on(void)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPIPE};
    sigset_t set;
    sigfillset(&set);
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        sigdelset(&set, own[i]);
    return set;
}

int run_exec(const struct run_child *child)
{
    child->prepare(child->context, getpid());
    command_restore_signals();
    execvp(child->argv[0], child->argv);
    return -errno;
}

/* In the child. Not before its parent has let go of `wait`: until then it takes hold of us. */
static void become(const struct run_child *child, const struct inherited *inherited, pid_t parent,
                   int told, const int wait[2])
{
    char byte;
    /* Who ends us by SIGKILL means the program. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(wait[1]);
    if (getppid() != parent || read(wait[0], &byte, 1) != 0)
        _exit(127);
    close(wait[0]);
    sigaction(SIGCHLD, &inherited->child, NULL);
    sigprocmask(SIG_SETMASK, &inherited->mask, NULL);
    int error = -run_exec(child);
    ssize_t n = write(told, &error, sizeof(error));
    _exit(n == sizeof(error) ? 127 : 126);
}

/* The pipe closes by itself when the program begins. */
static int start(const struct run_child *child, const struct inherited *inherited,
                 struct run_end *end)
{
    int ends[2], wait[2], error = 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    if (pipe2(wait, O_CLOEXEC) < 0) {
        int failed = -errno;
        close(ends[0]);
        close(ends[1]);
        return failed;
    }
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        become(child, inherited, parent, ends[1], wait);
    int r = pid < 0 ? -errno : 0;
    /* A failure changes nothing else. */
    if (r == 0 && child->leaving &&
        ptrace(PTRACE_SEIZE, pid, NULL, (void *)(long)PTRACE_O_TRACEEXIT) < 0)
        end->traced = -errno;
    if (r == 0 && child->started)
        child->started(child->context, pid);
    close(wait[0]);
    close(wait[1]);
    close(ends[1]);
    ssize_t n = 0;
    if (r == 0)
        do
            n = read(ends[0], &error, sizeof(error));
        while (n < 0 && errno == EINTR);
    close(ends[0]);
    if (n == sizeof(error)) {
        waitpid(pid, NULL, 0);
        return -error;
    }
    end->pid = pid;
    return r;
}

/* The terminal tells the whole group, and what the child sends to its group it has got itself. */
static void hand_on(const struct signalfd_siginfo *info, pid_t pid)
{
    int number = (int)info->ssi_signo;
    if (number == SIGCHLD || info->ssi_code == SI_KERNEL || (pid_t)info->ssi_pid == pid)
        return;
    if (info->ssi_code == SI_QUEUE)
        sigqueue(pid, number, (union sigval){.sival_ptr = (void *)(uintptr_t)info->ssi_ptr});
    else
        kill(pid, number);
}

/* A shell takes the terminal back when we stop, so not before the program has. */
static void stop_with(pid_t pid, int status)
{
    int number = WSTOPSIG(status);
    if (number != SIGTSTP && number != SIGTTIN && number != SIGTTOU)
        return; /* a signal to it alone is continued alone */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    kill(getpid(), number);
    sigprocmask(SIG_UNBLOCK, &set, NULL); /* here we stop; not where no shell could let us go on */
    sigprocmask(SIG_BLOCK, &set, NULL);
    kill(pid, SIGCONT);
}

/* Is the process at its end, and not only its first thread? The others of a process that ends have been killed and
 * are about to go. */
static bool is_last(pid_t pid)
{
    char path[64];
    uint64_t deadline_ns = clock_monotonic_ns() + OTHERS_END_MS * NS_PER_MS;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    for (;;) {
        struct stat info; /* a folder has a link for each folder in it, and two */
        if (stat(path, &info) < 0 || info.st_nlink <= 3)
            return true;
        if (clock_monotonic_ns() > deadline_ns)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* A traced program has stopped: for us, for a signal, or as a shell's job. */
static void traced_stop(const struct run_child *child, pid_t pid, int status)
{
    int event = status >> 16, number = WSTOPSIG(status);
    if (event == PTRACE_EVENT_EXIT) {
        if (is_last(pid))
            child->leaving(child->context, pid);
        ptrace(PTRACE_DETACH, pid, NULL, NULL);
    } else if (event == PTRACE_EVENT_STOP && number != SIGTRAP) {
        ptrace(PTRACE_LISTEN, pid, NULL, NULL); /* stays stopped, until it may go on */
        stop_with(pid, status);
    } else {
        ptrace(PTRACE_CONT, pid, NULL, (void *)(long)(event ? 0 : number));
    }
}

/* Whether it has ended. */
static bool reap(const struct run_child *child, struct run_end *end)
{
    int status;
    siginfo_t info = {0};
    if (child->ended && waitid(P_PID, (id_t)end->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid)
        child->ended(child->context, end->pid);
    while (wait4(end->pid, &status, WNOHANG | WUNTRACED, &end->usage) == end->pid) {
        if (!WIFSTOPPED(status)) {
            end->status = status;
            return true;
        }
        if (child->leaving && end->traced == 0)
            traced_stop(child, end->pid, status);
        else
            stop_with(end->pid, status);
    }
    return false;
}

static void follow(const struct run_child *child, int signals, struct run_end *end)
{
    while (!reap(child, end)) {
        struct pollfd polled[] = {{.fd = signals, .events = POLLIN},
                                  {.fd = child->fd, .events = POLLIN}};
        int ready = poll(polled, 2, child->tick_ms > 0 ? child->tick_ms : -1);
        if (ready < 0 && errno != EINTR)
            return;
        if (ready == 0) {
            child->tick(child->context, end->pid);
            continue;
        }
        struct signalfd_siginfo info;
        while (read(signals, &info, sizeof(info)) == sizeof(info))
            hand_on(&info, end->pid);
        if (polled[1].revents)
            child->ready(child->context, end->pid);
    }
}

int run_wait(const struct run_child *child, struct run_end *ret_end)
{
    struct inherited inherited;
    sigset_t set = handed_on();
    sigprocmask(SIG_BLOCK, &set, &inherited.mask);
    /* Where it is ignored, waiting is impossible. */
    sigaction(SIGCHLD, &(struct sigaction){.sa_handler = SIG_DFL}, &inherited.child);
    MEMOIR_CLEANUP(closep)
    int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    struct run_end end = {0};
    uint64_t start_ns = clock_monotonic_ns();
    int r = signals < 0 ? -errno : start(child, &inherited, &end);
    if (r == 0) {
        follow(child, signals, &end);
        end.duration_ns = clock_monotonic_ns() - start_ns;
        child->look(child->context, end.pid);
        *ret_end = end;
    }
    /* Signals stay blocked: what came for the program after its end is nothing for us. */
    return r;
}

int run_end_alike(int status)
{
    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status);
    int number = WTERMSIG(status);
    /* One core is enough, and it is the program's. */
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    prctl(PR_SET_DUMPABLE, 0);
    sigaction(number, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    kill(getpid(), number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    return 128 + number;
}
