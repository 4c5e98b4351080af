/* driver.c: see driver.h. */
#include "pin/driver.h"

#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/atomic.h"
#include "base/kernel.h"
#include "pin/next.h"
#include "site/module.h"
#include "site/module_symbol.h"

enum { REGISTER_PORTABLE = 1, CAPTURE_RELAXED = 2, PAUSE_NS = 20000 };

static struct pin_driver driver;
static struct module_object object; /* of the driver's library; set before driver.ready */
static uint32_t finding;
static __thread bool looking; /* this thread is at it */

static bool object_find(struct module_object *ret)
{
    struct module_symbol symbol;
    return module_symbol_find_any((uintptr_t)&driver, "cuMemHostRegister_v2", &symbol) == 0 &&
           module_object_find(symbol.addr, ret) == 0;
}

static void *symbol_in(const struct module_object *in, const char *name)
{
    struct module_symbol symbol;
    return module_symbol_find(in, name, &symbol) == 0 ? (void *)symbol.addr : NULL;
}

static void fill(struct pin_driver *d, const struct module_object *in)
{
    const struct {
        void **to;
        const char *name;
    } names[] = {
        {(void **)&d->memHostRegister, "cuMemHostRegister_v2"},
        {(void **)&d->memHostUnregister, "cuMemHostUnregister"},
        {(void **)&d->threadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode"},
        {(void **)&d->ctxGetCurrent, "cuCtxGetCurrent"},
        {(void **)&d->ctxSetCurrent, "cuCtxSetCurrent"},
        {(void **)&d->ctxGetDevice, "cuCtxGetDevice"},
        {(void **)&d->streamSynchronize, "cuStreamSynchronize"},
        {(void **)&d->streamSynchronize_ptsz, "cuStreamSynchronize_ptsz"},
        {(void **)&d->streamIsCapturing, "cuStreamIsCapturing"},
        {(void **)&d->streamIsCapturing_ptsz, "cuStreamIsCapturing_ptsz"},
        {(void **)&d->memAlloc, "cuMemAlloc_v2"},
        {(void **)&d->memFree, "cuMemFree_v2"},
        {(void **)&d->memcpyHtoD, "cuMemcpyHtoD_v2"},
        {(void **)&d->memcpyDtoH, "cuMemcpyDtoH_v2"},
        {(void **)&d->memcpyHtoDAsync, "cuMemcpyHtoDAsync_v2"},
        {(void **)&d->memcpyHtoDAsync_ptsz, "cuMemcpyHtoDAsync_v2_ptsz"},
        {(void **)&d->memcpyDtoHAsync, "cuMemcpyDtoHAsync_v2"},
        {(void **)&d->memcpyDtoHAsync_ptsz, "cuMemcpyDtoHAsync_v2_ptsz"},
        {(void **)&d->eventCreate, "cuEventCreate"},
        {(void **)&d->eventRecord, "cuEventRecord"},
        {(void **)&d->eventRecord_ptsz, "cuEventRecord_ptsz"},
        {(void **)&d->eventQuery, "cuEventQuery"},
        {(void **)&d->eventSynchronize, "cuEventSynchronize"},
        {(void **)&d->memGetAddressRange, "cuMemGetAddressRange_v2"},
        {(void **)&d->pointerAttribute, "cuPointerGetAttribute"},
        {(void **)&d->streamGetCtx, "cuStreamGetCtx"},
        {(void **)&d->driverGetVersion, "cuDriverGetVersion"},
        {(void **)&d->deviceGetUuid, "cuDeviceGetUuid_v2"},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        *names[i].to = symbol_in(in, names[i].name);
    if (!d->deviceGetUuid)
        *(void **)&d->deviceGetUuid = symbol_in(in, "cuDeviceGetUuid");
}

const struct pin_driver *pin_driver(void)
{
    if (load_acquire(&driver.ready))
        return &driver;
    uint32_t none = 0;
    if (!cas_acquire(&finding, &none, 1))
        return NULL; /* another thread looks, or there is nothing to be found */
    struct module_object found;
    struct pin_driver d = {0};
    looking = true;
    bool is_there = object_find(&found);
    looking = false;
    if (is_there) {
        fill(&d, &found);
        if (d.memHostRegister && d.memHostUnregister && d.ctxGetCurrent && d.ctxSetCurrent &&
            d.streamSynchronize && d.memcpyHtoD && d.memcpyDtoH) {
            object = found;
            driver = d;
            store_release(&driver.ready, true);
            return &driver;
        }
    }
    store_release(&finding, 0);
    return NULL;
}

/* Threads that make their first call at the same time: one looks for the driver, and the call of
 * another one must not fail meanwhile. */
void *pin_driver_symbol(const char *name)
{
    const struct pin_driver *d = pin_driver();
    while (!d && !looking && load_acquire(&finding)) {
        /* Not a yield: that thread may have a lower priority. */
        const struct timespec pause = {.tv_nsec = PAUSE_NS};
        (void)kernel_call(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, (long)&pause, 0, 0);
        d = pin_driver();
    }
    return d ? symbol_in(&object, name) : NULL;
}

void pin_driver_forget(void)
{
    if (!driver.ready)
        finding = 0;
}

bool pin_driver_owns(const void *function)
{
    uintptr_t at = (uintptr_t)function;
    return pin_driver() && at >= object.map_start && at < object.map_end;
}

CUresult pin_driver_register(const struct pin_driver *d, void *address, size_t bytes,
                             CUcontext *ret_context)
{
    int mode = CAPTURE_RELAXED;
    if (d->ctxGetCurrent(ret_context) != CUDA_SUCCESS || !*ret_context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (d->threadExchangeStreamCaptureMode &&
        d->threadExchangeStreamCaptureMode(&mode) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult r = d->memHostRegister(address, bytes, REGISTER_PORTABLE);
    if (d->threadExchangeStreamCaptureMode)
        d->threadExchangeStreamCaptureMode(&mode);
    return r;
}

/* A thread without a context borrows the one that it was registered in. */
CUresult pin_driver_unregister(const struct pin_driver *d, void *address, CUcontext context)
{
    CUcontext current = NULL;
    int mode = CAPTURE_RELAXED;
    CUresult r = d->ctxGetCurrent(&current);
    if (r != CUDA_SUCCESS)
        return r;
    if (!current && context && (r = d->ctxSetCurrent(context)) != CUDA_SUCCESS)
        return r;
    bool relaxed = d->threadExchangeStreamCaptureMode &&
                   d->threadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    r = d->memHostUnregister(address);
    if (relaxed)
        d->threadExchangeStreamCaptureMode(&mode);
    if (!current && context)
        d->ctxSetCurrent(NULL);
    return r;
}
