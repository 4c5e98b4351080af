/* Symbolizers for several threads: who holds which. As a plain user, whose workers need no broker. */
#include "check.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/symbol_pool.h"

enum { NOBODY = 65534, ANN = 1000, BEN = 1001 };

#define NEED(what)                                                             \
    do {                                                                       \
        if (!(what)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
            return 1;                                                          \
        }                                                                      \
    } while (0)

static void run_apart(int (*run)(void))
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        bool plain = geteuid() != 0 || setresuid(NOBODY, NOBODY, NOBODY) == 0;
        exit(plain ? run() : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

struct holder {
    struct symbol_pool *pool;
    uint32_t owner;
    struct symbolizer *got;
};

/* Takes one and gives it back. */
static void *hold(void *context)
{
    struct holder *holder = context;
    holder->got = symbol_pool_get(holder->pool, holder->owner);
    symbol_pool_rest(holder->pool);
    return NULL;
}

static struct symbolizer *got_by_another_thread(struct symbol_pool *pool, uint32_t owner)
{
    struct holder holder = {pool, owner, NULL};
    pthread_t thread;
    if (pthread_create(&thread, NULL, hold, &holder) != 0)
        return NULL;
    pthread_join(thread, NULL);
    return holder.got;
}

static int threads_run(void)
{
    struct symbol_pool *pool;
    NEED(symbol_pool_new(NULL, 5000, 1 << 20, &pool) == 0);
    struct symbolizer *first = symbol_pool_get(pool, ANN);
    NEED(first && symbol_pool_get(pool, BEN) == first); /* it is ours, for whomever */
    struct symbolizer *second = got_by_another_thread(pool, BEN);
    NEED(second && second != first);
    NEED(got_by_another_thread(pool, ANN) == second); /* no more than are held at a time */
    symbol_pool_rest(pool);
    NEED(got_by_another_thread(pool, BEN) == first); /* which knows answers about that user */
    NEED(got_by_another_thread(pool, ANN) == second);
    NEED(got_by_another_thread(pool, BEN) == first);
    symbol_pool_rest(pool);
    symbol_pool_rest(NULL);
    symbol_pool_free(pool);
    symbol_pool_free(NULL);
    return 0;
}

static void each_thread_holds_one_of_its_own(void **state)
{
    run_apart(threads_run);
}

static int failing_run(void)
{
    struct symbol_pool *pool;
    struct rlimit before, none;
    NEED(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = (struct rlimit){0, before.rlim_max};
    NEED(symbol_pool_new(NULL, 5000, 1 << 20, &pool) == 0);
    NEED(setrlimit(RLIMIT_NOFILE, &none) == 0);
    NEED(!symbol_pool_get(pool, ANN));
    NEED(setrlimit(RLIMIT_NOFILE, &before) == 0);
    NEED(!symbol_pool_get(pool, ANN)); /* not tried again at once */
    NEED(!got_by_another_thread(pool, BEN));
    symbol_pool_free(pool);
    return 0;
}

static void one_that_cannot_be_started_is_not_tried_again_at_once(void **state)
{
    run_apart(failing_run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_thread_holds_one_of_its_own),
        cmocka_unit_test(one_that_cannot_be_started_is_not_tried_again_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
