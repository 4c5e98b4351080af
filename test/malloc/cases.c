/* cases.c: see cases.h. What runs in a case avoids stdio's buffers, which are allocated. */
#include "cases.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { SKIPPED = 77, FAILED = 2, TEXT_MAX = 16384 };

static void say(const char *text, size_t length)
{
    while (length > 0) {
        ssize_t n = write(STDERR_FILENO, text, length);
        if (n <= 0)
            return;
        text += n;
        length -= (size_t)n;
    }
}

static void say_line(const char *start, const char *format, va_list arguments)
{
    char line[1024];
    int n = snprintf(line, sizeof(line) - 1, "%s", start);
    n += vsnprintf(line + n, sizeof(line) - 1 - (size_t)n, format, arguments);
    if (n > (int)sizeof(line) - 2)
        n = sizeof(line) - 2;
    line[n++] = '\n';
    say(line, (size_t)n);
}

void case_fail(const char *file, int line, const char *format, ...)
{
    char start[256];
    va_list arguments;
    snprintf(start, sizeof(start), "%s:%d: ", strrchr(file, '/') ? strrchr(file, '/') + 1 : file,
             line);
    va_start(arguments, format);
    say_line(start, format, arguments);
    va_end(arguments);
    _exit(FAILED);
}

void case_skip(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say_line("", format, arguments);
    va_end(arguments);
    _exit(SKIPPED);
}

pid_t case_fork(void)
{
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0)
        alarm(CASE_SECONDS / 2); /* its parent waits for it, and would be blamed */
    return child;
}

void case_reap(pid_t child)
{
    int status = -1;
    while (waitpid(child, &status, 0) < 0)
        MUST(errno == EINTR);
    MUST_SAY(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child %s %d",
             WIFSIGNALED(status) ? "was killed by signal" : "ended with",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

size_t case_resident(void)
{
    char text[4096];
    int file = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        case_skip("no /proc/self/smaps_rollup");
    ssize_t n = read(file, text, sizeof(text) - 1);
    close(file);
    MUST(n > 0);
    text[n] = 0;
    const char *rss = strstr(text, "\nRss:");
    MUST(rss);
    return strtoull(rss + 5, NULL, 10) * 1024;
}

static void check_origin(void)
{
    const char *wanted = getenv("MALLOC_UNDER_TEST");
    Dl_info info;
    if (!wanted || !*wanted)
        return;
    void *address = dlsym(RTLD_DEFAULT, "malloc");
    MUST_SAY(address && dladdr(address, &info) && strstr(info.dli_fname, wanted),
             "malloc comes from %s, not from %s", address ? info.dli_fname : "nowhere", wanted);
}

/* Print what a case said as comments of TAP. */
static void comment(const char *text)
{
    while (*text) {
        size_t n = strcspn(text, "\n");
        printf("# %.*s\n", (int)n, text);
        text += n + (text[n] == '\n');
    }
}

static bool report(size_t number, const char *name, int status, const char *said, double seconds)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
        printf("ok %zu - %s # SKIP %.*s\n", number, name, (int)strcspn(said, "\n"), said);
        return true;
    }
    bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    printf("%s %zu - %s\n# %.2f s\n", good ? "ok" : "not ok", number, name, seconds);
    comment(said);
    if (WIFSIGNALED(status))
        printf("# killed by signal %d (%s)%s\n", WTERMSIG(status), strsignal(WTERMSIG(status)),
               WTERMSIG(status) == SIGALRM ? ": it took too long" : "");
    else if (!good)
        printf("# ended with %d\n", WEXITSTATUS(status));
    return good;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* What it says goes to a file in memory: a pipe would wait for all that the case has left behind. */
static bool run_apart(size_t number, const char *program, const struct test_case *one)
{
    static char text[TEXT_MAX];
    char name[128];
    char *arguments[] = {(char *)program, name, NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status = -1;
    double start = now_s();
    int file = memfd_create("said", 0);
    snprintf(name, sizeof(name), "%s", one->name);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, file, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, file, STDERR_FILENO);
    posix_spawn_file_actions_addclose(&actions, file);
    if (file < 0 ||
        posix_spawn(&child, "/proc/self/exe", &actions, NULL, arguments, environ) != 0) {
        printf("not ok %zu - %s\n# cannot start it: %s\n", number, one->name, strerror(errno));
        return false;
    }
    posix_spawn_file_actions_destroy(&actions);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    ssize_t n = pread(file, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = 0;
    close(file);
    return report(number, one->name, status, text, now_s() - start);
}

static const struct test_case *find(const struct test_case *cases, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(cases[i].name, name) == 0)
            return &cases[i];
    fprintf(stderr, "no such case: %s\n", name);
    exit(FAILED);
}

int cases_main(int argc, char **argv, const struct test_case *cases, size_t count)
{
    bool good = true;
    check_origin();
    for (int i = 1; i < argc; i++) {
        alarm(CASE_SECONDS);
        find(cases, count, argv[i])->run();
    }
    if (argc > 1)
        return 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("1..%zu\n", count);
    for (size_t i = 0; i < count; i++)
        good &= run_apart(i + 1, argv[0], &cases[i]);
    return good ? 0 : 1;
}
