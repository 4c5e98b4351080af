/* calibrate.c: see calibrate.h. */
#include "pin/calibrate.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "pin/cost_file.h"
#include "pin/manager.h"
#include "pin/meter.h"
#include "pin/region.h"
#include "pin/registration.h"
#include "pin/stage.h"

enum {
    TRIES = 5,     /* of copies */
    REGISTERS = 3, /* of registrations */
    POINTS = 5,
    MIB = 1 << 20,
    TOUCH_BYTES = 16 << 20,
    WARM_BYTES = 16 << 20,
    ROOM_BYTES = 256 << 20, /* of host memory: more than caches hold */
    WARM_MS = 60,           /* a link that was idle needs up to so long until it is at full speed */
};
static const uint64_t room_headroom = UINT64_C(2) << 30; /* that must be left for that */
static const uint64_t points[POINTS] = {64 << 10, 512 << 10, 4 * MIB, 16 * MIB, 64 * MIB};

struct bench {
    const struct pin_driver *driver;
    char *host;
    uint64_t room;  /* of host memory */
    uint64_t bytes; /* of device memory: the largest copy */
    uint64_t used;  /* of the host memory, by smaller sizes */
    CUdeviceptr device;
    struct pin_cost *cost;
};

static uint64_t median(uint64_t *t, unsigned n)
{
    for (unsigned i = 1; i < n; i++)
        for (unsigned k = i; k > 0 && t[k] < t[k - 1]; k--) {
            uint64_t swap = t[k];
            t[k] = t[k - 1];
            t[k - 1] = swap;
        }
    return t[n / 2] ? t[n / 2] : 1;
}

static bool copies(const struct bench *b, char *host, uint64_t bytes, uint64_t *ret_to,
                   uint64_t *ret_from)
{
    uint64_t to[TRIES], from[TRIES];
    bool fine = b->driver->memcpyHtoD(b->device, host, bytes) == CUDA_SUCCESS;
    for (unsigned i = 0; i < TRIES && fine; i++) {
        uint64_t start = clock_monotonic_ns();
        fine = b->driver->memcpyHtoD(b->device, host, bytes) == CUDA_SUCCESS;
        uint64_t half = clock_monotonic_ns();
        fine = fine && b->driver->memcpyDtoH(host, b->device, bytes) == CUDA_SUCCESS;
        to[i] = half - start;
        from[i] = clock_monotonic_ns() - half;
    }
    if (fine) {
        *ret_to = median(to, TRIES);
        *ret_from = median(from, TRIES);
    }
    return fine;
}

static bool point(struct bench *b, uint64_t bytes)
{
    bool fresh = b->used + REGISTERS * bytes <= b->room;
    char *base = b->host + (fresh ? b->used : 0);
    struct pin_cost *c = b->cost;
    unsigned i = 63 - (unsigned)__builtin_clzll(bytes) - PIN_COST_FIRST_SHIFT;
    uint64_t enter[REGISTERS], leave[REGISTERS];
    if (!copies(b, base, bytes, &c->pageable_ns[PIN_TO_DEVICE][i],
                &c->pageable_ns[PIN_FROM_DEVICE][i]))
        return false;
    /* Each time in another place where there is one: memory that was registered before is
     * registered faster. */
    for (unsigned n = 0; n < REGISTERS; n++) {
        char *at = fresh ? base + n * bytes : base;
        CUcontext context;
        uint64_t start = clock_monotonic_ns();
        if (pin_driver_register(b->driver, at, bytes, &context) != CUDA_SUCCESS)
            return false;
        uint64_t registered = clock_monotonic_ns();
        bool fine = n > 0 || copies(b, at, bytes, &c->pinned_ns[PIN_TO_DEVICE][i],
                                    &c->pinned_ns[PIN_FROM_DEVICE][i]);
        uint64_t copied = clock_monotonic_ns();
        if (pin_driver_unregister(b->driver, at, context) != CUDA_SUCCESS || !fine)
            return false;
        enter[n] = registered - start;
        leave[n] = clock_monotonic_ns() - copied;
    }
    c->register_ns[i] = fresh ? median(enter, REGISTERS) : enter[0];
    b->used += fresh ? REGISTERS * bytes : 0;
    c->unregister_ns[i] = median(leave, REGISTERS);
    return true;
}

/* Clocks are coarse and machines are busy: a table that falls is made level. */
static void finish(uint64_t table[static PIN_COST_SIZES], uint32_t known)
{
    uint64_t most = 1;
    for (unsigned i = 0; i < PIN_COST_SIZES; i++)
        if (known >> i & 1)
            most = table[i] = table[i] > most ? table[i] : most;
    pin_cost_fill(table, known);
}

