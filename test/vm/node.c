/* Where memory lies, asked of the kernel by move_pages, on a machine with the nodes 0 and 1.
 *
 * Usage: vm_node facts NODE   a page touched by this thread, which runs on NODE, lies there, and one bound to the other
 *                             node lies on that
 *        vm_node heap NODE    the same for blocks, with libmemoir-malloc preloaded, whoever touches them first
 *        vm_node one          blocks are not kept apart: for a process that is told so */
#include <dlfcn.h>
#include <errno.h>
#include <linux/mempolicy.h>
#include <memoir/heap.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096

static int node_of(const void *address)
{
    void *page = (void *)((unsigned long)address & ~(PAGE - 1UL));
    int status = -1;
    if (syscall(SYS_move_pages, 0, 1UL, &page, NULL, &status, 0) != 0)
        return -1;
    return status;
}

static int node_here(void)
{
    unsigned cpu, node;
    return syscall(SYS_getcpu, &cpu, &node, NULL) == 0 ? (int)node : -1;
}

static bool same(const char *what, int is, int expected)
{
    if (is != expected)
        printf("%s: node %d, expected %d\n", what, is, expected);
    return is == expected;
}

static bool facts(int node)
{
    char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return false;
    unsigned long other = 1UL << (1 - node);
    if (syscall(SYS_mbind, pages + PAGE, PAGE, MPOL_BIND, &other, 8 * sizeof other, 0) != 0) {
        perror("mbind");
        return false;
    }
    pages[0] = pages[PAGE] = 1;
    bool here = same("this thread", node_here(), node);
    bool touched = same("a page touched here", node_of(pages), node);
    bool bound = same("a page bound to the other node", node_of(pages + PAGE), 1 - node);
    return here && touched && bound;
}

/* ---- with libmemoir-malloc ---- */

#define BLOCKS 20000

static void *(*on_node)(size_t bytes, unsigned node);
static void *(*interleaved)(size_t bytes);
static uint64_t (*nodes)(void);
static int (*figures)(unsigned node, struct memoir_malloc_node_figures *ret);
static void *blocks[BLOCKS];
static size_t block_bytes;

static bool find_functions(void)
{
    on_node = (void *(*)(size_t, unsigned))dlsym(RTLD_DEFAULT, "memoir_malloc_on_node");
    interleaved = (void *(*)(size_t))dlsym(RTLD_DEFAULT, "memoir_malloc_interleaved");
    nodes = (uint64_t(*)(void))dlsym(RTLD_DEFAULT, "memoir_malloc_nodes");
    figures = (int (*)(unsigned, struct memoir_malloc_node_figures *))dlsym(
        RTLD_DEFAULT, "memoir_malloc_node_figures");
    if (!on_node || !interleaved || !nodes || !figures)
        printf("libmemoir-malloc is not there\n");
    return on_node && interleaved && nodes && figures;
}

static bool run_on(int node)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(node, &set); /* one processor a node */
    return sched_setaffinity(0, sizeof(set), &set) == 0 &&
           same("a thread that was moved", node_here(), node);
}

/* In a thread that runs elsewhere: the first to touch them. */
static void *touch_elsewhere(void *node)
{
    if (!run_on(*(int *)node))
        return NULL;
    for (size_t i = 0; i < BLOCKS && blocks[i]; i++)
        memset(blocks[i], 1, block_bytes);
    return node;
}

/* Pages of the blocks that lie on each node. The page where a slab's first blocks are carved is touched by the allocator itself. */
static void count_pages(size_t n, size_t of[2])
{
    of[0] = of[1] = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t at = 0; at < block_bytes; at += PAGE) {
            int node = node_of((char *)blocks[i] + at);
            if (node == 0 || node == 1)
                of[node]++;
        }
}

static bool all_on(const char *what, size_t n, int node)
{
    size_t of[2];
    count_pages(n, of);
    if (of[1 - node] == 0 && of[node] >= n)
        return true;
    printf("%s of %zu bytes: %zu pages on node 0, %zu on node 1, expected all on %d\n", what,
           block_bytes, of[0], of[1], node);
    return false;
}

static void free_all(size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(blocks[i]);
        blocks[i] = NULL;
    }
}

