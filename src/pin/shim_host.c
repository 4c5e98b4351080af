/*
 * shim_host.c: pinned memory of the program's own, questions about memory, and contexts that go.
 *
 * The program must not notice that we registered its memory: it may register that memory itself,
 * and the driver's answers are those about pageable memory. Such a question is put for a page of
 * ours that is never registered.
 */
#include <string.h>

#include "pin/book.h"
#include "pin/manager.h"
#include "pin/shim.h"
#include "pin/stage.h"

enum { ATTRIBUTE_DEVICE_POINTER = 3, ATTRIBUTE_HOST_POINTER = 4 };

static char plain[4096] __attribute__((aligned(4096)));

static CUcontext context_now(void)
{
    const struct pin_driver *d = pin_driver();
    CUcontext context = NULL;
    return d && d->ctxGetCurrent(&context) == CUDA_SUCCESS ? context : NULL;
}

/* ---- pinned memory ---- */

SHIM_API CUresult shim_host_alloc(void **ret, size_t bytes,
                                  unsigned flags) __asm__("cuMemHostAlloc");
CUresult shim_host_alloc(void **ret, size_t bytes, unsigned flags)
{
    struct unwind_state from = UNWIND_STATE_CALLER();
    CUresult r = SHIM_REAL(CUresult(void **, size_t, unsigned), cuMemHostAlloc)(ret, bytes, flags);
    if (r == CUDA_SUCCESS && *ret && !pin_inside)
        pin_book_own(*ret, bytes, false, context_now(), &from);
    return r;
}

SHIM_API CUresult shim_alloc_host(void **ret, size_t bytes) __asm__("cuMemAllocHost_v2");
CUresult shim_alloc_host(void **ret, size_t bytes)
{
    struct unwind_state from = UNWIND_STATE_CALLER();
    CUresult r = SHIM_REAL(CUresult(void **, size_t), cuMemAllocHost_v2)(ret, bytes);
    if (r == CUDA_SUCCESS && *ret && !pin_inside)
        pin_book_own(*ret, bytes, false, context_now(), &from);
    return r;
}

/* Told before it happens: another thread may get the address at once. */
SHIM_API CUresult shim_free_host(void *p) __asm__("cuMemFreeHost");
CUresult shim_free_host(void *p)
{
    if (p && !pin_inside)
        pin_book_own_gone(p, false);
    return SHIM_REAL(CUresult(void *), cuMemFreeHost)(p);
}

typedef CUresult host_register(void *, size_t, unsigned);
static CUresult registers(host_register *real, void *p, size_t bytes, unsigned flags,
                          const struct unwind_state *from)
{
    if (pin_inside)
        return real(p, bytes, flags);
    pin_taking_over(p, bytes);
    CUresult r = real(p, bytes, flags);
    pin_taken_over(p, bytes, r == CUDA_SUCCESS);
    if (r == CUDA_SUCCESS)
        pin_book_own(p, bytes, true, context_now(), from);
    return r;
}

SHIM_API CUresult shim_register(void *p, size_t bytes, unsigned flags) __asm__("cuMemHostRegister");
CUresult shim_register(void *p, size_t bytes, unsigned flags)
{
    struct unwind_state from = UNWIND_STATE_CALLER();
    return registers(SHIM_REAL(host_register, cuMemHostRegister), p, bytes, flags, &from);
}

SHIM_API CUresult shim_register_v2(void *p, size_t bytes,
                                   unsigned flags) __asm__("cuMemHostRegister_v2");
CUresult shim_register_v2(void *p, size_t bytes, unsigned flags)
{
    struct unwind_state from = UNWIND_STATE_CALLER();
    return registers(SHIM_REAL(host_register, cuMemHostRegister_v2), p, bytes, flags, &from);
}

SHIM_API CUresult shim_unregister(void *p) __asm__("cuMemHostUnregister");
CUresult shim_unregister(void *p)
{
    if (pin_inside)
        return SHIM_REAL(CUresult(void *), cuMemHostUnregister)(p);
    /* Not the program's: as for memory that was never registered. */
    if (pin_registered(p))
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    CUresult r = SHIM_REAL(CUresult(void *), cuMemHostUnregister)(p);
    if (r == CUDA_SUCCESS) {
        pin_book_own_gone(p, true);
        pin_given_back(p);
    }
    return r;
}

/* ---- questions ---- */

