#include "book/making.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"

static const uint64_t patience_ns = 200000000; /* many times what either of them takes */

static uint32_t maker;   /* the thread that makes a book, or 0 */
static uint32_t forkers; /* threads between their handlers */

static uint32_t self(void)
{
    return (uint32_t)syscall(SYS_gettid);
}

/* Until the word is 0 or `but`; false when that takes too long. */
static bool await(const uint32_t *word, uint32_t but, uint64_t until_ns)
{
    for (;;) {
        uint32_t seen = load_seq_cst(word);
        if (seen == 0 || seen == but)
            return true;
        if (clock_monotonic_ns() > until_ns)
            return false;
        sched_yield();
    }
}

/* Each side raises its own flag and then looks at the other's, so that they cannot miss each other; the maker takes
 * his down again while he waits, so that they do not wait for each other. */
void book_making_begin(void)
{
    uint64_t until_ns = clock_monotonic_ns() + patience_ns;
    for (;;) {
        store_seq_cst(&maker, self());
        if (load_seq_cst(&forkers) == 0)
            return;
        store_seq_cst(&maker, 0);
        if (!await(&forkers, 0, until_ns))
            break;
    }
    store_seq_cst(&maker, self());
}

void book_making_end(void)
{
    store_seq_cst(&maker, 0);
}

void book_forking_begin(void)
{
    __atomic_fetch_add(&forkers, 1, __ATOMIC_SEQ_CST);
    if (load_seq_cst(&maker) != 0)
        await(&maker, self(), clock_monotonic_ns() + patience_ns);
}

void book_forking_end(void)
{
    __atomic_fetch_sub(&forkers, 1, __ATOMIC_SEQ_CST);
}

void book_making_forget(void)
{
    store_relaxed(&maker, 0);
    store_relaxed(&forkers, 0);
}
