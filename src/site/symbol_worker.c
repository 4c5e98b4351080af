/* The worker process and the talk with it.
 *
 * The worker says READY once it is confined. A request is a struct request with its files, then its offsets; the
 * answer is a record for each offset, each after its length. Before a record the worker may send WANT and a
 * struct symbol_want; the parent sends back one byte, the number of files, with the files. */
#include "site/symbol_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/deadline.h"
#include "site/symbol_confine.h"
#include "site/symbol_engine.h"

enum {
    WORKER_FD = 3,
    READY_MS = 10000, /* on a busy machine */
    END_MS = 2000,    /* an idle worker ends at once */
    IDLE_MS_MAX = 60000,
    WANTS_MAX = 16, /* debug files that one request may ask for */
};
#define READY UINT32_C(0x79646572)
#define WANT  UINT32_MAX /* in place of a length */

/* Sanitizers reserve terabytes, which counts as data. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMORY_LIMITED 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MEMORY_LIMITED 0
#endif
#endif
#ifndef MEMORY_LIMITED
#define MEMORY_LIMITED 1
#endif

struct request {
    uint32_t offsets; /* that follow it; at least 1 */
    uint32_t owner;
    int32_t main_error;
    uint8_t build_id_len;
    uint8_t is_return_address;
    uint8_t has_main; /* descriptors that come with it, in this order */
    uint8_t has_debug;
    uint8_t build_id[SYMBOL_BUILD_ID_MAX];
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- the worker's side ---- */

/* Only the socket stays open; then nothing more can be opened. False: it is not confined. */
static bool worker_prepare(int fd, const struct symbol_worker_setup *setup)
{
    struct rlimit none = {0, 0}, memory = {setup->bytes_max, setup->bytes_max};
    if (fd != WORKER_FD && dup2(fd, WORKER_FD) < 0)
        return false;
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; i++)
        dup2(null, i);
    if (syscall(SYS_close_range, WORKER_FD + 1, ~0u, 0) < 0)
        return false;
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    sigset_t all;
    sigemptyset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_NAME, "memoir-symbols");
    setrlimit(RLIMIT_CORE, &none);
    setrlimit(RLIMIT_FSIZE, &none);
    if (MEMORY_LIMITED)
        setrlimit(RLIMIT_DATA, &memory);
    /* No tool of ours talks to a server about a file; elfutils would, if it were told so here. */
    unsetenv("DEBUGINFOD_URLS");
    return deadline_make() == 0 && symbol_confine() == 0;
}

/* An answer must come in time. The parent waits only so long and may be gone by then, so the worker ends itself. */
static void timer_set(const struct symbol_worker_setup *setup)
{
    deadline_set(setup->timeout_ms + 1000);
}

static int receive_rest(void *data, size_t len)
{
    ssize_t got = recv(WORKER_FD, data, len, MSG_WAITALL);
    return got == (ssize_t)len ? 0 : -EPIPE;
}

