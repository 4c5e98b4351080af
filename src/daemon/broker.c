/* The broker's own process, and memoird's side of it. See broker.h. */
#include "daemon/broker.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/accountable.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
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

/* ---- memoird's side ---- */

/* A user answers for its subordinate uids, too: otherwise each of them could keep the lock for a while. */
struct blamed {
    uint32_t payer;
    uint64_t until_ns; /* 0: unused */
};

struct broker {
    pid_t pid;
    int socket;
    pthread_mutex_t lock; /* of all below; held during a question */
    int act;              /* socket of the child that is kept, or -1 */
    uint32_t act_uid;     /* the user that it acts as, */
    pid_t act_pid;        /* and the process that it was started for */
    uint64_t opens_ns;    /* that opens took since the last rest */
    struct blamed blamed[BROKER_BLAMED_MAX];
    size_t next_blamed;
};

static int fork_broker(struct broker *broker)
{
    int pair[2];
    pid_t parent = getpid();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    broker->pid = fork();
    if (broker->pid == 0) {
        close(pair[0]);
        broker_begin(pair[1], parent);
    }
    int r = broker->pid < 0 ? -errno : 0;
    close(pair[1]);
    if (r < 0)
        close(pair[0]);
    else
        broker->socket = pair[0];
    return r;
}

int broker_start(struct broker **ret_broker)
{
    struct capabilities c;
    *ret_broker = NULL;
    if (geteuid() != 0)
        return 0;
    struct broker *broker = calloc(1, sizeof(*broker));
    int r = broker ? capabilities_get(&c) : -ENOMEM;
    if (r == 0 && (c.data[0].effective & SETTERS) != SETTERS)
        r = -EPERM;
    if (r == 0)
        r = fork_broker(broker);
    int dropped = setters_drop();
    if (r < 0) {
        free(broker);
        return r;
    }
    broker->act = -1;
    pthread_mutex_init(&broker->lock, NULL);
    if (dropped < 0) {
        broker_free(broker);
        return dropped;
    }
    *ret_broker = broker;
    return 0;
}

