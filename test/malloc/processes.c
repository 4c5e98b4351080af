/* processes.c: what a process does to itself as a whole while its threads allocate: fork of all sorts, exec, exit, signals,
 * closed descriptors, sandboxes. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "churn.h"
#include "sandbox.h"

extern char **environ;

/* All that a child may do with its heap: free what it inherited, allocate of every size, start threads. */
static void use_heap(bool threads)
{
    uint64_t random = (uint64_t)getpid();
    for (size_t i = 0; i < CHURN_SHARED; i += 2)
        churn_free(atomic_exchange(&churn_shared[i], NULL));
    unsigned char *kept[CHURN_OWN] = {NULL};
    for (size_t i = 0; i < 1000; i++) {
        churn_free(kept[i % CHURN_OWN]);
        kept[i % CHURN_OWN] = churn_new(churn_size(&random));
    }
    void *large = calloc(1, 3 << 20);
    MUST(large);
    free(large);
    for (size_t i = 0; i < CHURN_OWN; i++)
        churn_free(kept[i]);
    if (threads) {
        churn_start();
        churn_end();
    }
    malloc_trim(0);
}

static void fork_while_threads_allocate(void)
{
    churn_start();
    for (int i = 0; i < 60; i++) {
        pid_t child = case_fork();
        if (child == 0) {
            use_heap(i % 10 == 0);
            _exit(0);
        }
        case_reap(child);
    }
    churn_end();
}

static void *fork_often(void *unused)
{
    for (int i = 0; i < 15; i++) {
        pid_t child = case_fork();
        if (child == 0) {
            use_heap(false);
            _exit(0);
        }
        case_reap(child);
    }
    return unused;
}

static void threads_fork_at_once(void)
{
    pthread_t ids[3];
    churn_start();
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        MUST(pthread_create(&ids[i], NULL, fork_often, NULL) == 0);
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        MUST(pthread_join(ids[i], NULL) == 0);
    churn_end();
}

/* A child whose own child has threads, and so on. */
static void generations_of_children(void)
{
    churn_start();
    for (int generation = 0; generation < 6; generation++) {
        pid_t child = case_fork();
        if (child != 0) {
            case_reap(child);
            if (generation == 0)
                churn_end();
            else
                _exit(0);
            return;
        }
        use_heap(true);
        churn_start();
    }
    _exit(0);
}

/* No handler of anybody runs: locks stay as they were in the moment. */
static void bare_fork_while_threads_allocate(void)
{
    churn_start();
    for (int i = 0; i < 60; i++) {
        pid_t child = _Fork();
        MUST(child >= 0);
        if (child == 0) {
            alarm(CASE_SECONDS / 2);
            use_heap(false);
            _exit(0);
        }
        case_reap(child);
    }
    churn_end();
}

static void child_of_bare_fork_forks_and_has_threads(void)
{
    churn_start();
    for (int i = 0; i < 20; i++) {
        pid_t child = _Fork();
        MUST(child >= 0);
        if (child == 0) {
            alarm(CASE_SECONDS / 2);
            use_heap(true);
            child = case_fork();
            use_heap(child == 0);
            if (child != 0)
                case_reap(child);
            _exit(0);
        }
        case_reap(child);
    }
    churn_end();
}

/* A library of the usual kind: it holds a lock of its own across fork(), and its threads need memory while they hold it. However
 * early it registers, ours must come after it, or it waits for a thread that waits for us. */
static bool library_on;
static pthread_mutex_t library_lock = PTHREAD_MUTEX_INITIALIZER;

static void library_before_fork(void)
{
    if (library_on)
        pthread_mutex_lock(&library_lock);
}

static void library_after_fork(void)
{
    if (library_on)
        pthread_mutex_unlock(&library_lock);
}

/* Those of a library that began before the allocator: they run after its own, then before its own. */
static bool early_handlers;

static void early_handler(void)
{
    if (early_handlers)
        use_heap(false);
}

static void early_handlers_register(int argc, char **argv, char **envp)
{
    pthread_atfork(early_handler, early_handler, early_handler);
    pthread_atfork(library_before_fork, library_after_fork, library_after_fork);
}

__attribute__((section(".preinit_array"),
               used)) static void (*early_register)(int, char **,
                                                    char **) = early_handlers_register;

