/* stage.c: see stage.h. The thread that makes the copy alone calls the driver. */
#include "pin/stage.h"

#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "base/atomic.h"
#include "base/clock.h"
#include "base/kernel.h"
#include "pin/crew.h"
#include "pin/lock.h"
#include "pin/manager.h"
#include "pin/registration.h"
#include "pin/state.h"

enum {
    SPINS = 2000, /* before a thread that waits gives its CPU away */
    YIELDS = 50,  /* before it sleeps */
    SLEEP_NS = 50000,
    THROUGH_MIN = 32 << 20, /* copies from the device that are larger than a cache */
    BITE = 64 << 10, /* what the caller copies at once, so that the bus never waits for it long */
    MEMORY_DEVICE = 2,
    ATTRIBUTE_MEMORY_TYPE = 2,
    ATTRIBUTE_IS_MANAGED = 8,
    EVENT_NO_TIMING = 2,
    CAPTURE_RELAXED = 2,
    STREAM_NAMED = 2, /* handles up to this one are the default streams */
};

static struct {
    uint32_t lock;         /* of the one copy that is staged */
    struct extent *extent; /* all below: whoever has the lock */
    CUcontext context;     /* of the events */
    void *event[STAGE_SLOTS];
    bool off;       /* the driver would not register it */
    uint32_t stale; /* any thread: the context went, and its events with it */
} ring;

/* ---- the ring ---- */

/* Under the manager's lock, which is given up meanwhile. */
static bool ring_register(struct pin_manager *m)
{
    struct extent *e = ring.extent;
    struct pin_decision d = {.promote = true, .reason = PIN_REASON_RING};
    if (e->registered_bytes && m->policy.pinned_bytes > m->policy.options.budget_bytes) {
        pin_policy_unpinned(&m->policy, &e->account, PIN_REASON_BUDGET);
        (void)pin_extent_unregister(e);
        pin_state_block(e);
        return false;
    }
    if (e->registered_bytes)
        return true;
    if (ring.off || load_relaxed(&e->state) != EXTENT_STILL || e->stuck ||
        m->policy.pinned_bytes + e->account.bytes > m->policy.options.budget_bytes)
        return false;
    m->policy.options.lease_bytes = PIN_LEASE_BYTES;
    bool fits = pin_end_leases(e);
    m->policy.options.lease_bytes = PIN_LEASE_BYTES - e->account.bytes;
    if (fits)
        ring.off = !pin_extent_register(e);
    if (!fits || ring.off)
        return false;
    d.cost_ns = pin_cost_pin_ns(&m->policy.cost, e->account.bytes);
    pin_policy_promoted(&m->policy, &e->account, &d, pin_now_ns());
    m->counts.pinning_ns += d.cost_ns;
    pin_state_block(e);
    return true;
}

static bool ring_memory(void)
{
    struct pin_manager *m = &pin_manager;
    const uint64_t bytes = (uint64_t)STAGE_PIECE * STAGE_SLOTS;
    if (!pin_lock())
        return false;
    if (!ring.extent && (ring.extent = region_take(&m->region, bytes, 1, false)) != NULL) {
        pin_policy_allocate(&m->policy, &ring.extent->account, &m->policy.other, bytes, false, 0);
        ring.extent->account.fixed = true;
        ring.extent->site = 0;
        m->region.live_bytes -= bytes; /* not the program's */
        m->region.live_blocks--;
        memset((void *)ring.extent->start, 0, bytes);
    }
    bool fine = ring.extent && ring_register(m);
    pin_unlock();
    return fine;
}

static bool ring_events(const struct pin_driver *d, CUcontext current)
{
    if (exchange_acquire(&ring.stale, 0)) {
        memset(ring.event, 0, sizeof(ring.event)); /* they went with their context */
        ring.context = NULL;
    }
    if (ring.context && ring.context != current)
        return false;
    for (unsigned i = 0; i < STAGE_SLOTS; i++)
        if (!ring.event[i] && d->eventCreate(&ring.event[i], EVENT_NO_TIMING) != CUDA_SUCCESS) {
            ring.event[i] = NULL;
            return false;
        }
    ring.context = current;
    return true;
}

static bool driver_complete(const struct pin_driver *d)
{
    return d && d->memcpyHtoDAsync && d->memcpyDtoHAsync && d->eventCreate && d->eventRecord &&
           d->eventQuery && d->eventSynchronize && d->memGetAddressRange && d->pointerAttribute &&
           d->streamGetCtx;
}

