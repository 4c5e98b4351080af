/* touch.c: see touch.h. */
#include "pin/touch.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/kernel.h"
#include "pin/crew.h"
#include "pin/manager.h"
#include "pin/meter.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum {
    PAGE = 4096,
    LOOK_NS = 50000,
    SAMPLE = 64, /* bytes that are looked at */
    STEP = TOUCH_PAGE,
    SAMPLES = 8,
    POLICY_DEFAULT = 0,
    POLICY_PREFERRED = 1
};

/* The one block that is watched. */
static struct {
    uint32_t users; /* threads at it; 0: none is watched */
    uintptr_t start;
    uint64_t bytes;
    uint32_t stop;  /* any thread */
    uint64_t until; /* end of what may be touched; the first thread stores it */
    uint64_t next;  /* the next huge page to touch; any of the threads takes it */
    unsigned node;  /* of the thread that got the block */
    uint32_t site;
    bool failed; /* the kernel has no such call, or no memory */
} watched;

/* The end of the last block of each site that was followed to its end; 0: none. The thread that
 * watches a block, one at a time. */
static uintptr_t ends[TOUCH_SITES];

/* ---- what is resident ---- */

static bool resident_at(uintptr_t address)
{
    unsigned char in;
    return kernel_call(SYS_mincore, (long)(address & ~(uintptr_t)(PAGE - 1)), PAGE, (long)&in, 0,
                       0) == 0 &&
           (in & 1);
}

static bool resident(uint64_t offset)
{
    return resident_at(watched.start + offset);
}

/* A whole huge page, also where it is made of ordinary ones: a few of them stand for all. */
static bool filled(uint64_t offset)
{
    for (uint64_t i = 0; i < SAMPLES; i++)
        if (!resident(offset + i * (TOUCH_PAGE / SAMPLES)))
            return false;
    return resident(offset + TOUCH_PAGE - PAGE);
}

static unsigned first_resident(void)
{
    unsigned bits = 0;
    for (unsigned i = 0; i < TOUCH_FIRST / TOUCH_PAGE; i++)
        bits |= (unsigned)filled((uint64_t)i * TOUCH_PAGE) << i;
    return bits;
}

/* Of 64 places in the block, those that are resident. */
static uint64_t places_resident(void)
{
    uint64_t bits = 0, stride = (watched.bytes / 64 + TOUCH_PAGE - 1) / TOUCH_PAGE * TOUCH_PAGE;
    for (uint64_t i = 0; i < 64 && i * stride < watched.bytes; i++)
        bits |= (uint64_t)resident(i * stride) << i;
    return bits;
}

/* Has the program written here? Only where the page is there already. The kernel reads it, since the
 * program may have protected or unmapped it. No descriptor is used: a helper's would appear between the
 * program's own, and a program that closes all of them would have another one closed by the helper.
 * A program that writes zeros is not seen. */
static bool written_at(uintptr_t address)
{
    char sample[SAMPLE];
    struct iovec to = {sample, sizeof(sample)}, from = {(void *)address, sizeof(sample)};
    ssize_t n = resident_at(address) ? process_vm_readv(getpid(), &to, 1, &from, 1, 0) : -1;
    for (ssize_t i = 0; i < n; i++)
        if (sample[i])
            return true;
    return false;
}

/* How far the program has come: `front` bytes it had written before. */
static uint64_t front_now(uint64_t front, uint64_t until)
{
    uint64_t next = (front / TOUCH_WINDOW + 1) * TOUCH_WINDOW;
    while (next < until && written_at(watched.start + next)) {
        front = next;
        next += TOUCH_WINDOW;
    }
    /* Behind the end of what was touched only the program makes pages resident. */
    while (until < watched.bytes && until > front && resident(until)) {
        front = until;
        until += TOUCH_PAGE;
    }
    return front;
}

/* ---- touching ---- */

static void nap(void)
{
    struct timespec t = {.tv_nsec = LOOK_NS};
    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
}

static bool stopped(void)
{
    return load_acquire(&watched.stop) || load_relaxed(&watched.failed);
}

/* The next huge page that is due. */
static bool page_take(uint64_t *ret)
{
    for (;;) {
        uint64_t at = load_relaxed(&watched.next);
        if (at + STEP > load_acquire(&watched.until))
            return false;
        if (!cas_relaxed(&watched.next, &at, at + STEP))
            continue;
        *ret = at;
        return true;
    }
}

static void page_touch(uint64_t at)
{
    if (resident(at))
        return; /* the program was faster */
    long r = kernel_call(SYS_madvise, (long)(watched.start + at), STEP, MADV_POPULATE_WRITE, 0, 0);
    if (r < 0)
        store_relaxed(&watched.failed, true);
    else
        fetch_add_relaxed(&pin_manager.counts.touched_bytes, (uint64_t)STEP);
}

