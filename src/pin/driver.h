/*
 * driver.h: the CUDA driver as this library uses it. Nothing is linked: functions are learned when
 * the program looks them up, or taken from the driver that the program has loaded. Types are those
 * of the public interface, written down here; no vendor header is needed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef unsigned long long CUdeviceptr;
typedef void *CUstream;
typedef void *CUcontext;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_DEINITIALIZED = 4,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
};

/* What we call ourselves. */
struct pin_driver {
    CUresult (*memHostRegister)(void *, size_t, unsigned);
    CUresult (*memHostUnregister)(void *);
    CUresult (*threadExchangeStreamCaptureMode)(int *); /* NULL: an old driver */
    CUresult (*ctxGetCurrent)(CUcontext *);
    CUresult (*ctxSetCurrent)(CUcontext);
    CUresult (*ctxGetDevice)(int *);
    CUresult (*streamSynchronize)(CUstream), (*streamSynchronize_ptsz)(CUstream);
    CUresult (*streamIsCapturing)(CUstream, int *), (*streamIsCapturing_ptsz)(CUstream, int *);
    CUresult (*memAlloc)(CUdeviceptr *, size_t);
    CUresult (*memFree)(CUdeviceptr);
    CUresult (*memcpyHtoD)(CUdeviceptr, const void *, size_t);
    CUresult (*memcpyDtoH)(void *, CUdeviceptr, size_t);
    /* For staging (stage.h); without them there is none. */
    CUresult (*memcpyHtoDAsync)(CUdeviceptr, const void *, size_t, CUstream),
        (*memcpyHtoDAsync_ptsz)(CUdeviceptr, const void *, size_t, CUstream);
    CUresult (*memcpyDtoHAsync)(void *, CUdeviceptr, size_t, CUstream),
        (*memcpyDtoHAsync_ptsz)(void *, CUdeviceptr, size_t, CUstream);
    CUresult (*eventCreate)(void **, unsigned);
    CUresult (*eventRecord)(void *, CUstream), (*eventRecord_ptsz)(void *, CUstream);
    CUresult (*eventQuery)(void *), (*eventSynchronize)(void *);
    CUresult (*memGetAddressRange)(CUdeviceptr *, size_t *, CUdeviceptr);
    CUresult (*pointerAttribute)(void *, int, CUdeviceptr);
    CUresult (*streamGetCtx)(CUstream, CUcontext *);
    CUresult (*driverGetVersion)(int *);
    CUresult (*deviceGetUuid)(unsigned char uuid[16], int);
    bool ready; /* all that must be there is */
};

/* The driver that is loaded; NULL: none is, or it lacks what we need. Looks until it has found
 * one. */
const struct pin_driver *pin_driver(void);

/* A function of the loaded driver by its exported name; NULL. Never one of ours. */
void *pin_driver_symbol(const char *name);

/* In a child of fork: the thread that looked for the driver is not there. */
void pin_driver_forget(void);

/* Is this address in the driver's library? */
bool pin_driver_owns(const void *function);

/* Register whole pages for all contexts, in relaxed capture mode, so that a stream that is being
 * captured is not disturbed. Gives the driver's result, and the context that was current. */
CUresult pin_driver_register(const struct pin_driver *driver, void *address, size_t bytes,
                             CUcontext *ret_context);
CUresult pin_driver_unregister(const struct pin_driver *driver, void *address, CUcontext context);
