/* forking.c: the handler of a timer forks wherever it comes, most often inside the allocator, and the child returns from
 * it and goes on with what was interrupted. Ends with 0 if all children did, too. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORKS = 60, BLOCKS = 64, CHILD_CALLS = 5000 };

static volatile sig_atomic_t forks, is_child;

static void timer(long us)
{
    struct itimerval value = {.it_interval.tv_usec = us, .it_value.tv_usec = us};
    setitimer(ITIMER_REAL, &value, NULL);
}

static void tick(int number)
{
    (void)number;
    if (is_child || forks == FORKS)
        return;
    if (fork() == 0)
        is_child = 1; /* who forks has no timer in the child */
    else
        forks++;
}

int main(void)
{
    static void *blocks[BLOCKS];
    unsigned seed = 1;
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = tick, .sa_flags = SA_RESTART}, NULL);
    timer(1000);
    for (int calls = 0; is_child ? calls < CHILD_CALLS : forks < FORKS; calls += is_child) {
        void **block = &blocks[rand_r(&seed) % BLOCKS];
        if (rand_r(&seed) % 3 == 0) {
            *block = realloc(*block, (size_t)rand_r(&seed) % 500 + 1);
        } else {
            free(*block);
            *block = malloc((size_t)rand_r(&seed) % 400);
        }
    }
    if (is_child)
        _exit(0);
    timer(0);
    int status, failed = 0;
    while (wait(&status) > 0)
        failed += status != 0;
    printf("%d of %d children failed\n", failed, FORKS);
    return failed != 0;
}
