/* lock.c: see lock.h. */
#include "malloc/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/kernel.h"

enum { SPINS = 200 };

union lock_page lock_page __attribute__((aligned(OS_PAGE_MAX)));
__thread bool lock_forking;

static inline bool is_forkers(const struct lock *l)
{
    return lock_forking && load_relaxed(&l->forking);
}

/* The number that was given out last, here or in an ancestor: children inherit it, so theirs are greater than those of all whose locks they can
 * find. */
static uint32_t last_number;

/* Several threads may do this at once: the first one's counts. A child has another number than its parent, unless the kernel knows no
 * MADV_WIPEONFORK: then it takes its parent's locks for its own. */
uint32_t lock_process_make(void)
{
    int saved = errno;
    uint32_t number, none = 0;
    if (syscall(SYS_madvise, &lock_page, sizeof(lock_page), MADV_WIPEONFORK) == 0)
        store_relaxed(&lock_page.process.pid, (int32_t)kernel_call(SYS_getpid, 0, 0, 0, 0, 0));
    do {
        number = fetch_add_acq_rel(&last_number, 2) + 2;
    } while (number == 0);
    bool first = cas_acq_rel(&lock_page.process.number, &none, number);
    errno = saved;
    return first ? number : none;
}

static bool is_stale(uint32_t word)
{
    return word != 0 && (word & ~UINT32_C(1)) != lock_process();
}

bool lock_take_stale(struct lock *l, uint32_t word)
{
    if (!is_stale(word) || !cas_acquire(&l->word, &word, lock_process()))
        return false;
    store_relaxed(&l->forking, 0);
    if (l->stale)
        l->stale(l);
    return true;
}

void lock_take_alone(struct lock *l)
{
    uint32_t word = load_relaxed(&l->word);
    if (!is_forkers(l))
        lock_take_stale(l, word);
}

void lock_wait(struct lock *l)
{
    int saved = errno;
    uint32_t held = lock_process();
    if (is_forkers(l))
        return;
    for (int i = 0; i < SPINS; i++) {
        uint32_t word = load_relaxed(&l->word), none = 0;
        if (word == 0 ? cas_acquire(&l->word, &none, held) : lock_take_stale(l, word)) {
            errno = saved;
            return;
        }
        cpu_relax();
    }
    while (exchange_acquire(&l->word, held | 1) != 0)
        syscall(SYS_futex, &l->word, FUTEX_WAIT_PRIVATE, held | 1, NULL, NULL, 0);
    errno = saved;
}

void lock_wake(struct lock *l)
{
    int saved = errno;
    syscall(SYS_futex, &l->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    errno = saved;
}
