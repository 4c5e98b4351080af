/* copy.h: moving bytes. */
#pragma once

#include "standin/memory.h"

/* What a copy takes as one of its sides. */
enum copy_side {
    COPY_HOST,    /* any host memory */
    COPY_DEVICE,  /* known memory: of a device, or pinned, which devices can reach */
    COPY_UNIFIED, /* device memory if it is known as such, host memory otherwise */
};

struct copy {
    uint64_t dst, src;
    enum copy_side dst_side, src_side;
    size_t size;
};

/* Check both ranges, move the bytes and count. Takes the lock. */
CUresult copy_run(const struct copy *c);

/* As copy_run(), but left to the graph if the stream records one. */
CUresult copy_submit(const struct copy *c, CUstream stream);

/* One side of a copy with a shape: `rows` x `layers` of `width` bytes each. */
struct copy_shape {
    uint64_t address; /* of the first byte */
    enum copy_side side;
    size_t pitch;       /* bytes from row to row */
    size_t layer_pitch; /* bytes from layer to layer */
};

CUresult copy_run_shape(const struct copy_shape *dst, const struct copy_shape *src, size_t width,
                        size_t rows, size_t layers);

/* Check and run what a CUDA_MEMCPY3D says, or leave it to the graph if the stream records one. */
CUresult copy_run_3d(const CUDA_MEMCPY3D *p);
CUresult copy_submit_3d(const CUDA_MEMCPY3D *p, CUstream stream);

/* Wait for as long as MEMOIR_STANDIN_DELAY_NS says, and count. */
void copy_done(bool dst_device, bool src_device, uint64_t bytes);
