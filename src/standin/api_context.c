/* api_context.c: contexts, and the stack of current ones that each thread has. */
#include <stdlib.h>

#include "standin/array.h"
#include "standin/memory.h"
#include "standin/stream.h"
#include "standin/timing.h"

#define STACK_MAX 64

static __thread struct context *stack[STACK_MAX];
static __thread unsigned stack_depth;

struct context *context_of(CUcontext handle)
{
    struct node *n = tree_find(&standin.contexts, (uintptr_t)handle);
    struct context *c = NODE_OF(n, struct context, node);

    return c && !c->destroyed ? c : NULL;
}

CUresult context_current(struct context **ret)
{
    struct context *c = stack_depth ? stack[stack_depth - 1] : NULL;

    if (!c)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (c->destroyed || (c->green && c->device->primary->destroyed))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *ret = c;
    return CUDA_SUCCESS;
}

struct context *context_memory(struct context *c)
{
    return c->green ? c->device->primary : c;
}

static CUresult push(struct context *c)
{
    if (stack_depth == STACK_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stack[stack_depth++] = c;
    return CUDA_SUCCESS;
}

/* Contexts take memory of their device, which makes the process visible to libnvidia-ml. */
static void activate(struct context *c)
{
    shared_open(&standin.shared);
    c->device->contexts++;
    device_publish(c->device);
}

/* Everything that belongs to the context is gone. */
static void deactivate(struct context *c)
{
    stream_drop_context(c);
    array_drop_context(c);
    memory_drop_context(c);
    c->device->contexts--;
    device_publish(c->device);
}

static struct context *context_new(struct device *d, unsigned flags)
{
    struct context *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->node.key = (uintptr_t)c;
    c->device = d;
    c->flags = flags;
    c->id = ++standin.next_id;
    tree_insert(&standin.contexts, &c->node);
    return c;
}

struct context *context_green_new(struct device *d, struct green *g)
{
    struct context *c = context_new(d, 0);

    if (c)
        c->green = g;
    return c;
}

void context_green_end(struct context *c)
{
    stream_drop_context(c);
    c->destroyed = true;
}

static CUresult create(CUcontext *ret, unsigned flags, CUdevice dev)
{
    struct device *d = device_of(dev);
    CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    if (!d)
        return CUDA_ERROR_INVALID_DEVICE;
    state_lock();
    struct context *c = context_new(d, flags);
    if (c)
        r = push(c);
    if (r == CUDA_SUCCESS) {
        activate(c);
        *ret = c;
    }
    state_unlock();
    return r;
}
API(cuCtxCreate, create, (CUcontext * pctx, unsigned int flags, CUdevice dev), (pctx, flags, dev))
API(cuCtxCreate_v2, create, (CUcontext * pctx, unsigned int flags, CUdevice dev),
    (pctx, flags, dev))
API(cuCtxCreate_v3, create,
    (CUcontext * pctx, void *paramsArray, int numParams, unsigned int flags, CUdevice dev),
    (pctx, flags, dev))
API(cuCtxCreate_v4, create,
    (CUcontext * pctx, void *ctxCreateParams, unsigned int flags, CUdevice dev), (pctx, flags, dev))

static CUresult destroy(CUcontext handle)
{
    state_lock();
    struct context *c = context_of(handle);
    if (!c || c->primary || c->green) {
        state_unlock();
        return handle ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
    }
    deactivate(c);
    c->destroyed = true;
    if (stack_depth && stack[stack_depth - 1] == c)
        stack_depth--;
    state_unlock();
    return CUDA_SUCCESS;
}
API(cuCtxDestroy, destroy, (CUcontext ctx), (ctx))
API(cuCtxDestroy_v2, destroy, (CUcontext ctx), (ctx))

static CUresult get_current(CUcontext *ret)
{
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = stack_depth ? stack[stack_depth - 1] : NULL;
    return CUDA_SUCCESS;
}
API(cuCtxGetCurrent, get_current, (CUcontext * pctx), (pctx))

static CUresult set_current(CUcontext handle)
{
    state_lock();
    struct context *c = context_of(handle);
    state_unlock();
    if (handle && !c)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (stack_depth)
        stack_depth--;
    return c ? push(c) : CUDA_SUCCESS;
}
API(cuCtxSetCurrent, set_current, (CUcontext ctx), (ctx))

static CUresult push_current(CUcontext handle)
{
    state_lock();
    struct context *c = context_of(handle);
    state_unlock();
    return c ? push(c) : CUDA_ERROR_INVALID_CONTEXT;
}
API(cuCtxPushCurrent, push_current, (CUcontext ctx), (ctx))
API(cuCtxPushCurrent_v2, push_current, (CUcontext ctx), (ctx))

static CUresult pop_current(CUcontext *ret)
{
    if (!stack_depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    stack_depth--;
    if (ret)
        *ret = stack[stack_depth];
    return CUDA_SUCCESS;
}
API(cuCtxPopCurrent, pop_current, (CUcontext * pctx), (pctx))
API(cuCtxPopCurrent_v2, pop_current, (CUcontext * pctx), (pctx))

static CUresult synchronize(void)
{
    timing_flush();
    struct context *c;

    return context_current(&c);
}
API(cuCtxSynchronize, synchronize, (void), ())

static CUresult get_device(CUdevice *ret)
{
    struct context *c;
    CUresult r = context_current(&c);

    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *ret = c->device->number;
    return r;
}
API(cuCtxGetDevice, get_device, (CUdevice * device), (device))

static CUresult get_version(CUcontext handle, unsigned *ret)
{
    struct context *c;

    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = CUDA_SUCCESS;
    if (!handle)
        r = context_current(&c);
    else if (!context_of(handle))
        r = CUDA_ERROR_INVALID_CONTEXT;
    state_unlock();
    if (r == CUDA_SUCCESS)
        *ret = 3020;
    return r;
}
API(cuCtxGetApiVersion, get_version, (CUcontext ctx, unsigned int *version), (ctx, version))

static CUresult get_flags(unsigned *ret)
{
    struct context *c;
    CUresult r = context_current(&c);

    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *ret = c->flags;
    return r;
}
API(cuCtxGetFlags, get_flags, (unsigned int *flags), (flags))

CUresult context_primary_retain(struct device *d, struct context **ret)
{
    struct context *c = d->primary ? d->primary : context_new(d, 0);

    if (!c)
        return CUDA_ERROR_OUT_OF_MEMORY;
    d->primary = c;
    if (!c->primary || c->destroyed)
        activate(c);
    c->primary = true;
    c->destroyed = false;
    c->retained++;
    *ret = c;
    return CUDA_SUCCESS;
}

static CUresult primary_retain(CUcontext *ret, CUdevice dev)
{
    struct device *d = device_of(dev);

    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    if (!d)
        return CUDA_ERROR_INVALID_DEVICE;
    state_lock();
    CUresult r = context_primary_retain(d, ret);
    state_unlock();
    return r;
}
API(cuDevicePrimaryCtxRetain, primary_retain, (CUcontext * pctx, CUdevice dev), (pctx, dev))

/* The handle stays the same when the primary context is retained again. */
static void primary_end(struct context *c)
{
    deactivate(c);
    c->destroyed = true;
}

void context_primary_release(struct device *d)
{
    if (--d->primary->retained == 0 && !d->primary->destroyed)
        primary_end(d->primary);
}

static CUresult primary_release(CUdevice dev)
{
    struct device *d = device_of(dev);
    CUresult r = CUDA_SUCCESS;

    if (!d)
        return CUDA_ERROR_INVALID_DEVICE;
    state_lock();
    if (!d->primary || d->primary->retained == 0)
        r = CUDA_ERROR_INVALID_CONTEXT;
    else
        context_primary_release(d);
    state_unlock();
    return r;
}
API(cuDevicePrimaryCtxRelease, primary_release, (CUdevice dev), (dev))
API(cuDevicePrimaryCtxRelease_v2, primary_release, (CUdevice dev), (dev))

/* All that the context has is gone. It stays retained, but must be retained once more before it can be used. */
static CUresult primary_reset(CUdevice dev)
{
    struct device *d = device_of(dev);

    if (!d)
        return CUDA_ERROR_INVALID_DEVICE;
    state_lock();
    if (d->primary && !d->primary->destroyed)
        primary_end(d->primary);
    state_unlock();
    return CUDA_SUCCESS;
}
API(cuDevicePrimaryCtxReset, primary_reset, (CUdevice dev), (dev))
API(cuDevicePrimaryCtxReset_v2, primary_reset, (CUdevice dev), (dev))

static CUresult primary_state(CUdevice dev, unsigned *ret_flags, int *ret_active)
{
    struct device *d = device_of(dev);

    if (!d)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!ret_flags || !ret_active)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    *ret_flags = d->primary ? d->primary->flags : 0;
    *ret_active = d->primary && !d->primary->destroyed;
    state_unlock();
    return CUDA_SUCCESS;
}
API(cuDevicePrimaryCtxGetState, primary_state, (CUdevice dev, unsigned int *flags, int *active),
    (dev, flags, active))

static CUresult primary_flags(CUdevice dev, unsigned flags)
{
    struct device *d = device_of(dev);

    if (!d)
        return CUDA_ERROR_INVALID_DEVICE;
    state_lock();
    if (!d->primary)
        d->primary = context_new(d, flags);
    if (d->primary) {
        d->primary->destroyed |= !d->primary->primary;
        d->primary->primary = true;
        d->primary->flags = flags;
    }
    state_unlock();
    return CUDA_SUCCESS;
}
API(cuDevicePrimaryCtxSetFlags, primary_flags, (CUdevice dev, unsigned int flags), (dev, flags))
API(cuDevicePrimaryCtxSetFlags_v2, primary_flags, (CUdevice dev, unsigned int flags), (dev, flags))
