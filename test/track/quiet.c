/* quiet.c: a program must not notice that it is tracked: no error of the loader waits for it, and errno is its own. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
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
