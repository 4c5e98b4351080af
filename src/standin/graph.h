/* graph.h: graphs with memory nodes. Nodes run in the order in which they were added. Functions need the lock unless they
 * say otherwise. */
#pragma once

#include "standin/copy.h"

/* Add work of a stream that records `g`. */
CUresult graph_record_copy(struct graph *g, const struct copy *c);
CUresult graph_record_copy_3d(struct graph *g, const CUDA_MEMCPY3D *p);
CUresult graph_record_set(struct graph *g, const CUDA_MEMSET_NODE_PARAMS *p);
CUresult graph_record_alloc(struct graph *g, struct context *c, size_t size, CUdeviceptr *ret);
CUresult graph_record_free(struct graph *g, CUdeviceptr address);
