/*
 * shim_copy.c: copies.
 *
 * A copy of memory that we registered must mean what it means for pageable memory. To the device:
 * when the call returns, the source may be changed. From the device: the data are there. The
 * driver keeps that for synchronous copies; asynchronous ones are waited for, or, when they are
 * small, made from a copy that the driver stages at once, as it does with pageable memory.
 * MEMOIR_PIN_ASYNC=1 says that the program waits by itself. Large copies of memory that is not
 * registered are staged where that is faster (stage.h).
 */
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "pin/checksum.h"
#include "pin/manager.h"
#include "pin/region.h"
#include "pin/shim.h"
#include "pin/stage.h"

enum { SMALL = 64 << 10, BOUNCES = 16 };

/* ---- streams ---- */

bool shim_captured(CUstream stream, bool per_thread)
{
    const struct pin_driver *d = pin_driver();
    int status = 0;
    CUresult (*ask)(CUstream, int *) =
        d ? (per_thread && d->streamIsCapturing_ptsz ? d->streamIsCapturing_ptsz
                                                     : d->streamIsCapturing)
          : NULL;
    return ask && ask(stream, &status) == CUDA_SUCCESS && status != 0;
}

CUresult shim_wait(CUstream stream, bool per_thread)
{
    const struct pin_driver *d = pin_driver();
    if (!d || pin_settings.async)
        return CUDA_SUCCESS;
    fetch_add_relaxed(&pin_manager.counts.waits, 1);
    return per_thread && d->streamSynchronize_ptsz ? d->streamSynchronize_ptsz(stream)
                                                   : d->streamSynchronize(stream);
}

/* Pageable buffers from which the driver stages small copies before it returns. */
static char *bounces;
static uint32_t bounces_used;

static char *bounce_take(unsigned *ret_which)
{
    if (!load_acquire(&bounces)) {
        char *made = region_table(BOUNCES * SMALL), *none = NULL;
        if (made && !cas_acq_rel(&bounces, &none, made))
            return NULL; /* leaked once at most per thread that raced; pages are untouched */
    }
    for (unsigned i = 0; bounces && i < BOUNCES; i++)
        if (!(fetch_or_relaxed(&bounces_used, UINT32_C(1) << i) >> i & 1)) {
            fence_acquire();
            *ret_which = i;
            return bounces + (size_t)i * SMALL;
        }
    return NULL;
}

static void bounce_give(unsigned which)
{
    fence_release();
    fetch_and_relaxed(&bounces_used, ~(UINT32_C(1) << which));
}

/* ---- one range ---- */

/* Which side is served memory, for functions that take any pointers. */
static bool sides(CUdeviceptr dst, CUdeviceptr src, const void **ret_host,
                  enum pin_direction *ret_to)
{
    *ret_to = PIN_TO_DEVICE;
    *ret_host = (const void *)(uintptr_t)src;
    if (pin_owns(*ret_host))
        return !pin_owns((const void *)(uintptr_t)dst); /* a copy within the host gains nothing */
    *ret_to = PIN_FROM_DEVICE;
    *ret_host = (const void *)(uintptr_t)dst;
    return pin_owns(*ret_host);
}

/* Make the call that copies `n` bytes: as it is, or its first bytes, with the rest by staging. Where
 * staging fails, the whole call is made again, so that the driver's own result is what counts. */
#define MAKE(call, device, stream, per_thread)                       \
    ({                                                               \
        struct stage stage_;                                         \
        CUresult r_;                                                 \
        if (may_stage(&stage_, &copy, device, stream, per_thread)) { \
            size_t whole_ = n;                                       \
            uint64_t start_ = clock_monotonic_ns();                  \
            n = STAGE_PROBE;                                         \
            r_ = (call);                                             \
            n = whole_;                                              \
            copy.staged = r_ == CUDA_SUCCESS && stage_run(&stage_);  \
            copy.staged_ns = clock_monotonic_ns() - start_;          \
            copy.waited_ns = stage_.first_ns - start_;               \
            stage_end(&stage_);                                      \
            r_ = copy.staged || r_ != CUDA_SUCCESS ? r_ : (call);    \
        } else {                                                     \
            r_ = (call);                                             \
        }                                                            \
        r_;                                                          \
    })

static bool may_stage(struct stage *stage, const struct pin_copy *copy, CUdeviceptr device,
                      CUstream stream, bool per_thread)
{
    return copy->stage_threads && pin_settings.mode != PIN_SHADOW &&
           stage_begin(stage, (void *)(uintptr_t)copy->host, device, copy->bytes, copy->to, stream,
                       per_thread, copy->stage_threads);
}

