/* Who is at the other end. See peer.h. */
#include "daemon/peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/allowance.h"
#include "ledger/pidns.h"
#include "ledger/proc.h"
#include "query/query.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#ifndef NS_GET_TGID_FROM_PIDNS
#define NS_GET_TGID_FROM_PIDNS _IOR(NSIO, 0x7, int)
#endif

/* How many of its PIDs are known. */
static uint32_t levels_known(const struct proc_ids *ids)
{
    return ids->levels < PROC_LEVELS_MAX ? ids->levels : PROC_LEVELS_MAX;
}

/* ---- begin and end ---- */

static int remote_init(struct peer *peer, const struct sockaddr_storage *address)
{
    const void *from = address->ss_family == AF_INET
                           ? (const void *)&((const struct sockaddr_in *)address)->sin_addr
                           : (const void *)&((const struct sockaddr_in6 *)address)->sin6_addr;
    peer->remote = true;
    return inet_ntop(address->ss_family, from, peer->host, sizeof(peer->host)) ? 0 : -errno;
}

/* -1: the kernel cannot tell. */
static int pidfd_of(int fd)
{
    int pidfd;
    socklen_t len = sizeof(pidfd);
    return getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &len) < 0 ? -1 : pidfd;
}

static bool has_ended(int pidfd)
{
    struct pollfd ended = {.fd = pidfd, .events = POLLIN};
    return pidfd >= 0 && poll(&ended, 1, 0) > 0;
}

static void local_learn(struct peer *peer, int fd)
{
    struct proc_stat stat;
    struct proc_ids status;
    uint64_t own = 0;
    MEMOIR_CLEANUP(closep)
    int pidfd = pidfd_of(fd);
    if (peer->pid <= 0 || proc_stat_read(peer->pid, &stat) < 0 ||
        proc_ids_read(peer->pid, &status) < 0)
        return; /* gone, or of a namespace that we cannot see: it may report for none */
    (void)proc_pid_ns(peer->pid, &peer->pid_ns);
    (void)proc_pid_ns(getpid(), &own);
    if (has_ended(pidfd))
        return; /* the pid was reused */
    peer->start_ticks = stat.start_ticks;
    memcpy(peer->pids, status.pids, sizeof(peer->pids));
    peer->n_pids = levels_known(&status);
    peer->foreign_ns = peer->n_pids > 1 || (peer->pid_ns && own && peer->pid_ns != own);
}

int peer_init(struct peer *peer, int fd)
{
    *peer = (struct peer){.uid = UINT32_MAX, .gid = UINT32_MAX, .lookups = PEER_LOOKUPS_MAX};
    struct sockaddr_storage address = {0};
    socklen_t len = sizeof(address);
    if (getpeername(fd, (struct sockaddr *)&address, &len) < 0)
        return -errno;
    if (address.ss_family == AF_INET || address.ss_family == AF_INET6)
        return remote_init(peer, &address);
    struct ucred cred;
    len = sizeof(cred);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
        return -errno;
    peer->pid = cred.pid;
    peer->uid = cred.uid;
    peer->gid = cred.gid;
    local_learn(peer, fd);
    return 0;
}

void peer_release(struct peer *peer)
{
    free(peer->known);
    peer->known = NULL;
}

/* ---- processes that it may report for ---- */

/* What all connections share: a look at /proc costs the time of all. The loop's thread only. */
static struct {
    struct pidns_map *pidns;
    struct allowance *of_user, *of_all;
    bool no_ioctl; /* the kernel is older than 6.11 */
} shared;

/* Are `n` more looks allowed? Root may report for thousands. */
static bool looks_take(const struct peer *peer, uint64_t n)
{
    enum { ALL_USERS = 1 }; /* one bucket; root's would have no limit */
    uint64_t now = clock_monotonic_ns();
    if (!shared.of_user && allowance_new(PEER_LOOKS_MAX, NS_PER_S / 2, &shared.of_user) < 0)
        return false;
    if (!shared.of_all && allowance_new(PEER_LOOKS_ALL_MAX, NS_PER_S, &shared.of_all) < 0)
        return false;
    return peer->uid == 0 || (allowance_take(shared.of_user, peer->uid, n, now) &&
                              allowance_take(shared.of_all, ALL_USERS, n, now));
}

