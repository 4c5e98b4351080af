/* See nvml.h. */
#include "nvml/nvml.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/helper.h"
#include "nvml/wire.h"
#include "nvml/worker.h"

enum { END_WAIT_MS = 50 /* for a worker to end after SIGKILL, before it is left behind */ };

struct nvml {
    int fd;                          /* to the worker; -1: none runs */
    pid_t workers[NVML_WORKERS_MAX]; /* [0] is asked, the others were killed; 0: none */
    int cancel_fd;
    uint64_t pause_until_ns, pause_ms;
    char why[NVML_WHY_MAX];
    char *rest; /* room for what follows a head */
};

const char *nvml_library_path(void)
{
    const char *set = secure_getenv("MEMOIR_NVML");
    return set && strchr(set, '/') ? set : NULL;
}

static bool is_off(void)
{
    const char *set = secure_getenv("MEMOIR_NVML");
    return set && strcmp(set, "off") == 0;
}

/* ---- the worker's life ---- */

/* Those that were killed end when they can. True if another one may be started. */
static bool workers_collect(struct nvml *nvml)
{
    bool room = false;
    for (size_t i = 1; i < NVML_WORKERS_MAX; i++) {
        pid_t *worker = &nvml->workers[i];
        if (*worker && waitpid(*worker, NULL, WNOHANG) != 0)
            *worker = 0;
        room |= *worker == 0;
    }
    return room;
}

static int worker_start(struct nvml *nvml)
{
    int fds[2];
    if (!workers_collect(nvml))
        return -EBUSY;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        return -errno;
    int r = helper_spawn(NVML_WORKER, fds[1], &nvml->workers[0]);
    close(fds[1]);
    if (r < 0) {
        nvml->workers[0] = 0;
        close(fds[0]);
        return r;
    }
    nvml->fd = fds[0];
    return 0;
}

/* Wait for its end, but only for a moment: one that waits in the driver hears SIGKILL later. `ret_status` is -1 where it
 * is not known. */
static void worker_stop(struct nvml *nvml, int *ret_status)
{
    pid_t worker = nvml->workers[0];
    int status = -1;
    if (nvml->fd >= 0)
        close(nvml->fd);
    nvml->fd = -1;
    nvml->workers[0] = 0;
    if (ret_status)
        *ret_status = -1;
    if (!worker)
        return;
    kill(worker, SIGKILL);
    for (int ms = 0; ms <= END_WAIT_MS; ms++) {
        pid_t ended = waitpid(worker, &status, WNOHANG);
        if (ended != 0) {
            if (ret_status && ended == worker)
                *ret_status = status;
            return;
        }
        poll(NULL, 0, 1);
    }
    (void)workers_collect(nvml);
    for (size_t i = 1; i < NVML_WORKERS_MAX; i++)
        if (nvml->workers[i] == 0) {
            nvml->workers[i] = worker;
            return;
        }
}

/* ---- a question ---- */

