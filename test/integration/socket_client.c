/* A program that reports buffers of device 0 in one of three ways, as its arguments say, one after the other:
 *
 *   tt=PATH          over the Tenstorrent socket, in messages of 144 bytes
 *   native=PATH      over the native socket, in JSON lines
 *   book             into a book of its own, by libmemoir
 *   SPACE=NxBYTES    N blocks of BYTES each: dram, l1, l1_small, trace, cb, kernel
 *   free=SPACE=N     the first N of them are freed
 *   ready            print "ready PID" when all that was reported is applied
 *   wait             until a line comes from standard input, or its end
 *   churn=SEED       report at random until a line comes; then print what is held, "held SPACE=BYTES ..."
 *   life=SEED        report at random for up to 50 ms, then end somehow: by kill -9, in the middle of a
 *                    message, or in order
 *   exit=N
 *
 * A server that goes away and comes back is found again, and what it did not confirm is reported again: over
 * the native socket by session and number, over the Tenstorrent socket by repeating what came after the
 * last answer. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <memoir/memoir.h>

enum {
    DEVICE = 0,
    LIVE_MAX = 1 << 16, /* of one space */
    BURST_MAX = 512,    /* reports that are sent before an answer is waited for */
    PATIENCE_S = 30,    /* for a server that is gone */
    TT_BYTES = 144,
};
#define DEVICE_NAME "Tenstorrent" /* as memoird calls the devices of the Tenstorrent socket */

static const struct space {
    const char *name;
    int space;
    uint8_t alloc, free, buffer_type; /* of Tenstorrent messages */
} spaces[] = {
    {"dram", MEMOIR_SPACE_DRAM, 1, 2, 0},
    {"l1", MEMOIR_SPACE_L1, 1, 2, 1},
    {"l1_small", MEMOIR_SPACE_L1_SMALL, 1, 2, 3},
    {"trace", MEMOIR_SPACE_TRACE, 1, 2, 4},
    {"cb", MEMOIR_SPACE_CB, 8, 9, 0},
    {"kernel", MEMOIR_SPACE_KERNEL, 10, 11, 0},
};
enum { SPACES = sizeof(spaces) / sizeof(spaces[0]) };

struct report {
    uint64_t id, bytes;
    uint8_t space;
    bool free;
};

static struct {
    uint64_t ids[LIVE_MAX], bytes[LIVE_MAX];
    size_t n;
    uint64_t sum;
} live[SPACES];

static struct report burst[BURST_MAX];
static size_t n_burst;
static enum { NONE, BOOK, TT, NATIVE } way;
static const char *path;
static int fd = -1, device;
static uint64_t next_id, seq;
static char session[64];

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("socket_client: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    exit(64);
}

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* ---- sockets: false when the server is gone ---- */

static bool send_all(const void *bytes, size_t n)
{
    const char *at = bytes;
    while (n > 0) {
        ssize_t done = send(fd, at, n, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return false;
        at += done;
        n -= (size_t)done;
    }
    return true;
}

/* A line, or `want` bytes. */
static bool receive(char *answer, size_t room, size_t want)
{
    size_t n = 0;
    while (want ? n < want : n == 0 || answer[n - 1] != '\n') {
        ssize_t done = recv(fd, answer + n, want ? want - n : room - 1 - n, 0);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        n += (size_t)done;
    }
    if (!want)
        answer[n] = '\0';
    return true;
}

static bool say(const char *line, char *answer, size_t room)
{
    return send_all(line, strlen(line)) && receive(answer, room, 0);
}

/* "key":"text" of an answer. */
static void take_text(const char *answer, const char *key, char *ret, size_t room)
{
    const char *at = strstr(answer, key);
    if (!at)
        fail("no %s in: %s", key, answer);
    at += strlen(key);
    snprintf(ret, room, "%.*s", (int)strcspn(at, "\""), at);
}

/* Say who we are. Gives the number of the last message that was applied. */
static bool greet(uint64_t *ret_seq)
{
    char line[256], answer[1024], number[32];
    if (*session)
        snprintf(line, sizeof(line), "{\"hello\":1,\"session\":\"%s\"}\n", session);
    else
        snprintf(line, sizeof(line), "{\"hello\":1}\n");
    if (!say(line, answer, sizeof(answer)))
        return false;
    if (*session && !strstr(answer, "\"resumed\":true"))
        fail("the session is lost: %s", answer);
    take_text(answer, "\"session\":\"", session, sizeof(session));
    take_text(answer, "\"seq\":", number, sizeof(number));
    *ret_seq = strtoull(number, NULL, 10);
    snprintf(line, sizeof(line), "{\"device\":%d,\"kind\":\"npu\",\"name\":\"" DEVICE_NAME "\"}\n",
             DEVICE);
    return say(line, answer, sizeof(answer));
}

static bool connect_once(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path))
        fail("'%s' is too long", path);
    strcpy(address.sun_path, path);
    if (fd >= 0)
        close(fd);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
}