/* The kernel translates pids since Linux 6.11. -ENOSYS: ours does not, or we may not ask. */
static int translate_ask(const struct peer *peer, pid_t claimed, pid_t *ret_pid)
{
    char path[64];
    struct stat st;
    if (shared.no_ioctl)
        return -ENOSYS;
    snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)peer->pid);
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return errno == ENOENT ? -ESRCH : -ENOSYS;
    if (st.st_ino != peer->pid_ns)
        return -ESRCH; /* it is gone, and its pid was reused */
    int pid = ioctl(fd, NS_GET_TGID_FROM_PIDNS, claimed);
    if (pid > 0) {
        *ret_pid = pid;
        return 0;
    }
    shared.no_ioctl = pid < 0 && errno == ENOTTY;
    return shared.no_ioctl ? -ENOSYS : -ESRCH;
}

static int translate_search(const struct peer *peer, pid_t claimed, pid_t *ret_pid)
{
    if (!shared.pidns && pidns_map_new(&shared.pidns) < 0)
        return -EAGAIN;
    return pidns_find_any(shared.pidns, peer->pid_ns, claimed, ret_pid);
}

/* The process that it means by a pid of its own namespace. */
static int translate(const struct peer *peer, pid_t claimed, pid_t *ret_pid)
{
    struct proc_ids status;
    uint64_t ns;
    pid_t pid = claimed;
    *ret_pid = claimed;
    if (!peer->foreign_ns)
        return 0;
    int r = translate_ask(peer, claimed, &pid);
    if (r == -ENOSYS)
        r = translate_search(peer, claimed, &pid);
    if (r < 0)
        return r;
    /* It may have ended since, or since the picture of all processes was taken. */
    if (proc_ids_read(pid, &status) < 0 || levels_known(&status) != peer->n_pids ||
        status.inner_pid != claimed || proc_pid_ns(pid, &ns) < 0 || ns != peer->pid_ns)
        return -ESRCH;
    *ret_pid = pid;
    return 0;
}

/* 1 or 0; -EAGAIN: it would take too long. */
static int is_descendant(const struct peer *peer, const struct proc_ids *status)
{
    struct proc_ids above = *status;
    for (int i = 0; i < PEER_ANCESTORS_MAX && above.parent_pid > 0; i++) {
        if (above.parent_pid == peer->pid)
            return 1;
        if (!looks_take(peer, 1))
            return -EAGAIN;
        if (proc_ids_read(above.parent_pid, &above) < 0)
            return 0;
    }
    return 0;
}

/* 0 with pid and start time. Each look at /proc is between two looks at the start time, so that all of it
 * is about one process. */
static int look_up(const struct peer *peer, pid_t claimed, struct peer_known *ret_known)
{
    struct proc_stat first, last;
    struct proc_ids status;
    bool self = peer_is_own(peer, claimed);
    pid_t pid = peer->pid;
    if (!self && !looks_take(peer, PEER_LOOKUP_LOOKS))
        return -EAGAIN;
    int r = self ? 0 : translate(peer, claimed, &pid);
    if (r < 0)
        return r;
    if (pid <= 0 || proc_stat_read(pid, &first) < 0 || proc_ids_read(pid, &status) < 0)
        return -ESRCH;
    if (self && (peer->start_ticks == 0 || first.start_ticks != peer->start_ticks))
        return -ESRCH;
    bool same_user = status.real_uid == peer->uid && status.effective_uid == peer->uid &&
                     status.saved_uid == peer->uid && peer->start_ticks != 0 &&
                     first.start_ticks >= peer->start_ticks;
    int allowed = peer->uid == 0 || (same_user && self);
    if (!allowed && same_user)
        allowed = is_descendant(peer, &status);
    if (allowed < 0)
        return allowed;
    if (proc_stat_read(pid, &last) < 0 || last.start_ticks != first.start_ticks || last.dead)
        return -ESRCH;
    if (!allowed)
        return -EPERM;
    ret_known->pid = pid;
    ret_known->start_ticks = first.start_ticks;
    return 0;
}