/* One allocation of ordinary device memory has all of it. */
static bool device_plain(const struct pin_driver *d, CUdeviceptr device, uint64_t bytes)
{
    CUdeviceptr base = 0;
    size_t size = 0;
    unsigned type = 0, managed = 0;
    return d->memGetAddressRange(&base, &size, device) == CUDA_SUCCESS && device >= base &&
           bytes <= size && device - base <= size - bytes &&
           d->pointerAttribute(&type, ATTRIBUTE_MEMORY_TYPE, device) == CUDA_SUCCESS &&
           type == MEMORY_DEVICE &&
           d->pointerAttribute(&managed, ATTRIBUTE_IS_MANAGED, device) == CUDA_SUCCESS && !managed;
}

static bool context_fits(const struct pin_driver *d, CUstream stream, CUcontext *ret)
{
    CUcontext of = NULL;
    if (d->ctxGetCurrent(ret) != CUDA_SUCCESS || !*ret)
        return false;
    return (uintptr_t)stream <= STREAM_NAMED ||
           (d->streamGetCtx(stream, &of) == CUDA_SUCCESS && of == *ret);
}

bool stage_begin(struct stage *s, void *host, CUdeviceptr device, uint64_t bytes,
                 enum pin_direction to, CUstream stream, bool per_thread, unsigned threads)
{
    const struct pin_driver *d = pin_driver();
    CUcontext current;
    uint32_t none = 0;
    if (threads == 0 || bytes <= STAGE_PROBE + 2 * STAGE_PIECE || !driver_complete(d) ||
        !context_fits(d, stream, &current) || !device_plain(d, device, bytes))
        return false;
    if (!cas_acquire(&ring.lock, &none, 1)) {
        fetch_add_relaxed(&pin_manager.counts.stage_busy, 1);
        return false;
    }
    bool outer = pin_inside;
    pin_inside = true;
    bool fine = ring_events(d, current) && ring_memory();
    pin_inside = outer;
    if (!fine) {
        store_release(&ring.lock, 0);
        fetch_add_relaxed(&pin_manager.counts.stage_failed, 1);
        return false;
    }
    memset(s, 0, sizeof(*s));
    s->host = (char *)host + STAGE_PROBE;
    s->device = device + STAGE_PROBE;
    s->bytes = bytes - STAGE_PROBE;
    s->to = to;
    s->stream = stream;
    s->per_thread = per_thread;
    s->threads = threads;
    s->pieces = (uint32_t)((s->bytes + STAGE_PIECE - 1) / STAGE_PIECE);
    return true;
}

void stage_end(struct stage *s)
{
    store_release(&ring.lock, 0);
}

/* ---- pieces ---- */

static char *slot_of(uint32_t piece)
{
    return (char *)ring.extent->start + (size_t)((piece - 1) % STAGE_SLOTS) * STAGE_PIECE;
}

static uint64_t piece_start(uint32_t piece)
{
    return (uint64_t)(piece - 1) * STAGE_PIECE;
}

static size_t piece_bytes(const struct stage *s, uint32_t piece)
{
    uint64_t left = s->bytes - piece_start(piece);
    return left < STAGE_PIECE ? (size_t)left : STAGE_PIECE;
}

/* Can the memory of this piece be copied now? */
static bool piece_ready(struct stage *s, uint32_t piece)
{
    unsigned slot = (piece - 1) % STAGE_SLOTS;
    if (s->to == PIN_FROM_DEVICE)
        return load_acquire(&s->filled[slot]) == piece;
    return piece <= STAGE_SLOTS || load_acquire(&s->empty[slot]) >= piece - STAGE_SLOTS;
}

/* To memory of which more is written than a cache holds: without reading its lines before. */
static void copy_through(char *to, const char *from, size_t n)
{
#if defined(__x86_64__)
    size_t head = -(uintptr_t)to & 63;
    head = head < n ? head : n;
    memcpy(to, from, head);
    for (; n - head >= 64; head += 64) {
        const __m128i *line = (const __m128i *)(from + head);
        __m128i a = _mm_loadu_si128(line), b = _mm_loadu_si128(line + 1);
        __m128i c = _mm_loadu_si128(line + 2), d = _mm_loadu_si128(line + 3);
        _mm_stream_si128((__m128i *)(to + head), a);
        _mm_stream_si128((__m128i *)(to + head) + 1, b);
        _mm_stream_si128((__m128i *)(to + head) + 2, c);
        _mm_stream_si128((__m128i *)(to + head) + 3, d);
    }
    memcpy(to + head, from + head, n - head);
    _mm_sfence();
#else
    memcpy(to, from, n);
#endif
}

