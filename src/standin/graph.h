/* graph.h: graphs with memory nodes. Nodes run in the order in which they were added. Functions need the lock unless they
 * say otherwise. */
#pragma once

#include "standin/copy.h"

struct graph *graph_new(void); /* NULL: out of memory */
void graph_free(struct graph *g);

/* Add work of a stream that records `g`. */
CUresult graph_record_copy(struct graph *g, const struct copy *c);
CUresult graph_record_copy_3d(struct graph *g, const CUDA_MEMCPY3D *p);
CUresult graph_record_set(struct graph *g, const CUDA_MEMSET_NODE_PARAMS *p);
CUresult graph_record_alloc(struct graph *g, struct context *c, size_t size, CUdeviceptr *ret);
CUresult graph_record_free(struct graph *g, CUdeviceptr address);

/* Memory of a node (graph_memory.c): addresses from the beginning, bytes of the device from the first launch on. They stay
 * taken when the memory is freed and when the graph is gone, until they are trimmed. */
CUresult graph_memory_new(struct context *c, size_t size, struct graph_memory **ret);
void graph_memory_ref(struct graph_memory *m);
void graph_memory_unref(struct graph_memory *m);
uint64_t graph_memory_address(const struct graph_memory *m);
/* The node runs. `again`: memory of the launch before is freed. Takes the lock itself. */
CUresult graph_memory_run(struct graph_memory *m, bool again);
