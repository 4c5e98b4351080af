/* What memoir/heap.h offers, used by a program that is linked with the library: `tools NAME` runs one case and says "ok", or what was
 * wrong. test_malloc_tools.py looks at the output. */
#include <errno.h>
#include <memoir/heap.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEPT 800

static void *kept[KEPT];
static atomic_bool stop;
static void *volatile last, *volatile first;
static void *(*volatile hidden_malloc)(size_t) = malloc;

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

/* Blocks of all kinds, some of them freed. */
static void fill(unsigned seed, void **slots, size_t n)
{
    for (size_t i = 0; i < 20 * n; i++) {
        size_t slot = next_random(&seed) % n;
        size_t bytes = next_random(&seed) % (i % 97 ? 3000 : i % 2000 ? 200000 : 4 << 20);
        free(slots[slot]);
        slots[slot] = malloc(bytes);
        if (slots[slot])
            memset(slots[slot], 1, bytes);
    }
}

static void *churn(void *argument)
{
    void *slots[200] = {NULL};
    for (unsigned seed = (unsigned)(uintptr_t)argument; !atomic_load(&stop); seed++)
        fill(seed, slots, 200);
    for (size_t i = 0; i < 200; i++)
        free(slots[i]);
    return NULL;
}

static int problems(void)
{
    int n = -EBUSY;
    for (int i = 0; i < 1000 && n == -EBUSY; i++)
        n = memoir_malloc_check(STDOUT_FILENO);
    return n;
}

static int whole(void)
{
    fill(1, kept, KEPT);
    return problems();
}

static int whole_with_threads(void)
{
    pthread_t threads[4];
    int found = 0;
    for (uintptr_t i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, churn, (void *)i);
    for (int i = 0; i < 8 && found == 0; i++) {
        fill((unsigned)i, kept, KEPT);
        found = problems();
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    return found != 0 ? found : problems();
}

/* A block that was freed is written to: its link leads nowhere. */
static int broken_list(void)
{
    void *blocks[50];
    fill(1, kept, KEPT); /* a program's first blocks are in no list */
    for (int i = 0; i < 50; i++)
        blocks[i] = hidden_malloc(400);
    last = blocks[20];
    for (int i = 10; i < 40; i++)
        free(blocks[i]);
    memset(last, 0x55, 8);
    return problems() > 0 ? 0 : -1;
}

static int broken_canary(void)
{
    last = hidden_malloc(40);
    ((char *volatile)last)[40] = 7;
    return problems() == 1 ? 0 : -1;
}

static void on_signal(int number)
{
    memoir_malloc_dump(STDOUT_FILENO);
}

static int dump(void)
{
    fill(1, kept, KEPT);
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
    return 0;
}

static int dump_with_threads(void)
{
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, churn, (void *)i);
    signal(SIGUSR1, on_signal);
    for (int i = 0; i < 50; i++)
        pthread_kill(threads[i % 4], SIGUSR1);
    atomic_store(&stop, true);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

__attribute__((noinline)) static void *allocate_here(size_t bytes)
{
    last = hidden_malloc(bytes);
    return last;
}

static int explain(void)
{
    static int somewhere;
    char *block = allocate_here(100), *gone = allocate_here(200);
    memoir_malloc_explain(block + 30, STDOUT_FILENO);
    free(gone);
    memoir_malloc_explain(last, STDOUT_FILENO);
    memoir_malloc_explain(&somewhere, STDOUT_FILENO);
    return 0;
}

/* Whoever's malloc() is the program's: what came from a node is freed as anything else. */
static int node_blocks(void)
{
    unsigned node = (unsigned)__builtin_ctzll(memoir_malloc_nodes());
    size_t bytes[] = {100, 100000, 5 << 20, 100, 300 << 10, 9 << 20};
    char *blocks[6];
    for (size_t i = 0; i < 6; i++) {
        blocks[i] =
            i < 3 ? memoir_malloc_on_node(bytes[i], node) : memoir_malloc_interleaved(bytes[i]);
        if (!blocks[i])
            return -1;
        memset(blocks[i], 1, bytes[i]);
        blocks[i] = realloc(blocks[i], 2 * bytes[i]);
        if (!blocks[i] || blocks[i][bytes[i] - 1] != 1)
            return -2;
    }
    for (size_t i = 0; i < 6; i++)
        free(blocks[i]);
    return problems();
}

static int nodes(void)
{
    uint64_t mask = memoir_malloc_nodes();
    unsigned node = (unsigned)__builtin_ctzll(mask), other = (unsigned)__builtin_ctzll(~mask);
    struct memoir_malloc_node_figures figures = {0};
    int wrong = node_blocks();
    if (wrong != 0)
        return wrong;
    errno = 0;
    if (memoir_malloc_on_node(100, other) != NULL || errno != EINVAL)
        return -3;
    last = hidden_malloc(100);
    if (memoir_malloc_node_figures(node, &figures) != 0 || figures.used_bytes == 0 ||
        figures.mapped_bytes < figures.used_bytes)
        return -4;
    return memoir_malloc_node_figures(64, &figures) == -ENOENT ? 0 : -5;
}

/* Stops, for a debugger to look at. */
static int wait_for_debugger(void)
{
    first = hidden_malloc(90);
    fill(1, kept, KEPT);
    last = kept[0] = realloc(kept[0], 1234);
    raise(SIGTRAP);
    return 0;
}

static const struct {
    const char *name;
    int (*run)(void);
} cases[] = {
    {"whole", whole},
    {"whole_with_threads", whole_with_threads},
    {"broken_list", broken_list},
    {"broken_canary", broken_canary},
    {"dump", dump},
    {"dump_with_threads", dump_with_threads},
    {"explain", explain},
    {"nodes", nodes},
    {"node_blocks", node_blocks},
    {"wait_for_debugger", wait_for_debugger},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < sizeof(cases) / sizeof(cases[0]); i++)
        if (strcmp(argv[1], cases[i].name) == 0) {
            int result = cases[i].run();
            printf(result == 0 ? "ok\n" : "result %d\n", result);
            return result == 0 ? 0 : 1;
        }
    fprintf(stderr, "usage: tools NAME\n");
    return 2;
}
