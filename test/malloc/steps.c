/* steps.c: a thread is stopped after an instruction inside malloc or free, and another one forks: whatever the first one was doing, the
 * child finds a heap that it can use, in which no block is twice. Then the next instruction.
 *
 *   the tracer   this program: steps through one thread of the staged process, and asks for a fork now and then
 *   the stepper  that thread: allocates and frees blocks of all kinds
 *   the forker   the other thread: forks when asked to, and tells how the child ended
 */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cases.h"

enum {
    TABLE = 300,
    STRIDE = 400,  /* instructions of the library between two forks, about */
    ENOUGH_S = 50, /* where steps are slow, not all are made */
    FIRST_MS = 20, /* for fork() to have come through, before the stepper goes on */
    CHILD_BLOCKS = 400,
};

enum kind { KIND_FORK, KIND_BARE, KIND_NAMESPACE };

/* A block that one of the threads has, for everybody to see. */
struct held {
    _Atomic(unsigned char *) block;
    size_t bytes;
    unsigned char mark;
};

static struct stage {
    _Atomic pid_t tid; /* of the stepper, as it is in its own namespace */
    _Atomic bool go, done;
} * stage; /* shared with the tracer */

static struct held table[TABLE],
    given[TABLE]; /* the stepper's; the forker's, for the stepper to free */
static int ask[2], answer[2];

static size_t sizes[] = {16,   24,   100,   100,   200,    500,    1000,
                         3000, 9000, 30000, 40000, 200000, 3 << 20};

/* Both ends and the middle: the huge ones would cost time. */
static void marks_write(unsigned char *block, size_t bytes, unsigned char mark)
{
    block[0] = block[bytes / 2] = block[bytes - 1] = mark;
}

static void marks_check(const struct held *h, const unsigned char *block)
{
    MUST_SAY(block[0] == h->mark && block[h->bytes / 2] == h->mark &&
                 block[h->bytes - 1] == h->mark,
             "a block of %zu bytes at %p was given out twice", h->bytes, (const void *)block);
}

static void hold(struct held *h, size_t bytes, unsigned char mark)
{
    unsigned char *block = malloc(bytes);
    MUST(block);
    marks_write(block, bytes, mark);
    h->bytes = bytes;
    h->mark = mark;
    atomic_store(&h->block, block);
}

static void let_go(struct held *h)
{
    unsigned char *block = atomic_exchange(&h->block, NULL);
    if (block)
        marks_check(h, block);
    free(block);
}

/* ---- the stepper ---- */

/* Every way of the heap is gone at least once: pages of blocks are carved, slabs become full, empty and another's, large and huge blocks come
 * and go, and all that is kept is given back. */
static void script(void)
{
    for (size_t i = 0; i < TABLE; i++) {
        size_t bytes = sizes[i % COUNT_OF(sizes)];
        if (bytes < 500 || i % 4 == 0)
            hold(&table[i], bytes, (unsigned char)(i | 1));
        if (i % 3 == 0)
            let_go(&given[i]);
        if (i % 5 == 0)
            let_go(&table[i / 2]);
    }
    malloc_trim(0);
    for (size_t i = 0; i < TABLE; i++)
        let_go(&table[i]);
    malloc_trim(0);
}

static void *stepper(void *unused)
{
    atomic_store(&stage->tid, (pid_t)syscall(SYS_gettid));
    while (!atomic_load(&stage->go))
        sched_yield();
    script();
    atomic_store(&stage->done, true);
    for (;;)
        pause();
    return unused;
}

/* ---- the forker and its children ---- */

static int problems(void)
{
    int (*check)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "memoir_malloc_check");
    return check ? check(STDERR_FILENO) : 0;
}

static void child_check(void)
{
    static struct held own[CHILD_BLOCKS];
    int early = problems();
    MUST_SAY(early == 0, "check: %d before anything else", early);
    for (size_t i = 0; i < CHILD_BLOCKS; i++)
        hold(&own[i], sizes[i % (i < 300 ? 8 : COUNT_OF(sizes))], (unsigned char)(i * 2));
    for (size_t i = 0; i < TABLE; i++) { /* of others, who are gone */
        let_go(&table[i]);
        let_go(&given[i]);
    }
    for (size_t i = 0; i < CHILD_BLOCKS; i++)
        let_go(&own[i]);
    malloc_trim(0);
    int found = problems();
    MUST_SAY(found == 0, "check: %d", found);
}

static pid_t fork_so(enum kind kind)
{
    if (kind == KIND_NAMESPACE)
        return (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
    return kind == KIND_BARE ? _Fork() : fork();
}

static _Noreturn void staged(enum kind kind)
{
    pthread_t id;
    char byte;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (size_t i = 0; i < TABLE; i++)
        if (i % 3 == 0)
            hold(&given[i], sizes[i % 11], 'g');
    MUST(pthread_create(&id, NULL, stepper, NULL) == 0);
    while (read(ask[0], &byte, 1) == 1) {
        pid_t child = fork_so(kind);
        int status = -1;
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            alarm(CASE_SECONDS / 2);
            child_check();
            _exit(0);
        }
        byte = child > 0 && waitpid(child, &status, 0) == child && status == 0 ? 'y' : 'n';
        MUST(write(answer[1], &byte, 1) == 1);
    }
    _exit(0);
}

