/* Listening sockets. See conn.h.
 *
 * A Unix socket gets its name in three steps: bound under a random name in the same directory, which
 * no other user can open; given its mode and group; renamed. All of it goes by the descriptor of the
 * directory, so that a path that changes meanwhile changes nothing. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "daemon/conn_internal.h"
#include "daemon/listen.h"
#include "daemon/loop.h"
#include "daemon/server.h"

enum { BACKLOG = 4096, ACCEPTS_PER_TURN = 64 };

/* ---- clients that come ---- */

/* No descriptor is left: give up the one kept for this, take the client and turn it away. Else it would wait
 * in the queue, and the loop would be told of it again and again. */
static bool turn_away(struct conn_listener *listener)
{
    struct conn_server *server = listener->server;
    server->figures->refused_descriptors++;
    if (!server->said_fds)
        log_warn("no descriptors left: clients are turned away (raise the limit of open files)");
    server->said_fds = true;
    if (server->spare_fd >= 0)
        close(server->spare_fd);
    int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        close(fd);
    server->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return fd >= 0;
}

static void on_clients(void *context, uint32_t events)
{
    struct conn_listener *listener = context;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            conn_accept(listener, fd);
        else if (errno == EMFILE || errno == ENFILE) {
            if (!turn_away(listener))
                return;
        } else if (errno != EINTR && errno != ECONNABORTED)
            return;
    }
}

static int listener_new(struct conn_server *server, const struct conn_protocol *protocol,
                        void *context, int fd, struct conn_listener **ret_listener)
{
    struct conn_listener *listener = calloc(1, sizeof(*listener));
    if (!listener)
        return -ENOMEM;
    *listener = (struct conn_listener){
        .server = server, .protocol = protocol, .context = context, .fd = fd, .dirfd = -1};
    int r = listen(fd, BACKLOG) < 0 ? -errno : 0;
    if (r >= 0)
        r = loop_add_fd(server->loop, fd, EPOLLIN, on_clients, listener, &listener->source);
    if (r < 0) {
        free(listener);
        return r;
    }
    LIST_INSERT_HEAD(&server->listeners, listener, link);
    *ret_listener = listener;
    return 0;
}

/* ---- a name in the file system ---- */

/* Our own name, reached through the descriptor of its directory: also keeps long paths short. */
static int address_at(int dirfd, const char *name, struct sockaddr_un *ret_address)
{
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(ret_address->sun_path, sizeof(ret_address->sun_path), "/proc/self/fd/%d/%s",
                     dirfd, name);
    return n < 0 || (size_t)n >= sizeof(ret_address->sun_path) ? -ENAMETOOLONG : 0;
}

static int open_directory(const char *path, int *ret_dirfd, char *name, size_t size)
{
    char copy[PATH_MAX];
    if (strlen(path) >= sizeof(copy))
        return -ENAMETOOLONG;
    strcpy(copy, path);
    char *slash = strrchr(copy, '/');
    const char *base = slash ? slash + 1 : copy;
    if (!*base || strlen(base) >= size)
        return *base ? -ENAMETOOLONG : -EINVAL;
    strcpy(name, base);
    const char *directory = !slash ? "." : slash == copy ? "/" : (*slash = '\0', copy);
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    *ret_dirfd = fd;
    return 0;
}

/* What is there already? 0: nothing, or a socket without a server, which may be replaced. */
static int check_name(int dirfd, const char *name)
{
    struct stat st, dir;
    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISSOCK(st.st_mode))
        return -EEXIST;
    struct sockaddr_un address;
    int r = address_at(dirfd, name, &address);
    if (r < 0)
        return r;
    MEMOIR_CLEANUP(closep)
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 || errno == EAGAIN)
        return -EADDRINUSE;
    if (errno != ECONNREFUSED)
        return -errno;
    /* In a sticky directory only its owner can take it away. */
    bool sticky = fstat(dirfd, &dir) == 0 && dir.st_mode & S_ISVTX;
    return sticky && geteuid() != 0 && st.st_uid != geteuid() ? -EPERM : 0;
}

static int bind_named(int dirfd, const char *name, const struct conn_unix_options *options,
                      struct stat *ret_st)
{
    char temporary[64];
    uint64_t random = 0;
    (void)!getrandom(&random, sizeof(random), GRND_NONBLOCK);
    snprintf(temporary, sizeof(temporary), ".%.20s.%016" PRIx64, name, random);
    struct sockaddr_un address;
    int r = address_at(dirfd, temporary, &address);
    if (r < 0)
        return r;
    MEMOIR_CLEANUP(closep)
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    mode_t mask = umask(0177);
    r = bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
    umask(mask);
    if (r < 0)
        return r;
    if ((options->group != (gid_t)-1 &&
         fchownat(dirfd, temporary, (uid_t)-1, options->group, AT_SYMLINK_NOFOLLOW) < 0) ||
        fchmodat(dirfd, temporary, options->mode, 0) < 0 ||
        fstatat(dirfd, temporary, ret_st, AT_SYMLINK_NOFOLLOW) < 0)
        r = -errno;
    /* Who connects between the two would be refused: clients see a socket that answers or none. */
    if (r >= 0 && listen(fd, BACKLOG) < 0)
        r = -errno;
    if (r >= 0 && renameat(dirfd, temporary, dirfd, name) < 0)
        r = -errno;
    if (r < 0) {
        unlinkat(dirfd, temporary, 0);
        return r;
    }
    return MEMOIR_TAKE_FD(fd);
}

