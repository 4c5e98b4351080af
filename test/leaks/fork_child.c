/* A child loses memory of its own and ends; the parent holds nothing. */
#include <sys/wait.h>

#include "truth.h"

static void step(int number)
{
    if (number % 20 != 0)
        return;
    char *shared = MALLOC(128);
    pid_t pid = fork();
    if (pid == 0) {
        char *lost = malloc(4000);
        _exit(lost == NULL);
    }
    waitpid(pid, NULL, 0);
    FREE(shared);
}

TRUTH_MAIN(step)
