/* api_graph.c: graphs. Memory of an allocation node has its address from the moment when the node is added, but becomes live
 * when the graph is launched (graph_memory.c). */
#include <stdlib.h>

#include "standin/graph.h"
#include "standin/set.h"
#include "standin/stream.h"

#define AUTO_FREE_ON_LAUNCH 1u

struct graph_node {
    struct object object;
    unsigned type; /* CU_GRAPH_NODE_... */
    struct graph_node *next;
    struct graph_node
        *origin; /* of a node of an executable graph: the node that the program knows */
    bool range;  /* a copy of one range: `copy`; otherwise `copy_3d` */
    union {
        struct copy copy;
        CUDA_MEMCPY3D copy_3d;
        CUDA_MEMSET_NODE_PARAMS set;
        struct graph_memory *memory;
        CUdeviceptr address;
    };
};

struct graph {
    struct object object;
    struct graph_node *first, **last;
};

struct graph_exec {
    struct object object;
    struct graph_node *first;
    unsigned flags;
};

/* ---- building ---- */

struct graph *graph_new(void)
{
    struct graph *g = calloc(1, sizeof(*g));

    if (!g)
        return NULL;
    g->last = &g->first;
    object_add(&g->object, OBJECT_GRAPH, NULL);
    return g;
}

static struct graph_node *node_new(struct graph *g, unsigned type)
{
    struct graph_node *n = calloc(1, sizeof(*n));

    if (!n)
        return NULL;
    n->type = type;
    object_add(&n->object, OBJECT_NODE, NULL);
    *g->last = n;
    g->last = &n->next;
    return n;
}

static void nodes_free(struct graph_node *n)
{
    while (n) {
        struct graph_node *next = n->next;
        if (n->type == CU_GRAPH_NODE_MEM_ALLOC)
            graph_memory_unref(n->memory);
        object_remove(&n->object);
        free(n);
        n = next;
    }
}

CUresult graph_record_copy(struct graph *g, const struct copy *c)
{
    struct graph_node *n = node_new(g, CU_GRAPH_NODE_MEMCPY);

    if (!n)
        return CUDA_ERROR_OUT_OF_MEMORY;
    n->range = true;
    n->copy = *c;
    return CUDA_SUCCESS;
}

static CUresult add_copy_3d(struct graph *g, const CUDA_MEMCPY3D *p, struct graph_node **ret)
{
    struct graph_node *n = node_new(g, CU_GRAPH_NODE_MEMCPY);

    if (!n)
        return CUDA_ERROR_OUT_OF_MEMORY;
    n->copy_3d = *p;
    *ret = n;
    return CUDA_SUCCESS;
}

CUresult graph_record_copy_3d(struct graph *g, const CUDA_MEMCPY3D *p)
{
    struct graph_node *n;

    return add_copy_3d(g, p, &n);
}

static bool set_valid(const CUDA_MEMSET_NODE_PARAMS *p)
{
    return p->dst && (p->element_size == 1 || p->element_size == 2 || p->element_size == 4);
}

static CUresult add_set(struct graph *g, const CUDA_MEMSET_NODE_PARAMS *p, struct graph_node **ret)
{
    if (!set_valid(p))
        return CUDA_ERROR_INVALID_VALUE;
    struct graph_node *n = node_new(g, CU_GRAPH_NODE_MEMSET);
    if (!n)
        return CUDA_ERROR_OUT_OF_MEMORY;
    n->set = *p;
    *ret = n;
    return CUDA_SUCCESS;
}

CUresult graph_record_set(struct graph *g, const CUDA_MEMSET_NODE_PARAMS *p)
{
    struct graph_node *n;

    return add_set(g, p, &n);
}

static CUresult add_alloc(struct graph *g, struct context *c, size_t size, CUdeviceptr *ret_address,
                          struct graph_node **ret)
{
    struct graph_memory *m;
    CUresult r = graph_memory_new(c, size, &m);