/* Receive `len` bytes, and the files that come with them: how many, -1 for none of it. */
static int receive_files(int fd, void *data, size_t len, int *fds, size_t fds_max)
{
    union {
        char bytes[CMSG_SPACE(SYMBOL_GIVEN_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = {.iov_base = data, .iov_len = len};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_SPACE(fds_max * sizeof(int))};
    ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL);
    if (got != (ssize_t)len)
        return -1;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
        return 0;
    size_t n = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    if (n > fds_max)
        n = fds_max;
    memcpy(fds, CMSG_DATA(header), n * sizeof(int));
    return (int)n;
}

/* Wait for a request. One that somebody stopped meanwhile ends, too. */
static void wait_idle(void)
{
    struct pollfd ready = {.fd = WORKER_FD, .events = POLLIN};
    do {
        deadline_set(IDLE_MS_MAX);
    } while (poll(&ready, 1, IDLE_MS_MAX / 2) == 0);
}

static int receive_request(struct request *request, struct symbol_files *files, uint64_t *offsets)
{
    int fds[2] = {-1, -1};
    wait_idle();
    if (receive_files(WORKER_FD, request, sizeof(*request), fds, 2) < 0)
        return -EPIPE;
    *files =
        (struct symbol_files){.main_fd = request->has_main ? fds[0] : -1,
                              .debug_fd = request->has_debug ? fds[request->has_main ? 1 : 0] : -1,
                              .main_error = request->main_error};
    if (request->offsets == 0 || request->offsets > SYMBOL_WORKER_OFFSETS_MAX)
        return -EPIPE;
    return receive_rest(offsets, request->offsets * sizeof(*offsets));
}

static int send_all(int fd, const void *data, size_t len)
{
    const char *p = data;
    while (len > 0) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -EPIPE;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

/* Ask the parent for debug files. */
static size_t want_send(void *context, const struct symbol_want *want,
                        int ret_fds[static SYMBOL_GIVEN_MAX])
{
    struct {
        uint32_t mark;
        struct symbol_want want;
    } __attribute__((packed)) message = {WANT, *want};
    char count;
    if (send_all(WORKER_FD, &message, sizeof(message)) < 0)
        _exit(0);
    timer_set(context); /* it took its time, too */
    int n = receive_files(WORKER_FD, &count, 1, ret_fds, SYMBOL_GIVEN_MAX);
    if (n < 0)
        _exit(0);
    return (size_t)n;
}

/* Look up one offset and send what there is. */
static int answer(const struct symbol_worker_setup *setup, const struct symbol_lookup *lookup,
                  uint64_t offset, struct buffer *record)
{
    timer_set(setup);
    buffer_reset(record);
    uint32_t len = 0; /* goes in front */
    buffer_append(record, &len, sizeof(len));
    symbol_engine_look_up(lookup, offset, record);
    deadline_set(IDLE_MS_MAX); /* the parent may be slow to take it */
    if (record->error)
        return record->error;
    len = (uint32_t)(record->len - sizeof(len));
    memcpy(record->data, &len, sizeof(len));
    return send_all(WORKER_FD, record->data, record->len);
}

_Noreturn void symbol_worker_serve(int fd, const struct symbol_worker_setup *setup)
{
    struct symbol_engine *engine;
    struct buffer record = BUFFER_INIT(SYMBOL_RECORD_MAX);
    struct request request;
    struct symbol_files files;
    uint64_t offsets[SYMBOL_WORKER_OFFSETS_MAX];
    uint32_t ready = READY;
    if (!worker_prepare(fd, setup) ||
        symbol_engine_new(setup->modules_max, want_send, (void *)setup, &engine) < 0 ||
        send_all(WORKER_FD, &ready, sizeof(ready)) < 0)
        _exit(1);
    while (receive_request(&request, &files, offsets) == 0) {
        struct symbol_query query = {
            .build_id = request.build_id,
            .build_id_len = request.build_id_len,
            .owner = request.owner,
            .is_return_address = request.is_return_address,
        };
        timer_set(setup);
        struct symbol_lookup lookup = symbol_engine_find(engine, &query, &files);
        for (uint32_t i = 0; i < request.offsets; i++)
            if (answer(setup, &lookup, offsets[i], &record) < 0)
                _exit(0);
    }
    _exit(0);
}

/* ---- the parent's side ---- */

static int receive_all(int fd, void *data, size_t len, int64_t deadline_ms);

static int child_start(struct symbol_worker *w, int fd)
{
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0)
        symbol_worker_serve(fd, &w->setup);
    w->pid = pid;
    w->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    return 0;
}

int symbol_worker_start(struct symbol_worker *w)
{
    int pair[2];
    uint32_t ready = 0;
    if (w->fd >= 0)
        return 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    w->pid = 0;
    w->pidfd = -1;
    int r =
        w->host ? w->host->spawn(w->host->context, pair[1], &w->setup) : child_start(w, pair[1]);
    close(pair[1]);
    if (r < 0) {
        close(pair[0]);
        return r;
    }
    w->fd = pair[0];
    r = receive_all(w->fd, &ready, sizeof(ready), now_ms() + READY_MS);
    if (r == 0 && ready == READY)
        return 0;
    symbol_worker_stop(w);
    return r == -ETIMEDOUT ? r : -EPERM;
}

/* Where SIGCHLD is ignored the kernel forgets a process at its end, and its number may be a stranger's by now: so the
 * descriptor says who is meant; without one that can be used (EMFILE, kernels before 5.3), that the number is still our child's. */
static void kill_worker(const struct symbol_worker *w)
{
    if (w->pidfd >= 0 &&
        (syscall(SYS_pidfd_send_signal, w->pidfd, SIGKILL, NULL, 0) == 0 || errno == ESRCH))
        return;
    if (waitpid(w->pid, NULL, WNOHANG) == 0)
        kill(w->pid, SIGKILL);
}

static void forget_worker(struct symbol_worker *w)
{
    close(w->fd);
    if (w->pidfd >= 0)
        close(w->pidfd);
    while (w->pid > 0 && waitpid(w->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    w->pid = 0;
    w->fd = w->pidfd = -1;
}

void symbol_worker_end(struct symbol_worker *w)
{
    if (w->fd < 0)
        return;
    struct pollfd ended = {.fd = w->pidfd, .events = POLLIN};
    shutdown(w->fd, SHUT_RDWR);
    if (w->pid > 0 && poll(&ended, 1, w->pidfd >= 0 ? END_MS : 0) != 1)
        kill_worker(w);
    forget_worker(w);
}

void symbol_worker_stop(struct symbol_worker *w)
{
    if (w->fd < 0)
        return;
    if (w->pid > 0)
        kill_worker(w);
    forget_worker(w);
}

/* Send bytes and the files that belong to them, which stay the caller's. */
static int send_files(int fd, const void *data, size_t len, const int *fds, size_t n)
{
    union {
        char bytes[CMSG_SPACE(SYMBOL_GIVEN_MAX * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec part = {.iov_base = (void *)data, .iov_len = len};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (n > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(n * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(n * sizeof(int));
        memcpy(CMSG_DATA(header), fds, n * sizeof(int));
    }
    ssize_t sent;
    do {
        sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0)
        return -EPIPE;
    return send_all(fd, (const char *)data + sent, len - (size_t)sent);
}

static int send_request(int fd, const struct request *request, const struct symbol_files *files)
{
    int fds[2];
    size_t n = 0;
    if (files->main_fd >= 0)
        fds[n++] = files->main_fd;
    if (files->debug_fd >= 0)
        fds[n++] = files->debug_fd;
    return send_files(fd, request, sizeof(*request), fds, n);
}

static int receive_all(int fd, void *data, size_t len, int64_t deadline_ms)
{
    char *p = data;
    while (len > 0) {
        int64_t left = deadline_ms - now_ms();
        struct pollfd pollfd = {.fd = fd, .events = POLLIN};
        int r = left > 0 ? poll(&pollfd, 1, (int)left) : 0;
        if (r == 0)
            return -ETIMEDOUT;
        ssize_t n = r < 0 ? -1 : recv(fd, p, len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -EBADMSG;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

static void request_fill(struct request *request, const struct symbol_query *query,
                         const struct symbol_files *files)
{
    request->owner = query->owner;
    request->main_error = files->main_error;
    request->build_id_len =
        (uint8_t)(query->build_id_len <= SYMBOL_BUILD_ID_MAX ? query->build_id_len : 0);
    request->is_return_address = query->is_return_address;
    request->has_main = files->main_fd >= 0;
    request->has_debug = files->debug_fd >= 0;
    if (request->build_id_len > 0)
        memcpy(request->build_id, query->build_id, request->build_id_len);
}

/* A request under way. */
struct asked {
    const struct symbol_query *query;
    unsigned wants; /* so far */
};

static int want_serve(struct symbol_worker *w, struct asked *asked, int64_t deadline_ms)
{
    struct symbol_want want;
    int fds[SYMBOL_GIVEN_MAX];
    int r = receive_all(w->fd, &want, sizeof(want), deadline_ms);
    if (r < 0)
        return r;
    if (asked->wants++ == WANTS_MAX)
        return -EBADMSG;
    size_t n = symbol_files_give(asked->query, w->debug_dir, w->host, &want, fds);
    char count = (char)n;
    r = send_files(w->fd, &count, 1, fds, n);
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
    return r;
}

static int receive_record(struct symbol_worker *w, struct asked *asked, struct buffer *record)
{
    uint32_t len = WANT;
    int64_t deadline = 0;
    while (len == WANT) {
        deadline = now_ms() + w->setup.timeout_ms;
        int r = receive_all(w->fd, &len, sizeof(len), deadline);
        if (r == 0 && len == WANT)
            r = want_serve(w, asked, deadline);
        if (r < 0)
            return r;
    }
    if (len < sizeof(struct symbol_record) || len > SYMBOL_RECORD_MAX)
        return -EBADMSG;
    buffer_reset(record);
    char *room = buffer_reserve(record, len);
    int r = room ? receive_all(w->fd, room, len, deadline) : -ENOMEM;
    if (r == 0)
        buffer_commit(record, len);
    return r;
}

int symbol_worker_resolve_many(struct symbol_worker *w, const struct symbol_query *query,
                               const struct symbol_files *files, const uint64_t *offsets, size_t n,
                               struct buffer *record, void (*each)(size_t i, void *context),
                               void *context)
{
    struct request request = {.offsets = (uint32_t)n};
    struct asked asked = {.query = query};
    request_fill(&request, query, files);
    int r = send_request(w->fd, &request, files);
    if (r == 0)
        r = send_all(w->fd, offsets, n * sizeof(*offsets));
    for (size_t i = 0; i < n && r == 0; i++) {
        r = receive_record(w, &asked, record);
        if (r == 0 && each)
            each(i, context);
    }
    if (r == 0)
        return 0;
    symbol_worker_stop(w);
    return r == -EPIPE ? -EBADMSG : r;
}

int symbol_worker_resolve(struct symbol_worker *w, const struct symbol_query *query,
                          const struct symbol_files *files, struct buffer *record)
{
    return symbol_worker_resolve_many(w, query, files, &query->offset, 1, record, NULL, NULL);
}
