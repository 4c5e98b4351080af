/* A queue that is filled twice as fast as it is emptied. */
#include "truth.h"

struct job {
    struct job *next;
    char text[72];
};
static struct job *first, **last = &first;

static void step(int number)
{
    struct job *job = MALLOC(sizeof(*job)); /* LEAK reachable */
    job->next = NULL;
    snprintf(job->text, sizeof(job->text), "job %d", number);
    *last = job;
    last = &job->next;
    if (number % 2 == 1) {
        struct job *done = first;
        first = done->next;
        FREE(done);
    }
}

TRUTH_MAIN(step)