    if (r != CUDA_SUCCESS)
        return r;
    struct graph_node *n = node_new(g, CU_GRAPH_NODE_MEM_ALLOC);
    if (!n) {
        graph_memory_unref(m);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    n->memory = m;
    *ret_address = graph_memory_address(m);
    *ret = n;
    return CUDA_SUCCESS;
}

CUresult graph_record_alloc(struct graph *g, struct context *c, size_t size, CUdeviceptr *ret)
{
    struct graph_node *n;

    return add_alloc(g, c, size, ret, &n);
}

static CUresult add_free(struct graph *g, CUdeviceptr address, struct graph_node **ret)
{
    if (!address)
        return CUDA_ERROR_INVALID_VALUE;
    struct graph_node *n = node_new(g, CU_GRAPH_NODE_MEM_FREE);
    if (!n)
        return CUDA_ERROR_OUT_OF_MEMORY;
    n->address = address;
    *ret = n;
    return CUDA_SUCCESS;
}

CUresult graph_record_free(struct graph *g, CUdeviceptr address)
{
    struct graph_node *n;

    return add_free(g, address, &n);
}

static CUresult graph_create(CUgraph *ret, unsigned flags)
{
    if (!ret || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    struct graph *g = graph_new();
    state_unlock();
    if (!g)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret = g;
    return CUDA_SUCCESS;
}
API(cuGraphCreate, graph_create, (CUgraph * phGraph, unsigned int flags), (phGraph, flags))

void graph_free(struct graph *g)
{
    nodes_free(g->first);
    object_remove(&g->object);
    free(g);
}

static CUresult graph_destroy(CUgraph handle)
{
    state_lock();
    struct graph *g = object_of(handle, OBJECT_GRAPH);
    if (g)
        graph_free(g);
    state_unlock();
    return g ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API(cuGraphDestroy, graph_destroy, (CUgraph hGraph), (hGraph))

static CUresult alloc_device(const CUDA_MEM_ALLOC_NODE_PARAMS *p, struct context *c)
{
    if (p->bytesize == 0 || p->pool.location.type != CU_MEM_LOCATION_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    return p->pool.location.id == c->device->number ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* Add one node to a graph. All dependencies must be nodes; nodes run in the order in which they were added. */
static CUresult add_node(CUgraphNode *ret, CUgraph handle, const CUgraphNode *dependencies,
                         size_t count, CUgraphNodeParams *p)
{
    struct context *c = NULL;
    struct graph_node *n = NULL;

    if (!ret || !p || (count && !dependencies))
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    struct graph *g = object_of(handle, OBJECT_GRAPH);
    CUresult r = g ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++)
        if (!object_of(dependencies[i], OBJECT_NODE))
            r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        r = context_current(&c);
    if (r == CUDA_SUCCESS && p->type == CU_GRAPH_NODE_MEM_ALLOC)
        r = alloc_device(&p->alloc, c);
    if (r == CUDA_SUCCESS) {
        switch (p->type) {
        case CU_GRAPH_NODE_MEMCPY:
            r = add_copy_3d(g, &p->memcpy.copy, &n);
            break;
        case CU_GRAPH_NODE_MEMSET:
            r = add_set(g, &p->memset, &n);
            break;
        case CU_GRAPH_NODE_MEM_ALLOC:
            r = add_alloc(g, c, p->alloc.bytesize, &p->alloc.dptr, &n);
            break;
        case CU_GRAPH_NODE_MEM_FREE:
            r = add_free(g, p->free, &n);
            break;
        case CU_GRAPH_NODE_EMPTY:
            n = node_new(g, p->type);
            r = n ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
            break;
        default:
            r = CUDA_ERROR_NOT_SUPPORTED;
        }
    }
    if (r == CUDA_SUCCESS)
        *ret = n;
    state_unlock();
    return r;
}
API(cuGraphAddNode, add_node,
    (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
     size_t numDependencies, CUgraphNodeParams *nodeParams),
    (phGraphNode, hGraph, dependencies, numDependencies, nodeParams))
API(cuGraphAddNode_v2, add_node,
    (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
     const void *dependencyData, size_t numDependencies, CUgraphNodeParams *nodeParams),
    (phGraphNode, hGraph, dependencies, numDependencies, nodeParams))

static CUresult add_alloc_node(CUgraphNode *ret, CUgraph g, const CUgraphNode *dependencies,
                               size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_MEM_ALLOC};

    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    p.alloc = *params;
    CUresult r = add_node(ret, g, dependencies, count, &p);
    if (r == CUDA_SUCCESS)
        params->dptr = p.alloc.dptr;
    return r;
}
API(cuGraphAddMemAllocNode, add_alloc_node,
    (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
     size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams),
    (phGraphNode, hGraph, dependencies, numDependencies, nodeParams))

static CUresult add_free_node(CUgraphNode *ret, CUgraph g, const CUgraphNode *dependencies,
                              size_t count, CUdeviceptr address)
{
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_MEM_FREE};

    p.free = address;
    return add_node(ret, g, dependencies, count, &p);
}
API(cuGraphAddMemFreeNode, add_free_node,
    (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
     size_t numDependencies, CUdeviceptr dptr),
    (phGraphNode, hGraph, dependencies, numDependencies, dptr))

static CUresult add_memcpy_node(CUgraphNode *ret, CUgraph g, const CUgraphNode *dependencies,
                                size_t count, const CUDA_MEMCPY3D *copy)
{
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_MEMCPY};

    if (!copy)
        return CUDA_ERROR_INVALID_VALUE;
    p.memcpy.copy = *copy;
    return add_node(ret, g, dependencies, count, &p);
}
API(cuGraphAddMemcpyNode, add_memcpy_node,
    (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
     size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx),
    (phGraphNode, hGraph, dependencies, numDependencies, copyParams))

static CUresult add_memset_node(CUgraphNode *ret, CUgraph g, const CUgraphNode *dependencies,
                                size_t count, const CUDA_MEMSET_NODE_PARAMS *set)
{
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_MEMSET};

