/* quiet.c [mapper]: a program must not notice that it is tracked: no error of the loader waits for it, errno is its own,
 * and its calls reach the library that stands in front of mmap() (mapper.c). */
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static bool mapper_is_asked(void)
{
    const int *calls = dlsym(RTLD_DEFAULT, "mapper_calls");
    int before = calls ? *calls : 0;
    void *map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return calls && map != MAP_FAILED && munmap(map, 4096) == 0 && *calls == before + 2;
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1)
        return !mapper_is_asked();
    static void *volatile sink;
    errno = EXDEV;
    for (size_t i = 0; i < 3000; i++) { /* there is a book in between */
        sink = malloc(100 + i);
        sink = realloc(sink, 2000);
        free(sink);
    }
    int error = errno;
    const char *left = dlerror();
    if (left)
        fprintf(stderr, "an error was left behind: %s\n", left);
    return left || error != EXDEV;
}