/* Exactly `len` bytes. -ETIME, -ECANCELED, -ECHILD when the worker is gone. */
static int receive(const struct nvml *nvml, void *to, size_t len, uint64_t due_ns)
{
    for (size_t had = 0; had < len;) {
        uint64_t now = clock_monotonic_ns();
        struct pollfd ready[2] = {{.fd = nvml->fd, .events = POLLIN},
                                  {.fd = nvml->cancel_fd, .events = POLLIN}};
        if (now >= due_ns)
            return -ETIME;
        int r = poll(ready, 2, (int)((due_ns - now) / NS_PER_MS) + 1);
        if (r < 0 && errno != EINTR)
            return -errno;
        if (r > 0 && ready[1].revents)
            return -ECANCELED;
        if (r <= 0 || !ready[0].revents)
            continue;
        ssize_t n = recv(nvml->fd, (char *)to + had, len - had, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno == ECONNRESET))
            return -ECHILD;
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -errno;
        had += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int ask(struct nvml *nvml, uint64_t due_ns, struct nvml_wire_head *ret_head,
               struct nvml_facts *ret_facts)
{
    size_t len = 0;
    if (send(nvml->fd, "?", 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
        return -ECHILD;
    int r = receive(nvml, ret_head, sizeof(*ret_head), due_ns);
    if (r == 0)
        r = nvml_wire_rest(ret_head, &len);
    if (r < 0 || ret_head->result < 0)
        return r;
    r = receive(nvml, nvml->rest, len, due_ns);
    return r < 0 ? r : nvml_facts_read(ret_head, nvml->rest, len, ret_facts);
}

static void explain(struct nvml *nvml, int r, unsigned wait_ms, int status,
                    const struct nvml_wire_head *head)
{
    if (head->result < 0)
        snprintf(nvml->why, sizeof(nvml->why), "%.*s", (int)sizeof(head->why) - 1, head->why);
    else if (r == -ETIME)
        snprintf(nvml->why, sizeof(nvml->why), "no answer within %u ms", wait_ms);
    else if (r == -ECHILD && status >= 0 && WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        snprintf(nvml->why, sizeof(nvml->why), "the library crashed (%s)",
                 strsignal(WTERMSIG(status)));
    else if (r == -ECHILD && status >= 0 && WIFEXITED(status))
        snprintf(nvml->why, sizeof(nvml->why), "the library ended its process (exit status %d)",
                 WEXITSTATUS(status));
    else if (r == -ECHILD)
        snprintf(nvml->why, sizeof(nvml->why), "the process that reads it ended");
    else if (r == -EBADMSG)
        snprintf(nvml->why, sizeof(nvml->why), "invalid answer");
    else
        snprintf(nvml->why, sizeof(nvml->why), "cannot start a process to read it: %s",
                 strerror(-r));
}

/* A hang or crash may come from a moment's load; a missing library will be missing for long. */
static void pause_begin(struct nvml *nvml, int r)
{
    uint64_t ms = nvml->pause_ms ? nvml->pause_ms * 2 : NVML_PAUSE_MIN_MS;
    if (r == -ENOENT || r == -ENOEXEC)
        ms = NVML_PAUSE_MAX_MS / 2;
    nvml->pause_ms = ms < NVML_PAUSE_MAX_MS ? ms : NVML_PAUSE_MAX_MS;
    nvml->pause_until_ns = clock_monotonic_ns() + nvml->pause_ms * NS_PER_MS;
}

int nvml_ask(struct nvml *nvml, unsigned wait_ms, struct nvml_facts *ret_facts)
{
    uint64_t now = clock_monotonic_ns();
    struct nvml_wire_head head = {0};
    struct pollfd cancelled = {.fd = nvml->cancel_fd, .events = POLLIN};
    int status = -1;
    if (poll(&cancelled, 1, 0) > 0)
        return -ECANCELED;
    if (is_off()) {
        snprintf(nvml->why, sizeof(nvml->why), "switched off by MEMOIR_NVML=off");
        return -ENOENT;
    }
    if (now < nvml->pause_until_ns)
        return -EAGAIN;
    int r = nvml->fd < 0 ? worker_start(nvml) : 0;
    if (r == 0)
        r = ask(nvml, now + wait_ms * NS_PER_MS, &head, ret_facts);
    if (r == 0 && head.result < 0)
        r = (int)head.result;
    else if (r == 0) {
        nvml->pause_ms = 0;
        nvml->why[0] = '\0';
        return 0;
    }
    worker_stop(nvml, &status);
    if (r == -ECANCELED)
        return r;
    explain(nvml, r, wait_ms, status, &head);
    pause_begin(nvml, r);
    return r;
}

const char *nvml_why(const struct nvml *nvml)
{
    return nvml->why;
}

void nvml_rest(struct nvml *nvml)
{
    worker_stop(nvml, NULL);
}

void nvml_cancel(struct nvml *nvml)
{
    uint64_t one = 1;
    ssize_t written = write(nvml->cancel_fd, &one, sizeof(one));
    (void)written; /* it can only be full: cancelled already */
}

/* ---- begin and end ---- */

int nvml_new(struct nvml **ret_nvml)
{
    struct nvml *nvml = calloc(1, sizeof(*nvml));
    if (!nvml)
        return -ENOMEM;
    nvml->fd = -1;
    nvml->rest = malloc(NVML_WIRE_MAX);
    nvml->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int r = nvml->cancel_fd < 0 ? -errno : nvml->rest ? 0 : -ENOMEM;
    if (r < 0) {
        nvml_free(nvml);
        return r;
    }
    *ret_nvml = nvml;
    return 0;
}

void nvml_free(struct nvml *nvml)
{
    if (!nvml)
        return;
    worker_stop(nvml, NULL);
    if (nvml->cancel_fd >= 0)
        close(nvml->cancel_fd);
    free(nvml->rest);
    free(nvml);
}