static CUdeviceptr asked(CUdeviceptr p)
{
    return !pin_inside && pin_registered((const void *)(uintptr_t)p) ? (uintptr_t)plain : p;
}

SHIM_API CUresult shim_device_pointer(CUdeviceptr *ret, void *p,
                                      unsigned flags) __asm__("cuMemHostGetDevicePointer_v2");
CUresult shim_device_pointer(CUdeviceptr *ret, void *p, unsigned flags)
{
    CUdeviceptr of = asked((uintptr_t)p);
    CUresult r = SHIM_REAL(CUresult(CUdeviceptr *, void *, unsigned),
                           cuMemHostGetDevicePointer_v2)(ret, (void *)(uintptr_t)of, flags);
    if (r == CUDA_SUCCESS && of != (uintptr_t)p && *ret == of)
        *ret = (uintptr_t)p; /* a device that reads pageable memory by its address */
    return r;
}

SHIM_API CUresult shim_flags(unsigned *ret, void *p) __asm__("cuMemHostGetFlags");
CUresult shim_flags(unsigned *ret, void *p)
{
    return SHIM_REAL(CUresult(unsigned *, void *),
                     cuMemHostGetFlags)(ret, (void *)(uintptr_t)asked((uintptr_t)p));
}

/* An answer that is the address itself. */
static void answer(void *data, int attribute, CUdeviceptr of, CUdeviceptr p)
{
    CUdeviceptr value;
    if (of == p || !data ||
        (attribute != ATTRIBUTE_DEVICE_POINTER && attribute != ATTRIBUTE_HOST_POINTER))
        return;
    memcpy(&value, data, sizeof(value));
    if (value == of)
        memcpy(data, &p, sizeof(p));
}

SHIM_API CUresult shim_attribute(void *data, int attribute,
                                 CUdeviceptr p) __asm__("cuPointerGetAttribute");
CUresult shim_attribute(void *data, int attribute, CUdeviceptr p)
{
    CUdeviceptr of = asked(p);
    CUresult r =
        SHIM_REAL(CUresult(void *, int, CUdeviceptr), cuPointerGetAttribute)(data, attribute, of);
    if (r == CUDA_SUCCESS)
        answer(data, attribute, of, p);
    return r;
}

SHIM_API CUresult shim_attributes(unsigned n, int *attributes, void **data,
                                  CUdeviceptr p) __asm__("cuPointerGetAttributes");
CUresult shim_attributes(unsigned n, int *attributes, void **data, CUdeviceptr p)
{
    CUdeviceptr of = asked(p);
    CUresult r = SHIM_REAL(CUresult(unsigned, int *, void **, CUdeviceptr),
                           cuPointerGetAttributes)(n, attributes, data, of);
    for (unsigned i = 0; r == CUDA_SUCCESS && i < n; i++)
        answer(data[i], attributes[i], of, p);
    return r;
}

/* ---- contexts ---- */

/* Registrations end with their context; ours end before it. */
SHIM_API CUresult shim_context_destroy(CUcontext context) __asm__("cuCtxDestroy_v2");
CUresult shim_context_destroy(CUcontext context)
{
    pin_unregister_all(PIN_REASON_FORK);
    stage_context_gone();
    CUresult r = SHIM_REAL(CUresult(CUcontext), cuCtxDestroy_v2)(context);
    if (r == CUDA_SUCCESS && context)
        pin_book_context_gone(context);
    return r;
}

static CUresult primary_goes(CUresult (*real)(int), int device, bool all)
{
    CUcontext primary = context_now(); /* of the device, where it is current */
    pin_unregister_all(PIN_REASON_FORK);
    stage_context_gone();
    CUresult r = real(device);
    if (r == CUDA_SUCCESS && all && primary)
        pin_book_context_gone(primary);
    return r;
}

#define PRIMARY(symbol, all)                                                \
    SHIM_API CUresult shim_##symbol(int device) __asm__(#symbol);           \
    CUresult shim_##symbol(int device)                                      \
    {                                                                       \
        return primary_goes(SHIM_REAL(CUresult(int), symbol), device, all); \
    }
PRIMARY(cuDevicePrimaryCtxReset, true)
PRIMARY(cuDevicePrimaryCtxReset_v2, true)
PRIMARY(cuDevicePrimaryCtxRelease, false)
PRIMARY(cuDevicePrimaryCtxRelease_v2, false)
