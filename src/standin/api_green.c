/* api_green.c: green contexts. They have a part of the device's multiprocessors and keep its primary context, whose memory
 * theirs is: destroying one frees none. */
#include <stdlib.h>

#include "standin/stream.h"

#define SM_COUNT     132u
#define SM_PARTITION 8u

/* What a descriptor stands for. It is never freed, as there is no call for that. */
struct resources {
    struct object object;
    unsigned sm_count;
};

struct green {
    struct object object;
    struct device *device;
    struct context *context; /* what cuCtxFromGreenCtx() gives; NULL: not asked for yet */
    unsigned sm_count;
};

static void resource_set(CUdevResource *r, unsigned sm_count)
{
    *r = (CUdevResource){.type = CU_DEV_RESOURCE_SM};
    r->sm.count = sm_count;
    r->sm.partition_min = r->sm.aligned = SM_PARTITION;
}

static CUresult resource_of_device(CUdevice dev, CUdevResource *ret, int type)
{
    if (!device_of(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!ret || type != CU_DEV_RESOURCE_SM)
        return CUDA_ERROR_INVALID_VALUE;
    resource_set(ret, SM_COUNT);
    return CUDA_SUCCESS;
}
API(cuDeviceGetDevResource, resource_of_device,
    (CUdevice device, CUdevResource *resource, int type), (device, resource, type))

static CUresult resource_of_green(CUgreenCtx handle, CUdevResource *ret, int type)
{
    if (!ret || type != CU_DEV_RESOURCE_SM)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    const struct green *g = object_of(handle, OBJECT_GREEN);
    if (g)
        resource_set(ret, g->sm_count);
    state_unlock();
    return g ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API(cuGreenCtxGetDevResource, resource_of_green,
    (CUgreenCtx hCtx, CUdevResource *resource, int type), (hCtx, resource, type))

/* `result` NULL: how many groups there would be. */
static CUresult split(CUdevResource *result, unsigned *groups, const CUdevResource *input,
                      CUdevResource *remaining, unsigned min)
{
    if (!groups || !input || input->type != CU_DEV_RESOURCE_SM || min == 0)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned each = (min + SM_PARTITION - 1) / SM_PARTITION * SM_PARTITION;
    unsigned n = input->sm.count / each;
    if (n == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (result && *groups < n)
        n = *groups;
    for (unsigned i = 0; result && i < n; i++)
        resource_set(&result[i], each);
    if (remaining)
        resource_set(remaining, input->sm.count - n * each);
    *groups = n;
    return CUDA_SUCCESS;
}
API(cuDevSmResourceSplitByCount, split,
    (CUdevResource * result, unsigned int *nbGroups, const CUdevResource *input,
     CUdevResource *remaining, unsigned int useFlags, unsigned int minCount),
    (result, nbGroups, input, remaining, minCount))

static CUresult describe(CUdevResourceDesc *ret, const CUdevResource *resources, unsigned n)
{
    if (!ret || !resources || n == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct resources *d = calloc(1, sizeof(*d));
    if (!d)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < n; i++)
        d->sm_count += resources[i].sm.count;
    state_lock();
    object_add(&d->object, OBJECT_RESOURCES, NULL);
    state_unlock();
    *ret = d;
    return CUDA_SUCCESS;
}
API(cuDevResourceGenerateDesc, describe,
    (CUdevResourceDesc * phDesc, CUdevResource *resources, unsigned int nbResources),
    (phDesc, resources, nbResources))

static CUresult create(CUgreenCtx *ret, CUdevResourceDesc handle, CUdevice dev, unsigned flags)
{
    struct device *d = device_of(dev);
    struct context *primary;

    if (!ret || flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    if (!d)
        return CUDA_ERROR_INVALID_DEVICE;
    struct green *g = calloc(1, sizeof(*g));
    if (!g)
        return CUDA_ERROR_OUT_OF_MEMORY;
    state_lock();
    const struct resources *desc = object_of(handle, OBJECT_RESOURCES);
    CUresult r = desc ? context_primary_retain(d, &primary) : CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS) {
        g->device = d;
        g->sm_count = desc->sm_count;
        object_add(&g->object, OBJECT_GREEN, NULL);
        *ret = g;
    }
    state_unlock();
    if (r != CUDA_SUCCESS)
        free(g);
    return r;
}
API(cuGreenCtxCreate, create,
    (CUgreenCtx * phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags),
    (phCtx, desc, dev, flags))

/* The context that stands for it. Needs the lock. */
static CUresult context_for(CUgreenCtx handle, struct context **ret)
{
    struct green *g = object_of(handle, OBJECT_GREEN);

    if (!g)
        return CUDA_ERROR_INVALID_VALUE;
    if (!g->context)
        g->context = context_green_new(g->device, g);
    *ret = g->context;
    return g->context ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult from_green(CUcontext *ret, CUgreenCtx handle)
{
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = context_for(handle, ret);
    state_unlock();
    return r;
}
API(cuCtxFromGreenCtx, from_green, (CUcontext * pContext, CUgreenCtx hCtx), (pContext, hCtx))

/* Its streams are gone here, where a driver would have them refuse all work. */
static CUresult destroy(CUgreenCtx handle)
{
    state_lock();
    struct green *g = object_of(handle, OBJECT_GREEN);
    if (g) {
        if (g->context)
            context_green_end(g->context);
        context_primary_release(g->device);
        object_remove(&g->object);
        free(g);
    }
    state_unlock();
    return g ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API(cuGreenCtxDestroy, destroy, (CUgreenCtx hCtx), (hCtx))

static CUresult stream_create(CUstream *ret, CUgreenCtx handle, unsigned flags, int priority)
{
    struct context *c;

    if (!ret || flags != 1)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = context_for(handle, &c);
    if (r == CUDA_SUCCESS)
        r = stream_make(ret, c, flags, priority);
    state_unlock();
    return r;
}
API(cuGreenCtxStreamCreate, stream_create,
    (CUstream * phStream, CUgreenCtx greenCtx, unsigned int flags, int priority),
    (phStream, greenCtx, flags, priority))