static void connect_again(uint64_t *ret_seq)
{
    for (int i = 0; i < PATIENCE_S * 100; i++) {
        if (connect_once() && (way == TT || greet(ret_seq)))
            return;
        nap_ms(10);
    }
    fail("cannot connect to '%s': %s", path, strerror(errno));
}

/* ---- reports ---- */

static void put(uint8_t *message, size_t offset, const void *value, size_t bytes)
{
    memcpy(message + offset, value, bytes);
}

static void tt_message(uint8_t message[TT_BYTES], const struct report *report)
{
    const struct space *space = &spaces[report->space];
    int32_t pid = (int32_t)getpid(), number = DEVICE;
    memset(message, 0, TT_BYTES);
    message[0] = report->free ? space->free : space->alloc;
    put(message, 4, &number, 4);
    put(message, 8, &report->bytes, 8);
    message[16] = space->buffer_type;
    put(message, 20, &pid, 4);
    put(message, 24, &report->id, 8);
}

static bool tt_send(void)
{
    static uint8_t messages[(BURST_MAX + 1) * TT_BYTES];
    int32_t pid = (int32_t)getpid(), number = DEVICE;
    for (size_t i = 0; i < n_burst; i++)
        tt_message(messages + i * TT_BYTES, &burst[i]);
    uint8_t *query =
        messages + n_burst * TT_BYTES; /* its answer tells that all before it is done */
    memset(query, 0, TT_BYTES);
    query[0] = 3;
    put(query, 4, &number, 4);
    put(query, 20, &pid, 4);
    char answer[TT_BYTES];
    return send_all(messages, (n_burst + 1) * TT_BYTES) &&
           receive(answer, sizeof(answer), TT_BYTES);
}

static bool native_send(void)
{
    static char line[BURST_MAX * 96 + 128];
    char answer[1024], wanted[64];
    size_t n = (size_t)snprintf(line, sizeof(line), "{\"report\":[");
    for (size_t i = 0; i < n_burst; i++) {
        const struct report *r = &burst[i];
        n += (size_t)snprintf(line + n, sizeof(line) - n, "%s[\"%s\",%d,\"%s\",%llu", i ? "," : "",
                              r->free ? "f" : "a", DEVICE, spaces[r->space].name,
                              (unsigned long long)r->id);
        n += (size_t)snprintf(line + n, sizeof(line) - n, r->free ? "]" : ",%llu]",
                              (unsigned long long)r->bytes);
    }
    snprintf(line + n, sizeof(line) - n, "],\"seq\":%llu,\"ack\":true}\n", (unsigned long long)seq);
    snprintf(wanted, sizeof(wanted), "\"ack\":%llu", (unsigned long long)seq);
    if (!say(line, answer, sizeof(answer)))
        return false;
    if (!strstr(answer, wanted))
        fail("no %s but: %s", wanted, answer);
    return true;
}

static void book_send(void)
{
    for (size_t i = 0; i < n_burst; i++) {
        if (burst[i].free)
            memoir_free(device, spaces[burst[i].space].space, burst[i].id);
        else
            memoir_alloc(device, spaces[burst[i].space].space, burst[i].id, burst[i].bytes);
    }
}

/* Everything that was reported is applied when it returns. */
static void flush(void)
{
    uint64_t applied = 0;
    if (n_burst == 0)
        return;
    seq++;
    if (way == BOOK)
        book_send();
    while (way != BOOK && !(way == TT ? tt_send() : native_send())) {
        connect_again(&applied);
        if (way == NATIVE && applied >= seq)
            break;
    }
    n_burst = 0;
}

static void report(struct report r)
{
    if (n_burst == BURST_MAX)
        flush();
    burst[n_burst++] = r;
}

static void alloc(uint8_t space, uint64_t bytes)
{
    size_t n = live[space].n;
    if (n == LIVE_MAX)
        fail("too many blocks");
    live[space].ids[n] = ++next_id;
    live[space].bytes[n] = bytes;
    live[space].n++;
    live[space].sum += bytes;
    report((struct report){.id = next_id, .bytes = bytes, .space = space});
}

