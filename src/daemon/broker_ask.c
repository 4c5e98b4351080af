/* memoird's side of the broker: children that act as users, questions to them, and the time that these take. See broker.h. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/accountable.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/broker.h"
#include "daemon/broker_account.h"
#include "daemon/broker_internal.h"
#include "daemon/broker_ready.h"

/* The child of one asking thread. Only that thread uses what is behind `thread`, so no lock is held during a question. */
struct place {
    bool taken;         /* under broker->lock, */
    pthread_t thread;   /* and so is this */
    int socket;         /* of the child that is kept, or -1 */
    uint32_t uid;       /* the user that it acts as, */
    pid_t pid;          /* and the process that it was started for */
    pid_t child;        /* its own PID, or 0 before its first packet */
    uint64_t asked_ns;  /* when its last question began, */
    uint64_t ready_ns;  /* and broker_ready_ns() then */
    uint32_t payer;     /* the user that the last questions were about, */
    uint64_t waited_ns; /* and how long these were waited for since broker_rest() */
};

struct broker {
    pid_t pid;
    int socket;
    pthread_mutex_t lock; /* of all below, held for microseconds */
    struct place places[BROKER_THREADS_MAX];
    struct broker_accounts accounts;
};

/* ---- life ---- */

int broker_start(struct broker **ret_broker)
{
    *ret_broker = NULL;
    if (geteuid() != 0)
        return 0;
    struct broker *broker = calloc(1, sizeof(*broker));
    pid_t pid = 0;
    int socket = -1;
    int r = broker_process_start(&pid, &socket); /* gives rights up in any case */
    if (r == 0 && !broker) {
        broker_process_end(pid, socket);
        r = -ENOMEM;
    }
    if (r < 0) {
        free(broker);
        return r;
    }
    broker->pid = pid;
    broker->socket = socket;
    pthread_mutex_init(&broker->lock, NULL);
    *ret_broker = broker;
    return 0;
}

void broker_free(struct broker *broker)
{
    if (!broker)
        return;
    for (size_t i = 0; i < BROKER_THREADS_MAX; i++)
        if (broker->places[i].taken && broker->places[i].socket >= 0)
            close(broker->places[i].socket);
    broker_process_end(broker->pid, broker->socket);
    pthread_mutex_destroy(&broker->lock);
    free(broker);
}

/* ---- children, one for each thread that asks ---- */

/* The place of this thread. With `make` one is taken where there is none yet; NULL: there are too many. */
static struct place *place_of(struct broker *broker, bool make)
{
    struct place *own = NULL, *empty = NULL;
    pthread_mutex_lock(&broker->lock);
    for (size_t i = 0; i < BROKER_THREADS_MAX; i++) {
        struct place *p = &broker->places[i];
        if (p->taken && pthread_equal(p->thread, pthread_self()))
            own = p;
        else if (!p->taken)
            empty = p;
    }
    if (!own && make && empty) {
        *empty = (struct place){.taken = true, .thread = pthread_self(), .socket = -1};
        own = empty;
    }
    pthread_mutex_unlock(&broker->lock);
    return own;
}

static void place_close(struct place *place)
{
    if (place->socket >= 0)
        close(place->socket);
    place->socket = -1;
    place->child = 0;
}

void broker_rest(struct broker *broker)
{
    struct place *place = broker ? place_of(broker, false) : NULL;
    if (!place)
        return;
    place_close(place);
    pthread_mutex_lock(&broker->lock);
    place->taken = false;
    pthread_mutex_unlock(&broker->lock);
}

/* Give the broker a socket for a new child. */
static int child_ask(struct broker *broker, const struct broker_request *request, int fd)
{
    int r = broker_send(broker->socket, request, sizeof(*request), fd);
    return r < 0 ? -EPIPE : 0;
}

/* A child for this user and process: the one that is kept, or a new one. */
static int place_start(struct broker *broker, struct place *place, uint32_t uid, pid_t pid)
{
    struct broker_request request = {
        .kind = BROKER_ACT, .uid = uid, .payer = accountable_uid(uid), .pid = pid};
    int pair[2];
    if (place->socket >= 0 && place->uid == uid && place->pid == pid)
        return 0;
    place_close(place);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    int r = child_ask(broker, &request, pair[1]);
    close(pair[1]);
    if (r < 0) {
        close(pair[0]);
        return r;
    }
    place->socket = pair[0];
    place->uid = uid;
    place->pid = pid;
    return 0;
}

/* ---- questions ---- */