/* To fault memory in and fill it, as in the large space. */
static uint64_t touch_ns_mib(void)
{
    const uint64_t bytes = TOUCH_BYTES + REGION_LARGE_UNIT;
    char *map = region_table(bytes);
    if (!map)
        return 0;
    char *memory =
        (char *)(((uintptr_t)map + REGION_LARGE_UNIT - 1) & ~(uintptr_t)(REGION_LARGE_UNIT - 1));
    (void)madvise(memory, TOUCH_BYTES, MADV_HUGEPAGE);
    uint64_t start = clock_monotonic_ns();
    memset(memory, 1, TOUCH_BYTES);
    __asm__ volatile("" ::"r"(memory) : "memory");
    uint64_t took = clock_monotonic_ns() - start;
    munmap(map, bytes);
    return took / (TOUCH_BYTES / MIB);
}

/* Copies of pinned memory until the link has left its idle state: else the first figures are too
 * slow by half. */
static void warm_up(const struct bench *b)
{
    uint64_t bytes = b->bytes < WARM_BYTES ? b->bytes : WARM_BYTES, start = clock_monotonic_ns();
    CUcontext context;
    char *host =
        region_table(bytes); /* of its own: what was registered before is registered faster */
    if (!host)
        return;
    if (pin_driver_register(b->driver, host, bytes, &context) == CUDA_SUCCESS) {
        while (clock_monotonic_ns() - start < WARM_MS * NS_PER_MS)
            if (b->driver->memcpyHtoD(b->device, host, bytes) != CUDA_SUCCESS ||
                b->driver->memcpyDtoH(host, b->device, bytes) != CUDA_SUCCESS)
                break;
        (void)pin_driver_unregister(b->driver, host, context);
    }
    munmap(host, bytes);
}

/* ---- staging ---- */

static bool staged_once(const struct bench *b, char *host, uint64_t bytes, enum pin_direction to,
                        unsigned threads, uint64_t *ret_ns)
{
    struct stage stage;
    uint64_t start = clock_monotonic_ns();
    if (!stage_begin(&stage, host, b->device, bytes, to, NULL, false, threads))
        return false;
    CUresult r = to == PIN_TO_DEVICE ? b->driver->memcpyHtoD(b->device, host, STAGE_PROBE)
                                     : b->driver->memcpyDtoH(host, b->device, STAGE_PROBE);
    bool fine = r == CUDA_SUCCESS && stage_run(&stage);
    stage_end(&stage);
    *ret_ns = clock_monotonic_ns() - start;
    return fine;
}

/* One number of threads and one direction, at the points that are large enough; each time in another
 * place, since what a cache holds is copied twice as fast. What cannot be measured stays 0, and is
 * not used. */
static void staged(const struct bench *b, unsigned count, enum pin_direction to)
{
    uint64_t *table = b->cost->staged_ns[count][to];
    uint32_t known = 0;
    for (unsigned i = 0; i < POINTS && points[i] <= b->bytes; i++) {
        uint64_t t[TRIES], first, places = b->room / points[i];
        bool fine = points[i] >= PIN_STAGE_MIN && staged_once(b, b->host + (places - 1) * points[i],
                                                              points[i], to, 1u << count, &first);
        for (unsigned n = 0; n < TRIES && fine; n++)
            fine =
                staged_once(b, b->host + n % places * points[i], points[i], to, 1u << count, &t[n]);
        if (!fine)
            continue;
        unsigned at = 63 - (unsigned)__builtin_clzll(points[i]) - PIN_COST_FIRST_SHIFT;
        table[at] = median(t, TRIES);
        known |= UINT32_C(1) << at;
    }
    if (__builtin_popcount(known) >= 2)
        finish(table, known);
    else
        memset(table, 0, PIN_COST_SIZES * sizeof(*table));
}

static int measure(struct bench *b)
{
    uint32_t known = 0;
    memset(b->cost, 0, sizeof(*b->cost));
    warm_up(b);
    for (unsigned i = 0; i < POINTS && points[i] <= b->bytes; i++) {
        if (!point(b, points[i]))
            return -EIO;
        known |= UINT32_C(1) << (63 - __builtin_clzll(points[i]) - PIN_COST_FIRST_SHIFT);
    }
    for (unsigned d = 0; d < PIN_DIRECTIONS; d++) {
        finish(b->cost->pageable_ns[d], known);
        finish(b->cost->pinned_ns[d], known);
    }
    finish(b->cost->register_ns, known);
    finish(b->cost->unregister_ns, known);
    b->cost->touch_ns_mib = touch_ns_mib();
    for (unsigned i = 0; pin_ready() && i < PIN_STAGE_COUNTS && 1u << i <= meter_share(); i++)
        for (unsigned d = 0; d < PIN_DIRECTIONS; d++)
            staged(b, i, (enum pin_direction)d);
    stage_release();
    return pin_cost_valid(b->cost) ? 0 : -EINVAL;
}

