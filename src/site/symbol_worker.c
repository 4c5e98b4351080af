/* The worker process and the talk with it: one request, one answer. */
#include "site/symbol_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "site/symbol_engine.h"

enum {
    PATH_BYTES_MAX = 4096,
    WORKER_FD = 3,
    NOBODY = 65534,
    END_MS = 2000, /* an idle worker ends at once */
};

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
    int32_t main_error;
    uint16_t path_len;
    uint8_t build_id_len;
    uint8_t is_return_address;
    uint8_t has_main; /* descriptors that come with it, in this order */
    uint8_t has_debug;
    char bytes[PATH_BYTES_MAX + SYMBOL_BUILD_ID_MAX]; /* path, then build-id */
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- the worker's side ---- */

/* Give up whatever it does not need. Failures are no reason to stop: each is one fence of several. */
static void worker_confine(const struct symbol_worker *w)
{
    struct rlimit none = {0, 0}, memory = {w->bytes_max, w->bytes_max};
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++)
        dup2(null, fd);
    syscall(SYS_close_range, WORKER_FD + 1, ~0u, 0);
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    sigset_t all;
    sigemptyset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_NAME, "memoir-symbols");
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_DUMPABLE, 0);
    setrlimit(RLIMIT_CORE, &none);
    setrlimit(RLIMIT_FSIZE, &none);
    if (MEMORY_LIMITED)
        setrlimit(RLIMIT_DATA, &memory);
    /* No tool of ours talks to a server about a file; elfutils would, if it were told so here. */
    unsetenv("DEBUGINFOD_URLS");
    if (geteuid() == 0 && setgroups(0, NULL) == 0 && setresgid(NOBODY, NOBODY, NOBODY) == 0 &&
        setresuid(NOBODY, NOBODY, NOBODY) != 0)
        _exit(1);
}

static int receive_rest(void *data, size_t len)
{
    ssize_t got = recv(WORKER_FD, data, len, MSG_WAITALL);
    return got == (ssize_t)len ? 0 : -EPIPE;
}

