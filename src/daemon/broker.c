/* The broker's own process. See broker.h; memoird's side of it is in broker_ask.c. */
#include "daemon/broker.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/broker_internal.h"

enum { REAP_MS = 1000 };
#define SETTERS (1u << CAP_SETUID | 1u << CAP_SETGID)
#define WORKERS UINT32_MAX /* whose children symbol workers are */

/* ---- capabilities ---- */

struct capabilities {
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
};

static int capabilities_get(struct capabilities *ret)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    return syscall(SYS_capget, &header, ret->data) < 0 ? -errno : 0;
}

/* Keep those of `keep` (the others of the first 32 go) and, without `only`, all further ones. */
static int capabilities_keep(uint32_t keep, bool only)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct capabilities c;
    int r = capabilities_get(&c);
    if (r < 0)
        return r;
    for (size_t i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
        uint32_t mask = i == 0 ? keep : only ? 0 : UINT32_MAX;
        c.data[i].permitted &= mask;
        c.data[i].effective &= mask;
        c.data[i].inheritable &= mask;
    }
    if (syscall(SYS_capset, &header, c.data) < 0)
        return -errno;
    r = capabilities_get(&c);
    return r < 0 ? r : c.data[0].permitted & ~keep ? -EPERM : 0;
}

/* For good: no program that this process starts can get them again. */
static int setters_drop(void)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    (void)prctl(PR_CAPBSET_DROP,
                CAP_SETUID); /* fails without CAP_SETPCAP, and is not needed then */
    (void)prctl(PR_CAPBSET_DROP, CAP_SETGID);
    return capabilities_keep(~SETTERS, false);
}

/* ---- the broker ---- */

struct child {
    pid_t pid;      /* 0: none */
    uint32_t payer; /* WORKERS: a symbol worker */
};

static struct child children[BROKER_ALL_MAX];

/* A free place, or NULL when this user has too many already. */
static struct child *place_find(uint32_t payer)
{
    struct child *place = NULL;
    int of_user = 0, of_users = 0;
    for (size_t i = 0; i < BROKER_ALL_MAX; i++) {
        if (children[i].pid == 0)
            place = &children[i];
        else
            of_user += children[i].payer == payer;
        of_users += children[i].pid != 0 && children[i].payer != WORKERS;
    }
    if (payer == WORKERS)
        return of_user < BROKER_WORKERS_MAX ? place : NULL;
    return of_user < BROKER_USER_MAX && of_users < BROKER_ALL_MAX - BROKER_WORKERS_MAX ? place
                                                                                       : NULL;
}

static bool reap(void)
{
    bool left = false;
    for (size_t i = 0; i < BROKER_ALL_MAX; i++) {
        if (children[i].pid != 0 && waitpid(children[i].pid, NULL, WNOHANG) != 0)
            children[i].pid = 0;
        left |= children[i].pid != 0;
    }
    return left;
}

static _Noreturn void child_begin(const struct broker_request *request, int socket)
{
    enum { CHILD_FD = 3 };
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    if ((socket != CHILD_FD && dup2(socket, CHILD_FD) < 0) ||
        syscall(SYS_close_range, CHILD_FD + 1, ~0u, 0) < 0)
        _exit(1);
    if (request->kind == BROKER_WORKER)
        symbol_worker_serve(CHILD_FD, &request->worker);
    broker_child_run(CHILD_FD, request->uid, request->pid);
}

/* A request that is refused gets no answer: its socket closes. */
static void request_serve(const struct broker_request *request, int socket)
{
    bool worker = request->kind == BROKER_WORKER;
    bool valid =
        worker || (request->kind == BROKER_ACT && request->uid != 0 && request->uid != UINT32_MAX &&
                   request->payer != WORKERS && request->pid >= 0);
    struct child *place = valid ? place_find(worker ? WORKERS : request->payer) : NULL;
    if (!place)
        return;
    pid_t pid = fork();
    if (pid == 0)
        child_begin(request, socket);
    if (pid > 0)
        *place = (struct child){pid, worker ? WORKERS : request->payer};
}

/* Until memoird closes its end. */
static _Noreturn void broker_run(int socket)
{
    for (;;) {
        struct broker_request request;
        struct pollfd ready = {.fd = socket, .events = POLLIN};
        int fd = -1, r = poll(&ready, 1, reap() ? REAP_MS : -1);
        if (r == 0 || (r < 0 && errno == EINTR))
            continue;
        if (r < 0 || broker_receive(socket, &request, sizeof(request), &fd) < 0)
            _exit(0);
        (void)reap();
        if (fd >= 0) {
            request_serve(&request, fd);
            close(fd);
        }
    }
}

static _Noreturn void broker_begin(int socket, pid_t parent)
{
    enum { BROKER_FD = 3 };
    /* It ends with memoird, which may still need it after a signal for all of its group. */
    static const int ignored[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE};
    for (size_t i = 0; i < sizeof(ignored) / sizeof(*ignored); i++)
        signal(ignored[i], SIG_IGN);
    signal(SIGCHLD, SIG_DFL); /* ignored, children could not be counted */
    prctl(PR_SET_NAME, "memoir-broker");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || (socket != BROKER_FD && dup2(socket, BROKER_FD) < 0) ||
        syscall(SYS_close_range, BROKER_FD + 1, ~0u, 0) < 0 || chdir("/") < 0)
        _exit(1);
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < BROKER_FD; fd++)
        if (dup2(null, fd) < 0)
            _exit(1);
    close(null);
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
        capabilities_keep(SETTERS, true) < 0)
        _exit(1);
    broker_run(BROKER_FD);
}

static int process_fork(pid_t *ret_pid, int *ret_socket)
{
    int pair[2];
    pid_t parent = getpid();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    pid_t pid = fork();
    if (pid == 0) {
        close(pair[0]);
        broker_begin(pair[1], parent);
    }
    int r = pid < 0 ? -errno : 0;
    close(pair[1]);
    if (r < 0) {
        close(pair[0]);
        return r;
    }
    *ret_pid = pid;
    *ret_socket = pair[0];
    return 0;
}

void broker_process_end(pid_t pid, int socket)
{
    close(socket);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

int broker_process_start(pid_t *ret_pid, int *ret_socket)
{
    struct capabilities c;
    int r = capabilities_get(&c);
    if (r == 0 && (c.data[0].effective & SETTERS) != SETTERS)
        r = -EPERM;
    if (r == 0)
        r = process_fork(ret_pid, ret_socket);
    int dropped = setters_drop();
    if (r == 0 && dropped < 0) {
        broker_process_end(*ret_pid, *ret_socket);
        r = dropped;
    }
    return r;
}
