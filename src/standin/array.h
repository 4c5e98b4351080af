/* array.h: arrays. Their rows lie one after the other, without padding. */
#pragma once

#include "standin/memory.h"

struct array {
    struct object object;
    CUDA_ARRAY3D_DESCRIPTOR shape; /* no 0 in it */
    size_t row_bytes;
    struct block *block;
    bool level; /* of a mipmapped array, which owns it */
};

/* Drop arrays of a context whose blocks are going to be dropped. Needs the lock. */
void array_drop_context(const struct context *c);
