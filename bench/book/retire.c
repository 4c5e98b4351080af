/* From kill -9 to retired.
 *
 * Usage: bench_book_retire MEMOIRD HOLD DIR STATE KILLS BLOCKS
 *
 * Starts MEMOIRD with its books in DIR and, again and again, a process HOLD with BLOCKS buffers; waits
 * until the daemon has marked the book as watched, and kills it. A process is retired when its book is
 * gone from the directory and the line about it is in the log, whichever comes last. The clock starts
 * before kill(), so the kernel's own work of ending the process is in it. The daemon runs as it would
 * anywhere, at normal priority and on any CPU. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "book/control.h"
#include "book/reader.h"
#include "harness.h"

enum { PATIENCE_MS = 10000, LOG_MAX = 65536 };

static int log_fd, inotify_fd, books_fd = -1;
static char log_text[LOG_MAX];
static size_t log_len;
static pid_t daemon_pid, holder_pid;

/* Whatever happens, nothing that we started stays. */
static void end_children(void)
{
    if (holder_pid > 0)
        kill(holder_pid, SIGKILL);
    if (daemon_pid > 0)
        kill(daemon_pid, SIGKILL);
}

static bool log_has(const char *what)
{
    if (log_len + 4096 > sizeof(log_text))
        bench_fail("the daemon says too much");
    ssize_t n = read(log_fd, log_text + log_len, sizeof(log_text) - log_len - 1);
    if (n > 0)
        log_len += (size_t)n;
    log_text[log_len] = '\0';
    return strstr(log_text, what) != NULL;
}

static void wait_log(const char *what)
{
    struct pollfd poll_fd = {.fd = log_fd, .events = POLLIN};
    while (!log_has(what))
        if (poll(&poll_fd, 1, PATIENCE_MS) <= 0 || (poll_fd.revents & POLLHUP))
            bench_fail("no '%s' in the daemon's log:\n%s", what, log_text);
}

static void wait_line(int fd)
{
    char text[64];
    if (read(fd, text, sizeof(text)) <= 0)
        bench_fail("a holder ended early");
}