static void early_handlers_of_fork_allocate(void)
{
    early_handlers = true;
    churn_start();
    for (int i = 0; i < 10; i++) {
        pid_t child = case_fork();
        if (child == 0) {
            use_heap(i % 5 == 0);
            child = case_fork();
            if (child > 0)
                case_reap(child);
            _exit(0);
        }
        case_reap(child);
    }
    churn_end();
}

static atomic_bool library_stop;
static _Atomic uint64_t library_rounds;

static void *library_work(void *number)
{
    uint64_t random = (uintptr_t)number + 77;
    unsigned char *own[CHURN_OWN] = {NULL};
    for (size_t i = 0; !atomic_load(&library_stop); i++) {
        pthread_mutex_lock(&library_lock);
        churn_free(own[i % CHURN_OWN]);
        own[i % CHURN_OWN] =
            churn_new(churn_size(&random) + 2000); /* the source's lock is needed */
        pthread_mutex_unlock(&library_lock);
        atomic_fetch_add(&library_rounds, 1);
    }
    for (size_t i = 0; i < CHURN_OWN; i++)
        churn_free(own[i]);
    return NULL;
}

static void library_forks(void)
{
    pthread_t ids[3];
    library_on = true;
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        MUST(pthread_create(&ids[i], NULL, library_work, (void *)i) == 0);
    while (atomic_load(&library_rounds) < 500)
        sched_yield();
    for (int i = 0; i < 60; i++) {
        pid_t child = case_fork();
        if (child == 0) {
            pthread_mutex_lock(&library_lock);
            use_heap(false);
            pthread_mutex_unlock(&library_lock);
            _exit(0);
        }
        case_reap(child);
    }
    atomic_store(&library_stop, true);
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        MUST(pthread_join(ids[i], NULL) == 0);
}

/* Registered before the program's first heap is there, by the program and before it began. */
static void early_handlers_wait_for_threads_that_allocate(void)
{
    library_forks();
}

/* And with handlers that come after. */
static void late_handlers_wait_for_threads_that_allocate(void)
{
    use_heap(true);
    for (int i = 0; i < 60; i++) /* more than the C library has room for without malloc() */
        MUST(pthread_atfork(early_handler, early_handler, early_handler) == 0);
    library_forks();
}

/* Only the thread that forks has a heap to protect, or none has. */
static void a_child_of_a_small_program_grows_up(void)
{
    void *first = malloc(100);
    for (int i = 0; i < 3; i++) {
        pid_t child = case_fork();
        if (child == 0) {
            free(first);
            use_heap(true);
            pid_t grandchild = case_fork();
            use_heap(true);
            if (grandchild > 0)
                case_reap(grandchild);
            _exit(0);
        }
        case_reap(child);
    }
    free(first);
}

/* Each keeps some, and does nothing more. */
static void *keep_some(void *barrier)
{
    void *blocks[40];
    pthread_barrier_wait(barrier);
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        MUST((blocks[i] = malloc(500 << 10)));
        sched_yield(); /* so that theirs lie side by side */
    }
    for (size_t i = 0; i < COUNT_OF(blocks); i++)
        free(blocks[i]);
    pthread_barrier_wait(barrier);
    pthread_barrier_wait(barrier);
    return NULL;
}

/* In the child, what the other threads kept goes back to the kernel while it is looked through. */
static void child_gives_back_what_threads_kept(void)
{
    pthread_barrier_t barrier;
    pthread_t ids[60];
    mallopt(M_TRIM_THRESHOLD, 0);
    pthread_barrier_init(&barrier, NULL, COUNT_OF(ids) + 1);
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        MUST(pthread_create(&ids[i], NULL, keep_some, &barrier) == 0);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    pid_t child = case_fork();
    if (child == 0) {
        use_heap(true);
        _exit(0);
    }
    case_reap(child);
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        MUST(pthread_join(ids[i], NULL) == 0);
}

static void spawn_while_threads_allocate(void)
{
    churn_start();
    for (int i = 0; i < 40; i++) {
        char *arguments[] = {(char *)"true", NULL};
        pid_t child;
        if (i % 2) {
            MUST(posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ) == 0);
        } else {
            child = vfork();
            if (child == 0) {
                execv("/bin/true", arguments);
                _exit(1);
            }
            MUST(child > 0);
        }
        case_reap(child);
    }
    churn_end();
}