static void name_remove(int dirfd, const char *name, uint64_t dev, uint64_t ino)
{
    struct stat st;
    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_dev == dev && st.st_ino == ino)
        unlinkat(dirfd, name, 0);
}

int conn_listen_unix(struct conn_server *server, const struct conn_protocol *protocol,
                     void *context, const struct conn_unix_options *options,
                     struct conn_listener **ret_listener)
{
    char name[sizeof(((struct conn_listener *)0)->name)];
    MEMOIR_CLEANUP(closep)
    int dirfd = -1;
    int r = open_directory(options->path, &dirfd, name, sizeof(name));
    if (r >= 0)
        r = check_name(dirfd, name);
    if (r < 0)
        return r;
    struct stat st;
    int fd = bind_named(dirfd, name, options, &st);
    if (fd < 0)
        return fd;
    r = listener_new(server, protocol, context, fd, ret_listener);
    if (r < 0) {
        name_remove(dirfd, name, st.st_dev, st.st_ino);
        close(fd);
        return r;
    }
    strcpy((*ret_listener)->name, name);
    (*ret_listener)->dirfd = MEMOIR_TAKE_FD(dirfd);
    (*ret_listener)->dev = st.st_dev;
    (*ret_listener)->ino = st.st_ino;
    return 0;
}

/* ---- the network ---- */

/* "[::1]:70", "1.2.3.4:70", ":70". */
static int address_split(const char *address, char *host, size_t size, const char **ret_port)
{
    const char *colon = strrchr(address, ':');
    if (!colon || !colon[1])
        return -EINVAL;
    const char *start = address, *end = colon;
    if (*start == '[') {
        if (end[-1] != ']')
            return -EINVAL;
        start++;
        end--;
    }
    if ((size_t)(end - start) >= size)
        return -EINVAL;
    memcpy(host, start, (size_t)(end - start));
    host[end - start] = '\0';
    *ret_port = colon + 1;
    return 0;
}

static int bind_inet(const char *address)
{
    char host[64];
    const char *port;
    int r = address_split(address, host, sizeof(host), &port);
    if (r < 0)
        return r;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    struct addrinfo *found = NULL;
    if (getaddrinfo(host[0] ? host : NULL, port, &hints, &found) != 0)
        return -EINVAL;
    MEMOIR_CLEANUP(closep)
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int one = 1;
    r = fd < 0 ? -errno : 0;
    if (r >= 0 && (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
                   bind(fd, found->ai_addr, found->ai_addrlen) < 0))
        r = -errno;
    freeaddrinfo(found);
    return r < 0 ? r : MEMOIR_TAKE_FD(fd);
}

int listen_inet(const char *address, struct sockaddr_storage *ret_own)
{
    MEMOIR_CLEANUP(closep)
    int fd = bind_inet(address);
    if (fd < 0)
        return fd;
    socklen_t len = sizeof(*ret_own);
    if (listen(fd, BACKLOG) < 0 || getsockname(fd, (struct sockaddr *)ret_own, &len) < 0)
        return -errno;
    return MEMOIR_TAKE_FD(fd);
}

int listen_unix(const struct conn_unix_options *options, struct listen_name *ret_name)
{
    char name[NAME_MAX + 1];
    MEMOIR_CLEANUP(closep)
    int dirfd = -1;
    struct stat st;
    int r = open_directory(options->path, &dirfd, name, sizeof(name));
    if (r >= 0)
        r = check_name(dirfd, name);
    int fd = r < 0 ? r : bind_named(dirfd, name, options, &st);
    if (fd < 0)
        return fd;
    *ret_name =
        (struct listen_name){.dirfd = MEMOIR_TAKE_FD(dirfd), .dev = st.st_dev, .ino = st.st_ino};
    strcpy(ret_name->name, name);
    return fd;
}

void listen_name_release(struct listen_name *name)
{
    if (name->dirfd < 0)
        return;
    name_remove(name->dirfd, name->name, name->dev, name->ino);
    close(name->dirfd);
    name->dirfd = -1;
}

int conn_listen_tcp(struct conn_server *server, const struct conn_protocol *protocol, void *context,
                    const char *address, uint16_t *ret_port, struct conn_listener **ret_listener)
{
    MEMOIR_CLEANUP(closep)
    int fd = bind_inet(address);
    if (fd < 0)
        return fd;
    struct sockaddr_storage own = {0};
    socklen_t len = sizeof(own);
    if (getsockname(fd, (struct sockaddr *)&own, &len) < 0)
        return -errno;
    int r = listener_new(server, protocol, context, fd, ret_listener);
    if (r < 0)
        return r;
    (void)MEMOIR_TAKE_FD(fd);
    if (ret_port)
        *ret_port = ntohs(own.ss_family == AF_INET ? ((struct sockaddr_in *)&own)->sin_port
                                                   : ((struct sockaddr_in6 *)&own)->sin6_port);
    return 0;
}

void conn_listener_free(struct conn_listener *listener)
{
    if (!listener)
        return;
    LIST_REMOVE(listener, link);
    loop_source_free(listener->source);
    if (listener->dirfd >= 0) {
        name_remove(listener->dirfd, listener->name, listener->dev, listener->ino);
        close(listener->dirfd);
    }
    close(listener->fd);
    free(listener);
}