static void piece_bytes_copy(struct stage *s, uint32_t piece, size_t from, size_t n)
{
    char *host = s->host + piece_start(piece) + from, *slot = slot_of(piece) + from;
    if (s->to == PIN_TO_DEVICE)
        memcpy(slot, host, n);
    else if (s->bytes >= THROUGH_MIN)
        copy_through(host, slot, n);
    else
        memcpy(host, slot, n);
}

static void piece_copied(struct stage *s, uint32_t piece)
{
    unsigned slot = (piece - 1) % STAGE_SLOTS;
    store_release(s->to == PIN_TO_DEVICE ? &s->filled[slot] : &s->empty[slot], piece);
    fetch_add_release(&s->copied, 1);
}

static void pause_in(unsigned turn)
{
    if (turn < SPINS) {
        cpu_relax();
    } else if (turn < SPINS + YIELDS) {
        sched_yield();
    } else {
        /* Not by the C library: a thread that is cancelled here would leave the ring locked. */
        struct timespec t = {.tv_nsec = SLEEP_NS};
        (void)kernel_call(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, (long)&t, 0, 0);
    }
}

static void help(void *argument)
{
    struct stage *s = argument;
    for (;;) {
        uint32_t piece = fetch_add_acquire(&s->claimed, 1) + 1;
        if (piece > s->pieces)
            break;
        unsigned turn = 0;
        while (!piece_ready(s, piece) && !load_acquire(&s->stop))
            pause_in(turn++);
        if (load_acquire(&s->stop))
            break;
        piece_bytes_copy(s, piece, 0, piece_bytes(s, piece));
        piece_copied(s, piece);
    }
    fetch_sub_release(&s->helpers, 1); /* the last access: the stage may end now */
}

/* Some bytes by the caller, if there is a piece that needs no waiting. `own`: the piece that it is
 * at, and `done`: how much of it. */
static bool help_bite(struct stage *s, uint32_t *own, size_t *done)
{
    uint32_t claimed = load_acquire(&s->claimed);
    if (!*own) {
        if (claimed >= s->pieces || !piece_ready(s, claimed + 1) ||
            !cas_acquire(&s->claimed, &claimed, claimed + 1))
            return false;
        *own = claimed + 1;
        *done = 0;
    }
    size_t left = piece_bytes(s, *own) - *done, n = left < BITE ? left : BITE;
    piece_bytes_copy(s, *own, *done, n);
    *done += n;
    if (n == left) {
        piece_copied(s, *own);
        *own = 0;
    }
    return true;
}

/* ---- the bus ---- */

/* Give a piece to the bus; its event tells when it has arrived. */
static bool piece_send(const struct pin_driver *d, struct stage *s, uint32_t piece)
{
    CUdeviceptr device = s->device + piece_start(piece);
    size_t bytes = piece_bytes(s, piece);
    bool twin = s->per_thread;
    CUresult r;
    if (s->to == PIN_TO_DEVICE)
        r = (twin && d->memcpyHtoDAsync_ptsz ? d->memcpyHtoDAsync_ptsz : d->memcpyHtoDAsync)(
            device, slot_of(piece), bytes, s->stream);
    else
        r = (twin && d->memcpyDtoHAsync_ptsz ? d->memcpyDtoHAsync_ptsz : d->memcpyDtoHAsync)(
            slot_of(piece), device, bytes, s->stream);
    if (r != CUDA_SUCCESS)
        return false;
    return (twin && d->eventRecord_ptsz ? d->eventRecord_ptsz : d->eventRecord)(
               ring.event[(piece - 1) % STAGE_SLOTS], s->stream) == CUDA_SUCCESS;
}

/* Has the bus moved this piece? 1, 0, or -1: the driver reports an error. */
static int piece_moved(const struct pin_driver *d, uint32_t piece, bool wait)
{
    void *event = ring.event[(piece - 1) % STAGE_SLOTS];
    CUresult r = wait ? d->eventSynchronize(event) : d->eventQuery(event);
    return r == CUDA_SUCCESS ? 1 : r == CUDA_ERROR_NOT_READY ? 0 : -1;
}

