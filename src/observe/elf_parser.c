/* The observer's side of the parser. See elf_parser.h. */
#include "observe/elf_parser.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/helper.h"
#include "base/log.h"
#include "observe/elf_parser_internal.h"

enum {
    READY_MS = 10000,  /* on a busy machine */
    ANSWER_MS = 5000,  /* for one question; tables of symbols may be large */
    PROCESS_MS = 2000, /* for one about memory of a process */
    END_MS = 500,      /* an idle child ends at once */
    DEATHS_BURST = 16, /* children started again at once, */
    DEATH_MS = 1000,   /* and one more after so long */
};
#define CHILD_NAME "memoir-parse"

struct elf_parser {
    int fd; /* -1: none runs */
    pid_t pid;
    bool for_test; /* there is no other child */
    uint32_t generation;
    uint64_t deaths;
    uint64_t credit_ns; /* how many starts there are left; grows with time */
    uint64_t credit_at_ns;
    bool slots[ELF_PARSER_FILES_MAX];
    struct elf_wire_piece pieces[ELF_WIRE_PIECES_MAX];
    uint8_t bytes[ELF_WIRE_PIECES_MAX + ELF_WIRE_READ_MAX];
};

bool elf_parser_is_this(int argc, char *const *argv)
{
    return argc > 0 && strcmp(argv[0], CHILD_NAME) == 0;
}

/* ---- the socket ---- */

static int wait_for(int fd, short events, uint64_t until_ns)
{
    for (;;) {
        uint64_t now = clock_monotonic_ns();
        struct pollfd ready = {.fd = fd, .events = events};
        if (now >= until_ns)
            return -ETIMEDOUT;
        int n = poll(&ready, 1, (int)((until_ns - now) / 1000000) + 1);
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -errno;
    }
}

static int send_all(int fd, const void *data, size_t len, uint64_t until_ns)
{
    const uint8_t *at = data;
    while (len > 0) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -EPIPE;
        if (n < 0 && wait_for(fd, POLLOUT, until_ns) < 0)
            return -EPIPE;
        if (n > 0) {
            at += n;
            len -= (size_t)n;
        }
    }
    return 0;
}

