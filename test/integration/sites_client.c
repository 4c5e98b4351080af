/* A client whose call stacks are known: reports what it is told on standard input, one command a line, and
 * answers "ok".
 *
 *     left ID BYTES     main -> obey -> path_left -> ask
 *     right ID BYTES    main -> obey -> path_right -> ask
 *     inlined ID BYTES  main -> obey -> path_inlined, into which ask_inlined is compiled
 *     direct ID BYTES   main -> obey -> path_direct
 *     device ID BYTES   the same from path_device, in the DRAM of device 0
 *     free ID           of the host
 *     tree DEPTH BYTES  one block from each of 2^DEPTH stacks
 *     churn N BYTES     N blocks that come and go at once, from path_churn
 *
 * It ends with its standard input. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memoir/memoir.h>

#ifdef __clang__
#define APART __attribute__((noinline))
#else
#define APART __attribute__((noinline, noclone))
#endif
#define AFTER \
    __asm__ volatile("" ::: "memory") /* so that the call before it is none of the last kind */

enum { TREE_FIRST = 1 << 30 };

static uint64_t tree_next = TREE_FIRST;
static int device = MEMOIR_HOST;

APART static void ask(uint64_t id, uint64_t bytes)
{
    memoir_alloc(MEMOIR_HOST, MEMOIR_SPACE_HEAP, id, bytes);
    AFTER;
}

APART static void path_left(uint64_t id, uint64_t bytes)
{
    ask(id, bytes);
    AFTER;
}

APART static void path_right(uint64_t id, uint64_t bytes)
{
    ask(id, bytes);
    __asm__ volatile("nop; nop");
}

static inline __attribute__((always_inline)) void ask_inlined(uint64_t id, uint64_t bytes)
{
    memoir_alloc(MEMOIR_HOST, MEMOIR_SPACE_HEAP, id, bytes);
    AFTER;
}

APART static void path_inlined(uint64_t id, uint64_t bytes)
{
    ask_inlined(id, bytes);
    AFTER;
}

APART static void path_direct(uint64_t id, uint64_t bytes)
{
    memoir_alloc(MEMOIR_HOST, MEMOIR_SPACE_HEAP, id, bytes);
    __asm__ volatile("nop"); /* or it would be folded with ask(), which has the same code */
}

APART static void path_device(uint64_t id, uint64_t bytes)
{
    struct memoir_device_options options = {
        .struct_size = sizeof(options),
        .kind = MEMOIR_DEVICE_SIMULATED,
        .name = "Card",
        .uid = "CARD-0",
    };
    if (device == MEMOIR_HOST)
        device = memoir_device(&options);
    memoir_alloc(device, MEMOIR_SPACE_DRAM, id, bytes);
    AFTER;
}

APART static void path_churn(uint64_t n, uint64_t bytes)
{
    for (uint64_t i = 0; i < n; i++) {
        memoir_alloc(MEMOIR_HOST, MEMOIR_SPACE_HEAP, UINT32_MAX, bytes);
        memoir_free(MEMOIR_HOST, MEMOIR_SPACE_HEAP, UINT32_MAX);
    }
}

static void tree(uint64_t depth, uint64_t bytes);

APART static void tree_low(uint64_t depth, uint64_t bytes)
{
    tree(depth, bytes);
    AFTER;
}

APART static void tree_high(uint64_t depth, uint64_t bytes)
{
    tree(depth, bytes);
    __asm__ volatile("nop");
}

APART static void tree(uint64_t depth, uint64_t bytes)
{
    if (depth == 0) {
        ask(tree_next++, bytes);
        AFTER;
        return;
    }
    tree_low(depth - 1, bytes);
    tree_high(depth - 1, bytes);
    AFTER;
}

APART static void obey(const char *line)
{
    static const struct {
        const char *verb;
        void (*path)(uint64_t, uint64_t);
    } paths[] = {
        {"left", path_left},     {"right", path_right},   {"inlined", path_inlined},
        {"direct", path_direct}, {"device", path_device}, {"tree", tree},
        {"churn", path_churn},
    };
    char verb[16];
    unsigned long long a = 0, b = 0;
    int n = sscanf(line, "%15s %llu %llu", verb, &a, &b);
    if (n == 2 && strcmp(verb, "free") == 0) {
        memoir_free(MEMOIR_HOST, MEMOIR_SPACE_HEAP, a);
        return;
    }
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        if (n == 3 && strcmp(verb, paths[i].verb) == 0) {
            paths[i].path(a, b);
            return;
        }
    exit(2);
}

int main(void)
{
    char line[256];
    memoir_open(0);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        obey(line);
        puts("ok");
        fflush(stdout);
    }
    return 0;
}
