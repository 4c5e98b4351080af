/* Processes with little: no file size, no descriptors, little address space, locked memory, closed
 * streams, sandboxes, a full file system. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "faults.h"

enum { MANY = 100000 };

static void limit(int which, rlim_t value)
{
    struct rlimit limit = {value, value};
    must(setrlimit(which, &limit) == 0, "setrlimit");
}

static void on_xfsz(int number)
{
    _exit(96); /* the signal that must not come */
}

/* fsize BYTES [early]: with `early`, after the library has looked at its limits. */
static int run_fsize(int argc, char **argv)
{
    signal(SIGXFSZ, on_xfsz);
    if (argc > 1)
        report(0, 1, 1);
    limit(RLIMIT_FSIZE, strtoull(argv[0], NULL, 10));
    report(0, 10, 2000);
    tell("fsize", 0);
    return 0;
}

static int run_nofile(int argc, char **argv)
{
    limit(RLIMIT_NOFILE, 0);
    report(0, 1, 2000);
    tell("nofile", 0);
    return 0;
}

/* as BYTES: the program wants three quarters of it for itself. */
static int run_as(int argc, char **argv)
{
    rlim_t bytes = strtoull(argv[0], NULL, 10);
    limit(RLIMIT_AS, bytes);
    int gpu = declare(0);
    report(gpu, 1, 5000);
    void *own =
        mmap(NULL, bytes / 4 * 3, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(own != MAP_FAILED, "memory of its own");
    tell("as", gpu);
    return 0;
}

static long resident_kb(void)
{
    char text[4096], *at;
    int fd = open("/proc/self/status", O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    close(fd);
    must(n > 0, "status");
    text[n] = '\0';
    at = strstr(text, "VmRSS:");
    return at ? atol(at + 6) : -1;
}

/* mlock WHEN [MEMLOCK]: before or after the book; MEMLOCK bytes may be locked. */
static int run_mlock(int argc, char **argv)
{
    int gpu = 0, before = strcmp(argv[0], "before") == 0;
    if (argc > 1) {
        limit(RLIMIT_MEMLOCK, strtoull(argv[1], NULL, 10));
        must(setresuid(65534, 65534, 65534) == 0, "setresuid");
    }
    if (before)
        must(mlockall(MCL_CURRENT | MCL_FUTURE) == 0, "mlockall");
    long rss = resident_kb();
    gpu = declare(0);
    report(gpu, 1, 1000);
    if (!before)
        must(mlockall(MCL_CURRENT | MCL_FUTURE) == 0, "mlockall");
    report(gpu, 10000, 1000);
    long more = resident_kb() - rss;
    void *own = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(own != MAP_FAILED, "memory of its own");
    tell("mlock", gpu);
    printf("%ld\n", more);
    return 0;
}

static int run_closefrom(int argc, char **argv)
{
    int gpu = declare(0);
    report(gpu, 1, 10);
    closefrom(3);
    report(gpu, 1000, MANY);
    tell("closefrom", gpu);
    int first = dup(1);
    printf("%d\n", first); /* nothing of ours was there, nothing is now */
    return 0;
}

/* Everything closed from the start; the answer goes to the file named. */
static int run_closed(int argc, char **argv)
{
    close(0);
    close(1);
    close(2);
    int gpu = declare(0);
    report(gpu, 1, MANY);
    int fd = open(argv[0], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    must(fd == 0, "the lowest descriptor is free"); /* _exit status 98 */
    tell_to(fd, "closed", gpu);
    return 0;
}

/* ---- sandboxes ---- */

#define ALLOW(name)                                        \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* What malloc, threads of others and the end of a process need; anything else kills. */
static void sandbox(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(mmap),
        ALLOW(munmap),
        ALLOW(mprotect),
        ALLOW(madvise),
        ALLOW(brk),
        ALLOW(rt_sigprocmask),
        ALLOW(rt_sigreturn),
        ALLOW(sched_yield),
        ALLOW(write),
        ALLOW(read),
        ALLOW(exit),
        ALLOW(exit_group),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
    must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "seccomp");
}

/* seccomp: kills on open and most else; the book is there, and grows. */
static int run_seccomp(int argc, char **argv)
{
    must(memoir_open(0) == 0, "memoir_open");
    int gpu = declare(0);
    report(gpu, 1, 10);
    sandbox();
    report(gpu, 1000, MANY);
    memoir_tag_push("inside");
    report(gpu, 10000000, 10);
    struct memoir_transfer_options move = {sizeof(move), 0, HEAP, 0, gpu, DRAM, 1000, 10};
    memoir_transfer(&move);
    for (uint64_t i = 0; i < MANY; i++)
        memoir_free(gpu, DRAM, 1000 + i);
    tell("seccomp", gpu);
    _exit(0);
}

/* strict: only read, write, exit and sigreturn are left. */
static int run_strict(int argc, char **argv)
{
    int gpu = declare(0);
    must(memoir_open(20000) == 0, "memoir_open");
    memoir_seal();
    must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0, "seccomp");
    memoir_tag_push("inside");
    report(gpu, 1, 20000);
    report(0, 1, 10);
    report(gpu, 1000000, 100000); /* more than there is room for */
    memoir_realloc(gpu, DRAM, 1, 2, 5);
    tell("strict", gpu);
    wait_line();
    syscall(SYS_exit, 0);
    return 0;
}

/* ---- a full file system ---- */

/* full: blocks until some are lost; after a line, as many again. */
static int run_full(int argc, char **argv)
{
    struct memoir_status s = {.struct_size = sizeof(s)};
    int gpu = declare(0);
    uint64_t id = 0;
    memoir_open(0);
    for (; id < 5 * MANY && s.lost < 5000; memoir_status(&s))
        report(gpu, id += 1000, 1000);
    tell("full", gpu);
    wait_line();
    uint64_t lost = s.lost;
    report(gpu, UINT64_C(1) << 40, 3000); /* may ask in vain for a while */
    memoir_status(&s);
    lost = s.lost;
    report(gpu, UINT64_C(2) << 40, 20000);
    tell("again", gpu);
    memoir_status(&s);
    printf("%llu\n", (unsigned long long)(s.lost - lost));
    return 0;
}

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {
        {"fsize", run_fsize},
        {"nofile", run_nofile},
        {"as", run_as},
        {"mlock", run_mlock},
        {"closefrom", run_closefrom},
        {"closed", run_closed},
        {"seccomp", run_seccomp},
        {"strict", run_strict},
        {"full", run_full},
        {NULL, NULL},
    };
    return scenario_run(scenarios, argc, argv);
}