static int receive_all(int fd, void *data, size_t len, uint64_t until_ns)
{
    uint8_t *at = data;
    while (len > 0) {
        if (wait_for(fd, POLLIN, until_ns) < 0)
            return -EPIPE;
        ssize_t n = recv(fd, at, len, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return -EPIPE;
        if (n > 0) {
            at += n;
            len -= (size_t)n;
        }
    }
    return 0;
}

/* ---- life ---- */

static void child_end(struct elf_parser *p, bool kindly)
{
    if (p->fd < 0)
        return;
    close(p->fd);
    p->fd = -1;
    uint64_t until = clock_monotonic_ns() + (uint64_t)END_MS * 1000000;
    bool ended = false;
    while (kindly && p->pid > 0 && !ended && clock_monotonic_ns() < until) {
        ended = waitpid(p->pid, NULL, WNOHANG) == p->pid;
        if (!ended)
            poll(NULL, 0, 1);
    }
    if (!ended && p->pid > 0) {
        kill(p->pid, SIGKILL);
        waitpid(p->pid, NULL, 0);
    }
    p->pid = 0;
}

static int child_start(struct elf_parser *p)
{
    int fds[2];
    uint32_t word = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        return -errno;
    int r = helper_spawn(CHILD_NAME, fds[1], &p->pid);
    close(fds[1]);
    if (r < 0) {
        close(fds[0]);
        return r;
    }
    p->fd = fds[0];
    p->generation++;
    uint64_t until = clock_monotonic_ns() + (uint64_t)READY_MS * 1000000;
    if (receive_all(p->fd, &word, sizeof(word), until) == 0 && word == ELF_WIRE_READY)
        return 0;
    child_end(p, false);
    return -EPERM;
}

static struct elf_parser *parser_make(uint32_t starts)
{
    struct elf_parser *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->fd = -1;
    p->credit_at_ns = clock_monotonic_ns();
    p->credit_ns = (uint64_t)starts * DEATH_MS * 1000000;
    return p;
}

int elf_parser_for_test(int fd, struct elf_parser **ret_parser)
{
    struct elf_parser *p = parser_make(0);
    if (!p)
        return -ENOMEM;
    p->fd = fd;
    p->for_test = true;
    p->generation = 1;
    *ret_parser = p;
    return 0;
}

int elf_parser_new(struct elf_parser **ret_parser)
{
    struct elf_parser *p = parser_make(DEATHS_BURST);
    if (!p)
        return -ENOMEM;
    int r = child_start(p);
    if (r < 0) {
        free(p);
        return r;
    }
    *ret_parser = p;
    return 0;
}

void elf_parser_free(struct elf_parser *p)
{
    if (!p)
        return;
    child_end(p, true);
    free(p);
}

pid_t elf_parser_pid(const struct elf_parser *p)
{
    return p->fd < 0 ? 0 : p->pid;
}

uint64_t elf_parser_deaths(const struct elf_parser *p)
{
    return p->deaths;
}

uint32_t elf_parser_generation(const struct elf_parser *p)
{
    return p->generation;
}

/* Starting a child takes milliseconds: files that end it may not keep the observer busy. */
static bool start_allowed(struct elf_parser *p)
{
    uint64_t now = clock_monotonic_ns(), most = (uint64_t)DEATHS_BURST * DEATH_MS * 1000000;
    uint64_t cost = (uint64_t)DEATH_MS * 1000000;
    p->credit_ns += now - p->credit_at_ns;
    p->credit_at_ns = now;
    if (p->credit_ns > most)
        p->credit_ns = most;
    if (p->credit_ns < cost)
        return false;
    p->credit_ns -= cost;
    return true;
}

/* Between questions a child says nothing: it ended, because it had none for long or was killed. No file is why. */
static bool is_gone(const struct elf_parser *p)
{
    struct pollfd said = {.fd = p->fd, .events = POLLIN};
    return poll(&said, 1, 0) > 0;
}

int elf_parser_ensure(struct elf_parser *p)
{
    if (p->for_test)
        return p->fd >= 0 ? 0 : -EBUSY;
    if (p->fd >= 0 && is_gone(p))
        child_end(p, false);
    if (p->fd >= 0)
        return 0;
    return start_allowed(p) ? child_start(p) : -EBUSY;
}

int elf_parser_slot_take(struct elf_parser *p, uint32_t *ret_slot)
{
    for (uint32_t i = 0; i < ELF_PARSER_FILES_MAX; i++)
        if (!p->slots[i]) {
            p->slots[i] = true;
            *ret_slot = i;
            return 0;
        }
    return -ENOSPC;
}

void elf_parser_slot_give(struct elf_parser *p, uint32_t slot)
{
    p->slots[slot] = false;
}

/* ---- questions ---- */

static int read_answer(struct elf_parser *p, const struct elf_question *q,
                       const struct elf_tell *tell, uint64_t until_ns)
{
    if (!q->read || tell->bytes == 0 || tell->bytes > ELF_WIRE_READ_MAX)
        return -EPIPE;
    int64_t n = q->read(q->read_context, tell->offset, p->bytes, tell->bytes);
    if (n > (int64_t)tell->bytes)
        n = -EIO;
    int r = send_all(p->fd, &n, sizeof(n), until_ns);
    return r == 0 && n > 0 ? send_all(p->fd, p->bytes, (size_t)n, until_ns) : r;
}

/* Take the child's list of pieces, within what is left for the question. The number of bytes, or -EPIPE. */
static int64_t pieces_take(struct elf_parser *p, struct elf_question *q,
                           const struct elf_tell *tell, uint64_t until_ns)
{
    size_t n = tell->bytes / sizeof(p->pieces[0]);
    uint64_t bytes = 0;
    if (!q->memory || n == 0 || n > ELF_WIRE_PIECES_MAX || n > q->pieces_left ||
        tell->bytes % sizeof(p->pieces[0]) != 0 ||
        receive_all(p->fd, p->pieces, tell->bytes, until_ns) < 0)
        return -EPIPE;
    for (size_t i = 0; i < n; i++)
        bytes += p->pieces[i].bytes;
    if (bytes > ELF_WIRE_READ_MAX || bytes > q->memory_left)
        return -EPIPE;
    q->pieces_left -= (uint32_t)n;
    q->memory_left -= bytes;
    return (int64_t)bytes;
}

static int pieces_answer(struct elf_parser *p, struct elf_question *q, const struct elf_tell *tell,
                         uint64_t until_ns)
{
    struct remote_piece pieces[ELF_WIRE_PIECES_MAX];
    int64_t bytes = pieces_take(p, q, tell, until_ns);
    if (bytes < 0)
        return (int)bytes;
    size_t n = tell->bytes / sizeof(p->pieces[0]);
    uint8_t *at = p->bytes + n, *end = at;
    for (size_t i = 0; i < n; i++) {
        pieces[i] = (struct remote_piece){p->pieces[i].address, end, p->pieces[i].bytes, false};
        end += pieces[i].bytes;
    }
    q->memory(q->memory_context, pieces, n);
    for (size_t i = 0; i < n; i++) {
        p->bytes[i] = pieces[i].done;
        if (!pieces[i].done)
            continue;
        memmove(at, pieces[i].to, pieces[i].bytes);
        at += pieces[i].bytes;
    }
    uint32_t len = (uint32_t)(at - p->bytes);
    int r = send_all(p->fd, &len, sizeof(len), until_ns);
    return r == 0 ? send_all(p->fd, p->bytes, len, until_ns) : r;
}

static int functions_take(struct elf_parser *p, const struct elf_question *q,
                          const struct elf_tell *tell, uint64_t until_ns)
{
    if (!q->each || tell->bytes > ELF_WIRE_BATCH_MAX ||
        receive_all(p->fd, p->bytes, tell->bytes, until_ns) < 0)
        return -EPIPE;
    for (size_t at = 0; at < tell->bytes;) {
        struct elf_told_function f;
        if (tell->bytes - at < sizeof(f))
            return -EPIPE;
        memcpy(&f, p->bytes + at, sizeof(f));
        at += sizeof(f);
        const char *name = (const char *)p->bytes + at;
        if (f.name_bytes == 0 || f.name_bytes > ELF_FUNCTION_NAME_MAX ||
            f.name_bytes > tell->bytes - at || strnlen(name, f.name_bytes) != f.name_bytes - 1u)
            return -EPIPE;
        at += f.name_bytes;
        q->each(q->each_context, &(struct elf_function){
                                     .name = name,
                                     .offset = f.offset,
                                     .address = f.address,
                                     .bytes = f.bytes,
                                     .exported = f.exported != 0,
                                     .global = f.global != 0,
                                 });
    }
    return 0;
}

/* Is the length of an answer what it should be? */
static bool done_fits(const struct elf_question *q, const struct elf_tell *done)
{
    if (done->kind != ELF_TELL_DONE || done->result > 0)
        return false;
    if (done->result < 0)
        return done->bytes == 0;
    return q->told_item ? done->bytes <= q->told_bytes && done->bytes % q->told_item == 0
                        : done->bytes == q->told_bytes;
}

static int talk(struct elf_parser *p, struct elf_question *q)
{
    uint32_t answer_ms = q->answer_ms ? q->answer_ms : ANSWER_MS;
    uint64_t until = clock_monotonic_ns() + (uint64_t)answer_ms * 1000000;
    int r = send_all(p->fd, &q->ask, sizeof(q->ask), until);
    if (r == 0 && q->ask.payload_bytes > 0)
        r = send_all(p->fd, q->payload, q->ask.payload_bytes, until);
    while (r == 0) {
        struct elf_tell tell;
        r = receive_all(p->fd, &tell, sizeof(tell), until);
        if (r < 0)
            return r;
        if (tell.kind == ELF_TELL_READ) {
            r = read_answer(p, q, &tell, until);
        } else if (tell.kind == ELF_TELL_FUNCTIONS) {
            r = functions_take(p, q, &tell, until);
        } else if (tell.kind == ELF_TELL_PIECES) {
            r = pieces_answer(p, q, &tell, until);
        } else {
            if (!done_fits(q, &tell))
                return -EPIPE;
            q->done = tell;
            return receive_all(p->fd, q->told, tell.bytes, until);
        }
    }
    return r;
}

int elf_parser_ask(struct elf_parser *p, struct elf_question *q)
{
    if (talk(p, q) == 0)
        return q->done.result;
    p->deaths++;
    child_end(p, false);
    log_warn("the parser ended over a file or a process; another is started when it is needed");
    return -EPIPE;
}

int elf_parser_ask_process(struct elf_parser *p, struct elf_question *q, uint32_t *deaths)
{
    if (*deaths >= ELF_FILE_DEATHS_MAX)
        return -EBADMSG;
    int r = elf_parser_ensure(p);
    if (r < 0)
        return r;
    q->answer_ms = PROCESS_MS;
    r = elf_parser_ask(p, q);
    if (r != -EPIPE)
        return r;
    ++*deaths;
    return -EBADMSG;
}
