/* Simulated nodes of a cluster, for bench/cluster: each has a NATS connection of its own, sends heartbeats and answers questions
 * with a partial result of 120 groups that the real writer writes. One thread and epoll for all of them, since a thousand times
 * libnats's threads would be what is measured; for the same reason they do not listen to each other's heartbeats. They watch each
 * other as real nodes do (cluster/member.h).
 *
 *     simulate nodes PORT N [CHURN [ASKER]]  N nodes until it is ended; CHURN of them a second leave, and others come. ASKER is the ID
 *                                            of the real node among them. At SIGUSR1 one node closes its connection
 *                                            without a goodbye; its name is printed
 *     simulate codec N                  read N such replies, and the same as JSON by jansson; prints CPU seconds */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "cluster/member.h"
#include "cluster/message.h"
#include "cluster/subject.h"
#include "partials.h"

enum { GROUPS = 120, IN_BYTES = 16384, WATCHED_MAX = 2 * MEMBER_WATCHERS };

struct node {
    int fd; /* -1: not connected */
    char id[SUBJECT_ID_CHARS + 1], name[32];
    char in[IN_BYTES];
    size_t in_len;
    uint64_t beat_ns, watch_ns;
    struct {
        char id[SUBJECT_ID_CHARS + 1];
        uint64_t due_ns; /* 0: free */
    } watched[WATCHED_MAX];
};

static struct node *nodes;
static size_t n_nodes, next_number;
static uint16_t port;
static int epoll_fd;
static struct buffer message = {.limit = 1 << 20}, out = {.limit = 4 << 20};
static uint64_t answers;
static char (*ring)[SUBJECT_ID_CHARS + 1]; /* IDs of all, in order */
static size_t n_ring;
static volatile sig_atomic_t deaths_wanted;
static uint32_t beat_ms = MEMBER_INTERVAL_MS; /* as many as these speak */

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void send_all(struct node *n, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t k = send(n->fd, data, len, MSG_NOSIGNAL);
        if (k < 0 && errno == EAGAIN) {
            usleep(100);
            continue;
        }
        if (k <= 0)
            return;
        data += k;
        len -= (size_t)k;
    }
}

static void publish(struct node *n, const char *subject)
{
    buffer_reset(&out);
    buffer_printf(&out, "PUB %s %zu\r\n", subject, message.len);
    buffer_append(&out, message.data, message.len);
    buffer_append_str(&out, "\r\n");
    send_all(n, out.data, out.len);
}

static void hello(struct node *n, const char *target, bool first)
{
    char subject[SUBJECT_MAX];
    buffer_reset(&message);
    message_write_hello(&(struct message_hello){.name = n->name,
                                                .version = "0.1.0",
                                                .started_ns = 1,
                                                .now_ns = clock_real_ns(),
                                                .interval_ms = beat_ms,
                                                .first = first,
                                                .watch_ms = target ? MEMBER_WATCH_MS : 0},
                        &message);
    if (target)
        snprintf(subject, sizeof(subject), SUBJECT_PREFIX "to.%s.%s", target, n->id);
    else
        snprintf(subject, sizeof(subject), SUBJECT_PREFIX "beat.%s", n->id);
    publish(n, subject);
}

static void beat(struct node *n, bool first)
{
    hello(n, NULL, first);
    n->beat_ns = clock_monotonic_ns() + beat_ms * NS_PER_MS;
}

/* ---- watching ---- */

static int id_order(const void *a, const void *b)
{
    return memcmp(a, b, SUBJECT_ID_CHARS);
}

static void watchers_tell(struct node *n)
{
    const char(*self)[SUBJECT_ID_CHARS + 1] = bsearch(n->id, ring, n_ring, sizeof(*ring), id_order);
    for (size_t i = 1; self && i <= MEMBER_WATCHERS; i++)
        hello(n, ring[((size_t)(self - ring) + i) % n_ring], false);
    n->watch_ns = clock_monotonic_ns() + MEMBER_WATCH_MS * NS_PER_MS;
}

static void watch(struct node *n, const char *id, uint32_t watch_ms)
{
    size_t at = WATCHED_MAX;
    for (size_t i = 0; i < WATCHED_MAX; i++)
        if (!n->watched[i].due_ns || strcmp(n->watched[i].id, id) == 0)
            at = at == WATCHED_MAX || n->watched[i].due_ns ? i : at;
    if (at == WATCHED_MAX)
        return;
    memcpy(n->watched[at].id, id, sizeof(n->watched[at].id));
    n->watched[at].due_ns =
        watch_ms == MESSAGE_WATCH_END
            ? 0
            : clock_monotonic_ns() + (2ull * watch_ms + MEMBER_GRACE_MS) * NS_PER_MS;
}

