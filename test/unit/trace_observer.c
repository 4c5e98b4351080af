/* Stands for memoir-observe in test_tracer.c: writes a stream as that does, about a process that exists only in its words.
 *
 * TRACE_OBSERVER says what to do: "plain" (the default) tells blocks and copies until it is told to end; "later" the same without
 * block 2, as if that had been freed meanwhile; "refuse" tells an error; "exit" tells the end of the process; "die" ends at once;
 * "garbage" writes nonsense; "mute" says nothing at all and heeds no signal. */
#include <memoir/memoir.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "trace/stream.h"

static void tell_blocks(struct trace_stream_writer *w, int32_t pid, bool later)
{
    struct trace_line line = {"forward", "model.py", 42};
    struct trace_frame frame = {.lines = &line, .n_lines = 1};
    struct trace_site site = {.number = 1, .n_frames = 1, .key = 77, .frames = &frame};
    trace_stream_site(w, pid, &site);
    for (uint64_t i = 1; i <= 3; i++) {
        struct trace_event e = {
            .time_ns = i,
            .address = i << 20,
            .size = 4096,
            .kind = TRACE_FOUND,
            .pid = pid,
            .site = 1,
            .space = MEMOIR_SPACE_DRAM,
            .context = 1,
        };
        if (!(later && i == 2))
            trace_stream_event(w, &e);
        for (uint64_t k = 0; k < i; k++) {
            struct trace_event copy = e;
            copy.kind = TRACE_COPY;
            copy.direction = TRACE_TO_DEVICE;
            copy.source = 0x5000000;
            trace_stream_event(w, &copy);
        }
    }
    trace_stream_synced(w, pid);
}

/* Until SIGTERM, or until nobody reads the stream any more: a test that fails leaves no process behind. */
static void wait_end(int fd, const sigset_t *term)
{
    struct pollfd fds[] = {{.fd = fd},
                           {.fd = term ? signalfd(-1, term, SFD_CLOEXEC) : -1, .events = POLLIN}};
    poll(fds, 2, -1);
}

int main(int argc, char **argv)
{
    const char *what = getenv("TRACE_OBSERVER") ? getenv("TRACE_OBSERVER") : "plain";
    struct trace_stream_writer w;
    sigset_t term;
    if (argc != 5 || strcmp(argv[1], "--stream") != 0 || strcmp(argv[3], "--pid") != 0)
        return 2;
    int fd = atoi(argv[2]), pid = strcmp(argv[4], "all") == 0 ? 12345 : atoi(argv[4]);
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);
    if (strcmp(what, "mute") == 0) {
        wait_end(fd, NULL);
        return 4;
    }
    if (strcmp(what, "garbage") == 0)
        return write(fd, "garbage that is long enough to be a head", 40) < 0;
    if (strcmp(what, "die") == 0)
        return 3;
    struct trace_identity identity = {.pid = pid, .start_ticks = 5, .name = "told"};
    trace_stream_writer_init(&w, 1 << 20);
    if (strcmp(what, "refuse") == 0) {
        trace_stream_error(&w, 1, "no privilege to load BPF programs");
        return trace_stream_flush(&w, fd) < 0;
    }
    trace_stream_process(&w, &identity);
    tell_blocks(&w, pid, strcmp(what, "later") == 0);
    if (strcmp(what, "exit") == 0) {
        struct trace_event e = {.time_ns = 100, .kind = TRACE_EXIT, .pid = pid};
        trace_stream_event(&w, &e);
        trace_stream_ended(&w, pid);
        return trace_stream_flush(&w, fd) < 0;
    }
    trace_stream_flush(&w, fd);
    wait_end(fd, &term);
    struct trace_event last = {.time_ns = 200,
                               .address = 9 << 20,
                               .size = 1,
                               .kind = TRACE_ALLOC,
                               .pid = pid,
                               .space = MEMOIR_SPACE_DRAM};
    trace_stream_event(&w, &last);
    return trace_stream_flush(&w, fd) < 0;
}
