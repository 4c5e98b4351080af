/* All of a connection that speaks Tenstorrent's protocol, to a memoird in this process: bytes of any kind in pieces of any size, books that are made of
 * them, answers. The first byte is the size of messages, the second one cuts them into pieces. PID 1000 in the input is this process. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/commands.h"
#include "daemon/daemon.h"
#include "daemon/loop.h"
#include "daemon/tt_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TURNS_AFTER = 4, PID_MEANT = 1000, INPUT_MAX = 1 << 16 };

static struct daemon daemon_;
static struct loop_source *step_source;
static char directory[64];
static struct sockaddr_un address = {.sun_family = AF_UNIX};

static struct {
    int fd;
    uint8_t bytes[INPUT_MAX];
    size_t n, sent;
    unsigned piece, after;
} talk;

/* A helper of memoird is this program again. */
__attribute__((constructor)) static void help(void)
{
    char name[64] = {0};
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, name, sizeof(name) - 1);
    if (fd >= 0)
        close(fd);
    if (n > 0 && strcmp(name, COMMANDS_HELPER) == 0)
        _exit(commands_help());
}

static void finish(void)
{
    char command[128];
    daemon_stop(&daemon_);
    snprintf(command, sizeof(command), "rm -rf '%s'", directory);
    if (system(command) != 0)
        fprintf(stderr, "cannot remove %s\n", directory);
}

/* A piece in each turn of the loop, and what was answered. */
static void step(void *context)
{
    static uint8_t answers[1 << 16];
    while (recv(talk.fd, answers, sizeof(answers), MSG_DONTWAIT) > 0)
        ;
    if (talk.sent < talk.n) {
        size_t len = 1 + (talk.piece * 37 + talk.sent * 11) % (talk.piece % 2 ? 4096 : 200);
        len = len < talk.n - talk.sent ? len : talk.n - talk.sent;
        ssize_t n = send(talk.fd, talk.bytes + talk.sent, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0)
            talk.sent += (size_t)n;
        else if (errno != EAGAIN)
            talk.sent = talk.n; /* it has closed */
    } else if (++talk.after == TURNS_AFTER) {
        close(talk.fd);
    } else if (talk.after == 2 * TURNS_AFTER) {
        loop_stop(daemon_.loop);
        return;
    }
    loop_defer(step_source);
}

static void begin(void)
{
    static char *arguments[24];
    char error[CONFIG_ERROR_MAX], dir[96], state[96], socket[96];
    struct config config;
    enum config_action action;
    int n = 0;
    if (step_source)
        return;
    setenv("MEMOIR_NVML", "off", 1); /* its worker would be this program again */
    strcpy(directory, "/dev/shm/memoir-fuzz-tt-XXXXXX");
    if (!mkdtemp(directory))
        abort();
    snprintf(dir, sizeof(dir), "%s/books", directory);
    snprintf(state, sizeof(state), "%s/state", directory);
    snprintf(socket, sizeof(socket), "%s/tt", directory);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", socket);
    const char *all[] = {"fuzz",
                         "--dir",
                         dir,
                         "--state",
                         state,
                         "--tt-socket",
                         socket,
                         "--socket",
                         "none",
                         "--http",
                         "none",
                         "--http-socket",
                         "none",
                         "--history=no",
                         "--leaks=no",
                         "--exits",
                         "no",
                         "--pressure=no",
                         "--log-level",
                         "error",
                         "--buffers-per-client-max",
                         "2000",
                         NULL};
    for (; all[n]; n++)
        arguments[n] = strdup(all[n]);
    if (config_load(n, arguments, &config, &action, error) < 0 ||
        daemon_start(&daemon_, &config, n, arguments) < 0 ||
        loop_add_deferred(daemon_.loop, step, NULL, &step_source) < 0)
        abort();
    atexit(finish);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    begin();
    if (size < 2 || size - 2 > INPUT_MAX)
        return 0;
    talk.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    talk.n = size - 2;
    talk.sent = talk.after = 0;
    talk.piece = data[1];
    memcpy(talk.bytes, data + 2, talk.n);
    size_t step_bytes = tt_sizes[data[0] % TT_SIZES];
    for (size_t at = 0; at + step_bytes <= talk.n; at += step_bytes)
        for (size_t i = at; i + 4 <= at + step_bytes; i += 4) {
            int32_t word, own = getpid();
            memcpy(&word, talk.bytes + i, sizeof(word));
            if (word == PID_MEANT)
                memcpy(talk.bytes + i, &own, sizeof(own));
        }
    if (talk.fd < 0 || connect(talk.fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        abort();
    loop_defer(step_source);
    if (loop_run(daemon_.loop) < 0)
        abort();
    return 0;
}
