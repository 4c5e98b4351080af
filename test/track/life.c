/* life.c MODE...: a process from its first call to its last, with all that may happen to it in between. */
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "own.h"

enum { N = 100 };
static void *first[N], *second[N];

static void *block_of(size_t bytes)
{
    void *block = malloc(bytes);
    MUST(block);
    own_got(bytes);
    return memset(block, 1, bytes);
}

static void gone(void *block, size_t bytes)
{
    own_gave(bytes);
    free(block);
}

static void fill(void **blocks, size_t bytes)
{
    for (int i = 0; i < N; i++)
        blocks[i] = block_of(bytes);
}

static void empty(void **blocks, int n, size_t bytes)
{
    for (int i = 0; i < n; i++)
        gone(blocks[i], bytes);
}

/* ---- fork ---- */

static void child(void)
{
    own_alloc_bytes = own_alloc_blocks = own_freed_bytes = own_freed_blocks = 0;
    for (int i = 0; i < N / 2; i++)
        free(first[i]); /* inherited: not the child's own count */
    fill(second, 2000);
    empty(second, 10, 2000);
    own_say("child");
    _exit(0);
}

static void forks(const char *how)
{
    fill(first, 1000);
    own_say("before");
    pid_t pid = strcmp(how, "clone") == 0 ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
    if (pid == 0)
        child();
    int status;
    MUST(waitpid(pid, &status, 0) == pid && status == 0);
    empty(first, 10, 1000);
    own_say("parent");
}

static void vforks(char *self)
{
    fill(first, 1000);
    pid_t pid = vfork();
    if (pid == 0) {
        execl(self, self, "nothing", (char *)NULL);
        _exit(1);
    }
    int status;
    MUST(waitpid(pid, &status, 0) == pid && status == 0);
    empty(first, 10, 1000);
    own_say("end");
}

static void execs(char *self, const char *left)
{
    fill(first, 1000 * (size_t)(left[0] - '0' + 1));
    own_say("image");
    char next[2] = {(char)(left[0] - 1), '\0'};
    if (left[0] > '0')
        execl(self, self, "exec", next, (char *)NULL);
}

/* ---- the rest ---- */

static void suspends(void)
{
    fill(first, 1000);
    own_say("counted");
    for (int i = 0; i < N; i++)
        MUST((second[i] = malloc(3000)) != NULL); /* nobody counts these */
    empty(first, N / 2, 1000);
    own_say("suspended");
    for (int i = 0; i < N; i++)
        free(second[i]);
    fill(second, 500);
    own_say("resumed");
}

/* Blocks that come from behind the tracker's back. */
static void foreign(void)
{
    void *(*hidden)(size_t) = (void *(*)(size_t))dlsym(RTLD_DEFAULT, "__libc_malloc");
    MUST(hidden);
    fill(first, 1000);
    for (int i = 0; i < N; i++) {
        char *block = hidden((size_t)i * 8);
        MUST(block);
        memset(block, i, (size_t)i * 8);
        if (i % 2) {
            free(block);
            continue;
        }
        char *moved = realloc(block, 1000);
        MUST(moved && (i == 0 || moved[i * 8 - 1] == i));
        own_got(1000);
        gone(moved, 1000);
    }
    own_say("end");
}

/* One of them that ends where a block of ours did, with the same word there: it is the program's. Needs an allocator that
 * joins what is free at once. */
static void disguised(void)
{
    enum { FRONT = 296, BACK = 488, TRIES = 1000 }; /* each with its head a multiple of 16 */
    void *(*hidden)(size_t) = (void *(*)(size_t))dlsym(RTLD_DEFAULT, "__libc_malloc");
    int done = 0;
    MUST(hidden);
    fill(first, 1000);
    for (int i = 0; i < TRIES && done < 10; i++) {
        char *front = hidden(FRONT);
        char *back = malloc(BACK - 8);
        own_got(BACK - 8);
        MUST(front && back && hidden(32)); /* the last keeps it apart from what follows */
        uint64_t word;
        memcpy(&word, back + BACK - 8, 8);
        gone(back, BACK - 8);
        free(front);
        char *both = hidden(FRONT + 8 + BACK);
        MUST(both);
        if (both != front || back != front + FRONT + 8)
            continue;
        memcpy(both + FRONT + BACK, &word, 8);
        char *moved = realloc(both, 900);
        MUST(moved && memcmp(moved + FRONT + BACK, &word, 8) == 0);
        own_got(900);
        gone(moved, 900);
        done++;
    }
    MUST(done == 10);
    own_say("end");
}

typedef void *plugin_call(size_t);

/* Two libraries, one after the other, perhaps at the same address. */
static void plugins(const char *one, const char *other)
{
    fill(first, 1000);
    for (int i = 0; i < 40; i++) {
        void *handle = dlopen(i % 2 ? other : one, RTLD_NOW | RTLD_LOCAL);
        MUST(handle);
        plugin_call *call = (plugin_call *)dlsym(handle, "plugin_block");
        MUST(call);
        for (int k = 0; k < 10; k++)
            MUST(call(i % 2 ? 70 : 30));
        dlclose(handle);
    }
    own_say("end");
}

static double pairs_ns(plugin_call *call)
{
    enum { ROUNDS = 40, PAIRS = 2000 };
    double best = 1e18;
    for (int i = 0; i < ROUNDS; i++) {
        struct timespec before, after;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
        for (int k = 0; k < PAIRS; k++)
            free(call(50));
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
        double ns =
            (double)(after.tv_sec - before.tv_sec) * 1e9 + (double)(after.tv_nsec - before.tv_nsec);
        best = ns < best ? ns : best;
    }
    return best / PAIRS;
}

/* What a call of a library costs: one with a build-id, one without. */
static void plugin_costs(const char *one, const char *bare)
{
    void *handles[] = {dlopen(one, RTLD_NOW | RTLD_LOCAL), dlopen(bare, RTLD_NOW | RTLD_LOCAL)};
    MUST(handles[0] && handles[1]);
    double usual = pairs_ns((plugin_call *)dlsym(handles[0], "plugin_block"));
    double without = pairs_ns((plugin_call *)dlsym(handles[1], "plugin_block"));
    printf("%.1f %.1f\n", usual, without);
}

static void *volatile early_block;
static bool tell_late;

__attribute__((constructor(101))) static void at_start(void)
{
    early_block = block_of(111);
}

__attribute__((destructor(101))) static void at_end(void)
{
    gone(early_block, 111);
    block_of(222);
    if (tell_late)
        own_tell("late");
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "nothing";
    if (strcmp(mode, "nothing") == 0)
        return 0;
    if (strcmp(mode, "plugin_costs") == 0 && argc > 3) {
        plugin_costs(argv[2], argv[3]);
        return 0;
    }
    if (strcmp(mode, "fork") == 0 || strcmp(mode, "clone") == 0)
        forks(mode);
    else if (strcmp(mode, "vfork") == 0)
        vforks(argv[0]);
    else if (strcmp(mode, "exec") == 0)
        execs(argv[0], argv[2]);
    else if (strcmp(mode, "suspend") == 0)
        suspends();
    else if (strcmp(mode, "foreign") == 0)
        foreign();
    else if (strcmp(mode, "disguised") == 0)
        disguised();
    else if (strcmp(mode, "plugins") == 0)
        plugins(argv[2], argv[3]);
    else if (strcmp(mode, "late") == 0)
        tell_late = true;
    else if (strcmp(mode, "twice") == 0) {
        fill(first, 5000);
        void *volatile again = first[0];
        free(first[0]);
        free(again);
    } else
        return 2;
    return 0;
}
