/* See chain_lock.h. */
#include "malloc/chain_lock.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "malloc/os.h"

/* ---- the number of this process in its line of forks ---- */

/* A page that the kernel empties in a child of any kind of fork; NULL until the first lock is taken. */
static uint32_t *era_page;
static uint32_t era_last; /* the highest number given so far: children count on from it */

enum { ERA_MASK = 0x7fffffff };

static uint32_t *era_page_make(void)
{
    int saved = errno;
    void *page = os_map(OS_PAGE_BYTES, OS_PAGE_BYTES);
    if (!page)
        return NULL;
    /* Where the kernel does not know it, children cannot be told apart: as with any other mutex. */
    syscall(SYS_madvise, page, OS_PAGE_BYTES, MADV_WIPEONFORK);
    errno = saved;
    uint32_t *none = NULL;
    if (cas_acq_rel(&era_page, &none, (uint32_t *)page))
        return page;
    os_unmap(page, OS_PAGE_BYTES);
    return none;
}

static uint32_t era(void)
{
    uint32_t *page = load_acquire(&era_page);
    if (__builtin_expect(!page, 0)) {
        page = era_page_make();
        if (!page)
            return 1;
    }
    uint32_t number = load_relaxed(page);
    if (__builtin_expect(number == 0, 0)) {
        uint32_t next = (fetch_add_relaxed(&era_last, 1) + 1) & ERA_MASK;
        if (cas_relaxed(page, &number, next))
            number = next;
    }
    return number;
}

/* ---- a word: era << 1, and bit 0 when somebody may sleep ---- */

enum { SPINS = 100 };

static void word_sleep(uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static int word_wait(uint32_t *word, uint32_t own)
{
    int saved = errno;
    uint32_t mark = 0; /* who has slept cannot know whether others still do */
    for (int spins = 0;; spins++) {
        uint32_t seen = load_relaxed(word);
        if (seen == 0) {
            if (cas_acquire(word, &seen, own | mark))
                break;
        } else if (seen >> 1 != own >> 1) {
            if (cas_acquire(word, &seen, own | 1)) {
                errno = saved;
                return 1;
            }
        } else if (spins < SPINS) {
            cpu_relax();
        } else if ((seen & 1) || cas_relaxed(word, &seen, seen | 1)) {
            word_sleep(word, seen | 1);
            mark = 1;
        }
    }
    errno = saved;
    return 0;
}

int chain_word_take(uint32_t *word)
{
    uint32_t none = 0, own = era() << 1;
    if (__builtin_expect(cas_acquire(word, &none, own), 1))
        return 0;
    return word_wait(word, own);
}

void chain_word_drop(uint32_t *word)
{
    if (__builtin_expect(exchange_release(word, 0) & 1, 0)) {
        int saved = errno;
        syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        errno = saved;
    }
}

/* ---- either ---- */

int chain_lock_init(struct memoir_chain *c)
{
    pthread_mutexattr_t attributes;
    c->lock = 0;
    if (!(c->flags & MEMOIR_CHAIN_SHARED))
        return 0;
    int r = pthread_mutexattr_init(&attributes);
    if (r == 0)
        r = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    if (r == 0)
        r = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    if (r == 0)
        r = pthread_mutex_init(chain_mutex(c), &attributes);
    pthread_mutexattr_destroy(&attributes);
    return -r;
}

int chain_lock_take(struct memoir_chain *c)
{
    if (!(c->flags & (MEMOIR_CHAIN_THREAD_SAFE | MEMOIR_CHAIN_SHARED)))
        return 0;
    if (!(c->flags & MEMOIR_CHAIN_SHARED))
        return chain_word_take(&c->lock);
    int r = pthread_mutex_lock(chain_mutex(c));
    return r == EOWNERDEAD ? 1 : -r;
}

void chain_lock_mended(struct memoir_chain *c)
{
    if (c->flags & MEMOIR_CHAIN_SHARED)
        pthread_mutex_consistent(chain_mutex(c));
}

void chain_lock_drop(struct memoir_chain *c)
{
    if (c->flags & MEMOIR_CHAIN_SHARED)
        pthread_mutex_unlock(chain_mutex(c));
    else if (c->flags & MEMOIR_CHAIN_THREAD_SAFE)
        chain_word_drop(&c->lock);
}
