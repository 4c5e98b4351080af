/* See chain_lock.h. */
#include "malloc/chain_lock.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "book/descriptor.h"
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
    /* Where the kernel does not know it, children cannot be told apart: as with any other lock. */
    syscall(SYS_madvise, page, os_page_bytes(), MADV_WIPEONFORK);
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

/* ---- a word that the kernel watches, as long as the machine is up ---- */

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
    int saved = errno;
    int fd = book_openat(AT_FDCWD, "/proc/sys/kernel/random/boot_id", O_RDONLY, 0);
    long n = fd < 0 ? -1 : syscall(SYS_read, fd, text, sizeof(text));
    if (fd >= 0)
        syscall(SYS_close, fd);
    errno = saved;
    number = UINT64_C(0xcbf29ce484222325);
    for (long i = 0; i < n; i++)
        number = (number ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    number = n > 0 ? (number | 1 << 8) & ~(uint64_t)BOOT_TURN : 0;
    store_relaxed(&known, number);
    return number;
}

/* What a thread needs to take such a lock; known anew after fork. */
static __thread struct {
    uint32_t era, tid;
    struct robust_list_head *head; /* the C library's, which the kernel has been told of */
} robust;

static __attribute__((noinline)) int robust_learn(uint32_t own_era)
{
    size_t bytes;
    int saved = errno;
    int r = syscall(SYS_get_robust_list, 0, &robust.head, &bytes) < 0 ? -errno : 0;
    errno = saved;
    if (r < 0)
        return r;
    if (!robust.head)
        return -ENOSYS; /* a thread that the C library did not make */
    robust.tid = (uint32_t)syscall(SYS_gettid);
    robust.era = own_era;
    return 0;
}

static inline int robust_ready(void)
{
    uint32_t own_era = era();
    return __builtin_expect(robust.era == own_era, 1) ? 0 : robust_learn(own_era);
}

/* The kernel looks at this one word for a thread that dies: it names the lock that the thread has or is about to
 * have. The list beside it is not used: its links would lie in memory that others write. A thread has one such lock at
 * a time. */
static void robust_announce(const uint32_t *word)
{
    struct robust_list *entry =
        word ? (struct robust_list *)((uintptr_t)word - (uintptr_t)robust.head->futex_offset)
             : NULL;
    store_relaxed(&robust.head->list_op_pending, entry);
    __atomic_signal_fence(
        __ATOMIC_SEQ_CST); /* the kernel sees what this thread did, in its order */
}

static int robust_wait(uint32_t *word)
{
    uint32_t waiters = 0; /* who has slept cannot know whether others still do */
    int saved = errno;
    for (int spins = 0;; spins++) {
        uint32_t seen = load_relaxed(word);
        if (seen == 0 || (seen & FUTEX_OWNER_DIED)) {
            uint32_t own = robust.tid | waiters | (seen & FUTEX_WAITERS);
            if (cas_acquire(word, &seen, own)) {
                errno = saved;
                return seen != 0;
            }
        } else if (spins < SPINS) {
            cpu_relax();
        } else if ((seen & FUTEX_WAITERS) || cas_relaxed(word, &seen, seen | FUTEX_WAITERS)) {
            syscall(SYS_futex, word, FUTEX_WAIT, seen | FUTEX_WAITERS, NULL, NULL, 0);
            waiters = FUTEX_WAITERS;
        }
    }
}

static int robust_take(uint32_t *word)
{
    uint32_t none = 0;
    int r = robust_ready();
    if (r < 0)
        return r;
    robust_announce(word);
    if (__builtin_expect(cas_acquire(word, &none, robust.tid), 1))
        return 0;
    return robust_wait(word);
}

static void robust_drop(uint32_t *word)
{
    if (__builtin_expect(exchange_release(word, 0) & FUTEX_WAITERS, 0)) {
        int saved = errno;
        syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
        errno = saved;
    }
    robust_announce(NULL);
}

/* ---- either ---- */

int chain_lock_init(struct memoir_chain *c)
{
    c->lock = 0;
    if (!(c->flags & MEMOIR_CHAIN_SHARED))
        return 0;
    store_relaxed(&chain_shared(c)->boot, boot_number());
    store_relaxed(&chain_shared(c)->lock, 0);
    return robust_ready();
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
        store_relaxed(&chain_shared(c)->lock, 0);
        return 1;
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
    return robust_take(&chain_shared(c)->lock);
}

void chain_lock_drop(struct memoir_chain *c)
{
    if (c->flags & MEMOIR_CHAIN_SHARED)
        robust_drop(&chain_shared(c)->lock);
    else if (c->flags & MEMOIR_CHAIN_THREAD_SAFE)
        chain_word_drop(&c->lock, &c->sleepers);
}
