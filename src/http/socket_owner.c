/* See socket_owner.h. One exact question to the kernel's socket diagnosis, not a dump of all sockets. */
#include "http/socket_owner.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ANSWER_MAX = 4096, STALE_MAX = 8 };

int socket_owner_open(void)
{
    return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
}

static void address_copy(const struct sockaddr_storage *from, __be32 *to, __be16 *to_port)
{
    const struct sockaddr_in *v4 = (const void *)from;
    const struct sockaddr_in6 *v6 = (const void *)from;
    if (from->ss_family == AF_INET) {
        memcpy(to, &v4->sin_addr, sizeof(v4->sin_addr));
        *to_port = v4->sin_port;
    } else {
        memcpy(to, &v6->sin6_addr, sizeof(v6->sin6_addr));
        *to_port = v6->sin6_port;
    }
}

/* 1: it answered about that socket; 0: about another question; below 0: no answer. */
static int answer_read(int owner_fd, uint32_t sequence, struct inet_diag_msg *ret_message)
{
    union {
        struct nlmsghdr head;
        char bytes[ANSWER_MAX];
    } answer;
    ssize_t n = recv(owner_fd, &answer, sizeof(answer), MSG_DONTWAIT);
    if (n < 0)
        return -errno;
    if (!NLMSG_OK(&answer.head, (size_t)n) || answer.head.nlmsg_seq != sequence)
        return 0;
    if (answer.head.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
        answer.head.nlmsg_len < NLMSG_LENGTH(sizeof(*ret_message)))
        return -ENOENT;
    memcpy(ret_message, NLMSG_DATA(&answer.head), sizeof(*ret_message));
    return 1;
}

bool socket_owner(int owner_fd, int fd, uint32_t *ret_uid)
{
    static _Thread_local uint32_t sequence;
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t own_len = sizeof(own), peer_len = sizeof(peer);
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 request;
    } question = {
        .head = {.nlmsg_len = sizeof(question),
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST,
                 .nlmsg_seq = ++sequence},
        .request = {.sdiag_protocol = IPPROTO_TCP, .idiag_states = UINT32_MAX},
    };
    if (owner_fd < 0 || getsockname(fd, (struct sockaddr *)&own, &own_len) < 0 ||
        getpeername(fd, (struct sockaddr *)&peer, &peer_len) < 0 || own.ss_family != peer.ss_family)
        return false;
    struct inet_diag_sockid *id = &question.request.id;
    question.request.sdiag_family = (uint8_t)peer.ss_family;
    address_copy(&peer, id->idiag_src, &id->idiag_sport); /* the client's end is the source */
    address_copy(&own, id->idiag_dst, &id->idiag_dport);
    id->idiag_cookie[0] = id->idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    if (send(owner_fd, &question, sizeof(question), MSG_DONTWAIT) < 0)
        return false;
    struct inet_diag_msg message = {0};
    int r = 0;
    for (int i = 0; i < STALE_MAX && r == 0; i++)
        r = answer_read(owner_fd, question.head.nlmsg_seq, &message);
    /* A socket that its program has closed has no inode, and root for an owner. */
    if (r <= 0 || message.idiag_inode == 0)
        return false;
    *ret_uid = message.idiag_uid;
    return true;
}
