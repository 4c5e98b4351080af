/* Command lines of strangers. See commands.h. */
#include "daemon/commands.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/accountable.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/helper.h"
#include "base/log.h"
#include "ledger/host_probe.h"
#include "ledger/proc.h"

struct blamed {
    uint32_t uid;
    uint64_t until_ns; /* 0: unused */
};

struct commands {
    int fd;                              /* of the helper that is asked; -1: none */
    pid_t helpers[COMMANDS_HELPERS_MAX]; /* all that were not waited for yet; 0: none */
    uint64_t rest_until_ns, asked;       /* `asked`: number of the last question */
    struct blamed blamed[COMMANDS_BLAMED_MAX];
    size_t next_blamed;
    bool said;
};

struct question {
    uint64_t number;
    int32_t pid;
    uint32_t kinds; /* enum host_probe_kind */
};

struct answer {
    uint64_t number;
    int64_t error; /* 0, or -errno */
    struct host_probe probe;
};
static_assert((int)COMMANDS_TEXT_MAX == (int)HOST_COMMAND_MAX,
              "command lines are cut at the same length");

/* ---- the helper ---- */

int commands_help(void)
{
    (void)prctl(PR_SET_NAME, COMMANDS_HELPER);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct question question;
    while (recv(0, &question, sizeof(question), 0) == sizeof(question)) {
        struct answer answer = {.number = question.number};
        answer.error = host_probe_read(NULL, question.pid, question.kinds, &answer.probe);
        if (send(0, &answer, sizeof(answer), MSG_NOSIGNAL) < 0)
            break;
    }
    return 0;
}

/* ---- its life ---- */

/* Those that were killed go when they like. A place for another one, or NULL. */
static pid_t *helper_place(struct commands *commands)
{
    pid_t *place = NULL;
    for (size_t i = 0; i < COMMANDS_HELPERS_MAX; i++) {
        pid_t *helper = &commands->helpers[i];
        if (*helper && waitpid(*helper, NULL, WNOHANG) != 0)
            *helper = 0;
        if (*helper == 0)
            place = helper;
    }
    return place;
}

static int helper_start(struct commands *commands)
{
    int fds[2];
    pid_t *place = helper_place(commands);
    if (!place)
        return -EBUSY;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
        return -errno;
    int r = helper_spawn(COMMANDS_HELPER, fds[1], place);
    close(fds[1]);
    if (r < 0) {
        *place = 0;
        close(fds[0]);
        return r;
    }
    commands->fd = fds[0];
    return 0;
}

static void helper_stop(struct commands *commands)
{
    if (commands->fd >= 0)
        close(commands->fd);
    commands->fd = -1;
    (void)helper_place(commands);
    for (size_t i = 0; i < COMMANDS_HELPERS_MAX; i++)
        if (commands->helpers[i])
            kill(commands->helpers[i], SIGKILL); /* one that waits hears it later, or never */
}

int commands_new(struct commands **ret_commands)
{
    struct commands *commands = calloc(1, sizeof(*commands));
    if (!commands)
        return -ENOMEM;
    commands->fd = -1;
    int r = helper_start(commands);
    if (r < 0) {
        free(commands);
        return r;
    }
    *ret_commands = commands;
    return 0;
}

void commands_free(struct commands *commands)
{
    if (!commands)
        return;
    helper_stop(commands);
    free(commands);
}

/* ---- asking ---- */

static bool is_blamed(const struct commands *commands, pid_t pid, uint64_t now_ns)
{
    uint32_t uid = 0;
    bool known = false;
    for (size_t i = 0; i < COMMANDS_BLAMED_MAX; i++) {
        const struct blamed *blamed = &commands->blamed[i];
        if (blamed->until_ns <= now_ns)
            continue;
        if (!known && proc_owner(pid, &uid) < 0)
            return true; /* gone */
        if (!known)
            uid = accountable_uid(uid);
        known = true;
        if (blamed->uid == uid)
            return true;
    }
    return false;
}

static void blame(struct commands *commands, pid_t pid)
{
    uint64_t now = clock_monotonic_ns();
    uint32_t uid;
    commands->rest_until_ns = now + COMMANDS_REST_MS * NS_PER_MS;
    if (proc_owner(pid, &uid) < 0)
        return;
    if (uid != 0) /* root's others are what all want to know of, and no strangers */
        commands->blamed[commands->next_blamed] =
            (struct blamed){accountable_uid(uid), now + COMMANDS_BLAME_S * NS_PER_S};
    commands->next_blamed = (commands->next_blamed + (uid != 0)) % COMMANDS_BLAMED_MAX;
    if (!commands->said)
        log_warn("the command line of PID %d (uid %u) cannot be read: its memory does not answer, "
                 "showing the program's name only",
                 (int)pid, uid);
    commands->said = true;
}

/* 0, -ETIMEDOUT, or -errno when the helper is gone. */
static int ask(struct commands *commands, pid_t pid, uint32_t kinds, uint64_t due_ns,
               struct answer *ret_answer)
{
    struct question question = {.number = ++commands->asked, .pid = pid, .kinds = kinds};
    if (send(commands->fd, &question, sizeof(question), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return -errno;
    for (;;) {
        uint64_t now = clock_monotonic_ns();
        struct pollfd ready = {.fd = commands->fd, .events = POLLIN};
        int wait_ms = now < due_ns ? (int)((due_ns - now) / NS_PER_MS) + 1 : 0;
        int r = poll(&ready, 1, wait_ms);
        if (r < 0 && errno != EINTR)
            return -errno;
        if (r == 0)
            return -ETIMEDOUT;
        if (r < 0)
            continue;
        ssize_t n = recv(commands->fd, ret_answer, sizeof(*ret_answer), MSG_DONTWAIT);
        if (n != sizeof(*ret_answer))
            return n < 0 ? -errno : -ECONNRESET;
        if (ret_answer->number == question.number)
            return 0;
    }
}

int commands_probe(struct commands *commands, pid_t pid, uint32_t kinds, unsigned wait_ms,
                   struct host_probe *ret_probe)
{
    uint64_t now = clock_monotonic_ns();
    struct answer answer;
    if (now < commands->rest_until_ns)
        return -EBUSY;
    if (is_blamed(commands, pid, now))
        return -ETIMEDOUT;
    int r = -ECONNRESET;
    for (int tries = 0; tries < 2 && r < 0 && r != -ETIMEDOUT; tries++) {
        if (commands->fd < 0 && helper_start(commands) < 0)
            break;
        r = ask(commands, pid, kinds, now + wait_ms * NS_PER_MS, &answer);
        if (r < 0)
            helper_stop(commands);
    }
    if (r == -ETIMEDOUT)
        blame(commands, pid);
    else if (r < 0)
        commands->rest_until_ns = now + COMMANDS_REST_MS * NS_PER_MS;
    if (r < 0)
        return r == -ETIMEDOUT ? r : -EBUSY;
    if (answer.error < 0)
        return (int)answer.error;
    *ret_probe = answer.probe;
    return 0;
}

void commands_read(struct commands *commands, pid_t pid, char *ret_text, size_t size)
{
    struct host_probe probe;
    ret_text[0] = '\0';
    if (!commands ||
        commands_probe(commands, pid, HOST_PROBE_COMMAND, COMMANDS_WAIT_MS, &probe) < 0)
        return;
    probe.command[sizeof(probe.command) - 1] = '\0';
    snprintf(ret_text, size, "%s", probe.command);
}