/* ---- the tracer ---- */

static uintptr_t library_start, library_end;

static void library_find(void)
{
    Dl_info info;
    char line[512];
    void *start = dlsym(RTLD_DEFAULT, "malloc");
    MUST(start && dladdr(start, &info));
    FILE *maps = fopen("/proc/self/maps", "re");
    MUST(maps);
    while (fgets(line, sizeof(line), maps)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx", &from, &to) == 2 && (uintptr_t)start >= from &&
            (uintptr_t)start < to) {
            library_start = from;
            library_end = to;
        }
    }
    fclose(maps);
    MUST(library_start);
}

static bool in_library(pid_t tid)
{
    struct user_regs_struct regs;
    struct iovec io = {&regs, sizeof(regs)};
    MUST(ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &io) == 0);
#ifdef __x86_64__
    uintptr_t pc = regs.rip;
#else
    uintptr_t pc = regs.pc;
#endif
    return pc >= library_start && pc < library_end;
}

static void stop_wait(pid_t tid)
{
    int status;
    MUST(waitpid(tid, &status, __WALL) == tid);
    MUST_SAY(WIFSTOPPED(status), "the stepper ended: %x", status);
}

static void step(pid_t tid)
{
    MUST(ptrace(PTRACE_SINGLESTEP, tid, NULL, NULL) == 0);
    stop_wait(tid);
}

static void fork_now(pid_t tid, enum kind kind, unsigned long at)
{
    struct pollfd ready = {.fd = answer[0], .events = POLLIN};
    char byte = 'f';
    MUST(write(ask[1], &byte, 1) == 1);
    /* fork() waits for locks that the stepper has: it goes on until then. */
    for (int ms = FIRST_MS; poll(&ready, 1, kind == KIND_FORK ? ms : -1) == 0; ms = 0)
        if (!atomic_load(&stage->done))
            step(tid);
    MUST(read(answer[0], &byte, 1) == 1);
    MUST_SAY(byte == 'y', "the child that was forked after instruction %lu failed", at);
}

static pid_t stepper_seize(pid_t process)
{
    while (atomic_load(&stage->tid) == 0)
        sched_yield();
    /* Its number here, whatever it is in its own namespace: the one thread that is not the first. */
    char path[64];
    pid_t tid = 0;
    for (pid_t t = process + 1; tid == 0 && t < process + 1000; t++) {
        snprintf(path, sizeof(path), "/proc/%d/task/%d", (int)process, (int)t);
        if (access(path, F_OK) == 0)
            tid = t;
    }
    if (tid == 0)
        case_skip("the thread has a number far away");
    if (ptrace(PTRACE_SEIZE, tid, NULL, (void *)PTRACE_O_EXITKILL) != 0)
        case_skip("no ptrace: errno %d", errno);
    MUST(ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) == 0);
    stop_wait(tid);
    return tid;
}

static void forks_between_steps(enum kind kind)
{
    const char *text = getenv("STEPS_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)getpid(), random = seed;
    time_t begun = time(NULL);
    library_find();
    stage = mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(stage != MAP_FAILED && pipe(ask) == 0 && pipe(answer) == 0);
    /* The first process of a namespace, whose children are the first ones of theirs: all have the PID 1. */
    pid_t process = kind == KIND_NAMESPACE
                        ? (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0)
                        : fork();
    if (process < 0)
        case_skip("no such process here: errno %d", errno);
    if (process == 0)
        staged(kind);
    pid_t tid = stepper_seize(process);
    unsigned long n = 0, next = 0, forks = 0;
    fprintf(stderr, "STEPS_SEED=%llu\n", (unsigned long long)seed);
    atomic_store(&stage->go, true);
    while (!atomic_load(&stage->done) && time(NULL) - begun < ENOUGH_S) {
        step(tid);
        if (in_library(tid) && n++ == next) {
            fork_now(tid, kind, n);
            next = n + case_random(&random) % (2 * STRIDE);
            forks++;
        }
    }
    fprintf(stderr, "%lu instructions, %lu forks\n", n, forks);
    MUST(forks > 3);
    kill(process, SIGKILL);
    waitpid(tid, NULL, __WALL); /* the process ends when all that are traced have been waited for */
    waitpid(process, NULL, __WALL);
}

static void fork_after_any_instruction(void)
{
    forks_between_steps(KIND_FORK);
}

static void bare_fork_after_any_instruction(void)
{
    forks_between_steps(KIND_BARE);
}

static void child_with_the_same_pid_takes_no_lock_for_its_own(void)
{
    forks_between_steps(KIND_NAMESPACE);
}

int main(int argc, char **argv)
{
#define CASE(name)  \
    {               \
#name, name \
    }
    static const struct test_case cases[] = {
        CASE(fork_after_any_instruction),
        CASE(bare_fork_after_any_instruction),
        CASE(child_with_the_same_pid_takes_no_lock_for_its_own),
    };
    return cases_main(argc, argv, cases, COUNT_OF(cases));
}
