/* Clients of an HTTP server, all in one thread: how many answers a second, how long one takes.
 *
 * Usage: bench_http_load get HOST-PORT TOKEN TARGET CONNECTIONS SECONDS [RATE]
 *        bench_http_load streams HOST-PORT TOKEN TARGET CONNECTIONS SECONDS
 *
 * get: each connection asks again as soon as it has its answer; with a RATE, requests fall due at that pace whatever
 * the server does, and the time of one counts from when it was due. "{n}" in TARGET is another number each time.
 * streams: opens all of them, then counts events for so long. Both print one JSON object. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

enum { READ_BYTES = 256 << 10, EVENTS_MAX = 256, TARGET_MAX = 4096, LATENCIES_MAX = 8 << 20 };

struct client {
    int fd;
    bool busy;       /* waits for an answer */
    uint64_t due_ns; /* when its request was */
    size_t left;     /* bytes of the body that are still to come */
    bool in_body;
    char head[4096];
    size_t head_len;
};

struct load {
    struct sockaddr_in address;
    const char *token, *target;
    struct client *clients;
    int n, epoll_fd;
    uint64_t number; /* for "{n}" */
    uint64_t answers, bad, bytes, events;
    uint32_t *latencies_us;
    size_t n_latencies;
    char *buffer;
};

