/* The only pointers are in memory that the program maps itself: its own, of a file, and shared in two ways. */
#include <fcntl.h>
#include <sys/mman.h>

#include "truth.h"

enum { PAGE = 4096 };

static void **map(int flags, int fd)
{
    void *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (p == MAP_FAILED)
        abort();
    return (void **)p + 17;
}

static void step(int number)
{
    if (number != 0)
        return;
    int fd = memfd_create("leaks", MFD_CLOEXEC);
    int other = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || ftruncate(fd, PAGE) < 0 || other < 0)
        abort();
    *map(MAP_PRIVATE | MAP_ANONYMOUS, -1) = MALLOC(111); /* HELD */
    *map(MAP_PRIVATE, other) = MALLOC(222);              /* HELD */
    *map(MAP_SHARED | MAP_ANONYMOUS, -1) = MALLOC(333);  /* HELD */
    *map(MAP_SHARED, fd) = MALLOC(444);                  /* HELD */
    close(fd);
    close(other);
}

TRUTH_MAIN(step)
