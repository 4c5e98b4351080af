/*
 * crossing.c: one thread forks again and again while another allocates so much that its book is made.
 *
 * Each child looks whether it has descriptors that nobody gave it, or a mapping of a book that is not its own. ROUNDS processes do
 * so, since each makes but one book. Ends with 1 when a child has found something.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 20, BLOCKS = 3000, DESCRIPTORS = 64 };

static void *kept[BLOCKS];
static _Atomic int done;

static void *allocate(void *argument)
{
    for (int i = 0; i < BLOCKS; i++)
        kept[i] = malloc(100);
    atomic_store(&done, 1);
    return argument;
}

/* A book of which the name does not begin with our PID. */
static int has_others_book(void)
{
    static char text[1 << 16];
    char own[32];
    size_t n = 0;
    int fd = open("/proc/self/maps", O_RDONLY);
    for (ssize_t got; n < sizeof(text) - 1 && (got = read(fd, text + n, sizeof(text) - 1 - n)) > 0;)
        n += (size_t)got;
    close(fd);
    snprintf(own, sizeof(own), "/%d-", (int)getpid());
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        if (strstr(line, ".book") && !strstr(line, own))
            return 1;
    return 0;
}

static int look(void)
{
    free(malloc(1));
    for (int fd = 3; fd < DESCRIPTORS; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            return 1;
    return has_others_book() ? 2 : 0;
}

static int round_of(void)
{
    pthread_t thread;
    int status, bad = 0;
    if (pthread_create(&thread, NULL, allocate, NULL) != 0)
        return 3;
    while (!atomic_load(&done)) {
        pid_t child = fork();
        if (child == 0)
            _exit(look());
        if (child > 0 && (waitpid(child, &status, 0) != child || status != 0))
            bad = 1;
    }
    pthread_join(thread, NULL);
    return bad;
}

int main(void)
{
    int status, bad = 0;
    for (int fd = 3; fd < DESCRIPTORS; fd++)
        close(fd);
    for (int i = 0; i < ROUNDS; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(round_of());
        if (waitpid(child, &status, 0) != child || status != 0)
            bad = 1;
    }
    return bad;
}