static void die(const char *what)
{
    fprintf(stderr, "bench_http_load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void client_open(struct load *load, struct client *client)
{
    int one = 1;
    *client = (struct client){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (client->fd < 0 ||
        connect(client->fd, (struct sockaddr *)&load->address, sizeof(load->address)) < 0)
        die("cannot connect");
    setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    fcntl(client->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
    if (epoll_ctl(load->epoll_fd, EPOLL_CTL_ADD, client->fd, &event) < 0)
        die("epoll");
}

static void client_ask(struct load *load, struct client *client, uint64_t due_ns)
{
    char request[TARGET_MAX + 512], target[TARGET_MAX];
    const char *mark = strstr(load->target, "{n}");
    if (mark)
        snprintf(target, sizeof(target), "%.*s%" PRIu64 "%s", (int)(mark - load->target),
                 load->target, load->number++, mark + 3);
    else
        snprintf(target, sizeof(target), "%s", load->target);
    int len = snprintf(request, sizeof(request),
                       "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n",
                       target, load->token);
    client->busy = true;
    client->due_ns = due_ns;
    if (send(client->fd, request, (size_t)len, MSG_NOSIGNAL) != len)
        die("cannot send");
}

static void answered(struct load *load, struct client *client)
{
    uint64_t us = (clock_monotonic_ns() - client->due_ns) / NS_PER_US;
    client->busy = false;
    client->head_len = 0;
    load->answers++;
    if (load->n_latencies < LATENCIES_MAX)
        load->latencies_us[load->n_latencies++] = us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
}

/* The head is whole: how long is the body? */
static void head_done(struct load *load, struct client *client)
{
    client->head[client->head_len] = '\0';
    const char *length = strcasestr(client->head, "content-length:");
    client->left = length ? strtoul(length + 15, NULL, 10) : 0;
    client->in_body = client->left > 0;
    if (strncmp(client->head, "HTTP/1.1 200", 12) != 0)
        load->bad++;
    if (!client->in_body)
        answered(load, client);
}

static void take(struct load *load, struct client *client, const char *at, size_t len)
{
    load->bytes += len;
    while (len > 0) {
        if (client->in_body) {
            size_t n = len < client->left ? len : client->left;
            client->left -= n;
            at += n;
            len -= n;
            if (client->left == 0) {
                client->in_body = false;
                answered(load, client);
            }
            continue;
        }
        if (client->head_len == sizeof(client->head) - 1) {
            errno = EMSGSIZE;
            die("a head");
        }
        client->head[client->head_len++] = *at++;
        len--;
        if (client->head_len >= 4 &&
            memcmp(client->head + client->head_len - 4, "\r\n\r\n", 4) == 0)
            head_done(load, client);
    }
}

static void client_read(struct load *load, struct client *client, bool stream)
{
    ssize_t n;
    while ((n = recv(client->fd, load->buffer, READ_BYTES, 0)) > 0) {
        if (!stream) {
            take(load, client, load->buffer, (size_t)n);
        } else {
            load->bytes += (size_t)n;
            load->buffer[n] = '\0';
            for (const char *at = load->buffer; (at = strstr(at, "event: tick")); at++)
                load->events++;
        }
        if (n < READ_BYTES)
            break;
    }
    if (n == 0 || (n < 0 && errno != EAGAIN))
        die("the server hung up");
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double percentile(const struct load *load, double share)
{
    return load->n_latencies ? load->latencies_us[(size_t)((double)(load->n_latencies - 1) * share)]
                             : 0;
}

static void wait_once(struct load *load, uint64_t until_ns, bool stream)
{
    struct epoll_event events[EVENTS_MAX];
    uint64_t now = clock_monotonic_ns();
    int ms = until_ns > now ? (int)((until_ns - now) / NS_PER_MS) : 0;
    int n = epoll_wait(load->epoll_fd, events, EVENTS_MAX, ms);
    for (int i = 0; i < n; i++)
        client_read(load, events[i].data.ptr, stream);
}

static void run_get(struct load *load, double seconds, double rate)
{
    uint64_t begin = clock_monotonic_ns(), end = begin + (uint64_t)(seconds * 1e9), asked = 0;
    uint64_t now = begin;
    while (now < end) {
        uint64_t next = end;
        for (int i = 0; i < load->n; i++) {
            struct client *client = &load->clients[i];
            if (client->busy)
                continue;
            uint64_t due = rate > 0 ? begin + (uint64_t)((double)asked / rate * 1e9) : now;
            if (due > now) {
                next = due;
                break;
            }
            client_ask(load, client, due);
            asked++;
        }
        wait_once(load, next, false);
        now = clock_monotonic_ns();
    }
    qsort(load->latencies_us, load->n_latencies, sizeof(*load->latencies_us), by_size);
    printf("{\"seconds\":%.3f,\"answers\":%" PRIu64 ",\"bad\":%" PRIu64 ",\"bytes\":%" PRIu64
           ",\"per_s\":%.1f,\"p50_us\":%.0f,\"p99_us\":%.0f,\"max_us\":%.0f}\n",
           (double)(now - begin) / 1e9, load->answers, load->bad, load->bytes,
           (double)load->answers / ((double)(now - begin) / 1e9), percentile(load, 0.5),
           percentile(load, 0.99), percentile(load, 1));
}

static void run_streams(struct load *load, double seconds)
{
    for (int i = 0; i < load->n; i++)
        client_ask(load, &load->clients[i], 0);
    uint64_t until = clock_monotonic_ns() + 30 * NS_PER_S;
    while (load->events < (uint64_t)load->n && clock_monotonic_ns() < until)
        wait_once(load, until, true);
    puts("ready"); /* from here on the server's time is looked at */
    fflush(stdout);
    load->events = load->bytes = 0;
    uint64_t begin = clock_monotonic_ns(), now = begin, end = begin + (uint64_t)(seconds * 1e9);
    while (now < end) {
        wait_once(load, end, true);
        now = clock_monotonic_ns();
    }
    printf("{\"seconds\":%.3f,\"streams\":%d,\"events\":%" PRIu64 ",\"bytes\":%" PRIu64 "}\n",
           (double)(now - begin) / 1e9, load->n, load->events, load->bytes);
}

int main(int argc, char **argv)
{
    struct load load = {.address = {.sin_family = AF_INET}, .number = 10000000};
    struct rlimit limit;
    if (argc < 7) {
        fprintf(
            stderr,
            "usage: bench_http_load get|streams PORT TOKEN TARGET CONNECTIONS SECONDS [RATE]\n");
        return 2;
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    load.address.sin_port = htons((uint16_t)atoi(argv[2]));
    load.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    load.token = argv[3];
    load.target = argv[4];
    load.n = atoi(argv[5]);
    load.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    load.clients = calloc((size_t)load.n, sizeof(*load.clients));
    load.latencies_us = malloc(LATENCIES_MAX * sizeof(*load.latencies_us));
    load.buffer = malloc(READ_BYTES + 1);
    if (load.n <= 0 || load.epoll_fd < 0 || !load.clients || !load.latencies_us || !load.buffer)
        die("cannot begin");
    for (int i = 0; i < load.n; i++)
        client_open(&load, &load.clients[i]);
    if (strcmp(argv[1], "streams") == 0)
        run_streams(&load, atof(argv[6]));
    else
        run_get(&load, atof(argv[6]), argc > 7 ? atof(argv[7]) : 0);
    return load.bad > 0;
}
