/* set.h: setting memory. */
#pragma once

#include "standin/memory.h"

/* Check the range, set its elements and count. Takes the lock. */
CUresult set_run(const CUDA_MEMSET_NODE_PARAMS *p);