    if (!set)
        return CUDA_ERROR_INVALID_VALUE;
    p.memset = *set;
    return add_node(ret, g, dependencies, count, &p);
}
API(cuGraphAddMemsetNode, add_memset_node,
    (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
     size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx),
    (phGraphNode, hGraph, dependencies, numDependencies, memsetParams))

/* ---- running ---- */

static CUresult instantiate(CUgraphExec *ret, CUgraph handle, unsigned long long flags)
{
    if (!ret || flags > 15)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    struct graph *g = object_of(handle, OBJECT_GRAPH);
    struct graph_exec *e = g ? calloc(1, sizeof(*e)) : NULL;
    CUresult r = e ? CUDA_SUCCESS : g ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    struct graph_node **last = e ? &e->first : NULL;
    for (struct graph_node *n = g ? g->first : NULL; n && r == CUDA_SUCCESS; n = n->next) {
        struct graph_node *copy = calloc(1, sizeof(*copy));
        if (!copy) {
            r = CUDA_ERROR_OUT_OF_MEMORY;
            break;
        }
        *copy = *n;
        copy->next = NULL;
        copy->origin = n;
        object_add(&copy->object, OBJECT_NODE, NULL);
        if (copy->type == CU_GRAPH_NODE_MEM_ALLOC)
            graph_memory_ref(copy->memory);
        *last = copy;
        last = &copy->next;
    }
    if (r == CUDA_SUCCESS) {
        e->flags = (unsigned)flags;
        object_add(&e->object, OBJECT_EXEC, NULL);
        *ret = e;
    } else if (e) {
        nodes_free(e->first);
        free(e);
    }
    state_unlock();
    return r;
}
API(cuGraphInstantiateWithFlags, instantiate,
    (CUgraphExec * phGraphExec, CUgraph hGraph, unsigned long long flags),
    (phGraphExec, hGraph, flags))
/* The form of CUDA 10 and 11, with room for a message. */
API(cuGraphInstantiate_v2, instantiate,
    (CUgraphExec * phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer,
     size_t bufferSize),
    (phGraphExec, hGraph, 0))

static CUresult instantiate_params(CUgraphExec *ret, CUgraph handle,
                                   CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = instantiate(ret, handle, p->flags);
    p->error_node = NULL;
    p->result = r == CUDA_SUCCESS ? 0 : 1;
    return r;
}
API_PTSZ(cuGraphInstantiateWithParams, instantiate_params,
         (CUgraphExec * phGraphExec, CUgraph hGraph,
          CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams),
         (phGraphExec, hGraph, instantiateParams))