/* The end of a synchronous copy. */
static CUresult ended(struct pin_copy *copy, CUresult r, CUdeviceptr device)
{
    if (r == CUDA_SUCCESS && pin_settings.checksum)
        pin_checksum(copy->host, device, copy->bytes, copy->to);
    pin_copy_end(copy, r == CUDA_SUCCESS);
    return r;
}

typedef CUresult to_device_sync(CUdeviceptr, const void *, size_t);
static CUresult to_sync(to_device_sync *real, CUdeviceptr dst, const void *src, size_t n,
                        bool per_thread)
{
    struct pin_copy copy;
    if (pin_inside)
        return real(dst, src, n);
    pin_copy_begin(&copy, src, n, PIN_TO_DEVICE, false);
    return ended(&copy, MAKE(real(dst, src, n), dst, NULL, per_thread), dst);
}

typedef CUresult from_device_sync(void *, CUdeviceptr, size_t);
static CUresult from_sync(from_device_sync *real, void *dst, CUdeviceptr src, size_t n,
                          bool per_thread)
{
    struct pin_copy copy;
    if (pin_inside)
        return real(dst, src, n);
    pin_copy_begin(&copy, dst, n, PIN_FROM_DEVICE, false);
    return ended(&copy, MAKE(real(dst, src, n), src, NULL, per_thread), src);
}

#define TO_DEVICE(symbol, per_thread)                                                             \
    SHIM_API CUresult shim_##symbol(CUdeviceptr dst, const void *src, size_t n) __asm__(#symbol); \
    CUresult shim_##symbol(CUdeviceptr dst, const void *src, size_t n)                            \
    {                                                                                             \
        return to_sync(SHIM_REAL(to_device_sync, symbol), dst, src, n, per_thread);               \
    }
#define FROM_DEVICE(symbol, per_thread)                                                     \
    SHIM_API CUresult shim_##symbol(void *dst, CUdeviceptr src, size_t n) __asm__(#symbol); \
    CUresult shim_##symbol(void *dst, CUdeviceptr src, size_t n)                            \
    {                                                                                       \
        return from_sync(SHIM_REAL(from_device_sync, symbol), dst, src, n, per_thread);     \
    }
TO_DEVICE(cuMemcpyHtoD_v2, false)
TO_DEVICE(cuMemcpyHtoD_v2_ptds, true)
FROM_DEVICE(cuMemcpyDtoH_v2, false)
FROM_DEVICE(cuMemcpyDtoH_v2_ptds, true)

/* After an asynchronous copy of memory that the driver takes for pinned. */
static CUresult finish(struct pin_copy *copy, CUresult r, CUstream stream, bool per_thread,
                       bool graph, CUdeviceptr device)
{
    bool check = pin_settings.checksum && !graph && r == CUDA_SUCCESS;
    if (r == CUDA_SUCCESS && !graph && (copy->pinned || check))
        r = shim_wait(stream, per_thread);
    if (check && r == CUDA_SUCCESS)
        pin_checksum(copy->host, device, copy->bytes, copy->to);
    pin_copy_end(copy, r == CUDA_SUCCESS && !graph);
    return r;
}

typedef CUresult to_device_async(CUdeviceptr, const void *, size_t, CUstream);
static CUresult to_device(to_device_async *real, CUdeviceptr dst, const void *src, size_t n,
                          CUstream stream, bool per_thread)
{
    struct pin_copy copy;
    unsigned which;
    if (pin_inside)
        return real(dst, src, n, stream);
    bool graph = (pin_owns(src) || n >= PIN_STAGE_MIN) && shim_captured(stream, per_thread);
    pin_copy_begin(&copy, src, n, PIN_TO_DEVICE, graph);
    char *bounce =
        copy.pinned && !graph && !pin_settings.async && n <= SMALL ? bounce_take(&which) : NULL;
    if (bounce) {
        memcpy(bounce, src, n);
        CUresult r = real(dst, bounce, n, stream);
        bounce_give(which);
        copy.pinned = false;
        return finish(&copy, r, stream, per_thread, false, dst);
    }
    return finish(&copy, MAKE(real(dst, src, n, stream), dst, stream, per_thread), stream,
                  per_thread, graph, dst);
}