/* The only book that is there; "" while there is none. */
static bool find_book(char *name, size_t size)
{
    bool found = false;
    int fd = openat(books_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = fdopendir(fd);
    if (!listing)
        bench_fail("cannot list books: %m");
    for (struct dirent *entry; (entry = readdir(listing));)
        if (strstr(entry->d_name, ".book")) {
            snprintf(name, size, "%s", entry->d_name);
            found = true;
        }
    closedir(listing);
    return found;
}

/* Look as the holder itself does at its exit: the flag that a daemon will retire it. */
static void wait_watched(char *name, size_t size)
{
    for (int ms = 0; ms < PATIENCE_MS; ms++) {
        struct book_reader *reader = NULL;
        struct book_control control = {0};
        if (find_book(name, size) && book_reader_open(books_fd, name, &reader) >= 0) {
            int fd = openat(books_fd, name, O_RDONLY | O_CLOEXEC);
            int r = book_control_read(reader, fd, &control);
            close(fd);
            book_reader_free(reader);
            if (r >= 0 && (control.flags & BOOK_CONTROL_WATCHED))
                return;
        }
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    bench_fail("the daemon does not watch the book");
}

/* Read what inotify has; true when `name` is gone. */
static bool book_gone(const char *name)
{
    char events[8192] __attribute__((aligned(8)));
    bool gone = false;
    ssize_t n;
    while ((n = read(inotify_fd, events, sizeof(events))) > 0) {
        for (char *at = events; at < events + n;) {
            struct inotify_event *event = (struct inotify_event *)at;
            gone |= event->len > 0 && strcmp(event->name, name) == 0;
            at += sizeof(*event) + event->len;
        }
    }
    return gone;
}

static void kill_and_watch(uint64_t number, pid_t pid, const char *name)
{
    struct pollfd fds[] = {{.fd = inotify_fd, .events = POLLIN},
                           {.fd = log_fd, .events = POLLIN},
                           {.fd = pidfd_open(pid, 0), .events = POLLIN}};
    char line[64];
    uint64_t dead_ns = 0, gone_ns = 0, line_ns = 0;
    snprintf(line, sizeof(line), "PID %d (", (int)pid);
    log_len = 0;
    uint64_t begin = bench_now_ns();
    if (kill(pid, SIGKILL) < 0)
        bench_fail("cannot kill a holder: %m");
    while (!gone_ns || !line_ns) {
        if (poll(fds, 3, PATIENCE_MS) <= 0)
            bench_fail("not retired in %d ms", PATIENCE_MS);
        uint64_t now = bench_now_ns();
        if (fds[2].revents) {
            dead_ns = now - begin; /* from here on it is the daemon's time */
            close(fds[2].fd);
            fds[2].fd = -1;
        }
        if (!gone_ns && book_gone(name))
            gone_ns = now - begin;
        if (!line_ns && log_has(line))
            line_ns = now - begin;
    }
    printf("{\"kill\":%llu,\"dead_ns\":%llu,\"book_gone_ns\":%llu,\"line_ns\":%llu,"
           "\"retired_ns\":%llu}\n",
           (unsigned long long)number, (unsigned long long)dead_ns, (unsigned long long)gone_ns,
           (unsigned long long)line_ns,
           (unsigned long long)(gone_ns > line_ns ? gone_ns : line_ns));
    fflush(stdout);
}

static void open_books(const char *dir)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%u", dir, (unsigned)geteuid());
    books_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    inotify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (books_fd < 0 || inotify_fd < 0 || inotify_add_watch(inotify_fd, path, IN_DELETE) < 0)
        bench_fail("cannot watch the directory of books: %m");
}

static void one_kill(uint64_t number, char *hold, char *dir, char *blocks)
{
    char name[256] = "";
    int out;
    holder_pid = bench_start((char *[]){hold, (char[]){"0"}, blocks, NULL}, STDOUT_FILENO, &out);
    wait_line(out);
    if (books_fd < 0)
        open_books(dir);
    wait_watched(name, sizeof(name));
    /* The daemon may still be at it: reading the figures of a new book, arming its pidfd. */
    nanosleep(&(struct timespec){0, 10000000}, NULL);
    (void)book_gone("");
    (void)log_has("");
    /* Only we, who look: else a look may have to wait for the CPU until the daemon has cleared up. */
    bench_quiet_begin();
    kill_and_watch(number, holder_pid, name);
    bench_quiet_end();
    while (waitpid(holder_pid, NULL, 0) < 0 && errno == EINTR)
        ;
    holder_pid = 0;
    close(out);
}

int main(int argc, char **argv)
{
    if (argc != 7)
        bench_fail("usage: bench_book_retire MEMOIRD HOLD DIR STATE KILLS BLOCKS");
    uint64_t kills = bench_number(argv[5]);
    atexit(end_children);
    if (setenv("MEMOIR_DIR", argv[3], 1) < 0)
        bench_fail("out of memory");
    daemon_pid = bench_start((char *[]){argv[1], (char[]){"--dir"}, argv[3], (char[]){"--state"},
                                        argv[4], (char[]){"--log-format=text"}, NULL},
                             STDERR_FILENO, &log_fd);
    if (fcntl(log_fd, F_SETFL, O_NONBLOCK) < 0)
        bench_fail("cannot read the log: %m");
    wait_log("ready: watching");
    /* The first one makes the directory, and is not counted: nothing is warm. */
    for (uint64_t i = 0; i <= kills; i++)
        one_kill(i, argv[2], argv[3], argv[6]);
    kill(daemon_pid, SIGTERM);
    for (int ms = 0; waitpid(daemon_pid, NULL, WNOHANG) == 0; ms++) {
        if (ms > PATIENCE_MS)
            bench_fail("the daemon does not end");
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    daemon_pid = 0;
    return 0;
}
