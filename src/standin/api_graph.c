#include "standin/graph.h"
CUresult graph_record_copy(struct graph *g, const struct copy *c){return CUDA_ERROR_NOT_SUPPORTED;}
