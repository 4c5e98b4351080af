/* meter.c: see meter.h. */
#include "pin/meter.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/kernel.h"
#include "book/cgroup.h"
#include "book/pressure_source.h"
#include "pin/crew.h"
#include "pin/quota.h"
#include "pin/text.h"

enum { PATH = 600, TEXT = 512, WAIT_SPINS = 200, WAIT_NS = 20000 };

/* IDLE: nothing is read. READING: one thread reads and stores what it finds. */
enum { IDLE = 0, READING = 1 };

static struct {
    uint32_t state;
    uint64_t read_at_ns; /* 0: never; stored after the others */
    uint64_t started_ns; /* of the reading at hand */
    uint64_t headroom;
    uint32_t headroom_known;
    uint32_t quota_cpus; /* 0: no quota */
    uint32_t visible;    /* a reading used descriptors of the program's table */
    uint32_t first_ms;   /* how long the first reading is waited for */
} meter = {.first_ms = METER_FIRST_MS};

/* ---- files ---- */

static bool text_read(const char *path, char text[static TEXT])
{
    int fd =
        (int)kernel_call(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC | O_NOCTTY, 0, 0);
    long n = fd < 0 ? -1 : kernel_call(SYS_read, fd, (long)text, TEXT - 1, 0, 0);
    if (fd >= 0)
        (void)kernel_call(SYS_close, fd, 0, 0, 0, 0);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* The smallest quota of the process's cgroup and of those around it; 0: none. Version 2 alone: with
 * version 1 the controller's place is not in the same line. */
static unsigned quota_read(void)
{
    char cgroup[TEXT], path[PATH];
    unsigned least = 0;
    bool v1;
    if (cgroup_path_read("/proc", "self", cgroup, sizeof(cgroup), &v1) < 0 || v1)
        return 0;
    for (char *at = cgroup; *at;) {
        struct pin_text t = {.at = path, .left = sizeof(path) - 1};
        char limit[TEXT];
        pin_text_string(&t, "/sys/fs/cgroup");
        pin_text_string(&t, at);
        pin_text_string(&t, "/cpu.max");
        *t.at = '\0';
        unsigned quota = !t.cut && text_read(path, limit) ? pin_quota_cpus(limit) : 0;
        least = quota && (!least || quota < least) ? quota : least;
        *strrchr(at, '/') = '\0';
    }
    return least;
}

/* The smaller of what the machine and the cgroups have left, files that can go included. */
static bool headroom_read(uint64_t *ret)
{
    struct pressure_inputs in = {0};
    uint64_t stall;
    pressure_source_machine("/proc", &in, &stall);
    pressure_source_cgroup("/proc", "/sys/fs/cgroup", true, &in);
    bool machine = in.valid & PRESSURE_HAS_MEMORY, limit = in.valid & PRESSURE_HAS_LIMIT;
    if (!machine && !limit)
        return false;
    *ret = !limit || (machine && in.available_bytes < in.headroom_bytes) ? in.available_bytes
                                                                         : in.headroom_bytes;
    return true;
}

/* ---- readings ---- */

/* What could not be read leaves the last value as it is. */
static void read_all(void)
{
    uint64_t headroom;
    if (headroom_read(&headroom)) {
        store_relaxed(&meter.headroom, headroom);
        store_relaxed(&meter.headroom_known, 1);
    }
    store_relaxed(&meter.quota_cpus, quota_read());
    store_release(&meter.read_at_ns, clock_monotonic_ns());
}

static bool take(void)
{
    uint32_t idle = IDLE;
    if (!cas_acq_rel(&meter.state, &idle, READING))
        return false;
    store_relaxed(&meter.started_ns, clock_monotonic_ns());
    return true;
}

/* In the program's thread. */
static void read_visibly(void)
{
    store_relaxed(&meter.visible, 1);
    read_all();
}

/* This thread leaves the program's table of descriptors, once. */
static bool table_leave(void)
{
    static __thread bool left;
    if (!left)
        left = kernel_call(SYS_close_range, 0, UINT_MAX, CLOSE_RANGE_UNSHARE, 0, 0) == 0;
    return left;
}

static void helper_read(void *unused)
{
    (void)unused;
    if (table_leave())
        read_all();
    else
        read_visibly();
    store_release(&meter.state, IDLE);
}

/* Until there is another reading than that of `before_ns`; false: it takes too long. */
static bool wait_for_reading(uint64_t before_ns, uint64_t until)
{
    const struct timespec pause = {.tv_nsec = WAIT_NS};
    for (unsigned turn = 0; load_acquire(&meter.read_at_ns) == before_ns; turn++) {
        if (clock_monotonic_ns() > until)
            return false;
        if (turn < WAIT_SPINS)
            cpu_relax();
        else
            (void)kernel_call(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, (long)&pause, 0, 0);
    }
    return true;
}

static void refresh(void)
{
    uint64_t last = load_acquire(&meter.read_at_ns), now = clock_monotonic_ns();
    if (last && now - last < METER_FRESH_MS * NS_PER_MS)
        return;
    bool reading = true;
    if (take() && !crew_start(helper_read, NULL)) { /* all are busy, or there can be none */
        store_release(&meter.state, IDLE);
        reading = false;
    }
    if (!last) {
        if (!reading || !wait_for_reading(0, now + load_relaxed(&meter.first_ms) * NS_PER_MS))
            read_visibly();
    } else if (reading && now - last > METER_STALE_MS * NS_PER_MS) {
        /* One that hangs is waited for once. */
        uint64_t started = load_relaxed(&meter.started_ns);
        (void)wait_for_reading(last, started + METER_WAIT_MS * NS_PER_MS);
    }
}

/* ---- answers ---- */

bool meter_headroom(uint64_t *ret)
{
    int saved = errno;
    refresh();
    errno = saved;
    if (!load_relaxed(&meter.headroom_known))
        return false;
    *ret = load_relaxed(&meter.headroom);
    return true;
}

unsigned meter_cpus(void)
{
    cpu_set_t mask;
    int saved = errno;
    refresh();
    unsigned quota = load_relaxed(&meter.quota_cpus);
    unsigned cpus = sched_getaffinity(0, sizeof(mask), &mask) == 0 ? (unsigned)CPU_COUNT(&mask) : 1;
    errno = saved;
    cpus = quota && quota < cpus ? quota : cpus;
    return cpus ? cpus : 1;
}

unsigned meter_share(void)
{
    unsigned cpus = meter_cpus();
    return cpus <= 4 ? cpus : cpus / 2 < 4 ? 4 : cpus / 2;
}

void meter_forget(void)
{
    store_relaxed(&meter.state, IDLE);
}

bool meter_was_visible_for_test(void)
{
    return load_relaxed(&meter.visible) != 0;
}

void meter_age_for_test(uint32_t first_ms)
{
    store_relaxed(&meter.first_ms, first_ms);
    store_relaxed(&meter.read_at_ns, 0);
}
