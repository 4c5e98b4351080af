/* See chain_lock.h. */
#include "malloc/chain_lock.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "malloc/os.h"

/* ---- the number of this process in its line of forks ---- */

uint32_t *chain_era_page;
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
    if (cas_acq_rel(&chain_era_page, &none, (uint32_t *)page))
        return page;
    os_unmap(page, OS_PAGE_BYTES);
    return none;
}

static uint32_t era(void)
{
    uint32_t *page = load_acquire(&chain_era_page);
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

/* ---- a word: the era of its holder, or 0 ---- */

enum {
    SPINS = 100,
    NAP_NS = 2000000, /* after which a sleeper looks by itself */
};

static void nap(uint32_t *word, uint32_t seen, uint32_t *sleepers)
{
    store_seq_cst(sleepers, 1);
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &(struct timespec){.tv_nsec = NAP_NS}, NULL,
            0);
}

int chain_word_take(uint32_t *word, uint32_t *sleepers)
{
    uint32_t own = era();
    bool slept = false;
    int saved = errno;
    for (int spins = 0;; spins++) {
        uint32_t seen = load_relaxed(word);
        if (seen == 0 || seen != own) {
            if (cas_acquire(word, &seen, own)) {
                if (slept) /* who has slept cannot know whether others still do */
                    store_relaxed(sleepers, 1);
                errno = saved;
                return seen != 0;
            }
        } else if (spins < SPINS) {
            cpu_relax();
        } else {
            nap(word, seen, sleepers);
            slept = true;
        }
    }
}

void chain_word_wake(uint32_t *word, uint32_t *sleepers)
{
    int saved = errno;
    store_relaxed(sleepers, 0);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    errno = saved;
}

/* ---- a mutex that the kernel watches, as long as the machine is up ---- */

enum {
    BOOT_TURN = 0xff,
    REVIVE_PATIENCE_MS = 2000, /* far more than it takes to walk over the blocks of a chain */
};

/* A number for this start of the machine, with the low byte 0; 0 when it cannot be told. */
static uint64_t boot_number(void)
{
    static uint64_t known;
    uint64_t number = load_relaxed(&known);
    if (number)
        return number;
    char text[64];
    int saved = errno, fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));
    if (fd >= 0)
        close(fd);
    errno = saved;
    number = UINT64_C(0xcbf29ce484222325);
    for (ssize_t i = 0; i < n; i++)
        number = (number ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    number = n > 0 ? (number | 1 << 8) & ~(uint64_t)BOOT_TURN : 0;
    store_relaxed(&known, number);
    return number;
}

static int mutex_init(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attributes;
    int r = pthread_mutexattr_init(&attributes);
    if (r == 0)
        r = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    if (r == 0)
        r = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    if (r == 0)
        r = pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return r;
}

/* The C library does what the mutex says of itself, also to end the program: it shall say what we made it. */
static bool mutex_is_ours(const pthread_mutex_t *mutex)
{
    static int known;
    int kind = load_relaxed(&known);
    if (__builtin_expect(kind == 0, 0)) {
        pthread_mutex_t made;
        if (mutex_init(&made) != 0)
            return false;
        kind = made.__data.__kind;
        store_relaxed(&known, kind);
    }
    return mutex->__data.__kind == kind;
}

/* ---- either ---- */

int chain_lock_init(struct memoir_chain *c)
{
    c->lock = 0;
    if (!(c->flags & MEMOIR_CHAIN_SHARED))
        return 0;
    store_relaxed(&chain_shared(c)->boot, boot_number());
    return -mutex_init(&chain_shared(c)->mutex);
}

/* While one of several makes the lock anew, the word has its number in the low byte. */
int chain_lock_revive(struct memoir_chain *c)
{
    uint64_t *boot = &chain_shared(c)->boot, own = boot_number(), last = 0;
    int waited_ms = 0;
    if (own == 0)
        return 0;
    for (;;) {
        uint64_t seen = load_acquire(boot);
        if (seen == own)
            return 0;
        bool busy = (seen & ~(uint64_t)BOOT_TURN) == own;
        if (busy && (seen != last || waited_ms < REVIVE_PATIENCE_MS)) {
            waited_ms = seen == last ? waited_ms + 1 : 0;
            last = seen;
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
            continue;
        }
        /* Nobody is at it, or who was has died over it. */
        uint64_t turn = busy ? (seen & BOOT_TURN) % BOOT_TURN + 1 : 1;
        if (!cas_acq_rel(boot, &seen, own | turn))
            continue;
        memset(&chain_shared(c)->mutex, 0, sizeof(pthread_mutex_t));
        int r = mutex_init(&chain_shared(c)->mutex);
        return r ? -r : 1;
    }
}

void chain_lock_revived(struct memoir_chain *c)
{
    store_release(&chain_shared(c)->boot, boot_number());
}

int chain_lock_take(struct memoir_chain *c)
{
    if (!(c->flags & (MEMOIR_CHAIN_THREAD_SAFE | MEMOIR_CHAIN_SHARED)))
        return 0;
    if (!(c->flags & MEMOIR_CHAIN_SHARED))
        return chain_word_take(&c->lock, &c->sleepers);
    if (!mutex_is_ours(&chain_shared(c)->mutex))
        return -EUCLEAN;
    int r = pthread_mutex_lock(&chain_shared(c)->mutex);
    return r == EOWNERDEAD ? 1 : -r;
}

void chain_lock_mended(struct memoir_chain *c)
{
    if (c->flags & MEMOIR_CHAIN_SHARED)
        pthread_mutex_consistent(&chain_shared(c)->mutex);
}

void chain_lock_drop(struct memoir_chain *c)
{
    if (c->flags & MEMOIR_CHAIN_SHARED)
        pthread_mutex_unlock(&chain_shared(c)->mutex);
    else if (c->flags & MEMOIR_CHAIN_THREAD_SAFE)
        chain_word_drop(&c->lock, &c->sleepers);
}
