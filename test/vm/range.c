/* Fixed addresses on a machine with the nodes 0 and 1, with libmemoir-malloc preloaded and a range set.
 *
 * Usage: vm_range send FILE      blocks of both nodes lie in their node's part of the range, and go to FILE
 *        vm_range receive FILE   they come back at the same addresses, and their memory is of the node that the address tells */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <memoir/heap.h>
#include <memoir/malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE   4096
#define BLOCKS 200

static const size_t sizes[] = {100, 5000, 40000, 300000};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

struct blocks {
    unsigned char *at[2][SIZES][BLOCKS];
    unsigned char *huge;
};
#define HUGE_BYTES (5 << 20)

static int (*range)(struct memoir_malloc_range *ret);
static int (*save)(int fd, const void *root);
static int (*load)(int fd, void **ret_root);
static void *(*on_node)(size_t bytes, unsigned node);
static int (*check)(int fd);

static bool find_functions(void)
{
    *(void **)&range = dlsym(RTLD_DEFAULT, "memoir_malloc_range");
    *(void **)&save = dlsym(RTLD_DEFAULT, "memoir_malloc_range_save");
    *(void **)&load = dlsym(RTLD_DEFAULT, "memoir_malloc_range_load");
    *(void **)&on_node = dlsym(RTLD_DEFAULT, "memoir_malloc_on_node");
    *(void **)&check = dlsym(RTLD_DEFAULT, "memoir_malloc_check");
    return range && save && load && on_node && check;
}

static int node_of(const void *address)
{
    void *page = (void *)((unsigned long)address & ~(PAGE - 1UL));
    int status = -1;
    return syscall(SYS_move_pages, 0, 1UL, &page, NULL, &status, 0) == 0 ? status : -1;
}

static size_t count_of(size_t size)
{
    return sizes[size] < 10000 ? BLOCKS : BLOCKS / 10;
}

/* Address, memory and contents of all blocks. */
static bool all_right(struct blocks *b)
{
    struct memoir_malloc_range r = {.struct_size = sizeof(r)};
    if (range(&r) != 0 || r.nodes != 2 || r.node_bytes * 2 != r.bytes) {
        printf("range: %d, %u nodes\n", range(&r), r.nodes);
        return false;
    }
    size_t wrong = 0;
    for (unsigned node = 0; node < 2; node++)
        for (size_t size = 0; size < SIZES; size++)
            for (size_t i = 0; i < count_of(size); i++) {
                unsigned char *p = b->at[node][size][i];
                uint64_t part = ((uintptr_t)p - r.base) / r.node_bytes;
                int is = node_of(p);
                bool whole = p[0] == (unsigned char)(i + node) && p[sizes[size] - 1] == p[0];
                if (part == node && is == (int)node && whole)
                    continue;
                if (wrong++ < 5)
                    printf("%zu bytes of node %u at %p: part %llu, memory of %d, contents %d\n",
                           sizes[size], node, (void *)p, (unsigned long long)part, is, whole);
            }
    bool huge = (uintptr_t)b->huge - r.base < r.bytes && b->huge[HUGE_BYTES - 1] == 9;
    return wrong == 0 && huge && check(1) == 0;
}

static int send(const char *file)
{
    struct blocks *b = calloc(1, sizeof(*b));
    for (unsigned node = 0; node < 2; node++)
        for (size_t size = 0; size < SIZES; size++)
            for (size_t i = 0; i < count_of(size); i++)
                b->at[node][size][i] =
                    memset(on_node(sizes[size], node), (int)(i + node), sizes[size]);
    b->huge = memset(malloc(HUGE_BYTES), 9, HUGE_BYTES);
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int r = all_right(b) ? save(fd, b) : -EINVAL;
    printf("send: %d\n", r);
    return r != 0;
}

static int receive(const char *file)
{
    void *root = NULL;
    int r = load(open(file, O_RDONLY), &root);
    struct blocks *b = root;
    printf("receive: %d\n", r);
    if (r != 0 || !all_right(b))
        return 1;
    for (unsigned node = 0; node < 2; node++)
        for (size_t size = 0; size < SIZES; size++)
            for (size_t i = 0; i < count_of(size); i++) {
                free(b->at[node][size][i]);
                b->at[node][size][i] =
                    memset(on_node(sizes[size], node), (int)(i + node), sizes[size]);
            }
    return !all_right(b);
}

int main(int argc, char **argv)
{
    if (argc != 3 || !find_functions())
        return 2;
    return strcmp(argv[1], "send") == 0 ? send(argv[2]) : receive(argv[2]);
}