/* The program begins anew in the middle of it. */
static void exec_while_threads_allocate(void)
{
    const char *text = getenv("CASE_EXECS");
    int left = text ? atoi(text) : 20;
    churn_start();
    if (left > 0) {
        char number[16];
        snprintf(number, sizeof(number), "%d", left - 1);
        setenv("CASE_EXECS", number, 1);
        execl("/proc/self/exe", program_invocation_name, __func__, NULL);
        case_fail(__FILE__, __LINE__, "exec: errno %d", errno);
    }
    churn_end();
}

static void exit_while_threads_allocate(void)
{
    for (int i = 0; i < 40; i++) {
        pid_t child = case_fork();
        if (child == 0) {
            churn_start();
            if (i % 4 == 3)
                quick_exit(0);
            exit(0);
        }
        case_reap(child);
    }
}

static void *at_exit_block;
static void at_exit_allocates(void)
{
    free(at_exit_block);
    use_heap(true);
    at_exit_block = churn_new(5000);
}

static void at_exit_nothing(void)
{
}

static void exit_handlers_allocate(void)
{
    pid_t child = case_fork();
    if (child == 0) {
        at_exit_block = churn_new(100);
        for (int i = 0; i < 40; i++) /* more than the first table of libc holds */
            MUST(atexit(i % 20 ? at_exit_nothing : at_exit_allocates) == 0);
        exit(0);
    }
    case_reap(child);
}

static void *leave_late(void *unused)
{
    while (atomic_load(&churn_rounds) == 0)
        sched_yield();
    use_heap(false);
    exit(0);
    return unused;
}

static void main_thread_ends_first(void)
{
    pid_t child = case_fork();
    if (child == 0) {
        pthread_t id;
        MUST(pthread_create(&id, NULL, leave_late, NULL) == 0);
        churn_start();
        pthread_exit(NULL);
    }
    case_reap(child);
}

static bool fork_handler_on;
static _Atomic int fork_handler_calls;
static void fork_handler(void)
{
    if (!fork_handler_on)
        return;
    atomic_fetch_add(&fork_handler_calls, 1);
    churn_free(churn_new(100));
    churn_free(churn_new(100000));
    churn_free(churn_new(3 << 20));
}

/* Before anybody else's in this program; what was preloaded comes earlier still. */
__attribute__((constructor(101))) static void fork_handler_early(void)
{
    pthread_atfork(fork_handler, fork_handler, fork_handler);
}

static void handlers_of_fork_allocate(void)
{
    fork_handler_on = true;
    churn_start();
    MUST(pthread_atfork(fork_handler, fork_handler, fork_handler) == 0);
    for (int i = 0; i < 30; i++) {
        pid_t child = case_fork();
        if (child == 0) {
            use_heap(false);
            _exit(0);
        }
        case_reap(child);
    }
    churn_end();
    MUST(fork_handler_calls >= 120);
}

static _Atomic uint64_t ticks;
static void tick(int number)
{
    int saved = errno;
    atomic_fetch_add(&ticks, 1);
    errno = EINTR; /* as calls in a handler do, who then puts it back */
    errno = saved;
}

static void signals_do_not_matter(void)
{
    struct sigaction action = {.sa_handler = tick};
    struct itimerval often = {{0, 200}, {0, 200}};
    MUST(sigaction(SIGALRM, &action, NULL) == 0 && sigaction(SIGPROF, &action, NULL) == 0);
    MUST(setitimer(ITIMER_REAL, &often, NULL) == 0 && setitimer(ITIMER_PROF, &often, NULL) == 0);
    churn_start();
    for (int i = 0; i < 40 || (atomic_load(&ticks) < 300 && i < 100000); i++)
        use_heap(false);
    churn_end();
    MUST(ticks > 100);
}

/* How deep the stack of a handler was, below the handler itself. */
enum { HANDLER_STACK = 8 << 10, HANDLER_UNTOUCHED = 0xa5, HANDLER_DEPTH_MAX = 3 << 10 };
static unsigned char *handler_stack;
static size_t handler_depth;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* For so long that kept memory has been looked through, and the kernel has been asked how scarce memory is. */
static __attribute__((noinline)) void handler_work(double seconds)
{
    double until = now_s() + seconds;
    for (size_t bytes = 1; now_s() < until; bytes = bytes < 20 << 20 ? bytes * 3 + 1 : 1) {
        char *block = malloc(bytes), *aligned = memalign(4096, bytes);
        MUST(block && aligned);
        block[0] = aligned[0] = 1;
        block = realloc(block, bytes * 2);
        MUST(block);
        free(block);
        free(aligned);
        free(calloc(bytes, 1));
    }
    malloc_trim(0);
}

