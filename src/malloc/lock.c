/* lock.c: see lock.h. */
#include "malloc/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPINS = 200 };

void lock_wait(struct lock *l)
{
    int saved = errno;
    for (int i = 0; i < SPINS; i++) {
        uint32_t none = 0;
        if (load_relaxed(&l->word) == 0 && cas_acquire(&l->word, &none, 1))
            return;
        cpu_relax();
    }
    while (exchange_acquire(&l->word, 2) != 0)
        syscall(SYS_futex, &l->word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
    errno = saved;
}

void lock_wake(struct lock *l)
{
    int saved = errno;
    syscall(SYS_futex, &l->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    errno = saved;
}
