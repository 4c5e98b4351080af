/* The yardstick: a re-creation of the original allocation server, as its own text describes it.
 *
 * Usage: bench_server_original SOCKET
 *
 * One thread per client; a blocking recv() for each message of 144 bytes; one mutex; hash maps of {device,
 * id} with a node of the heap for each buffer, CB and kernel, as std::unordered_map has; queries answered
 * under the mutex; every three seconds a look which processes are gone, with kill(pid, 0). As its -q it prints
 * nothing per message. Nothing is made slower than it has to be: short reads cost no second call
 * (MSG_WAITALL), the hash is a good one, tables grow by doubling, and the faults of the original
 * (re-reports counted twice, frees that trust the client's size) are left out, since they cost no time.
 *
 * Prints "ready" when it listens. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "../book/harness.h"
#include "wire.h"

enum {
    DEVICES = 8,
    FIRST_BUCKETS = 1024,
    BACKLOG = 128, /* the original's */
    LOOK_SECONDS = 3,
    STACK_BYTES = 64 << 10, /* thousands of threads */
    DEAD_MAX = 1024,        /* processes found dead in one look */
};

struct node {
    struct node *next;
    uint64_t id, size;
    int32_t device, pid;
    uint8_t space;
    struct timespec since;
};

struct map {
    struct node **buckets;
    size_t n_buckets, n;
};

enum { BUFFERS, CBS, KERNELS, MAPS };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* all that follows */
static struct map maps[MAPS];
static struct wire_totals totals[DEVICES];

/* ---- the hash map ---- */

static size_t hash(int32_t device, uint64_t id)
{
    uint64_t x = id ^ (uint64_t)(uint32_t)device << 56;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return (size_t)(x ^ x >> 31);
}

static void map_grow(struct map *map)
{
    size_t n = map->n_buckets ? map->n_buckets * 2 : FIRST_BUCKETS;
    struct node **buckets = calloc(n, sizeof(*buckets));
    if (!buckets)
        bench_fail("out of memory");
    for (size_t i = 0; i < map->n_buckets; i++)
        for (struct node *node = map->buckets[i], *next; node; node = next) {
            size_t at = hash(node->device, node->id) & (n - 1);
            next = node->next;
            node->next = buckets[at];
            buckets[at] = node;
        }
    free(map->buckets);
    map->buckets = buckets;
    map->n_buckets = n;
}

/* Where the pointer to it is, or would be. */
static struct node **map_find(struct map *map, int32_t device, uint64_t id)
{
    struct node **at = &map->buckets[hash(device, id) & (map->n_buckets - 1)];
    while (*at && ((*at)->id != id || (*at)->device != device))
        at = &(*at)->next;
    return at;
}

static void map_remove(struct map *map, struct node **at)
{
    struct node *node = *at;
    totals[node->device].bytes[node->space] -= node->size;
    *at = node->next;
    map->n--;
    free(node);
}

/* ---- messages ---- */

static void handle_alloc(struct map *map, const struct wire_message *message, enum wire_space space)
{
    struct node **at = map_find(map, message->device, message->id);
    if (*at)
        return; /* known: the original keeps the first */
    struct node *node = malloc(sizeof(*node));
    if (!node)
        bench_fail("out of memory");
    *node = (struct node){
        .id = message->id,
        .size = message->size,
        .device = message->device,
        .pid = message->pid,
        .space = (uint8_t)space,
    };
    clock_gettime(CLOCK_MONOTONIC, &node->since);
    *at = node;
    totals[node->device].bytes[space] += node->size;
    if (++map->n > map->n_buckets)
        map_grow(map);
}

static void handle_free(struct map *map, const struct wire_message *message)
{
    struct node **at = map_find(map, message->device, message->id);
    if (*at)
        map_remove(map, at);
}

/* True when there is an answer in `message`. */
static bool handle(struct wire_message *message)
{
    static const uint8_t spaces[] = {WIRE_DRAM, WIRE_L1, WIRE_L1_SMALL, WIRE_L1_SMALL, WIRE_TRACE};
    bool answer = false;
    if (message->device < 0 || message->device >= DEVICES || message->buffer_type > 4)
        return false;
    pthread_mutex_lock(&mutex);
    switch (message->type) {
    case WIRE_ALLOC:
        handle_alloc(&maps[BUFFERS], message, spaces[message->buffer_type]);
        break;
    case WIRE_FREE:
        handle_free(&maps[BUFFERS], message);
        break;
    case WIRE_CB_ALLOC:
        handle_alloc(&maps[CBS], message, WIRE_CB);
        break;
    case WIRE_CB_FREE:
        handle_free(&maps[CBS], message);
        break;
    case WIRE_KERNEL_LOAD:
        handle_alloc(&maps[KERNELS], message, WIRE_KERNEL);
        break;
    case WIRE_KERNEL_UNLOAD:
        handle_free(&maps[KERNELS], message);
        break;
    case WIRE_QUERY:
        message->type = WIRE_RESPONSE;
        memcpy(message->allocated, totals[message->device].bytes, sizeof(message->allocated));
        answer = true;
        break;
    default:
        break;
    }
    pthread_mutex_unlock(&mutex);
    return answer;
}

static void *client(void *argument)
{
    int fd = (int)(intptr_t)argument;
    struct wire_message message;
    while (recv(fd, &message, sizeof(message), MSG_WAITALL) == sizeof(message))
        if (handle(&message) && send(fd, &message, sizeof(message), MSG_NOSIGNAL) < 0)
            break;
    close(fd);
    return NULL;
}

/* ---- the dead ---- */

struct dead {
    int32_t pids[DEAD_MAX];
    size_t n;
    int32_t last_alive;
};

static bool is_dead(struct dead *dead, int32_t pid)
{
    if (pid == dead->last_alive)
        return false;
    for (size_t i = 0; i < dead->n; i++)
        if (dead->pids[i] == pid)
            return true;
    if (kill(pid, 0) == 0 || dead->n == DEAD_MAX) {
        dead->last_alive = pid;
        return false;
    }
    dead->pids[dead->n++] = pid;
    return true;
}

static void *look(void *unused)
{
    static struct dead dead;
    for (;; nanosleep(&(struct timespec){LOOK_SECONDS, 0}, NULL)) {
        dead.n = 0;
        dead.last_alive = 0;
        pthread_mutex_lock(&mutex);
        for (int m = 0; m < MAPS; m++)
            for (size_t i = 0; i < maps[m].n_buckets; i++)
                for (struct node **at = &maps[m].buckets[i]; *at;) {
                    if (is_dead(&dead, (*at)->pid))
                        map_remove(&maps[m], at);
                    else
                        at = &(*at)->next;
                }
        pthread_mutex_unlock(&mutex);
    }
    return unused;
}

int main(int argc, char **argv)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (argc != 2 || strlen(argv[1]) >= sizeof(address.sun_path))
        bench_fail("usage: bench_server_original SOCKET");
    for (int i = 0; i < MAPS; i++)
        map_grow(&maps[i]);
    strcpy(address.sun_path, argv[1]);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        listen(listener, BACKLOG) < 0)
        bench_fail("cannot listen at '%s': %m", argv[1]);
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    if (pthread_create(&thread, &attributes, look, NULL) != 0)
        bench_fail("cannot start a thread");
    puts("ready");
    fflush(stdout);
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 && errno != EINTR)
            bench_fail("cannot accept: %m");
        if (fd >= 0 && pthread_create(&thread, &attributes, client, (void *)(intptr_t)fd) != 0)
            close(fd);
    }
}
