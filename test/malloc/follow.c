/* follow.c: a program that has freed much and goes on with little, for test_scarce.py. Says "freed BYTES", what is
 * resident then; for each line of its input does a little and says what is resident. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 100000, BYTES = 2000, LITTLE = 3000 };

static size_t resident(void)
{
    char text[128] = {0}, *end;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
        abort();
    close(fd);
    (void)strtoull(text, &end, 10);
    return strtoull(end, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

static void *blocks[BLOCKS];

static void use(size_t n)
{
    for (size_t i = 0; i < n; i++) {
        blocks[i] = malloc(BYTES);
        if (!blocks[i])
            abort();
        memset(blocks[i], 1, BYTES);
    }
    for (size_t i = 0; i < n; i++)
        free(blocks[i]);
}

int main(void)
{
    char line[64];
    use(BLOCKS);
    printf("freed %zu\n", resident());
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        use(LITTLE);
        printf("now %zu\n", resident());
        fflush(stdout);
    }
    return 0;
}