static int receive_request(struct request *request, struct symbol_files *files, uint64_t *offsets)
{
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = {.iov_base = request, .iov_len = sizeof(*request)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    ssize_t got = recvmsg(WORKER_FD, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL);
    if (got != (ssize_t)sizeof(*request))
        return -EPIPE;
    int fds[2] = {-1, -1};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS)
        memcpy(fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
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

/* Look up one offset and send what there is. */
static int answer(const struct symbol_worker *w, const struct symbol_lookup *lookup,
                  uint64_t offset, struct buffer *record)
{
    /* The parent waits only so long, and it may be gone by then. */
    alarm(w->timeout_ms / 1000 + 1);
    buffer_reset(record);
    uint32_t len = 0; /* goes in front */
    buffer_append(record, &len, sizeof(len));
    symbol_engine_look_up(lookup, offset, record);
    alarm(0);
    if (record->error)
        return record->error;
    len = (uint32_t)(record->len - sizeof(len));
    memcpy(record->data, &len, sizeof(len));
    return send_all(WORKER_FD, record->data, record->len);
}

static _Noreturn void worker_run(const struct symbol_worker *w)
{
    struct symbol_engine *engine;
    struct buffer record = BUFFER_INIT(SYMBOL_RECORD_MAX);
    struct request request;
    struct symbol_files files;
    uint64_t offsets[SYMBOL_WORKER_OFFSETS_MAX];
    worker_confine(w);
    if (symbol_engine_new(w->modules_max, w->debug_dir, &engine) < 0)
        _exit(1);
    while (receive_request(&request, &files, offsets) == 0) {
        char path[PATH_BYTES_MAX + 1];
        memcpy(path, request.bytes, request.path_len);
        path[request.path_len] = '\0';
        struct symbol_query query = {
            .path = path,
            .build_id = (const uint8_t *)request.bytes + request.path_len,
            .build_id_len = request.build_id_len,
            .is_return_address = request.is_return_address,
        };
        alarm(w->timeout_ms / 1000 + 1);
        struct symbol_lookup lookup = symbol_engine_find(engine, &query, &files);
        for (uint32_t i = 0; i < request.offsets; i++)
            if (answer(w, &lookup, offsets[i], &record) < 0)
                _exit(0);
    }
    _exit(0);
}

/* ---- the parent's side ---- */

int symbol_worker_start(struct symbol_worker *w)
{
    int pair[2];
    if (w->pid > 0)
        return 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    pid_t pid = fork();
    if (pid < 0) {
        int error = errno;
        close(pair[0]);
        close(pair[1]);
        return -error;
    }
    if (pid == 0) {
        if (pair[1] != WORKER_FD && dup2(pair[1], WORKER_FD) < 0)
            _exit(1);
        worker_run(w);
    }
    close(pair[1]);
    w->pid = pid;
    w->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    w->fd = pair[0];
    return 0;
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
    while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    w->pid = 0;
    w->fd = -1;
}

void symbol_worker_end(struct symbol_worker *w)
{
    if (w->pid <= 0)
        return;
    struct pollfd ended = {.fd = w->pidfd, .events = POLLIN};
    shutdown(w->fd, SHUT_RDWR);
    if (poll(&ended, 1, w->pidfd >= 0 ? END_MS : 0) != 1)
        kill_worker(w);
    forget_worker(w);
}

void symbol_worker_stop(struct symbol_worker *w)
{
    if (w->pid <= 0)
        return;
    kill_worker(w);
    forget_worker(w);
}

static int send_request(int fd, const struct request *request, const struct symbol_files *files)
{
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    int fds[2], count = 0;
    if (files->main_fd >= 0)
        fds[count++] = files->main_fd;
    if (files->debug_fd >= 0)
        fds[count++] = files->debug_fd;
    size_t fds_len = (size_t)count * sizeof(int);
    struct iovec part = {.iov_base = (void *)request, .iov_len = sizeof(*request)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(fds_len);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(fds_len);
        memcpy(CMSG_DATA(header), fds, fds_len);
    }
    ssize_t sent;
    do {
        sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0)
        return -EPIPE;
    return send_all(fd, (const char *)request + sent, sizeof(*request) - (size_t)sent);
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
    size_t path_len = query->path ? strlen(query->path) : 0;
    if (path_len > PATH_BYTES_MAX)
        path_len = 0;
    request->main_error = files->main_error;
    request->path_len = (uint16_t)path_len;
    request->build_id_len =
        (uint8_t)(query->build_id_len <= SYMBOL_BUILD_ID_MAX ? query->build_id_len : 0);
    request->is_return_address = query->is_return_address;
    request->has_main = files->main_fd >= 0;
    request->has_debug = files->debug_fd >= 0;
    if (path_len > 0)
        memcpy(request->bytes, query->path, path_len);
    if (request->build_id_len > 0)
        memcpy(request->bytes + path_len, query->build_id, request->build_id_len);
}

static int receive_record(struct symbol_worker *w, struct buffer *record)
{
    uint32_t len = 0;
    int64_t deadline = now_ms() + w->timeout_ms;
    int r = receive_all(w->fd, &len, sizeof(len), deadline);
    if (r < 0)
        return r;
    if (len < sizeof(struct symbol_record) || len > SYMBOL_RECORD_MAX)
        return -EBADMSG;
    buffer_reset(record);
    char *room = buffer_reserve(record, len);
    r = room ? receive_all(w->fd, room, len, deadline) : -ENOMEM;
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
    request_fill(&request, query, files);
    int r = send_request(w->fd, &request, files);
    if (r == 0)
        r = send_all(w->fd, offsets, n * sizeof(*offsets));
    for (size_t i = 0; i < n && r == 0; i++) {
        r = receive_record(w, record);
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
