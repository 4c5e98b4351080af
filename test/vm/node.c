/* Where memory lies, asked of the kernel by move_pages. Usage: vm_node facts NODE: a page touched by this thread, which runs on
 * NODE, lies there, and one bound to the other node lies on that. */
#include <linux/mempolicy.h>
#include <stdbool.h>
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
    return same("this thread", node_here(), node) &
           same("a page touched here", node_of(pages), node) &
           same("a page bound to the other node", node_of(pages + PAGE), 1 - node);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "facts") == 0)
        return facts(atoi(argv[2])) ? 0 : 1;
    fprintf(stderr, "usage: vm_node facts NODE\n");
    return 2;
}