static void watched_look(struct node *n, uint64_t now)
{
    char subject[SUBJECT_MAX];
    for (size_t i = 0; i < WATCHED_MAX; i++) {
        if (!n->watched[i].due_ns || n->watched[i].due_ns > now)
            continue;
        n->watched[i].due_ns = 0;
        buffer_reset(&message);
        message_write_lost(n->watched[i].id, &message);
        snprintf(subject, sizeof(subject), SUBJECT_PREFIX "beat.%s", n->id);
        publish(n, subject);
    }
}

static void on_signal(int number)
{
    (void)number;
    deaths_wanted++;
}

/* A node without the asker among its watchers and one with it die in turns. */
static void die_now(const char *asker)
{
    static size_t at;
    struct node *n = &nodes[at++];
    if (at % 2 == 0 && asker) {
        const char(*self)[SUBJECT_ID_CHARS + 1] =
            bsearch(asker, ring, n_ring, sizeof(*ring), id_order);
        size_t before = ((size_t)(self - ring) + n_ring - 1) % n_ring;
        for (size_t i = 0; i < n_nodes; i++)
            if (strcmp(nodes[i].id, ring[before]) == 0)
                n = &nodes[i];
    }
    close(n->fd);
    n->fd = -1;
    /* Others no longer choose it as their watcher: real nodes learn of it within seconds, and deaths come one after the other. */
    char(*self)[SUBJECT_ID_CHARS + 1] = bsearch(n->id, ring, n_ring, sizeof(*ring), id_order);
    n_ring--;
    memmove(self, self + 1, (size_t)(ring + n_ring - self) * sizeof(*ring));
    printf("%s\n", n->name);
    fflush(stdout);
}

static void bye(struct node *n)
{
    char subject[SUBJECT_MAX];
    buffer_reset(&message);
    message_write_bye(&message);
    snprintf(subject, sizeof(subject), SUBJECT_PREFIX "beat.%s", n->id);
    publish(n, subject);
    close(n->fd);
    n->fd = -1;
}

static void node_open(struct node *n)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int yes = 1;
    memset(n, 0, sizeof(*n));
    snprintf(n->name, sizeof(n->name), "sim%zu", next_number);
    subject_id("simulated", n->name, n->id);
    next_number++;
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    n->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (n->fd < 0 || connect(n->fd, (void *)&address, sizeof(address)) < 0)
        die("connect");
    setsockopt(n->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    fcntl(n->fd, F_SETFL, O_NONBLOCK);
    buffer_reset(&out);
    buffer_printf(&out,
                  "CONNECT {\"verbose\":false,\"pedantic\":false,\"lang\":\"c\",\"version\":\"1\","
                  "\"protocol\":1,\"echo\":false}\r\nSUB " SUBJECT_PREFIX "ask.* 1\r\n"
                  "SUB " SUBJECT_PREFIX "to.%s.* 2\r\nPING\r\n",
                  n->id);
    send_all(n, out.data, out.len);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = n};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, n->fd, &event) < 0)
        die("epoll_ctl");
    beat(n, true);
    n->beat_ns += (uint64_t)rand() % (beat_ms * NS_PER_MS);
}

static void answer(struct node *n, const char *sender, const struct message_ask *ask)
{
    char subject[SUBJECT_MAX];
    struct buffer *body = partials_write(n->name);
    buffer_reset(&message);
    message_write_reply(&(struct message_reply){.nonce = ask->nonce,
                                                .parts = 1,
                                                .body = (const uint8_t *)body->data,
                                                .body_len = body->len},
                        &message);
    snprintf(subject, sizeof(subject), SUBJECT_PREFIX "re.%s.%s", sender, n->id);
    publish(n, subject);
    answers++;
}

/* One whole protocol message at the start of the buffer; its length, or 0. */
static size_t take(struct node *n)
{
    char *end = memmem(n->in, n->in_len, "\r\n", 2), subject[SUBJECT_MAX],
         sender[SUBJECT_ID_CHARS + 1];
    struct message m;
    size_t size;
    if (!end)
        return 0;
    size_t line = (size_t)(end - n->in) + 2;
    if (strncmp(n->in, "PING", 4) == 0)
        send_all(n, "PONG\r\n", 6);
    if (strncmp(n->in, "MSG ", 4) != 0)
        return line;
    *end = '\0';
    if (sscanf(n->in, "MSG %127s %*s %zu", subject, &size) != 2)
        return line;
    *end = '\r';
    if (n->in_len < line + size + 2)
        return 0;
    if (subject_starts(subject, "beat") || !subject_sender(subject, sender) ||
        message_read(n->in + line, size, &m) < 0)
        return line + size + 2;
    if (m.kind == MESSAGE_ASK)
        answer(n, sender, &m.ask);
    else if (subject_starts(subject, "to") && m.kind == MESSAGE_HELLO && m.hello.watch_ms)
        watch(n, sender, m.hello.watch_ms);
    return line + size + 2;
}

