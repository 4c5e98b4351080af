/* See apart.h. */
#include "base/apart.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"

enum {
    LOOK_MS = 100,   /* between two looks at the beat */
    END_MS = 1000,   /* for a child to end after SIGKILL, or after its last byte */
    PIECE = 1 << 16, /* read at a time */
};

/* ---- the child ---- */

static uint64_t *beat; /* in memory that parent and child share; NULL but in a child */

void apart_beat(void)
{
    if (beat)
        fetch_add_relaxed(beat, 1);
}

/* Where to send what was found, once all else that need not be open is closed. */
static int confine(int to, pid_t parent, bool keep_files)
{
    enum { FIRST = STDERR_FILENO + 1 };
    sigset_t none;
    setpgid(0, 0); /* the terminal's signals are for who waits, and his end is the child's */
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTTOU, SIG_IGN); /* it may write to the terminal all the same */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    int out = keep_files ? fcntl(to, F_DUPFD_CLOEXEC, FIRST) : to == FIRST ? to : dup2(to, FIRST);
    if (out < 0)
        _exit(1);
    if (!keep_files)
        syscall(SYS_close_range, FIRST + 1, ~0u, 0);
    int nowhere = open("/dev/null", O_RDWR);
    for (int fd = 0; fd <= (isatty(STDERR_FILENO) ? 1 : 2); fd++)
        dup2(nowhere, fd);
    if (nowhere > STDERR_FILENO)
        close(nowhere);
    return out;
}

/* What comes first. By the length the parent knows when all has come: where it was started with SIGCHLD ignored, the kernel does not
 * tell how a child ended. */
struct head {
    int64_t result;
    uint64_t len;
};

static _Noreturn void child_run(apart_fn *fn, void *context, size_t out_max, int to)
{
    struct buffer found = BUFFER_INIT(out_max);
    int r = fn(&found, context);
    struct head head = {.result = r == 0 ? found.error : r};
    if (head.result == 0)
        head.len = found.len;
    int sent = fs_write_all(to, (const char *)&head, sizeof(head));
    if (sent == 0)
        sent = fs_write_all(to, found.data, head.len);
    _exit(sent == 0 ? 0 : 1);
}

/* ---- those that were killed ---- */

static pthread_mutex_t left_lock = PTHREAD_MUTEX_INITIALIZER;
static struct place {
    pid_t pid; /* 0: none; -1: kept for one that runs */
    uint32_t owner;
} left[APART_ALL_MAX];

/* A place for one more, or NULL. */
static struct place *left_place(uint32_t owner)
{
    struct place *place = NULL;
    int own = 0;
    pthread_mutex_lock(&left_lock);
    for (int i = 0; i < APART_ALL_MAX; i++) {
        if (left[i].pid > 0 && waitpid(left[i].pid, NULL, WNOHANG) != 0)
            left[i].pid = 0;
        if (left[i].pid == 0)
            place = &left[i];
        else
            own += left[i].owner == owner;
    }
    if (own >= APART_OWNER_MAX)
        place = NULL;
    if (place)
        *place = (struct place){.pid = -1, .owner = owner};
    pthread_mutex_unlock(&left_lock);
    return place;
}

static void left_set(struct place *place, pid_t pid)
{
    pthread_mutex_lock(&left_lock);
    place->pid = pid;
    pthread_mutex_unlock(&left_lock);
}

/* Wait for its end, but not for ever. */
static void end(pid_t pid, struct place *place)
{
    uint64_t until_ns = clock_monotonic_ns() + END_MS * NS_PER_MS;
    pid_t ended;
    do {
        ended = waitpid(pid, NULL, WNOHANG);
        if (ended == 0)
            poll(NULL, 0, 1);
    } while (ended == 0 && clock_monotonic_ns() < until_ns);
    left_set(place, ended == 0 ? pid : 0);
}

/* ---- the parent ---- */

struct watched {
    const struct apart_options *options;
    const uint64_t *beat;
    uint64_t beats, begun_ns, heard_ns;
};

