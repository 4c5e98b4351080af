/* What a probe costs on this machine.
 *
 * Processors differ by a factor of three in the cost of a trap, so a budget in percent needs a measurement. A child of ours calls malloc
 * and free, as often as takes a few milliseconds, alone and with the same probes and programs that the observed process has; the least of
 * several rounds counts, since whatever else runs only adds. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "observe/heap_internal.h"

enum { PAIRS = 1000, ROUNDS = 30, BLOCK_BYTES = 64, WAIT_MS = 2000 };

/* ---- in the child ---- */

static uint64_t pairs_run(void)
{
    struct timespec begin, end;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    for (int i = 0; i < PAIRS; i++) {
        void *volatile block = malloc(BLOCK_BYTES);
        free(block);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    return (uint64_t)(end.tv_sec - begin.tv_sec) * NS_PER_S + (uint64_t)end.tv_nsec -
           (uint64_t)begin.tv_nsec;
}

/* Each byte that comes asks for the least of some rounds. */
static _Noreturn void child_run(int in, int out)
{
    char byte;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (read(in, &byte, 1) == 1) {
        uint64_t least = UINT64_MAX;
        for (int i = 0; i < ROUNDS; i++) {
            uint64_t took = pairs_run();
            least = took < least ? took : least;
        }
        if (write(out, &least, sizeof(least)) != sizeof(least))
            break;
    }
    _exit(0);
}

/* ---- outside ---- */

struct subject {
    pid_t pid;
    int in, out;
};

static void subject_end(struct subject *s)
{
    close(s->in);
    close(s->out);
    if (s->pid > 0) {
        kill(s->pid, SIGKILL);
        waitpid(s->pid, NULL, 0);
    }
}

static int subject_start(struct subject *s)
{
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) < 0)
        return -errno;
    if (pipe2(from, O_CLOEXEC) < 0) {
        int r = -errno;
        close(to[0]);
        close(to[1]);
        return r;
    }
    s->pid = fork();
    if (s->pid == 0) {
        close(to[1]);
        close(from[0]);
        child_run(to[0], from[1]);
    }
    int r = s->pid < 0 ? -errno : 0;
    close(to[0]);
    close(from[1]);
    s->in = to[1];
    s->out = from[0];
    if (r < 0)
        subject_end(s);
    return r;
}

static int subject_ask(const struct subject *s, uint64_t *ret_ns)
{
    struct pollfd ready = {.fd = s->out, .events = POLLIN};
    if (write(s->in, "", 1) != 1 || poll(&ready, 1, WAIT_MS) != 1)
        return -ETIME;
    return read(s->out, ret_ns, sizeof(*ret_ns)) == sizeof(*ret_ns) ? 0 : -EIO;
}

/* The child's time with probes. */
static int probed_ask(const struct subject *s, struct elf_parser *parser, bool two_links,
                      uint64_t *ret_ns)
{
    char why[HEAP_KERNEL_WHY_MAX];
    struct heap_kernel *kernel = NULL;
    struct heap_target target = {0};
    int r = heap_target_find(s->pid, parser, &target, why);
    if (r == 0)
        r = heap_kernel_open(&(struct heap_kernel_options){.pid = s->pid, .two_links = two_links},
                             &kernel, why);
    if (r == 0) {
        heap_kernel_state(kernel)->mean = HEAP_SAMPLE_BYTES;
        store_relaxed(&heap_kernel_state(kernel)->on, 1);
    }
    for (size_t i = 0; r == 0 && i < target.n; i++)
        r = heap_kernel_attach(kernel, target.files[i].fd, target.files[i].functions,
                               target.files[i].n, why);
    if (r == 0)
        r = subject_ask(s, ret_ns);
    if (kernel) {
        heap_kernel_detach(kernel);
        heap_kernel_close(kernel);
    }
    heap_target_release(&target);
    return r;
}

int heap_cost_measure(struct elf_parser *parser, bool two_links, double *ret_ns)
{
    struct subject s = {0};
    uint64_t alone = 0, probed = 0;
    int r = subject_start(&s);
    if (r < 0)
        return r;
    r = subject_ask(&s, &alone);
    if (r == 0)
        r = probed_ask(&s, parser, two_links, &probed);
    subject_end(&s);
    if (r == 0 && probed <= alone)
        r = -ERANGE;
    if (r == 0)
        *ret_ns = (double)(probed - alone) / (2 * PAIRS);
    return r;
}