static void handler_on_small_stack(int number)
{
    unsigned char *here = __builtin_frame_address(0), *lowest = handler_stack;
    MUST(here > handler_stack && here < handler_stack + HANDLER_STACK);
    handler_work(1);
    while (*lowest == HANDLER_UNTOUCHED)
        lowest++;
    handler_depth = (size_t)(here - lowest);
}

/* A handler that runs while its thread is not in the allocator may allocate, and has little room. */
static void a_handler_on_a_small_stack_may_allocate(void)
{
    struct sigaction action = {.sa_handler = handler_on_small_stack, .sa_flags = SA_ONSTACK};
    handler_work(
        0.001); /* the loader has looked all functions up, which takes room for the processor's registers */
    if (sysconf(_SC_MINSIGSTKSZ) > HANDLER_STACK / 2)
        case_skip("what the processor saves is larger");
    unsigned char *pages =
        mmap(NULL, 4096 + HANDLER_STACK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    handler_stack = pages + 4096;
    MUST(pages != MAP_FAILED &&
         mprotect(handler_stack, HANDLER_STACK, PROT_READ | PROT_WRITE) == 0);
    memset(handler_stack, HANDLER_UNTOUCHED, HANDLER_STACK);
    stack_t stack = {.ss_sp = handler_stack, .ss_size = HANDLER_STACK};
    MUST(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    MUST(raise(SIGUSR1) == 0);
    fprintf(stderr, "%zu bytes\n", handler_depth);
    MUST_SAY(handler_depth > 0 && handler_depth <= HANDLER_DEPTH_MAX, "%zu bytes of stack",
             handler_depth);
}

static int open_descriptors(void)
{
    int count = 0;
    for (int i = 0; i < 1024; i++)
        count += fcntl(i, F_GETFD) >= 0;
    return count;
}

static void all_descriptors_may_be_closed(void)
{
    if (!getenv("CASE_CLOSED")) { /* who started us may have left some open */
        setenv("CASE_CLOSED", "1", 1);
        MUST(close_range(3, ~0u, 0) == 0);
        execl("/proc/self/exe", program_invocation_name, __func__, NULL);
        _exit(3);
    }
    use_heap(true);
    MUST_SAY(open_descriptors() == 3, "%d descriptors are open, of which 3 are ours",
             open_descriptors());
    MUST(close_range(3, ~0u, 0) == 0);
    int log = dup(2);
    for (int i = 0; i < 3; i++)
        close(i);
    use_heap(true);
    malloc_trim(0);
    bool free_still = fcntl(0, F_GETFD) < 0 && fcntl(1, F_GETFD) < 0 && fcntl(2, F_GETFD) < 0;
    dup2(log, 2);
    MUST(free_still);
}

/* Somebody else's descriptor has number 0 then; it must not be read, written or closed. */
static void starts_without_descriptors(void)
{
    if (!getenv("CASE_CLOSED")) {
        setenv("CASE_CLOSED", "1", 1);
        MUST(dup2(2, 30) == 30);
        for (int i = 0; i < 3; i++)
            close(i);
        execl("/proc/self/exe", program_invocation_name, __func__, NULL);
        _exit(3);
    }
    bool closed = fcntl(0, F_GETFD) < 0 && fcntl(1, F_GETFD) < 0 && fcntl(2, F_GETFD) < 0;
    use_heap(true);
    closed &= fcntl(0, F_GETFD) < 0 && fcntl(1, F_GETFD) < 0 && fcntl(2, F_GETFD) < 0;
    dup2(30, 2);
    MUST(closed);
}

static void sandbox_use_heap(void)
{
    for (int i = 0; i < 30; i++)
        use_heap(false);
    for (size_t n_bytes = 1000; n_bytes < 300 << 20; n_bytes *= 3) {
        void *block = malloc(n_bytes);
        MUST(block);
        memset(block, 1, n_bytes < 50 << 20 ? n_bytes : 50 << 20);
        block = realloc(block, n_bytes * 2);
        MUST(block);
        free(block);
    }
    _exit(0);
}

/* Entered by a program that has run for a while, */
static void only_memory_calls_are_made_in_a_sandbox(void)
{
    use_heap(false);
    sandbox_enter(SANDBOX_REFUSES);
    sandbox_use_heap();
}

/* or by one whose first heap is yet to come. */
static void a_heap_begins_in_a_sandbox(void)
{
    sandbox_enter(SANDBOX_REFUSES);
    sandbox_use_heap();
}

/* And where a file that is opened is the end, of both. */
static void no_file_is_opened_in_a_sandbox(void)
{
    void *much = malloc(64 << 20); /* enough to look how scarce memory is */
    MUST(much);
    memset(much, 1, 64 << 20);
    free(much);
    use_heap(false);
    sandbox_enter(SANDBOX_KILLS);
    sandbox_use_heap();
}

static void a_heap_begins_in_a_sandbox_without_files(void)
{
    sandbox_enter(SANDBOX_KILLS);
    sandbox_use_heap();
}

static void a_filter_of_its_own_call_is_foreseen(void)
{
    sandbox_enter(SANDBOX_KILLS_BY_SYSCALL);
    sandbox_use_heap();
}

/* Memory is looked after as before: a child that is killed for that dies of it, sooner or later. */
static void must_look_at_files(void)
{
    pid_t child = case_fork();
    int status;
    if (child == 0) {
        sandbox_enter(SANDBOX_KILLS_UNSEEN);
        for (int i = 0; i < CASE_SECONDS / 2 * 100; i++) {
            void *much = malloc(64 << 20);
            MUST(much);
            memset(much, 1, 1 << 20);
            free(much);
            use_heap(false);
            usleep(10000);
        }
        _exit(0);
    }
    MUST(waitpid(child, &status, 0) == child);
    MUST_SAY(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS, "status %x", (unsigned)status);
}

static void a_child_of_vfork_may_lock_itself_up(void)
{
    use_heap(false);
    pid_t child = vfork();
    if (child == 0)
        _exit(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    MUST(child > 0);
    case_reap(child);
    must_look_at_files();
    sandbox_enter(SANDBOX_KILLS);
    sandbox_use_heap();
}

static void a_filter_that_is_refused_changes_nothing(void)
{
    errno = 0;
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0) == -1 && errno != 0);
    must_look_at_files();
    sandbox_enter(SANDBOX_KILLS);
    sandbox_use_heap();
}

/* What prctl() does otherwise, it still does. */
static void prctl_is_what_it_was(void)
{
    char name[16] = "";
    MUST(prctl(PR_SET_NAME, "another") == 0);
    MUST(prctl(PR_GET_NAME, name) == 0 && strcmp(name, "another") == 0);
    MUST(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 && prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0);
    MUST(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0);
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    MUST(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
    errno = 0;
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 2, 0, 0, 0) == -1 && errno == EINVAL);
    use_heap(true);
}

