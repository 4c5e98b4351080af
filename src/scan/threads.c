/* Standing still: see scan.h. */
#include "scan/threads.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "scan/scan.h"

enum {
    STOP_TIMEOUT_MS = 3000, /* a thread in an uninterruptible wait may take for ever */
    ROUNDS_MAX = 64,        /* threads that start threads while we stop them */
};

static const struct scan_thread *find(const struct scan_threads *threads, pid_t tid)
{
    for (size_t i = 0; i < threads->n; i++)
        if (threads->threads[i].tid == tid)
            return &threads->threads[i];
    return NULL;
}

static int add(struct scan_threads *threads, pid_t tid)
{
    if (threads->n == threads->room) {
        size_t room = threads->room ? threads->room * 2 : 16;
        struct scan_thread *grown = reallocarray(threads->threads, room, sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        threads->threads = grown;
        threads->room = room;
    }
    threads->threads[threads->n++] = (struct scan_thread){.tid = tid};
    return 0;
}

/* Take hold of those that are not ours yet: how many, or -errno. */
static int seize_new(struct scan_threads *threads, pid_t pid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    if (!dir)
        return errno == ENOENT ? -ESRCH : -errno;
    int r = 0;
    const struct dirent *entry;
    while (r >= 0 && (entry = readdir(dir))) {
        pid_t tid = (pid_t)atoi(entry->d_name);
        if (tid <= 0 || find(threads, tid))
            continue;
        if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) < 0) {
            if (errno != ESRCH) /* it ended meanwhile */
                r = -errno;
            continue;
        }
        int added = add(threads, tid);
        if (added < 0) {
            ptrace(PTRACE_DETACH, tid, NULL, NULL);
            r = added;
        } else {
            r++;
        }
    }
    closedir(dir);
    return r;
}

/* Wait until a thread stands still. 1; 0 when it ended; -ETIMEDOUT. */
static int wait_stopped(struct scan_thread *t, uint64_t deadline_ns)
{
    for (;;) {
        int status;
        pid_t r = waitpid(t->tid, &status, __WALL | WNOHANG);
        if (r < 0 || (r == t->tid && !WIFSTOPPED(status)))
            return 0;
        if (r == t->tid) {
            /* Stopped on its way to a signal, it gets it when it goes on. */
            t->signal = status >> 16 == 0 ? WSTOPSIG(status) : 0;
            return 1;
        }
        if (clock_monotonic_ns() > deadline_ns)
            return -ETIMEDOUT;
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}

static int stop_new(struct scan_threads *threads)
{
    uint64_t deadline_ns = clock_monotonic_ns() + STOP_TIMEOUT_MS * NS_PER_MS;
    for (size_t i = 0; i < threads->n; i++)
        if (!threads->threads[i].stopped && !threads->threads[i].ended)
            ptrace(PTRACE_INTERRUPT, threads->threads[i].tid, NULL, NULL);
    for (size_t i = 0; i < threads->n; i++) {
        struct scan_thread *t = &threads->threads[i];
        if (t->stopped || t->ended)
            continue;
        int r = wait_stopped(t, deadline_ns);
        if (r < 0)
            return r;
        t->stopped = r == 1;
        t->ended = r == 0;
    }
    return 0;
}

int scan_threads_stop(pid_t pid, struct scan_threads **ret_threads)
{
    struct scan_threads *threads = calloc(1, sizeof(*threads));
    if (!threads)
        return -ENOMEM;
    int r = 1;
    /* Whoever still runs may start others: until a round finds nobody new. */
    for (int round = 0; r > 0 && round < ROUNDS_MAX; round++) {
        r = seize_new(threads, pid);
        int stopped = stop_new(threads);
        if (r >= 0 && stopped < 0)
            r = stopped;
    }
    if (r > 0)
        r = -EBUSY;
    if (r == 0 && scan_threads_count(threads) == 0)
        r = -ESRCH;
    if (r < 0) {
        scan_threads_release(threads);
        return r;
    }
    *ret_threads = threads;
    return 0;
}

int scan_threads_borrow(pid_t tid, struct scan_threads **ret_threads)
{
    struct scan_threads *threads = calloc(1, sizeof(*threads));
    int r = threads ? add(threads, tid) : -ENOMEM;
    if (r == 0) {
        threads->borrowed = calloc(1, sizeof(*threads->borrowed));
        r = threads->borrowed ? scan_thread_registers(&threads->threads[0], threads->borrowed)
                              : -ENOMEM;
    }
    if (r < 0) {
        if (threads) {
            free(threads->borrowed);
            free(threads->threads);
        }
        free(threads);
        return r;
    }
    threads->threads[0].stopped = true;
    *ret_threads = threads;
    return 0;
}

/* One that was seized and did not stop in time has to stop before it can be let go. */
static void let_go(struct scan_thread *t)
{
    if (t->ended)
        return;
    if (!t->stopped && wait_stopped(t, 0) != 1)
        return; /* the kernel lets it go when we end */
    ptrace(PTRACE_DETACH, t->tid, NULL, (void *)(long)t->signal);
}

void scan_threads_release(struct scan_threads *threads)
{
    if (!threads)
        return;
    for (size_t i = 0; i < threads->n && !threads->borrowed; i++)
        let_go(&threads->threads[i]);
    free(threads->borrowed);
    free(threads->threads);
    free(threads);
}

size_t scan_threads_count(const struct scan_threads *threads)
{
    size_t n = 0;
    for (size_t i = 0; i < threads->n; i++)
        n += threads->threads[i].stopped;
    return n;
}

static size_t regset(pid_t tid, int kind, void *out, size_t size)
{
    struct iovec io = {out, size};
    return ptrace(PTRACE_GETREGSET, tid, kind, &io) < 0 ? 0 : io.iov_len;
}

int scan_thread_registers(const struct scan_thread *t, struct scan_registers *ret_registers)
{
    struct scan_registers *out = ret_registers;
    memset(out, 0, sizeof(*out));
    out->tid = t->tid;
    size_t words = sizeof(uint64_t);
#if defined(__x86_64__)
    struct user_regs_struct regs;
    if (regset(t->tid, NT_PRSTATUS, &regs, sizeof(regs)) < sizeof(regs))
        return -ESRCH;
    memcpy(out->words, &regs, sizeof(regs));
    out->n = sizeof(regs) / words;
    out->stack_pointer = regs.rsp - 128; /* the red zone belongs to the function */
    out->thread_pointer = regs.fs_base;
    size_t vector =
        regset(t->tid, NT_X86_XSTATE, &out->words[out->n], sizeof(out->words) - out->n * words);
#elif defined(__aarch64__)
    struct user_regs_struct regs;
    if (regset(t->tid, NT_PRSTATUS, &regs, sizeof(regs)) < sizeof(regs))
        return -ESRCH;
    memcpy(out->words, &regs, sizeof(regs));
    out->n = sizeof(regs) / words;
    out->stack_pointer = regs.sp;
    regset(t->tid, NT_ARM_TLS, &out->thread_pointer, sizeof(out->thread_pointer));
    size_t vector =
        regset(t->tid, NT_PRFPREG, &out->words[out->n], sizeof(out->words) - out->n * words);
#else
#error "src/scan/threads.c knows the registers of x86-64 and aarch64"
#endif
    out->n += vector / words;
    return 0;
}