int pin_calibrate_measure(const struct pin_driver *driver, struct pin_cost *ret)
{
    struct pin_cost cost;
    struct bench b = {.driver = driver, .cost = &cost, .bytes = points[POINTS - 1]};
    if (!driver->memAlloc || !driver->memFree)
        return -ENOSYS;
    while (driver->memAlloc(&b.device, b.bytes) != CUDA_SUCCESS)
        if ((b.bytes /= 4) < 4 * MIB)
            return -ENOMEM;
    uint64_t headroom;
    b.room = meter_headroom(&headroom) && headroom >= room_headroom ? ROOM_BYTES : b.bytes;
    char *map = region_table(b.room + REGION_LARGE_UNIT);
    int r = -ENOMEM;
    if (map) {
        b.host = (char *)(((uintptr_t)map + REGION_LARGE_UNIT - 1) &
                          ~(uintptr_t)(REGION_LARGE_UNIT - 1));
        (void)madvise(b.host, b.room, MADV_HUGEPAGE);
        memset(b.host, 1, b.room);
        r = measure(&b);
        munmap(map, b.room + REGION_LARGE_UNIT);
    }
    driver->memFree(b.device);
    if (r == 0)
        *ret = cost;
    return r;
}

static bool machine_find(const struct pin_driver *d, struct cost_machine *ret)
{
    int device = 0, version = 0;
    CUcontext context = NULL;
    memset(ret, 0, sizeof(*ret));
    if (d->ctxGetCurrent(&context) != CUDA_SUCCESS || !context)
        return false;
    if (!d->ctxGetDevice || d->ctxGetDevice(&device) != CUDA_SUCCESS || !d->deviceGetUuid ||
        d->deviceGetUuid(ret->uuid, device) != CUDA_SUCCESS || !d->driverGetVersion ||
        d->driverGetVersion(&version) != CUDA_SUCCESS)
        return false;
    ret->driver = cost_file_driver((uint64_t)version);
    return true;
}

int pin_calibrate_now(struct pin_cost *ret_cost, char *ret_path, size_t path_size)
{
    const struct pin_driver *d = pin_driver();
    struct cost_machine machine;
    if (!d || !machine_find(d, &machine))
        return -ENODEV;
    (void)pin_ready(); /* staging needs the tables */
    bool outer = pin_inside;
    pin_inside = true;
    int r = pin_calibrate_measure(d, ret_cost);
    if (r == 0)
        r = cost_file_save(&machine, ret_cost, ret_path, path_size);
    pin_inside = outer;
    return r;
}

/* The calibrated price of memory replaces the assumed one, unless the user set one. */
static void adopt(const struct pin_cost *cost)
{
    struct pin_manager *m = &pin_manager;
    if (!pin_lock())
        return;
    unsigned cpus = m->policy.cost.stage_cpus;
    m->policy.cost = *cost;
    m->policy.cost.stage_cpus = cpus;
    if (!pin_settings.unlimited && pin_settings.price_ns_mib == UINT64_MAX)
        m->policy.options.price_ns_mib = cost->touch_ns_mib;
    pin_unlock();
}

void pin_calibrate_once(void)
{
    struct pin_manager *m = &pin_manager;
    uint32_t none = 0;
    if (__builtin_expect(load_relaxed(&m->calibrating) == 2, true) || m->dead)
        return;
    const struct pin_driver *d = pin_driver();
    if (!d || !cas_acquire(&m->calibrating, &none, 1))
        return;
    struct cost_machine machine;
    struct pin_cost cost;
    bool outer = pin_inside;
    pin_inside = true;
    bool found = machine_find(d, &machine);
    if (found) {
        bool known = cost_file_load(&machine, &cost);
        if (!known && pin_calibrate_measure(d, &cost) == 0) {
            known = true;
            (void)cost_file_save(&machine, &cost, NULL, 0);
        }
        if (known) {
            adopt(&cost);
            m->calibrated = true;
        }
    }
    pin_inside = outer;
    store_release(&m->calibrating, found ? 2 : 0); /* without a context: again at the next copy */
}