int main(int argc, char **argv)
{
#define CASE(name)  \
    {               \
#name, name \
    }
    static const struct test_case cases[] = {
        CASE(fork_while_threads_allocate),
        CASE(threads_fork_at_once),
        CASE(generations_of_children),
        CASE(bare_fork_while_threads_allocate),
        CASE(child_of_bare_fork_forks_and_has_threads),
        CASE(handlers_of_fork_allocate),
        CASE(early_handlers_of_fork_allocate),
        CASE(early_handlers_wait_for_threads_that_allocate),
        CASE(late_handlers_wait_for_threads_that_allocate),
        CASE(a_child_of_a_small_program_grows_up),
        CASE(child_gives_back_what_threads_kept),
        CASE(spawn_while_threads_allocate),
        CASE(exec_while_threads_allocate),
        CASE(exit_while_threads_allocate),
        CASE(exit_handlers_allocate),
        CASE(main_thread_ends_first),
        CASE(signals_do_not_matter),
        CASE(a_handler_on_a_small_stack_may_allocate),
        CASE(all_descriptors_may_be_closed),
        CASE(starts_without_descriptors),
        CASE(only_memory_calls_are_made_in_a_sandbox),
        CASE(a_heap_begins_in_a_sandbox),
        CASE(no_file_is_opened_in_a_sandbox),
        CASE(a_heap_begins_in_a_sandbox_without_files),
        CASE(a_filter_of_its_own_call_is_foreseen),
        CASE(a_child_of_vfork_may_lock_itself_up),
        CASE(a_filter_that_is_refused_changes_nothing),
        CASE(prctl_is_what_it_was),
    };
    return cases_main(argc, argv, cases, COUNT_OF(cases));
}
