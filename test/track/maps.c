/* maps.c: mappings that are made, cut, moved and replaced, with the list of those that must be left. */
#include <string.h>
#include <sys/mman.h>

#include "own.h"

static char *mapped(size_t pages)
{
    char *start =
        mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(start != MAP_FAILED);
    return start;
}

static void tell(const char *who, const void *start, size_t pages)
{
    char line[128];
    int n = snprintf(line, sizeof(line), "{\"who\":\"%s\",\"start\":%ju,\"bytes\":%zu}\n", who,
                     (uintmax_t)(uintptr_t)start, pages * 4096);
    MUST(write(STDOUT_FILENO, line, (size_t)n) == n);
}

int main(void)
{
    char *whole = mapped(10), *head = mapped(10), *tail = mapped(10), *middle = mapped(10);
    char *gone = mapped(5), *replaced = mapped(10), *moved = mapped(8);
    MUST(munmap(gone, 5 * 4096) == 0);
    MUST(munmap(head, 3 * 4096) == 0);
    MUST(munmap(tail + 7 * 4096, 3 * 4096) == 0);
    MUST(munmap(middle + 4 * 4096, 4096 - 1) == 0); /* rounded up to the page */
    MUST(mmap(replaced + 2 * 4096, 4 * 4096, PROT_READ, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1,
              0) == replaced + 2 * 4096);
    char *larger = mremap(moved, 8 * 4096, 300 * 4096, MREMAP_MAYMOVE);
    MUST(larger != MAP_FAILED);
    errno = 0;
    MUST(munmap(whole + 1, 4096) == -1 && errno == EINVAL);
    MUST(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED &&
         errno == EINVAL);
    tell("range", whole, 10);
    tell("range", head + 3 * 4096, 7);
    tell("range", tail, 7);
    tell("range", middle, 4);
    tell("range", middle + 5 * 4096, 5);
    tell("range", replaced, 2);
    tell("range", replaced + 2 * 4096, 4);
    tell("range", replaced + 6 * 4096, 4);
    tell("range", larger, 300);
    own_say("end");
    return 0;
}