static bool lookup_allowed(struct peer *peer, uint64_t now)
{
    uint64_t since = now - peer->lookups_ns;
    if (since >= PEER_LOOKUP_MS * NS_PER_MS && peer->lookups < PEER_LOOKUPS_MAX) {
        uint64_t more = since / (PEER_LOOKUP_MS * NS_PER_MS);
        peer->lookups =
            more >= PEER_LOOKUPS_MAX ? PEER_LOOKUPS_MAX : peer->lookups + (uint32_t)more;
        if (peer->lookups > PEER_LOOKUPS_MAX)
            peer->lookups = PEER_LOOKUPS_MAX;
        peer->lookups_ns = now;
    }
    if (peer->lookups == 0)
        return false;
    if (peer->lookups == PEER_LOOKUPS_MAX)
        peer->lookups_ns = now;
    peer->lookups--;
    return true;
}

static struct peer_known *known_find(const struct peer *peer, pid_t claimed)
{
    if (peer->own.claimed == claimed)
        return (struct peer_known *)&peer->own;
    for (size_t i = 0; peer->known && i < PEER_KNOWN_MAX; i++)
        if (peer->known[i].claimed == claimed)
            return &peer->known[i];
    return NULL;
}

/* Where to keep an answer; NULL without memory. */
static struct peer_known *known_new(struct peer *peer, pid_t claimed)
{
    if (peer_is_own(peer, claimed))
        return &peer->own;
    if (!peer->known)
        peer->known = calloc(PEER_KNOWN_MAX, sizeof(*peer->known));
    if (!peer->known)
        return NULL;
    struct peer_known *known = &peer->known[peer->next_known];
    peer->next_known = (peer->next_known + 1) % PEER_KNOWN_MAX;
    return known;
}

int peer_resolve(struct peer *peer, pid_t claimed, struct peer_process *ret_process)
{
    if (peer->remote || claimed <= 0)
        return -EPERM;
    uint64_t now = clock_monotonic_ns();
    struct peer_known *known = known_find(peer, claimed);
    if (known && known->pid > 0) {
        *ret_process = (struct peer_process){known->pid, known->start_ticks};
        return 0;
    }
    /* A refusal holds for a while: who repeats a wrong pid a million times costs nothing. */
    if (known && now - known->looked_ns < PEER_LOOKUP_MS * NS_PER_MS)
        return known->error;
    bool cheap = peer->uid == 0 && !peer->foreign_ns; /* and root may speak for thousands */
    if (!cheap && !lookup_allowed(peer, now))
        return -EAGAIN;
    if (!known)
        known = known_new(peer, claimed);
    if (!known)
        return -ENOMEM;
    *known = (struct peer_known){.claimed = claimed, .looked_ns = now};
    known->error = look_up(peer, claimed, known);
    if (known->error < 0)
        return known->error;
    *ret_process = (struct peer_process){known->pid, known->start_ticks};
    return 0;
}

void peer_forget(struct peer *peer, pid_t claimed)
{
    struct peer_known *known = known_find(peer, claimed);
    if (known)
        *known = (struct peer_known){0};
}

bool peer_is_own(const struct peer *peer, pid_t claimed)
{
    if (peer->remote || claimed <= 0)
        return false;
    for (uint32_t i = 0; i < peer->n_pids; i++)
        if (peer->pids[i] == claimed)
            return true;
    return peer->n_pids == 0 && claimed == peer->pid;
}

pid_t peer_own_pid(const struct peer *peer)
{
    return peer->remote ? 0 : peer->n_pids ? peer->pids[peer->n_pids - 1] : peer->pid;
}

bool peer_is_known(const struct peer *peer, pid_t claimed)
{
    const struct peer_known *known = claimed > 0 ? known_find(peer, claimed) : NULL;
    return (known && known->pid > 0) || peer_is_own(peer, claimed);
}

bool peer_may_see(const struct peer *peer, uint32_t uid)
{
    return !peer->remote && query_may_see(peer->uid == 0, peer->uid, uid);
}