/* Blocks of a thread on `node` lie there, though a thread of the other node writes them first. */
static bool heap_blocks(int node, size_t bytes, size_t n)
{
    pthread_t thread;
    void *done = NULL;
    int other = 1 - node;
    block_bytes = bytes;
    for (size_t i = 0; i < n; i++)
        blocks[i] = malloc(bytes);
    if (pthread_create(&thread, NULL, touch_elsewhere, &other) != 0 ||
        pthread_join(thread, &done) != 0 || !done)
        return false;
    bool ok = all_on("blocks", n, node);
    free_all(n);
    return ok;
}

static bool heap_on_other(int node, size_t bytes, size_t n)
{
    block_bytes = bytes;
    for (size_t i = 0; i < n; i++)
        blocks[i] = memset(on_node(bytes, (unsigned)(1 - node)), 1, bytes);
    bool ok = all_on("memoir_malloc_on_node()", n, 1 - node);
    free_all(n);
    return ok;
}

static bool heap_interleaved(void)
{
    size_t of[2];
    block_bytes = 8 << 20;
    blocks[0] = memset(interleaved(block_bytes), 1, block_bytes);
    count_pages(1, of);
    /* The kernel takes turns by huge pages where it has them: four of them, not always two and two. */
    bool ok = of[0] >= 512 && of[1] >= 512;
    if (!ok)
        printf("interleaved: %zu pages on node 0, %zu on node 1\n", of[0], of[1]);
    free_all(1);
    return ok;
}

/* A block that takes the place of an interleaved one is an ordinary one. */
static bool heap_after_interleaved(int node)
{
    blocks[0] = memset(malloc(block_bytes + PAGE), 1, block_bytes);
    bool ok = true;
    free_all(1);
    blocks[0] = malloc(2 * block_bytes);
    block_bytes = 2 * block_bytes;
    memset(blocks[0], 1, block_bytes);
    size_t of[2];
    count_pages(1, of);
    /* What was kept of the old block may lie anywhere; most is new. */
    ok = of[node] > of[1 - node];
    if (!ok)
        printf("after interleaving: %zu pages on node 0, %zu on node 1\n", of[0], of[1]);
    free_all(1);
    return ok;
}

/* A thread that moves has its next slabs from where it is. */
static bool heap_follows(int node)
{
    block_bytes = 3 * PAGE;
    blocks[0] = malloc(block_bytes);
    if (!run_on(1 - node))
        return false;
    free_all(1);
    size_t n = 2000, of[2];
    for (size_t i = 0; i < n; i++)
        blocks[i] = memset(malloc(block_bytes), 1, block_bytes);
    count_pages(n, of);
    bool ok = of[1 - node] > 9 * of[node];
    if (!ok)
        printf("after moving to %d: %zu pages on node 0, %zu on node 1\n", 1 - node, of[0], of[1]);
    struct memoir_malloc_node_figures here, there;
    if (figures(1 - node, &here) != 0 || figures(node, &there) != 0 ||
        here.used_bytes < n * block_bytes) {
        printf("figures: %lu bytes used on node %d\n", here.used_bytes, 1 - node);
        ok = false;
    }
    free_all(n);
    return run_on(node) && ok;
}

static bool heap(int node)
{
    if (!find_functions() || !same("nodes", (int)nodes(), 3))
        return false;
    bool ok = true;
    static const size_t sizes[] = {PAGE, 2 * PAGE, 8 * PAGE, 30 * PAGE, 200 * PAGE};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        size_t n = (40 << 20) / sizes[i];
        ok &= heap_blocks(node, sizes[i], n);
        ok &= heap_on_other(node, sizes[i], n);
    }
    ok &= heap_on_other(node, 1000 * PAGE, 5); /* with mappings of their own */
    ok &= heap_interleaved();
    ok &= heap_after_interleaved(node);
    ok &= heap_follows(node);
    if (on_node(100, 5) != NULL || errno != EINVAL) {
        printf("memory of a node that is not there\n");
        ok = false;
    }
    return ok;
}

static bool one(void)
{
    struct memoir_malloc_node_figures all;
    blocks[0] = malloc(64 << 10); /* not among the first blocks, which are no node's */
    if (!find_functions() || figures(0, &all) != 0 || all.mapped_bytes == 0) {
        printf("figures of one node\n");
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "facts") == 0)
        return facts(atoi(argv[2])) ? 0 : 1;
    if (argc == 3 && strcmp(argv[1], "heap") == 0)
        return heap(atoi(argv[2])) ? 0 : 1;
    if (argc == 2 && strcmp(argv[1], "one") == 0)
        return one() ? 0 : 1;
    fprintf(stderr, "usage: vm_node facts NODE | heap NODE | one\n");
    return 2;
}
