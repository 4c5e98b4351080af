/* small.c: a small program, which tells what it has resident, in KiB: anonymous memory, pages of the file that its argument names, and
 * all. With a second argument it has blocks enough for a heap, of all small sizes; "threads": in two threads, one after the other. */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FEW = 40, MANY = 4000 };

/* What else a small program has: the buffer of a stream, and a table that grows. */
static void use_further(void)
{
    char *buffer = malloc(4096), *table = calloc(30, 16);
    if (buffer && table && (table = realloc(table, 2000)) != NULL)
        buffer[0] = table[0];
    else
        exit(1);
    free(buffer);
    free(table);
}

static void use(int n)
{
    static char *blocks[MANY];
    use_further();
    for (int i = 0; i < n; i++) {
        size_t bytes = 16 + (size_t)(i * 37 % 500);
        if (!(blocks[i] = malloc(bytes)))
            exit(1);
        memset(blocks[i], i, bytes);
    }
    for (int i = 0; i < n; i++)
        free(blocks[i]);
}

static void *use_many(void *unused)
{
    use(MANY);
    return NULL;
}

int main(int argc, char **argv)
{
    static char text[256 << 10]; /* not of malloc's, and the same whoever that is */
    const char *kind = argc > 2 ? argv[2] : "";
    pthread_t thread;
    use(*kind ? MANY : FEW);
    if (strcmp(kind, "threads") == 0 &&
        (pthread_create(&thread, NULL, use_many, NULL) != 0 || pthread_join(thread, NULL) != 0))
        return 1;

    int file = open("/proc/self/smaps", O_RDONLY);
    size_t length = 0;
    ssize_t n;
    while ((n = read(file, text + length, sizeof(text) - 1 - length)) > 0)
        length += (size_t)n;
    if (length == 0)
        return 77;
    long anonymous = 0, of_file = 0, all = 0, rss = 0, kb;
    bool named = false;
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = 0;
        if (sscanf(line, "Rss: %ld", &rss) == 1) {
            all += rss;
        } else if (sscanf(line, "Anonymous: %ld", &kb) == 1) {
            anonymous += kb;
            of_file += named ? rss - kb : 0;
        } else if (strchr(line, '-') && (line[0] < 'A' || line[0] > 'Z')) {
            named = argc > 1 && strstr(line, argv[1]) != NULL;
        }
    }
    printf("%ld %ld %ld\n", anonymous, of_file, all);
    return 0;
}