/* Wait for a packet of the child. */
static int place_receive(const struct place *place, uint64_t due_ns, void *packet, size_t len,
                         int *ret_fd)
{
    for (;;) {
        uint64_t now_ns = clock_monotonic_ns();
        struct pollfd ready = {.fd = place->socket, .events = POLLIN};
        int r = poll(&ready, 1, now_ns < due_ns ? (int)((due_ns - now_ns) / NS_PER_MS) + 1 : 0);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return r < 0 ? -errno : -ETIMEDOUT;
        return broker_receive(place->socket, packet, len, ret_fd) < 0 ? -ECHILD : 0;
    }
}

/* The first packet of a new child, with which the user's time begins. */
static int place_greet(struct place *place, uint64_t due_ns)
{
    struct broker_hello hello;
    int none = -1, r = place_receive(place, due_ns, &hello, sizeof(hello), &none);
    if (none >= 0)
        close(none);
    if (r == 0) {
        place->child = hello.pid;
        place->asked_ns = clock_monotonic_ns();
    }
    return r;
}

/* One question to the child that is kept. -ECHILD: it is gone. */
static int place_ask(struct broker *broker, struct place *place, const struct broker_question *q,
                     int fd, struct broker_answer *ret_answer, int *ret_fd)
{
    place->asked_ns = clock_monotonic_ns();
    place->ready_ns = place->child ? broker_ready_ns(place->child, broker->pid) : 0;
    uint64_t due_ns = place->asked_ns + q->timeout_ms * NS_PER_MS;
    if (broker_send(place->socket, q, sizeof(*q), fd) < 0)
        return -ECHILD;
    int r = place->child ? 0 : place_greet(place, due_ns);
    if (r < 0)
        return r;
    return place_receive(place, due_ns, ret_answer, sizeof(*ret_answer), ret_fd);
}

/* What the user pays for the last question, whatever came of it: a child that is stopped, waits for a file or for memory, has a low
 * priority or is killed late costs as much as one that never answers. The child's work, and what it waited for a processor on the
 * same terms as the broker, are not the user's fault. */
static uint64_t place_charge_ns(const struct broker *broker, const struct place *place)
{
    if (!place->child)
        return 0;
    uint64_t took_ns = clock_monotonic_ns() - place->asked_ns;
    uint64_t ready_ns = broker_ready_ns(place->child, broker->pid);
    uint64_t work_ns = ready_ns > place->ready_ns ? ready_ns - place->ready_ns : 0;
    return took_ns > work_ns ? took_ns - work_ns : 0;
}

/* A child that was kept may have ended since: one more try. */
static int question_try(struct broker *broker, struct place *place, uint32_t uid, pid_t pid,
                        const struct broker_question *q, int fd, struct broker_answer *ret_answer,
                        int *ret_fd, uint64_t *ret_charge_ns)
{
    int r = -ECHILD;
    *ret_charge_ns = 0;
    for (int tries = 0; tries < 2 && r == -ECHILD; tries++) {
        bool fresh = place->socket < 0;
        r = place_start(broker, place, uid, pid);
        if (r == 0) {
            r = place_ask(broker, place, q, fd, ret_answer, ret_fd);
            *ret_charge_ns += place_charge_ns(broker, place);
        }
        if (r < 0)
            place_close(place);
        if (fresh)
            break;
    }
    return r;
}

static bool account_is_open(struct broker *broker, uint32_t payer)
{
    pthread_mutex_lock(&broker->lock);
    bool open = broker_account_open(&broker->accounts, payer, clock_monotonic_ns());
    pthread_mutex_unlock(&broker->lock);
    return open;
}

static void account_charge(struct broker *broker, uint32_t payer, uint64_t took_ns,
                           uint64_t charged_ns)
{
    pthread_mutex_lock(&broker->lock);
    bool used_up =
        broker_account_charge(&broker->accounts, payer, charged_ns, clock_monotonic_ns());
    pthread_mutex_unlock(&broker->lock);
    log_debug("broker: a question took %llu ms, of which uid %u is charged %llu",
              (unsigned long long)(took_ns / NS_PER_MS), payer,
              (unsigned long long)(charged_ns / NS_PER_MS));
    if (used_up)
        log_warn("files or memory of uid %u took %d s to answer: nothing is read for this user for "
                 "%d s",
                 payer, BROKER_TIME_MS / 1000, BROKER_REST_S);
}