/* The last one takes its place. */
static void release(uint8_t space, size_t i)
{
    size_t last = --live[space].n;
    live[space].sum -= live[space].bytes[i];
    report((struct report){
        .id = live[space].ids[i], .bytes = live[space].bytes[i], .space = space, .free = true});
    live[space].ids[i] = live[space].ids[last];
    live[space].bytes[i] = live[space].bytes[last];
}

/* ---- at random ---- */

static uint64_t random_state;

static uint64_t random_below(uint64_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (random_state >> 33) % n;
}

static void random_burst(void)
{
    for (uint64_t i = 1 + random_below(BURST_MAX / 2); i > 0; i--) {
        uint8_t space = (uint8_t)random_below(SPACES);
        if (live[space].n > 0 && (live[space].n > 2000 || random_below(100) < 45))
            release(space, random_below(live[space].n));
        else
            alloc(space, 1 + random_below(100000));
    }
}

static bool input_waits(int ms)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&input, 1, ms) > 0;
}

static void churn(uint64_t seed)
{
    char line[16];
    random_state = seed;
    do {
        random_burst();
        flush();
    } while (!input_waits((int)random_below(4)));
    if (!fgets(line, sizeof(line), stdin))
        exit(0);
    printf("held");
    for (size_t i = 0; i < SPACES; i++)
        printf(" %s=%llu", spaces[i].name, (unsigned long long)live[i].sum);
    putchar('\n');
    fflush(stdout);
}

static void life(uint64_t seed)
{
    struct timespec now, end;
    random_state = seed;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += (long)random_below(50) * 1000000;
    do {
        random_burst();
        flush();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - end.tv_sec) * 1000000000 + now.tv_nsec - end.tv_nsec < 0);
    uint64_t how = random_below(4);
    if (how == 0)
        exit(0);
    if (how == 1 && way != BOOK) { /* half a message */
        uint8_t message[TT_BYTES];
        tt_message(message, &(struct report){.id = 1, .bytes = 1});
        send_all(way == TT ? message : (const uint8_t *)"{\"report\":[[\"a\",0,", 17);
    }
    raise(SIGKILL);
}

/* ---- arguments ---- */

static uint8_t space_find(const char *name, size_t len)
{
    for (uint8_t i = 0; i < SPACES; i++)
        if (strlen(spaces[i].name) == len && strncmp(spaces[i].name, name, len) == 0)
            return i;
    fail("no such space: '%s'", name);
}

static void open_way(const char *name, const char *value)
{
    uint64_t applied;
    way = strcmp(name, "tt") == 0 ? TT : strcmp(name, "native") == 0 ? NATIVE : BOOK;
    path = value;
    if (way != BOOK) {
        connect_again(&applied);
        return;
    }
    device = memoir_device(&(struct memoir_device_options){
        .struct_size = sizeof(struct memoir_device_options),
        .kind = MEMOIR_DEVICE_NPU,
        .ordinal = DEVICE,
        .name = DEVICE_NAME,
    });
    if (device <= 0 || memoir_open(0) < 0)
        fail("cannot make a book");
}

static void blocks(const char *argument)
{
    size_t len = strcspn(argument, "=");
    unsigned long long n, bytes;
    uint8_t space = space_find(argument, len);
    if (sscanf(argument + len, "=%llux%llu", &n, &bytes) != 2)
        fail("not SPACE=NxBYTES: '%s'", argument);
    while (n-- > 0)
        alloc(space, bytes);
}

static void frees(const char *argument)
{
    size_t len = strcspn(argument, "=");
    uint8_t space = space_find(argument, len);
    for (unsigned long n = argument[len] ? strtoul(argument + len + 1, NULL, 10) : 0; n > 0; n--)
        release(space, 0);
}

static void obey(const char *argument)
{
    const char *value = strchr(argument, '=');
    size_t len = strcspn(argument, "=");
    value = value ? value + 1 : "";
#define IS(word) (len == strlen(word) && memcmp(argument, word, len) == 0)
    if (IS("tt") || IS("native") || IS("book")) {
        open_way(argument[0] == 't' ? "tt" : argument[0] == 'n' ? "native" : "book", value);
    } else if (IS("free")) {
        frees(value);
    } else if (IS("ready")) {
        flush();
        printf("ready %d\n", (int)getpid());
        fflush(stdout);
    } else if (IS("wait")) {
        char line[16];
        flush();
        (void)!fgets(line, sizeof(line), stdin);
    } else if (IS("churn")) {
        churn(strtoull(value, NULL, 10));
    } else if (IS("life")) {
        life(strtoull(value, NULL, 10));
    } else if (IS("exit")) {
        _exit(atoi(value));
    } else {
        blocks(argument);
    }
#undef IS
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        obey(argv[i]);
    flush();
    return 0;
}
