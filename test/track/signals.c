/* signals.c MODE: a timer's handler allocates and frees wherever it comes (`handler`), or leaves by
 * siglongjmp() (`jump`). Needs an allocator that may be interrupted: bump.c. */
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/time.h>

#include "own.h"

static volatile sig_atomic_t ticks, may_jump;
static sigjmp_buf out;
static bool jumps;

static void *block_of(size_t bytes)
{
    void *block = malloc(bytes);
    MUST(block);
    own_got(bytes);
    return block;
}

static void gone(void *block, size_t bytes)
{
    own_gave(bytes);
    free(block);
}

static void tick(int number)
{
    (void)number;
    ticks++;
    if (jumps && may_jump)
        siglongjmp(out, 1);
    if (jumps)
        return;
    void *kept[4];
    for (size_t i = 0; i < 4; i++)
        kept[i] = block_of(40 + i);
    for (size_t i = 0; i < 3; i++)
        gone(kept[i], 40 + i);
}

/* Inlined, so that each use of it is another site: many calls are of the slow sort. */
static __attribute__((always_inline)) inline void direct(size_t n)
{
    void *block = malloc(n);
    MUST(block);
    own_got(n);
    own_gave(n);
    free(block);
}
#define D4(n)  direct(n), direct(n), direct(n), direct(n)
#define D16(n) D4(n), D4(n), D4(n), D4(n)
#define D64(n) D16(n), D16(n), D16(n), D16(n)

static void *sites(void *unused)
{
    D64(100), D64(200), D64(300), D64(400), D64(500), D64(600), D64(700), D64(800);
    return unused;
}

static void timer(long us)
{
    struct itimerval value = {.it_interval.tv_usec = us, .it_value.tv_usec = us};
    setitimer(ITIMER_REAL, &value, NULL);
}

/* New threads have everything to learn: each goes through the slow ways again. */
static void storm(int wanted)
{
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    for (volatile int i = 0; ticks < wanted || i < 20; i++) {
        pthread_t thread;
        may_jump = 0;
        pthread_sigmask(SIG_BLOCK, &alarm_only, NULL);
        MUST(pthread_create(&thread, NULL, sites, NULL) == 0);
        pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
        if (sigsetjmp(out, 1) == 0) {
            may_jump = 1;
            for (int k = 0; k < 50; k++)
                sites(NULL);
        }
        may_jump = 0;
        /* A call that was left may hold a lock. That is noticed here: not only after the thread has waited for it in vain. */
        for (int k = 0; k < 300; k++)
            direct(64);
        pthread_join(thread, NULL);
    }
}

int main(int argc, char **argv)
{
    jumps = argc > 1 && strcmp(argv[1], "jump") == 0;
    block_of(100000); /* there is a book from here on */
    struct sigaction action = {.sa_handler = tick};
    sigaction(SIGALRM, &action, NULL);
    timer(300);
    storm(1000);
    timer(0);
    own_say("storm");
    for (int i = 0; i < 1000; i++)
        block_of(64);
    sites(NULL);
    own_say("calm");
    return 0;
}