/* 0 and the answer, whose descriptor (or -1) is the caller's. */
static int question_ask(struct broker *broker, uint32_t uid, pid_t pid,
                        const struct broker_question *q, int fd, struct broker_answer *ret_answer,
                        int *ret_fd)
{
    if (!broker || uid == 0 || uid == UINT32_MAX)
        return -EPERM;
    uint32_t payer = accountable_uid(uid);
    if (!account_is_open(broker, payer))
        return -ETIMEDOUT;
    struct place *place = place_of(broker, true);
    if (!place)
        return -EBUSY;
    /* What is not charged may be the user's doing all the same: a low priority that it takes back before the answer. So one caller
     * waits no longer than this for one user. */
    if (place->payer == payer && place->waited_ns >= BROKER_TIME_MS * NS_PER_MS)
        return -ETIMEDOUT;
    uint64_t begin_ns = clock_monotonic_ns(), charge_ns;
    int r = question_try(broker, place, uid, pid, q, fd, ret_answer, ret_fd, &charge_ns);
    uint64_t took_ns = clock_monotonic_ns() - begin_ns, cpu_ns = r == 0 ? ret_answer->cpu_ns : 0;
    place->waited_ns =
        (place->payer == payer ? place->waited_ns : 0) + (took_ns > cpu_ns ? took_ns - cpu_ns : 0);
    place->payer = payer;
    account_charge(broker, payer, took_ns, charge_ns);
    return r == 0 && ret_answer->result < 0 && ret_answer->result > -4096 ? (int)ret_answer->result
                                                                          : r;
}

static struct broker_question *question_new(enum broker_task task, uint32_t timeout_ms)
{
    struct broker_question *q = calloc(1, sizeof(*q));
    if (q) {
        q->task = task;
        q->timeout_ms = timeout_ms;
    }
    return q;
}

/* A question about a process, whose answer has no descriptor. */
static int process_ask(struct broker *broker, uint32_t uid, pid_t pid,
                       const struct broker_question *q, struct broker_answer *ret_answer)
{
    MEMOIR_CLEANUP(closep)
    int fd = -1;
    return question_ask(broker, uid, pid, q, -1, ret_answer, &fd);
}

static int process_told(const char *what, pid_t pid, uint32_t uid, int r)
{
    log_debug("broker: %s of PID %d for uid %u: %s", what, (int)pid, uid,
              r < 0 ? strerror(-r) : "done");
    return r;
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
    struct broker_question *q = question_new(BROKER_TASK_OPEN, BROKER_OPEN_MS);
    struct broker_answer answer;
    int fd = -1;
    if (!q)
        return -ENOMEM;
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
    struct broker_question *q = question_new(BROKER_TASK_AGES, timeout_ms);
    struct broker_answer answer;
    if (!q)
        return -ENOMEM;
    q->ages = *wish;
    int r = process_ask(broker, uid, wish->pid, q, &answer);
    if (r == 0)
        *ret_found = answer.found;
    return process_told("memory", wish->pid, uid, r);
}

int broker_scan(struct broker *broker, uint32_t uid, const struct heap_scan_wish *wish,
                uint32_t timeout_ms, struct heap_scan_found *ret_found)
{
    MEMOIR_CLEANUP(freep)
    struct broker_question *q = question_new(BROKER_TASK_SCAN, timeout_ms);
    struct broker_answer answer;
    if (!q)
        return -ENOMEM;
    q->scan = *wish;
    int r = process_ask(broker, uid, wish->heap.pid, q, &answer);
    if (r == 0 && answer.scanned.n_sites > HEAP_SCAN_SITES)
        r = -EBADMSG;
    for (size_t i = 0; r == 0 && i < answer.scanned.n_sites; i++)
        if (answer.scanned.sites[i].state >= SCAN_STATES)
            r = -EBADMSG;
    if (r == 0)
        *ret_found = answer.scanned;
    return process_told("scan", wish->heap.pid, uid, r);
}

int broker_explain(struct broker *broker, uint32_t uid, int32_t pid, uint32_t timeout_ms,
                   struct explain *ret_explain, uint64_t *ret_cpu_ns)
{
    MEMOIR_CLEANUP(freep)
    struct broker_question *q = question_new(BROKER_TASK_EXPLAIN, timeout_ms);
    struct broker_answer answer;
    if (!q)
        return -ENOMEM;
    q->pid = pid;
    int r = process_ask(broker, uid, pid, q, &answer);
    if (r == 0 && !explain_valid(&answer.explain))
        r = -EBADMSG;
    if (r == 0)
        *ret_explain = answer.explain;
    if (r == 0 && ret_cpu_ns)
        *ret_cpu_ns = answer.cpu_ns;
    return process_told("mappings", pid, uid, r);
}

int broker_worker(struct broker *broker, int fd, const struct symbol_worker_setup *setup)
{
    struct broker_request request = {.kind = BROKER_WORKER, .worker = *setup};
    return broker ? child_ask(broker, &request, fd) : -EPERM;
}
