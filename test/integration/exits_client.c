/* Processes that end in every way: exits_client WHAT [ARGUMENT].
 *
 *   crowd N      N children, 64 at a time, that end at once; fails unless all were made
 *   peak BYTES   touch so much memory, give it back, print what the kernel says of the peak, end with 0
 *   eat BYTES    touch so much memory, and end with 0 if that could be had
 *   threads      the first thread ends; another one ends the process with 5
 *   code N       end with N
 *   signal N     end by signal N
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { AT_A_TIME = 64 };

static int crowd(long n)
{
    long made = 0, left = 0;
    while (made < n || left > 0) {
        while (made < n && left < AT_A_TIME) {
            pid_t pid = fork();
            if (pid == 0)
                _exit(0);
            if (pid < 0 && left == 0)
                return 1;
            if (pid < 0)
                break;
            made++;
            left++;
        }
        if (wait(NULL) > 0)
            left--;
    }
    return 0;
}

static char *touch(size_t bytes)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        exit(1);
    for (size_t at = 0; at < bytes; at += 4096)
        memory[at] = 1;
    return memory;
}

static int peak(size_t bytes)
{
    munmap(touch(bytes), bytes);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("%ld\n", usage.ru_maxrss * 1024);
    return 0;
}

static void *last_thread(void *main_thread)
{
    pthread_join(*(pthread_t *)main_thread, NULL);
    _exit(5);
}

static int threads(void)
{
    static pthread_t self;
    pthread_t other;
    self = pthread_self();
    if (pthread_create(&other, NULL, last_thread, &self) != 0)
        return 1;
    pthread_exit(NULL);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    const char *what = argv[1];
    long number = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
    if (strcmp(what, "crowd") == 0)
        return crowd(number);
    if (strcmp(what, "peak") == 0)
        return peak((size_t)number);
    if (strcmp(what, "eat") == 0)
        return touch((size_t)number) ? 0 : 1;
    if (strcmp(what, "threads") == 0)
        return threads();
    if (strcmp(what, "code") == 0)
        return (int)number;
    if (strcmp(what, "signal") == 0) {
        signal((int)number, SIG_DFL);
        raise((int)number);
    }
    return 2;
}
