/* shapes.h: where the host's sides lie in the driver's structures of copies in two and three
 * dimensions. Offsets are part of its ABI. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pin/cost.h"

/* Served memory on one side of a copy: where it begins, and how many bytes move. */
struct pin_shape {
    const void *host;
    uint64_t bytes;
    enum pin_direction to;
};

/* False: no side is served memory. `params` is a CUDA_MEMCPY2D or a CUDA_MEMCPY3D. */
bool pin_shape_2d(const void *params, struct pin_shape *ret);
bool pin_shape_3d(const void *params, struct pin_shape *ret);
/* The node of a graph (CUgraphNodeParams); false also for one that is no copy. */
bool pin_shape_node(const void *params, struct pin_shape *ret);
/* One of the operations of cuMemcpy3DBatchAsync(). */
enum { PIN_SHAPE_BATCH_BYTES = 112 };
bool pin_shape_batch(const void *operation, struct pin_shape *ret);
