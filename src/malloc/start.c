/* start.c: what has to be done once the C library is there: settings, modes, fork handlers. */
#include <pthread.h>

#include "malloc/settings.h"
#include "malloc/thread.h"

__attribute__((constructor)) static void start(void)
{
    settings_read();
    pthread_atfork(thread_fork_prepare, thread_fork_parent, thread_fork_child);
}
