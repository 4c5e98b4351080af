/* unseen.c: see unseen.h. */
#include "malloc/unseen.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "malloc/heap.h"

static struct heap *next; /* to be asked of; NULL: the first */

/* Asked of this process's threads alone: who shares our memory and is another process (CLONE_VM) would seem to be gone. */
static bool is_gone(const struct heap *h, int32_t pid)
{
    return h->tid != 0 && !h->on_node && h->pid == pid &&
           syscall(SYS_tgkill, pid, h->tid, 0) != 0 && errno == ESRCH;
}

struct heap *unseen_heap(void)
{
    int saved = errno;
    int32_t pid = (int32_t)syscall(SYS_getpid);
    struct heap *found = NULL;
    for (unsigned i = 0; heap_all && !found && i < UNSEEN_TRIES; i++) {
        struct heap *h = next ? next : heap_all;
        if (is_gone(h, pid))
            found = h;
        next = h->next;
    }
    if (found)
        found->tid = 0; /* nobody else finds it */
    errno = saved;
    return found;
}