static void on_bytes(struct node *n)
{
    ssize_t k = recv(n->fd, n->in + n->in_len, sizeof(n->in) - n->in_len, 0);
    if (k <= 0)
        return;
    n->in_len += (size_t)k;
    size_t used;
    while ((used = take(n)) > 0) {
        memmove(n->in, n->in + used, n->in_len - used);
        n->in_len -= used;
    }
    if (n->in_len == sizeof(n->in)) /* larger than anything that is sent to nodes */
        n->in_len = 0;
}

static void ring_make(const char *asker)
{
    ring = calloc(n_nodes + 1, sizeof(*ring));
    for (size_t i = 0; i < n_nodes; i++)
        memcpy(ring[n_ring++], nodes[i].id, sizeof(*ring));
    if (asker)
        memcpy(ring[n_ring++], asker, sizeof(*ring));
    qsort(ring, n_ring, sizeof(*ring), id_order);
}

static void beats(uint64_t now, bool watches)
{
    for (size_t i = 0; i < n_nodes; i++) {
        if (nodes[i].fd < 0)
            continue;
        if (nodes[i].beat_ns <= now)
            beat(&nodes[i], false);
        if (watches && nodes[i].watch_ns <= now)
            watchers_tell(&nodes[i]);
        watched_look(&nodes[i], now);
    }
}

static _Noreturn void simulate(size_t n, unsigned churn, const char *asker)
{
    struct epoll_event events[256];
    struct rlimit limit = {65536, 65536};
    setrlimit(RLIMIT_NOFILE, &limit);
    if (n * MEMBER_INTERVAL_NODE_MS > beat_ms)
        beat_ms = (uint32_t)(n * MEMBER_INTERVAL_NODE_MS);
    nodes = calloc(n, sizeof(*nodes));
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    for (n_nodes = 0; n_nodes < n; n_nodes++)
        node_open(&nodes[n_nodes]);
    ring_make(asker);
    signal(SIGUSR1, on_signal);
    bool watches = beat_ms > MEMBER_WATCH_MS && !churn;
    for (size_t i = 0; i < n; i++) /* not all at once */
        nodes[i].watch_ns = clock_monotonic_ns() + (uint64_t)rand() % (MEMBER_WATCH_MS * NS_PER_MS);
    printf("ready %zu\n", n);
    fflush(stdout);
    uint64_t churn_ns = clock_monotonic_ns();
    size_t at = 0;
    for (;;) {
        int k = epoll_wait(epoll_fd, events, 256, 5);
        for (int i = 0; i < k; i++)
            on_bytes(events[i].data.ptr);
        uint64_t now = clock_monotonic_ns();
        beats(now, watches);
        for (; deaths_wanted > 0; deaths_wanted--)
            die_now(asker);
        while (churn && churn_ns < now) {
            churn_ns += NS_PER_S / churn;
            bye(&nodes[at]);
            node_open(&nodes[at]);
            at = (at + 1) % n_nodes;
        }
    }
}

static double cpu_s(void)
{
    return (double)clock_ns(CLOCK_PROCESS_CPUTIME_ID) / 1e9;
}

static int codec(size_t n)
{
    struct buffer *bytes = partials_write("sim0");
    double begin = cpu_s();
    size_t rows = partials_read(bytes, n);
    double packed = cpu_s() - begin;
    char *json = partials_json();
    size_t len = strlen(json);
    begin = cpu_s();
    for (size_t i = 0; i < n; i++) {
        json_t *document = json_loadb(json, len, 0, NULL);
        rows += json_array_size(json_object_get(document, "rows"));
        json_decref(document);
    }
    printf("%zu %zu %.3f %zu %.3f %zu\n", n, bytes->len, packed, len, cpu_s() - begin, rows);
    return 0;
}

int main(int argc, char **argv)
{
    partials_make(GROUPS);
    if (argc >= 4 && strcmp(argv[1], "nodes") == 0) {
        port = (uint16_t)atoi(argv[2]);
        simulate((size_t)atoi(argv[3]), argc > 4 ? (unsigned)atoi(argv[4]) : 0,
                 argc > 5 ? argv[5] : NULL);
    }
    if (argc == 3 && strcmp(argv[1], "codec") == 0)
        return codec((size_t)atoi(argv[2]));
    fputs("usage: simulate nodes PORT N [CHURN [ASKER]] | codec N\n", stderr);
    return 2;
}
