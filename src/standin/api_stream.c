/* api_stream.c: streams, events, launches. */
#include <stdlib.h>
#include <time.h>

#include "standin/stream.h"
#include "standin/timing.h"

CUresult stream_of(CUstream handle, struct stream **ret)
{
    *ret = NULL;
    if ((uintptr_t)handle <= 2)
        return CUDA_SUCCESS;
    *ret = object_of(handle, OBJECT_STREAM);
    return *ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

struct graph *stream_capture(CUstream handle)
{
    struct stream *s;

    return stream_of(handle, &s) == CUDA_SUCCESS && s ? s->capture : NULL;
}

void stream_drop_context(const struct context *c)
{
    struct node *n = tree_ceiling(&standin.objects, 0);

    while (n) {
        struct object *o = NODE_OF(n, struct object, node);
        n = tree_ceiling(&standin.objects, n->key + 1);
        if (o->context != c || (o->kind != OBJECT_STREAM && o->kind != OBJECT_EVENT))
            continue;
        if (o->kind == OBJECT_STREAM)
            stream_capture_drop((struct stream *)o);
        object_remove(o);
        free(o);
    }
}

CUresult stream_make(CUstream *ret, struct context *c, unsigned flags, int priority)
{
    struct stream *s = calloc(1, sizeof(*s));

    if (!s)
        return CUDA_ERROR_OUT_OF_MEMORY;
    s->flags = flags;
    s->priority = priority;
    object_add(&s->object, OBJECT_STREAM, c);
    *ret = s;
    return CUDA_SUCCESS;
}

static CUresult stream_new(CUstream *ret, unsigned flags, int priority)
{
    struct context *c;

    if (!ret || flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = context_current(&c);
    if (r == CUDA_SUCCESS)
        r = stream_make(ret, c, flags, priority);
    state_unlock();
    return r;
}
API(cuStreamCreate, stream_new, (CUstream * phStream, unsigned int Flags), (phStream, Flags, 0))
API(cuStreamCreateWithPriority, stream_new, (CUstream * phStream, unsigned int flags, int priority),
    (phStream, flags, priority))

static CUresult stream_destroy(CUstream handle)
{
    struct stream *s = NULL;

    state_lock();
    CUresult r = stream_of(handle, &s);
    if (r == CUDA_SUCCESS && !s)
        r = CUDA_ERROR_INVALID_HANDLE;
    if (r == CUDA_SUCCESS) {
        stream_capture_drop(s);
        object_remove(&s->object);
        free(s);
    }
    state_unlock();
    return r;
}
API(cuStreamDestroy, stream_destroy, (CUstream hStream), (hStream))
API(cuStreamDestroy_v2, stream_destroy, (CUstream hStream), (hStream))

/* All that was submitted is done already. */
static CUresult stream_check(CUstream handle)
{
    struct stream *s;

    timing_flush();
    state_lock();
    CUresult r = stream_of(handle, &s);
    if (r == CUDA_SUCCESS && s && s->capture) {
        s->invalidated = true;
        r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    state_unlock();
    return r;
}
API_PTSZ(cuStreamSynchronize, stream_check, (CUstream hStream), (hStream))
API_PTSZ(cuStreamQuery, stream_check, (CUstream hStream), (hStream))

static CUresult stream_context(CUstream handle, CUcontext *ret)
{
    struct stream *s;
    struct context *c = NULL;

    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = stream_of(handle, &s);
    if (r == CUDA_SUCCESS && s)
        c = s->object.context;
    else if (r == CUDA_SUCCESS)
        r = context_current(&c);
    state_unlock();
    if (r == CUDA_SUCCESS)
        *ret = c;
    return r;
}
API_PTSZ(cuStreamGetCtx, stream_context, (CUstream hStream, CUcontext *pctx), (hStream, pctx))

static CUresult event_new(CUevent *ret, unsigned flags)
{
    struct context *c;

    if (!ret || flags > 7)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = context_current(&c);
    struct event *e = r == CUDA_SUCCESS ? calloc(1, sizeof(*e)) : NULL;
    if (e) {
        object_add(&e->object, OBJECT_EVENT, c);
        *ret = e;
    } else if (r == CUDA_SUCCESS) {
        r = CUDA_ERROR_OUT_OF_MEMORY;
    }
    state_unlock();
    return r;
}
API(cuEventCreate, event_new, (CUevent * phEvent, unsigned int Flags), (phEvent, Flags))

static CUresult event_destroy(CUevent handle)
{
    state_lock();
    struct event *e = object_of(handle, OBJECT_EVENT);
    if (e) {
        object_remove(&e->object);
        free(e);
    }
    state_unlock();
    return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
API(cuEventDestroy, event_destroy, (CUevent hEvent), (hEvent))
API(cuEventDestroy_v2, event_destroy, (CUevent hEvent), (hEvent))

static CUresult event_record(CUevent handle, CUstream stream)
{
    struct stream *s;

    state_lock();
    struct event *e = object_of(handle, OBJECT_EVENT);
    CUresult r = e ? stream_of(stream, &s) : CUDA_ERROR_INVALID_HANDLE;
    if (r == CUDA_SUCCESS) {
        clock_gettime(CLOCK_MONOTONIC, &e->recorded);
        e->capture = s ? s->capture : NULL;
    }
    state_unlock();
    return r;
}
API_PTSZ(cuEventRecord, event_record, (CUevent hEvent, CUstream hStream), (hEvent, hStream))

static CUresult event_check(CUevent handle)
{
    timing_flush();
    state_lock();
    struct event *e = object_of(handle, OBJECT_EVENT);
    state_unlock();
    return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
API(cuEventQuery, event_check, (CUevent hEvent), (hEvent))
API(cuEventSynchronize, event_check, (CUevent hEvent), (hEvent))

static CUresult event_elapsed(float *ret, CUevent start, CUevent end)
{
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    struct event *a = object_of(start, OBJECT_EVENT), *b = object_of(end, OBJECT_EVENT);
    CUresult r = a && b ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    if (r == CUDA_SUCCESS && (!a->recorded.tv_sec || !b->recorded.tv_sec))
        r = CUDA_ERROR_INVALID_HANDLE;
    if (r == CUDA_SUCCESS)
        *ret = (float)((double)(b->recorded.tv_sec - a->recorded.tv_sec) * 1e3 +
                       (double)(b->recorded.tv_nsec - a->recorded.tv_nsec) / 1e6);
    state_unlock();
    return r;
}
API(cuEventElapsedTime, event_elapsed, (float *pMilliseconds, CUevent hStart, CUevent hEnd),
    (pMilliseconds, hStart, hEnd))

static CUresult stream_wait(CUstream stream, CUevent event)
{
    struct stream *s;

    state_lock();
    struct event *e = object_of(event, OBJECT_EVENT);
    CUresult r = e ? stream_of(stream, &s) : CUDA_ERROR_INVALID_HANDLE;
    if (r == CUDA_SUCCESS && e->capture && !s)
        r = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    else if (r == CUDA_SUCCESS && s && s->capture && e->capture != s->capture)
        r = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    else if (r == CUDA_SUCCESS && e->capture && !s->capture) {
        s->capture = e->capture;
        s->joined = true;
    }
    state_unlock();
    return r;
}
API_PTSZ(cuStreamWaitEvent, stream_wait, (CUstream hStream, CUevent hEvent, unsigned int Flags),
         (hStream, hEvent))

/* There is nothing that could run a kernel. */
static CUresult launch(CUstream stream)
{
    struct context *c;
    struct stream *s;

    state_lock();
    CUresult r = context_current(&c);
    if (r == CUDA_SUCCESS)
        r = stream_of(stream, &s);
    state_unlock();
    return r;
}
API_PTSZ(cuLaunchKernel, launch,
         (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
          unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
          unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra),
         (hStream))

/* Any mode: nothing here is unsafe while a stream records. */
static CUresult capture_mode(int *mode)
{
    static _Thread_local int current;

    if (!mode || *mode < 0 || *mode > 2)
        return CUDA_ERROR_INVALID_VALUE;
    int before = current;
    current = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
API(cuThreadExchangeStreamCaptureMode, capture_mode, (int *mode), (mode))