void broker_free(struct broker *broker)
{
    if (!broker)
        return;
    broker_rest(broker);
    close(broker->socket);
    while (waitpid(broker->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    pthread_mutex_destroy(&broker->lock);
    free(broker);
}

static void act_close(struct broker *broker)
{
    if (broker->act >= 0)
        close(broker->act);
    broker->act = -1;
}

void broker_rest(struct broker *broker)
{
    if (!broker)
        return;
    pthread_mutex_lock(&broker->lock);
    act_close(broker);
    broker->opens_ns = 0;
    pthread_mutex_unlock(&broker->lock);
}

static bool is_blamed(const struct broker *broker, uint32_t uid)
{
    uint32_t payer = accountable_uid(uid);
    uint64_t now_ns = clock_monotonic_ns();
    for (size_t i = 0; i < BROKER_BLAMED_MAX; i++)
        if (broker->blamed[i].until_ns > now_ns && broker->blamed[i].payer == payer)
            return true;
    return false;
}

static void blame(struct broker *broker, uint32_t uid)
{
    broker->blamed[broker->next_blamed++ % BROKER_BLAMED_MAX] =
        (struct blamed){accountable_uid(uid), clock_monotonic_ns() + BROKER_BLAME_S * NS_PER_S};
    log_warn(
        "a file or the memory of uid %u does not answer: nothing is read for this user for %d s",
        uid, BROKER_BLAME_S);
}

/* Give the broker a socket for a new child. */
static int child_ask(struct broker *broker, const struct broker_request *request, int fd)
{
    int r = broker_send(broker->socket, request, sizeof(*request), fd);
    return r < 0 ? -EPIPE : 0;
}

static int act_start(struct broker *broker, uint32_t uid, pid_t pid)
{
    struct broker_request request = {
        .kind = BROKER_ACT, .uid = uid, .payer = accountable_uid(uid), .pid = pid};
    int pair[2];
    if (broker->act >= 0 && broker->act_uid == uid && broker->act_pid == pid)
        return 0;
    act_close(broker);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    int r = child_ask(broker, &request, pair[1]);
    close(pair[1]);
    if (r < 0) {
        close(pair[0]);
        return r;
    }
    broker->act = pair[0];
    broker->act_uid = uid;
    broker->act_pid = pid;
    return 0;
}

/* One question to the child that is kept. -ECHILD: it is gone. */
static int act_ask(struct broker *broker, const struct broker_question *q, int fd,
                   struct broker_answer *ret_answer, int *ret_fd)
{
    uint64_t due_ns = clock_monotonic_ns() + q->timeout_ms * NS_PER_MS;
    if (broker_send(broker->act, q, sizeof(*q), fd) < 0)
        return -ECHILD;
    for (;;) {
        uint64_t now_ns = clock_monotonic_ns();
        struct pollfd ready = {.fd = broker->act, .events = POLLIN};
        int r = poll(&ready, 1, now_ns < due_ns ? (int)((due_ns - now_ns) / NS_PER_MS) + 1 : 0);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return r < 0 ? -errno : -ETIMEDOUT;
        return broker_receive(broker->act, ret_answer, sizeof(*ret_answer), ret_fd) < 0 ? -ECHILD
                                                                                        : 0;
    }
}

/* The lock is held. A child that was kept may have ended since: one more try. */
static int question_try(struct broker *broker, uint32_t uid, pid_t pid,
                        const struct broker_question *q, int fd, struct broker_answer *ret_answer,
                        int *ret_fd)
{
    int r = -ECHILD;
    uint64_t begin_ns = clock_monotonic_ns();
    for (int tries = 0; tries < 2 && r == -ECHILD; tries++) {
        bool fresh = broker->act < 0;
        r = act_start(broker, uid, pid);
        if (r == 0)
            r = act_ask(broker, q, fd, ret_answer, ret_fd);
        if (r < 0)
            act_close(broker);
        if (fresh)
            break;
    }
    /* Many that are slow hold up others as one does that hangs. */
    if (q->task == BROKER_TASK_OPEN)
        broker->opens_ns += clock_monotonic_ns() - begin_ns;
    if (r == -ETIMEDOUT || broker->opens_ns > BROKER_OPENS_MS * NS_PER_MS) {
        blame(broker, uid);
        broker->opens_ns = 0;
    }
    return r;
}

/* 0 and the answer, whose descriptor (or -1) is the caller's. */
static int question_ask(struct broker *broker, uint32_t uid, pid_t pid,
                        const struct broker_question *q, int fd, struct broker_answer *ret_answer,
                        int *ret_fd)
{
    if (!broker || uid == 0 || uid == UINT32_MAX)
        return -EPERM;
    pthread_mutex_lock(&broker->lock);
    int r = is_blamed(broker, uid) ? -ETIMEDOUT
                                   : question_try(broker, uid, pid, q, fd, ret_answer, ret_fd);
    pthread_mutex_unlock(&broker->lock);
    return r == 0 && ret_answer->result < 0 && ret_answer->result > -4096 ? (int)ret_answer->result
                                                                          : r;
}

static bool path_copy(char to[static BROKER_PATH_MAX], const char *from)
{
    size_t len = from ? strlen(from) : BROKER_PATH_MAX;
    if (len >= BROKER_PATH_MAX)
        return false;
    memcpy(to, from, len + 1);
    return true;
}

int broker_open(struct broker *broker, uint32_t uid, const struct symbol_wanted *wanted)
{
    MEMOIR_CLEANUP(freep)
    struct broker_question *q = calloc(1, sizeof(*q));
    struct broker_answer answer;
    int fd = -1;
    if (!q)
        return -ENOMEM;
    q->task = BROKER_TASK_OPEN;
    q->timeout_ms = BROKER_OPEN_MS;
    q->pid = wanted->pid;
    q->has_mapped = wanted->mapped >= 0;
    q->has_root = path_copy(q->in_root, wanted->in_root);
    q->has_path = path_copy(q->path, wanted->path);
    q->before_s = wanted->before_s;
    int r = question_ask(broker, uid, wanted->pid, q, wanted->mapped, &answer, &fd);
    if (r == 0 && fd < 0)
        r = -ECHILD;
    if (r < 0 && fd >= 0)
        close(fd);
    log_debug("broker: open '%s' for uid %u: %s",
              wanted->path      ? wanted->path
              : wanted->in_root ? wanted->in_root
                                : "",
              uid, r < 0 ? strerror(-r) : "done");
    return r < 0 ? r : fd;
}

int broker_ages(struct broker *broker, uint32_t uid, const struct heap_ages_wish *wish,
                uint32_t timeout_ms, struct heap_ages_found *ret_found)
{
    MEMOIR_CLEANUP(freep)
    struct broker_question *q = calloc(1, sizeof(*q));
    struct broker_answer answer;
    MEMOIR_CLEANUP(closep)
    int fd = -1;
    if (!q)
        return -ENOMEM;
    q->task = BROKER_TASK_AGES;
    q->timeout_ms = timeout_ms;
    q->ages = *wish;
    int r = question_ask(broker, uid, wish->pid, q, -1, &answer, &fd);
    if (r == 0)
        *ret_found = answer.found;
    log_debug("broker: memory of PID %d for uid %u: %s", (int)wish->pid, uid,
              r < 0 ? strerror(-r) : "done");
    return r;
}

int broker_scan(struct broker *broker, uint32_t uid, const struct heap_scan_wish *wish,
                uint32_t timeout_ms, struct heap_scan_found *ret_found)
{
    MEMOIR_CLEANUP(freep)
    struct broker_question *q = calloc(1, sizeof(*q));
    struct broker_answer answer;
    MEMOIR_CLEANUP(closep)
    int fd = -1;
    if (!q)
        return -ENOMEM;
    q->task = BROKER_TASK_SCAN;
    q->timeout_ms = timeout_ms;
    q->scan = *wish;
    int r = question_ask(broker, uid, wish->heap.pid, q, -1, &answer, &fd);
    if (r == 0 && answer.scanned.n_sites > HEAP_SCAN_SITES)
        r = -EBADMSG;
    for (size_t i = 0; r == 0 && i < answer.scanned.n_sites; i++)
        if (answer.scanned.sites[i].state >= SCAN_STATES)
            r = -EBADMSG;
    if (r == 0)
        *ret_found = answer.scanned;
    log_debug("broker: scan of PID %d for uid %u: %s", (int)wish->heap.pid, uid,
              r < 0 ? strerror(-r) : "done");
    return r;
}

int broker_explain(struct broker *broker, uint32_t uid, int32_t pid, uint32_t timeout_ms,
                   struct explain *ret_explain, uint64_t *ret_cpu_ns)
{
    MEMOIR_CLEANUP(freep)
    struct broker_question *q = calloc(1, sizeof(*q));
    struct broker_answer answer;
    MEMOIR_CLEANUP(closep)
    int fd = -1;
    if (!q)
        return -ENOMEM;
    q->task = BROKER_TASK_EXPLAIN;
    q->timeout_ms = timeout_ms;
    q->pid = pid;
    int r = question_ask(broker, uid, pid, q, -1, &answer, &fd);
    if (r == 0 && !explain_valid(&answer.explain))
        r = -EBADMSG;
    if (r == 0)
        *ret_explain = answer.explain;
    if (r == 0 && ret_cpu_ns)
        *ret_cpu_ns = answer.cpu_ns;
    log_debug("broker: mappings of PID %d for uid %u: %s", (int)pid, uid,
              r < 0 ? strerror(-r) : "done");
    return r;
}

int broker_worker(struct broker *broker, int fd, const struct symbol_worker_setup *setup)
{
    struct broker_request request = {.kind = BROKER_WORKER, .worker = *setup};
    return broker ? child_ask(broker, &request, fd) : -EPERM;
}