typedef CUresult from_device_async(void *, CUdeviceptr, size_t, CUstream);
static CUresult from_device(from_device_async *real, void *dst, CUdeviceptr src, size_t n,
                            CUstream stream, bool per_thread)
{
    struct pin_copy copy;
    if (pin_inside)
        return real(dst, src, n, stream);
    bool graph = (pin_owns(dst) || n >= PIN_STAGE_MIN) && shim_captured(stream, per_thread);
    pin_copy_begin(&copy, dst, n, PIN_FROM_DEVICE, graph);
    return finish(&copy, MAKE(real(dst, src, n, stream), src, stream, per_thread), stream,
                  per_thread, graph, src);
}

#define TO_DEVICE_ASYNC(symbol, per_thread)                                                    \
    SHIM_API CUresult shim_##symbol(CUdeviceptr dst, const void *src, size_t n,                \
                                    CUstream stream) __asm__(#symbol);                         \
    CUresult shim_##symbol(CUdeviceptr dst, const void *src, size_t n, CUstream stream)        \
    {                                                                                          \
        return to_device(SHIM_REAL(to_device_async, symbol), dst, src, n, stream, per_thread); \
    }
#define FROM_DEVICE_ASYNC(symbol, per_thread)                                                      \
    SHIM_API CUresult shim_##symbol(void *dst, CUdeviceptr src, size_t n,                          \
                                    CUstream stream) __asm__(#symbol);                             \
    CUresult shim_##symbol(void *dst, CUdeviceptr src, size_t n, CUstream stream)                  \
    {                                                                                              \
        return from_device(SHIM_REAL(from_device_async, symbol), dst, src, n, stream, per_thread); \
    }
TO_DEVICE_ASYNC(cuMemcpyHtoDAsync_v2, false)
TO_DEVICE_ASYNC(cuMemcpyHtoDAsync_v2_ptsz, true)
FROM_DEVICE_ASYNC(cuMemcpyDtoHAsync_v2, false)
FROM_DEVICE_ASYNC(cuMemcpyDtoHAsync_v2_ptsz, true)

/* ---- any pointers ---- */

typedef CUresult any_copy(CUdeviceptr, CUdeviceptr, size_t);
static CUresult any(any_copy *real, CUdeviceptr dst, CUdeviceptr src, size_t n, bool per_thread)
{
    struct pin_copy copy;
    const void *host;
    enum pin_direction to;
    if (pin_inside || !sides(dst, src, &host, &to))
        return real(dst, src, n);
    pin_copy_begin(&copy, host, n, to, false);
    CUdeviceptr device = to == PIN_TO_DEVICE ? dst : src;
    return ended(&copy, MAKE(real(dst, src, n), device, NULL, per_thread), device);
}

typedef CUresult any_copy_async(CUdeviceptr, CUdeviceptr, size_t, CUstream);
static CUresult any_async(any_copy_async *real, CUdeviceptr dst, CUdeviceptr src, size_t n,
                          CUstream stream, bool per_thread)
{
    struct pin_copy copy;
    const void *host;
    enum pin_direction to;
    if (pin_inside || !sides(dst, src, &host, &to))
        return real(dst, src, n, stream);
    bool graph = shim_captured(stream, per_thread);
    pin_copy_begin(&copy, host, n, to, graph);
    CUdeviceptr device = to == PIN_TO_DEVICE ? dst : src;
    return finish(&copy, MAKE(real(dst, src, n, stream), device, stream, per_thread), stream,
                  per_thread, graph, device);
}

#define ANY(symbol, per_thread)                                                                   \
    SHIM_API CUresult shim_##symbol(CUdeviceptr dst, CUdeviceptr src, size_t n) __asm__(#symbol); \
    CUresult shim_##symbol(CUdeviceptr dst, CUdeviceptr src, size_t n)                            \
    {                                                                                             \
        return any(SHIM_REAL(any_copy, symbol), dst, src, n, per_thread);                         \
    }
#define ANY_ASYNC(symbol, per_thread)                                                         \
    SHIM_API CUresult shim_##symbol(CUdeviceptr dst, CUdeviceptr src, size_t n,               \
                                    CUstream stream) __asm__(#symbol);                        \
    CUresult shim_##symbol(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream)       \
    {                                                                                         \
        return any_async(SHIM_REAL(any_copy_async, symbol), dst, src, n, stream, per_thread); \
    }
ANY(cuMemcpy, false)
ANY(cuMemcpy_ptds, true)
ANY_ASYNC(cuMemcpyAsync, false)
ANY_ASYNC(cuMemcpyAsync_ptsz, true)

/* ---- arrays: always whole rows of bytes on the host's side ---- */

#define HOST_TO_ARRAY(symbol)                                                                     \
    SHIM_API CUresult shim_##symbol(void *array, size_t at, const void *src,                      \
                                    size_t n) __asm__(#symbol);                                   \
    CUresult shim_##symbol(void *array, size_t at, const void *src, size_t n)                     \
    {                                                                                             \
        struct pin_copy copy;                                                                     \
        pin_copy_begin(&copy, src, n, PIN_TO_DEVICE, false);                                      \
        CUresult r =                                                                              \
            SHIM_REAL(CUresult(void *, size_t, const void *, size_t), symbol)(array, at, src, n); \
        pin_copy_end(&copy, r == CUDA_SUCCESS);                                                   \
        return r;                                                                                 \
    }
#define ARRAY_TO_HOST(symbol)                                                                      \
    SHIM_API CUresult shim_##symbol(void *dst, void *array, size_t at, size_t n) __asm__(#symbol); \
    CUresult shim_##symbol(void *dst, void *array, size_t at, size_t n)                            \
    {                                                                                              \
        struct pin_copy copy;                                                                      \
        pin_copy_begin(&copy, dst, n, PIN_FROM_DEVICE, false);                                     \
        CUresult r =                                                                               \
            SHIM_REAL(CUresult(void *, void *, size_t, size_t), symbol)(dst, array, at, n);        \
        pin_copy_end(&copy, r == CUDA_SUCCESS);                                                    \
        return r;                                                                                  \
    }
HOST_TO_ARRAY(cuMemcpyHtoA_v2)
HOST_TO_ARRAY(cuMemcpyHtoA_v2_ptds)
ARRAY_TO_HOST(cuMemcpyAtoH_v2)
ARRAY_TO_HOST(cuMemcpyAtoH_v2_ptds)

/* Without the checksum, which reads ranges of device memory. */
CUresult shim_finish(struct pin_copy *copy, CUresult r, CUstream stream, bool per_thread,
                     bool graph)
{
    if (r == CUDA_SUCCESS && copy->pinned && !graph)
        r = shim_wait(stream, per_thread);
    pin_copy_end(copy, r == CUDA_SUCCESS && !graph);
    return r;
}

#define HOST_TO_ARRAY_ASYNC(symbol, per_thread)                                                \
    SHIM_API CUresult shim_##symbol(void *array, size_t at, const void *src, size_t n,         \
                                    CUstream stream) __asm__(#symbol);                         \
    CUresult shim_##symbol(void *array, size_t at, const void *src, size_t n, CUstream stream) \
    {                                                                                          \
        struct pin_copy copy;                                                                  \
        bool graph = pin_owns(src) && shim_captured(stream, per_thread);                       \
        pin_copy_begin(&copy, src, n, PIN_TO_DEVICE, graph);                                   \
        CUresult r = SHIM_REAL(CUresult(void *, size_t, const void *, size_t, CUstream),       \
                               symbol)(array, at, src, n, stream);                             \
        return shim_finish(&copy, r, stream, per_thread, graph);                               \
    }
#define ARRAY_TO_HOST_ASYNC(symbol, per_thread)                                          \
    SHIM_API CUresult shim_##symbol(void *dst, void *array, size_t at, size_t n,         \
                                    CUstream stream) __asm__(#symbol);                   \
    CUresult shim_##symbol(void *dst, void *array, size_t at, size_t n, CUstream stream) \
    {                                                                                    \
        struct pin_copy copy;                                                            \
        bool graph = pin_owns(dst) && shim_captured(stream, per_thread);                 \
        pin_copy_begin(&copy, dst, n, PIN_FROM_DEVICE, graph);                           \
        CUresult r = SHIM_REAL(CUresult(void *, void *, size_t, size_t, CUstream),       \
                               symbol)(dst, array, at, n, stream);                       \
        return shim_finish(&copy, r, stream, per_thread, graph);                         \
    }
HOST_TO_ARRAY_ASYNC(cuMemcpyHtoAAsync_v2, false)
HOST_TO_ARRAY_ASYNC(cuMemcpyHtoAAsync_v2_ptsz, true)
ARRAY_TO_HOST_ASYNC(cuMemcpyAtoHAsync_v2, false)
ARRAY_TO_HOST_ASYNC(cuMemcpyAtoHAsync_v2_ptsz, true)
