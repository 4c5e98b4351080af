/* api_capture.c: streams that record a graph instead of working. A stream joins the recording of another when it waits for an
 * event that was recorded there; all of them end with the one that began. */
#include <stdlib.h>

#include "standin/graph.h"
#include "standin/stream.h"

static CUresult capture_begin(CUstream stream, struct graph *to, int mode)
{
    struct stream *s;

    if (mode < 0 || mode > 2)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = stream_of(stream, &s);
    if (r == CUDA_SUCCESS && (!s || s->capture))
        r = s ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (r == CUDA_SUCCESS) {
        s->capture = to ? to : graph_new();
        s->joined = false;
        s->into = to;
        if (!s->capture)
            r = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return r;
}

static CUresult begin(CUstream stream, int mode)
{
    state_lock();
    CUresult r = capture_begin(stream, NULL, mode);
    state_unlock();
    return r;
}
API_PTSZ(cuStreamBeginCapture, begin, (CUstream hStream), (hStream, 0))
API_PTSZ(cuStreamBeginCapture_v2, begin, (CUstream hStream, int mode), (hStream, mode))

static CUresult begin_to_graph(CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
                               size_t count, int mode)
{
    if (count && !dependencies)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    struct graph *g = object_of(graph, OBJECT_GRAPH);
    CUresult r = g ? capture_begin(stream, g, mode) : CUDA_ERROR_INVALID_VALUE;
    state_unlock();
    return r;
}
API_PTSZ(cuStreamBeginCaptureToGraph, begin_to_graph,
         (CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
          const void *dependencyData, size_t numDependencies, int mode),
         (hStream, hGraph, dependencies, numDependencies, mode))

/* Streams that record `g` do so no more; events of it mean nothing. */
static void capture_leave(const struct graph *g)
{
    for (struct node *n = tree_ceiling(&standin.objects, 0); n;
         n = tree_ceiling(&standin.objects, n->key + 1)) {
        struct object *o = NODE_OF(n, struct object, node);
        struct stream *s = (struct stream *)o;
        struct event *e = (struct event *)o;
        if (o->kind == OBJECT_STREAM && s->capture == g) {
            s->capture = s->into = NULL;
            s->invalidated = false;
        } else if (o->kind == OBJECT_EVENT && e->capture == g) {
            e->capture = NULL;
        }
    }
}

void stream_capture_drop(struct stream *s)
{
    struct graph *g = s->capture;
    bool own = !s->into;

    if (!g || s->joined)
        return;
    capture_leave(g);
    if (own)
        graph_free(g);
}

static CUresult capture_end(CUstream stream, CUgraph *ret)
{
    struct stream *s;

    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = stream_of(stream, &s);
    if (r == CUDA_SUCCESS && (!s || !s->capture))
        r = CUDA_ERROR_ILLEGAL_STATE;
    if (r == CUDA_SUCCESS && s->joined)
        r = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (r == CUDA_SUCCESS && s->invalidated) {
        stream_capture_drop(s);
        *ret = NULL;
        r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    } else if (r == CUDA_SUCCESS) {
        *ret = s->capture;
        capture_leave(s->capture);
    }
    state_unlock();
    return r;
}
API_PTSZ(cuStreamEndCapture, capture_end, (CUstream hStream, CUgraph *phGraph), (hStream, phGraph))

static CUresult capture_status(CUstream stream, int *ret)
{
    struct stream *s;

    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = stream_of(stream, &s);
    if (r == CUDA_SUCCESS)
        *ret = s && s->capture;
    state_unlock();
    return r;
}
API_PTSZ(cuStreamIsCapturing, capture_status, (CUstream hStream, int *captureStatus),
         (hStream, captureStatus))