static CUresult exec_destroy(CUgraphExec handle)
{
    state_lock();
    struct graph_exec *e = object_of(handle, OBJECT_EXEC);
    if (e) {
        nodes_free(e->first);
        object_remove(&e->object);
        free(e);
    }
    state_unlock();
    return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API(cuGraphExecDestroy, exec_destroy, (CUgraphExec hGraphExec), (hGraphExec))

static CUresult run_free(CUdeviceptr address)
{
    state_lock();
    struct block *b = memory_begins(address);
    bool known = b && (b->kind == STANDIN_GRAPH || b->kind == STANDIN_POOL);
    if (known)
        memory_drop(b);
    state_unlock();
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult run(struct graph_exec *e)
{
    CUresult r = CUDA_SUCCESS;

    for (struct graph_node *n = e->first; n && r == CUDA_SUCCESS; n = n->next) {
        if (n->type == CU_GRAPH_NODE_MEMCPY)
            r = n->range ? copy_run(&n->copy) : copy_run_3d(&n->copy_3d);
        else if (n->type == CU_GRAPH_NODE_MEMSET)
            r = set_run(&n->set);
        else if (n->type == CU_GRAPH_NODE_MEM_ALLOC)
            r = graph_memory_run(n->memory, e->flags & AUTO_FREE_ON_LAUNCH);
        else if (n->type == CU_GRAPH_NODE_MEM_FREE)
            r = run_free(n->address);
    }
    return r;
}

static CUresult exec_check(CUgraphExec handle, CUstream stream)
{
    struct stream *s;

    state_lock();
    struct graph_exec *e = object_of(handle, OBJECT_EXEC);
    CUresult r = e ? stream_of(stream, &s) : CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS && s && s->capture)
        r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    state_unlock();
    return r;
}

/* As with the driver, the program must not destroy the graph meanwhile. */
static CUresult launch(CUgraphExec handle, CUstream stream)
{
    CUresult r = exec_check(handle, stream);

    return r == CUDA_SUCCESS ? run(handle) : r;
}
API_PTSZ(cuGraphUpload, exec_check, (CUgraphExec hGraphExec, CUstream hStream),
         (hGraphExec, hStream))
API_PTSZ(cuGraphLaunch, launch, (CUgraphExec hGraphExec, CUstream hStream), (hGraphExec, hStream))

/* The node of the executable graph that comes from `handle`. Needs the lock. */
static struct graph_node *exec_node(CUgraphExec exec, CUgraphNode handle, unsigned type)
{
    struct graph_exec *e = object_of(exec, OBJECT_EXEC);

    for (struct graph_node *n = e ? e->first : NULL; n; n = n->next)
        if (n->origin == handle && n->type == type)
            return n;
    return NULL;
}

static CUresult exec_set(CUgraphExec exec, CUgraphNode handle, const CUgraphNodeParams *p)
{
    if (!p || (p->type != CU_GRAPH_NODE_MEMCPY && p->type != CU_GRAPH_NODE_MEMSET))
        return CUDA_ERROR_INVALID_VALUE;
    if (p->type == CU_GRAPH_NODE_MEMSET && !set_valid(&p->memset))
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    struct graph_node *n = exec_node(exec, handle, p->type);
    if (n && p->type == CU_GRAPH_NODE_MEMCPY) {
        n->range = false;
        n->copy_3d = p->memcpy.copy;
    } else if (n) {
        n->set = p->memset;
    }
    state_unlock();
    return n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API(cuGraphExecNodeSetParams, exec_set,
    (CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams),
    (hGraphExec, hNode, nodeParams))

static CUresult exec_set_copy(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy)
{
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_MEMCPY};

    if (!copy)
        return CUDA_ERROR_INVALID_VALUE;
    p.memcpy.copy = *copy;
    return exec_set(exec, node, &p);
}
API(cuGraphExecMemcpyNodeSetParams, exec_set_copy,
    (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMCPY3D *copyParams, CUcontext ctx),
    (hGraphExec, hNode, copyParams))

static CUresult exec_set_set(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *set)
{
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_MEMSET};

    if (!set)
        return CUDA_ERROR_INVALID_VALUE;
    p.memset = *set;
    return exec_set(exec, node, &p);
}
API(cuGraphExecMemsetNodeSetParams, exec_set_set,
    (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *memsetParams,
     CUcontext ctx),
    (hGraphExec, hNode, memsetParams))
