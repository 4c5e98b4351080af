/* cuda_brief: a short life with the driver, given as words: for crowds of processes that come and go.
 *
 * Usage: cuda_brief WORD...      carried out in order
 *
 *   alloc=BYTES host=BYTES   device memory | pinned host memory
 *   copy=N                   copy the last block to the device and back, N times
 *   free | free-all          the last block | all of them
 *   launch                   a kernel, and a graph that allocates and frees
 *   wait=MS
 *   fork                     a child that calls the driver, which refuses, and exits
 *   spawn                    a child that runs the rest of the words in a program of its own; this one waits and exits
 *   exec                     the rest of the words, in this process begun anew
 *   abort segv kill _exit    ends without order; without one of them it returns from main()
 *
 * Exits with 3 if a call fails that should not. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"

enum { BLOCKS_MAX = 256, COPY_BYTES = 4096 };

struct block {
    CUdeviceptr address; /* 0: of the host */
    void *host;
};

static struct block blocks[BLOCKS_MAX];
static size_t n_blocks;

static void must(const char *what, CUresult r)
{
    if (r == CUDA_SUCCESS)
        return;
    fprintf(stderr, "%s: %d\n", what, (int)r);
    exit(3);
}

static void alloc(size_t size, bool host)
{
    struct block *b = &blocks[n_blocks];
    if (n_blocks == BLOCKS_MAX)
        exit(2);
    *b = (struct block){0};
    if (host)
        must("cuMemHostAlloc", CU(cuMemHostAlloc)(&b->host, size, 0));
    else
        must("cuMemAlloc", CU(cuMemAlloc_v2)(&b->address, size));
    n_blocks++;
}

static void free_last(void)
{
    if (n_blocks == 0)
        return;
    const struct block *b = &blocks[--n_blocks];
    if (b->host)
        must("cuMemFreeHost", CU(cuMemFreeHost)(b->host));
    else
        must("cuMemFree", CU(cuMemFree_v2)(b->address));
}

static void copy(size_t n)
{
    static char bytes[COPY_BYTES];
    for (size_t i = 0; i < n && n_blocks > 0 && blocks[n_blocks - 1].address; i++) {
        must("cuMemcpyHtoD", CU(cuMemcpyHtoD_v2)(blocks[n_blocks - 1].address, bytes, COPY_BYTES));
        must("cuMemcpyDtoH", CU(cuMemcpyDtoH_v2)(bytes, blocks[n_blocks - 1].address, COPY_BYTES));
    }
}

static void launch(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .pool = {.type = CU_MEM_ALLOCATION_PINNED, .location = {CU_MEM_LOCATION_DEVICE, 0}},
        .bytesize = COPY_BYTES};
    CUgraphNode nodes[2];
    CUgraphExec run;
    CUgraph graph;
    must("cuLaunchKernel", CU(cuLaunchKernel)(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    must("cuGraphCreate", CU(cuGraphCreate)(&graph, 0));
    must("cuGraphAddMemAllocNode", CU(cuGraphAddMemAllocNode)(&nodes[0], graph, NULL, 0, &params));
    must("cuGraphAddMemFreeNode",
         CU(cuGraphAddMemFreeNode)(&nodes[1], graph, &nodes[0], 1, params.dptr));
    must("cuGraphInstantiate", CU(cuGraphInstantiateWithFlags)(&run, graph, 0));
    must("cuGraphLaunch", CU(cuGraphLaunch)(run, NULL));
    must("cuGraphExecDestroy", CU(cuGraphExecDestroy)(run));
    must("cuGraphDestroy", CU(cuGraphDestroy)(graph));
}

static void pause_ms(unsigned long ms)
{
    struct timespec left = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) < 0)
        ;
}

static void wait_for(pid_t child)
{
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child)
        exit(3);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 3)
        exit(3);
}

static void fork_child(void)
{
    CUdeviceptr address;
    pid_t child = fork();
    if (child == 0)
        _exit(CU(cuMemAlloc_v2)(&address, 4096) == CUDA_SUCCESS ? 3 : 0);
    wait_for(child);
}

/* argv[0] and the words from `rest` on. */
static void run_rest(char **argv, char **rest)
{
    *--rest = argv[0];
    execv("/proc/self/exe", rest);
    _exit(3);
}

static void spawn(char **argv, char **rest)
{
    pid_t child = fork();
    if (child == 0)
        run_rest(argv, rest);
    wait_for(child);
    exit(0);
}

static void end(const char *how)
{
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "segv") == 0)
        raise(SIGSEGV);
    if (strcmp(how, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(how, "_exit") == 0)
        _exit(0);
    fprintf(stderr, "unknown word '%s'\n", how);
    exit(2);
}

static void step(const char *word)
{
    const char *value = strchr(word, '=');
    unsigned long number = value ? strtoul(value + 1, NULL, 0) : 0;
    if (strncmp(word, "alloc=", 6) == 0 || strncmp(word, "host=", 5) == 0)
        alloc(number, word[0] == 'h');
    else if (strncmp(word, "copy=", 5) == 0)
        copy(number);
    else if (strncmp(word, "wait=", 5) == 0)
        pause_ms(number);
    else if (strcmp(word, "free") == 0)
        free_last();
    else if (strcmp(word, "free-all") == 0)
        while (n_blocks > 0)
            free_last();
    else if (strcmp(word, "launch") == 0)
        launch();
    else if (strcmp(word, "fork") == 0)
        fork_child();
    else
        end(word);
}

int main(int argc, char **argv)
{
    CUcontext context;
    driver_open(DRIVER_BY_NAME);
    must("cuInit", CU(cuInit)(0));
    must("cuDevicePrimaryCtxRetain", CU(cuDevicePrimaryCtxRetain)(&context, 0));
    must("cuCtxSetCurrent", CU(cuCtxSetCurrent)(context));
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "exec") == 0)
            run_rest(argv, &argv[i + 1]);
        if (strcmp(argv[i], "spawn") == 0)
            spawn(argv, &argv[i + 1]);
        step(argv[i]);
    }
    return 0;
}