static void leave(void)
{
    fetch_sub_release(&watched.users, 1);
}

/* Pages come from the node of the program's thread, as if it had touched them itself; unless the
 * process has a policy of its own, which its threads inherit. */
static bool node_prefer(void)
{
    int mode = -1;
    unsigned long mask = 1ul << (watched.node % (8 * sizeof(mask)));
    return watched.node < 8 * sizeof(mask) - 1 &&
           kernel_call(SYS_get_mempolicy, (long)&mode, 0, 0, 0, 0) == 0 && mode == POLICY_DEFAULT &&
           kernel_call(SYS_set_mempolicy, POLICY_PREFERRED, (long)&mask, 8 * sizeof(mask), 0, 0) ==
               0;
}

static void node_forget(void)
{
    (void)kernel_call(SYS_set_mempolicy, POLICY_DEFAULT, 0, 0, 0, 0);
}

/* A further thread: touches what the first one says. */
static void assist(void *argument)
{
    uint64_t at;
    bool preferred = node_prefer();
    while (!stopped()) {
        if (page_take(&at))
            page_touch(at);
        else
            nap();
    }
    if (preferred)
        node_forget();
    leave();
}

static void join_others(void)
{
    unsigned share = meter_share();
    for (unsigned i = 1; i < TOUCH_THREADS && i + 1 < share; i++) {
        fetch_add_acq_rel(&watched.users, 1);
        if (!crew_start(assist, NULL)) {
            leave();
            return;
        }
    }
}

/* Wait until the program has begun to fill the block in order. */
static bool begins(void)
{
    uint64_t start = clock_monotonic_ns();
    while (!stopped()) {
        bool late = clock_monotonic_ns() - start > TOUCH_START_MS * NS_PER_MS;
        uint64_t places = places_resident();
        if (touch_in_order(first_resident(), places))
            return true;
        if (late || !touch_is_prefix(places))
            return false;
        nap();
    }
    return false;
}

/* It was followed to its end: whether the program gets there will be seen when the next block of its
 * site comes. */
static void remember(bool whole)
{
    if (watched.site && watched.site < TOUCH_SITES)
        ends[watched.site] = whole ? watched.start + watched.bytes - SAMPLE : 0;
}

static bool is_trusted(void)
{
    uintptr_t end = watched.site && watched.site < TOUCH_SITES ? ends[watched.site] : 0;
    return end && written_at(end);
}

/* Follow the program through the block. */
static void run_ahead(void)
{
    uint64_t front = 0, at, since = clock_monotonic_ns();
    while (!stopped()) {
        uint64_t now = clock_monotonic_ns(), until = watched.until;
        uint64_t reached = front_now(front, until);
        since = reached > front ? now : since;
        front = reached;
        until = touch_until(front, watched.bytes);
        store_release(&watched.until, until);
        if (page_take(&at)) {
            page_touch(at);
        } else if (until == watched.bytes) {
            remember(true);
            return;
        } else if (now - since > TOUCH_STALL_MS * NS_PER_MS) {
            fetch_add_relaxed(&pin_manager.counts.touch_stopped, 1);
            remember(false);
            return;
        } else {
            nap();
        }
    }
}

static void follow(void *argument)
{
    bool at_once = is_trusted();
    watched.next = at_once ? TOUCH_PAGE : TOUCH_FIRST; /* it is at the first page already */
    if (at_once || begins()) {
        fetch_add_relaxed(&pin_manager.counts.touched_blocks, 1);
        watched.until = touch_until(0, watched.bytes);
        join_others();
        bool preferred = node_prefer();
        run_ahead();
        if (preferred)
            node_forget();
    }
    store_release(&watched.stop, 1);
    leave();
}

void touch_watch(void *block, uint64_t bytes, uint32_t site, uint64_t headroom_bytes)
{
    uint32_t none = 0;
    uintptr_t start = (uintptr_t)block;
    if (bytes < TOUCH_MIN || start % TOUCH_PAGE || meter_cpus() < 2 ||
        headroom_bytes < bytes + TOUCH_SPARE || load_relaxed(&watched.failed) ||
        !cas_acquire(&watched.users, &none, 1))
        return;
    watched.start = start;
    watched.bytes = bytes / TOUCH_PAGE * TOUCH_PAGE;
    watched.until = 0;
    watched.site = site;
    watched.node = 0;
    (void)kernel_call(SYS_getcpu, 0, (long)&watched.node, 0, 0, 0);
    store_release(&watched.stop, 0);
    if (!crew_start(follow, NULL))
        leave();
}

void touch_stop(const void *block)
{
    if (load_relaxed(&watched.users) && load_relaxed(&watched.start) == (uintptr_t)block)
        store_release(&watched.stop, 1);
}

void touch_forget(void)
{
    watched.users = 0;
}