static bool is_late(struct watched *w)
{
    uint64_t now_ns = clock_monotonic_ns(), beats = load_relaxed(w->beat);
    if (beats != w->beats)
        w->heard_ns = now_ns;
    w->beats = beats;
    return (w->options->all_ms && now_ns - w->begun_ns > w->options->all_ms * NS_PER_MS) ||
           (w->options->silent_ms && now_ns - w->heard_ns > w->options->silent_ms * NS_PER_MS);
}

/* Up to `len` bytes, fewer where it ends before. */
static ssize_t receive(int fd, void *to, size_t len, struct watched *w)
{
    for (;;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        int r = poll(&ready, 1, LOOK_MS);
        if (r < 0 && errno != EINTR)
            return -errno;
        if (r > 0) {
            ssize_t n = read(fd, to, len);
            if (n >= 0 || (errno != EINTR && errno != EAGAIN))
                return n < 0 ? -errno : n;
        }
        if (is_late(w))
            return -ETIME;
    }
}

static int receive_all(int fd, struct buffer *out, struct watched *w, struct head *ret_head)
{
    size_t had = 0;
    while (had < sizeof(*ret_head)) {
        ssize_t n = receive(fd, (char *)ret_head + had, sizeof(*ret_head) - had, w);
        if (n <= 0)
            return n < 0 ? (int)n : -ECHILD;
        had += (size_t)n;
    }
    for (;;) {
        char more, *room = &more; /* where nothing more fits, nothing more may come */
        size_t len = out->limit - out->len < PIECE ? out->limit - out->len : PIECE;
        if (len > 0 && !(room = buffer_reserve(out, len)))
            return out->error;
        ssize_t n = receive(fd, room, len ? len : 1, w);
        if (n <= 0)
            return (int)n;
        if (len == 0)
            return -ENOBUFS;
        buffer_commit(out, (size_t)n);
    }
}

static int watch(int fd, pid_t pid, struct place *place, struct watched *w, struct buffer *out)
{
    struct head head = {0};
    size_t had = out->len;
    int r = receive_all(fd, out, w, &head);
    if (r < 0)
        kill(pid, SIGKILL);
    end(pid, place);
    if (r < 0)
        return r;
    return out->len - had == head.len ? (int)head.result : -ECHILD;
}

static int run(apart_fn *fn, void *context, const struct apart_options *options, uint64_t *shared,
               struct place *place, struct buffer *out)
{
    MEMOIR_CLEANUP(closep)
    int from = -1;
    int fds[2];
    pid_t parent = getpid();
    if (pipe2(fds, O_CLOEXEC) < 0) {
        left_set(place, 0);
        return -errno;
    }
    from = fds[0];
    pid_t pid = fork();
    if (pid == 0) {
        beat = shared;
        int to = confine(fds[1], parent, options->keep_files);
        child_run(fn, context, out->limit, to);
    }
    int error = errno;
    close(fds[1]);
    if (pid < 0) {
        left_set(place, 0);
        return -error;
    }
    uint64_t now_ns = clock_monotonic_ns();
    struct watched w = {.options = options, .beat = shared, .begun_ns = now_ns, .heard_ns = now_ns};
    size_t had = out->len;
    int r = watch(from, pid, place, &w, out);
    if (r < 0 && out->data) {
        out->len = had;
        out->data[had] = '\0';
        out->error = 0;
    }
    return r;
}

int apart_run(apart_fn *fn, void *context, const struct apart_options *options, struct buffer *out)
{
    if (out->error)
        return out->error;
    struct place *place = left_place(options->owner);
    if (!place)
        return -EBUSY;
    uint64_t *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        left_set(place, 0);
        return -ENOMEM;
    }
    int r = run(fn, context, options, shared, place, out);
    munmap(shared, sizeof(*shared));
    return r;
}

int apart_value(apart_fn *fn, void *context, const struct apart_options *options, void *ret_value,
                size_t bytes)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer message = BUFFER_INIT(bytes);
    int r = apart_run(fn, context, options, &message);
    if (r == 0 && message.len != bytes)
        r = -EBADMSG;
    if (r < 0)
        return r == -ETIME ? -ETIMEDOUT : r;
    memcpy(ret_value, message.data, bytes);
    return 0;
}