/* What a piece may be sent for: its slot has the program's bytes, or is empty again. */
static bool may_send(struct stage *s, uint32_t piece)
{
    unsigned slot = (piece - 1) % STAGE_SLOTS;
    if (s->to == PIN_TO_DEVICE)
        return load_acquire(&s->filled[slot]) == piece;
    return piece <= STAGE_SLOTS || load_acquire(&s->empty[slot]) >= piece - STAGE_SLOTS;
}

static void moved(struct stage *s, uint32_t piece)
{
    unsigned slot = (piece - 1) % STAGE_SLOTS;
    store_release(s->to == PIN_TO_DEVICE ? &s->empty[slot] : &s->filled[slot], piece);
}

static bool drive(const struct pin_driver *d, struct stage *s)
{
    uint32_t sent = 0, arrived = 0, own = 0;
    size_t done = 0;
    unsigned turn = 0;
    while (arrived < s->pieces || load_acquire(&s->copied) < s->pieces) {
        bool progress = false;
        while (sent < s->pieces && may_send(s, sent + 1)) {
            if (!piece_send(d, s, sent + 1))
                return false;
            sent++;
            progress = true;
        }
        if (arrived < sent) {
            /* Nothing else can be done once the turns are used up: wait without a spin. */
            int r = piece_moved(d, arrived + 1, turn > SPINS);
            if (r < 0)
                return false;
            if (r > 0)
                moved(s, ++arrived);
            if (r > 0 && arrived == 1)
                s->first_ns = clock_monotonic_ns();
            progress |= r > 0;
        }
        if (!progress)
            progress = help_bite(s, &own, &done);
        turn = progress ? 0 : turn + 1;
        if (!progress)
            pause_in(turn);
    }
    return true;
}

bool stage_run(struct stage *s)
{
    const struct pin_driver *d = pin_driver();
    int mode = CAPTURE_RELAXED;
    bool relaxed = d->threadExchangeStreamCaptureMode &&
                   d->threadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    bool outer = pin_inside;
    pin_inside = true;
    for (unsigned i = 1; i < s->threads && i < s->pieces; i++) {
        fetch_add_acq_rel(&s->helpers, 1);
        if (!crew_start(help, s)) {
            fetch_sub_release(&s->helpers, 1);
            break;
        }
    }
    bool fine = drive(d, s);
    store_release(&s->stop, 1);
    for (unsigned turn = 0; load_acquire(&s->helpers); turn++)
        pause_in(turn);
    if (!fine) /* the ring must be quiet before it is used again */
        (void)(s->per_thread && d->streamSynchronize_ptsz ? d->streamSynchronize_ptsz
                                                          : d->streamSynchronize)(s->stream);
    pin_inside = outer;
    if (relaxed)
        d->threadExchangeStreamCaptureMode(&mode);
    fetch_add_relaxed(&pin_manager.counts.stage_failed, !fine);
    return fine;
}

bool stage_is_pageable(const void *host, uint64_t bytes)
{
    const struct pin_driver *d = pin_driver();
    uintptr_t first = (uintptr_t)host & ~(uintptr_t)4095, last = (uintptr_t)host + bytes - 1;
    unsigned type = 0;
    return driver_complete(d) && last > first &&
           d->pointerAttribute(&type, ATTRIBUTE_MEMORY_TYPE, (uintptr_t)host) ==
               CUDA_ERROR_INVALID_VALUE &&
           d->pointerAttribute(&type, ATTRIBUTE_MEMORY_TYPE, last) == CUDA_ERROR_INVALID_VALUE &&
           kernel_call(SYS_msync, (long)first, (long)(last - first + 1), MS_ASYNC, 0, 0) == 0;
}

void stage_release(void)
{
    struct pin_manager *m = &pin_manager;
    uint32_t none = 0;
    if (!cas_acquire(&ring.lock, &none, 1))
        return;
    if (ring.extent && ring.extent->registered_bytes && pin_lock()) {
        pin_policy_unpinned(&m->policy, &ring.extent->account, PIN_REASON_RING);
        (void)pin_extent_unregister(ring.extent);
        m->policy.options.lease_bytes = PIN_LEASE_BYTES;
        pin_unlock();
    }
    store_release(&ring.lock, 0);
}

void stage_context_gone(void)
{
    store_release(&ring.stale, 1);
}

void stage_forget(void)
{
    ring.lock = 0;
}
