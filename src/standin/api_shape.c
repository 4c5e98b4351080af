/* api_shape.c: copies of two and three dimensions. */
#include <string.h>

#include "standin/array.h"
#include "standin/copy.h"
#include "standin/graph.h"
#include "standin/stream.h"

/* One side of a copy, as a program describes it. */
struct side {
    size_t x, y, z;
    unsigned type;
    uint64_t host, device;
    CUarray array;
    size_t pitch, height;
};

/* Turn a description into addresses. Needs the lock. */
static CUresult resolve(const struct side *s, size_t width, size_t rows, size_t layers,
                        struct copy_shape *ret)
{
    if (s->type == CU_MEMORYTYPE_ARRAY) {
        struct array *a = object_of(s->array, OBJECT_ARRAY);
        if (!a)
            return CUDA_ERROR_INVALID_HANDLE;
        if (s->x + width > a->row_bytes || s->y + rows > a->shape.height ||
            s->z + layers > a->shape.depth)
            return CUDA_ERROR_INVALID_VALUE;
        ret->side = COPY_DEVICE;
        ret->pitch = a->row_bytes;
        ret->layer_pitch = a->row_bytes * a->shape.height;
        ret->address = a->block->node.key;
    } else if (s->type == CU_MEMORYTYPE_HOST || s->type == CU_MEMORYTYPE_DEVICE ||
               s->type == CU_MEMORYTYPE_UNIFIED) {
        ret->side = s->type == CU_MEMORYTYPE_HOST     ? COPY_HOST
                    : s->type == CU_MEMORYTYPE_DEVICE ? COPY_DEVICE
                                                      : COPY_UNIFIED;
        ret->address = s->type == CU_MEMORYTYPE_HOST ? s->host : s->device;
        ret->pitch = s->pitch ? s->pitch : s->x + width;
        ret->layer_pitch = ret->pitch * (s->height ? s->height : s->y + rows);
        if (ret->pitch < s->x + width || (s->height && s->height < s->y + rows))
            return CUDA_ERROR_INVALID_VALUE;
    } else {
        return CUDA_ERROR_INVALID_VALUE;
    }
    ret->address += s->z * ret->layer_pitch + s->y * ret->pitch + s->x;
    return CUDA_SUCCESS;
}

CUresult copy_run_3d(const CUDA_MEMCPY3D *p)
{
    struct side dst = {
        p->dst_x,      p->dst_y,     p->dst_z,     p->dst_type,  (uintptr_t)p->dst_host,
        p->dst_device, p->dst_array, p->dst_pitch, p->dst_height};
    struct side src = {
        p->src_x,      p->src_y,     p->src_z,     p->src_type,  (uintptr_t)p->src_host,
        p->src_device, p->src_array, p->src_pitch, p->src_height};
    struct copy_shape to, from;

    state_lock();
    CUresult r = resolve(&dst, p->width, p->height, p->depth, &to);
    if (r == CUDA_SUCCESS)
        r = resolve(&src, p->width, p->height, p->depth, &from);
    state_unlock();
    return r == CUDA_SUCCESS ? copy_run_shape(&to, &from, p->width, p->height, p->depth) : r;
}

CUresult copy_submit_3d(const CUDA_MEMCPY3D *p, CUstream stream)
{
    struct stream *s;

    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = stream_of(stream, &s);
    if (r == CUDA_SUCCESS && s && s->capture) {
        r = graph_record_copy_3d(s->capture, p);
        state_unlock();
        return r;
    }
    state_unlock();
    return r == CUDA_SUCCESS ? copy_run_3d(p) : r;
}

static CUresult copy_2d(const CUDA_MEMCPY2D *p, CUstream stream)
{
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D whole = {
        .src_x = p->src_x,
        .src_y = p->src_y,
        .src_type = p->src_type,
        .src_host = p->src_host,
        .src_device = p->src_device,
        .src_array = p->src_array,
        .src_pitch = p->src_pitch,
        .dst_x = p->dst_x,
        .dst_y = p->dst_y,
        .dst_type = p->dst_type,
        .dst_host = p->dst_host,
        .dst_device = p->dst_device,
        .dst_array = p->dst_array,
        .dst_pitch = p->dst_pitch,
        .width = p->width,
        .height = p->height,
        .depth = 1,
    };
    return copy_submit_3d(&whole, stream);
}
API_PTDS(cuMemcpy2D_v2, copy_2d, (const CUDA_MEMCPY2D *pCopy), (pCopy, NULL))
API_PTDS(cuMemcpy2DUnaligned_v2, copy_2d, (const CUDA_MEMCPY2D *pCopy), (pCopy, NULL))
API_PTSZ(cuMemcpy2DAsync_v2, copy_2d, (const CUDA_MEMCPY2D *pCopy, CUstream hStream),
         (pCopy, hStream))

API_PTDS(cuMemcpy3D_v2, copy_submit_3d, (const CUDA_MEMCPY3D *pCopy), (pCopy, NULL))
API_PTSZ(cuMemcpy3DAsync_v2, copy_submit_3d, (const CUDA_MEMCPY3D *pCopy, CUstream hStream),
         (pCopy, hStream))

static CUresult copy_3d_peer(const CUDA_MEMCPY3D *p, CUstream stream)
{
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    bool alive = context_of(p->dst_context) && context_of(p->src_context);
    state_unlock();
    return alive ? copy_submit_3d(p, stream) : CUDA_ERROR_INVALID_CONTEXT;
}
API_PTDS(cuMemcpy3DPeer, copy_3d_peer, (const CUDA_MEMCPY3D *pCopy), (pCopy, NULL))
API_PTSZ(cuMemcpy3DPeerAsync, copy_3d_peer, (const CUDA_MEMCPY3D *pCopy, CUstream hStream),
         (pCopy, hStream))

static CUresult operand(const CUmemcpy3DOperand *o, struct side *ret)
{
    memset(ret, 0, sizeof(*ret));
    if (o->type == CU_MEMCPY_OPERAND_POINTER) {
        ret->type = CU_MEMORYTYPE_UNIFIED;
        ret->device = o->pointer.ptr;
        ret->pitch = o->pointer.row_length;
        ret->height = o->pointer.layer_height;
        return CUDA_SUCCESS;
    }
    if (o->type != CU_MEMCPY_OPERAND_ARRAY)
        return CUDA_ERROR_INVALID_VALUE;
    ret->type = CU_MEMORYTYPE_ARRAY;
    ret->array = o->array.array;
    ret->x = o->array.x;
    ret->y = o->array.y;
    ret->z = o->array.z;
    return CUDA_SUCCESS;
}

static CUresult batch_one(const CUDA_MEMCPY3D_BATCH_OP *op, CUstream stream)
{
    struct side dst, src;
    CUresult r = operand(&op->dst, &dst);

    if (r == CUDA_SUCCESS)
        r = operand(&op->src, &src);
    if (r != CUDA_SUCCESS)
        return r;
    CUDA_MEMCPY3D p = {
        .src_x = src.x,
        .src_y = src.y,
        .src_z = src.z,
        .src_type = src.type,
        .src_device = src.device,
        .src_array = src.array,
        .src_pitch = src.pitch,
        .src_height = src.height,
        .dst_x = dst.x,
        .dst_y = dst.y,
        .dst_z = dst.z,
        .dst_type = dst.type,
        .dst_device = dst.device,
        .dst_array = dst.array,
        .dst_pitch = dst.pitch,
        .dst_height = dst.height,
        .width = op->width,
        .height = op->height,
        .depth = op->depth,
    };
    return copy_submit_3d(&p, stream);
}

static CUresult batch(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *ret_failed,
                      unsigned long long flags, CUstream stream)
{
    if (ret_failed)
        *ret_failed = SIZE_MAX;
    if (count == 0 || !ops || flags != 0 || !stream)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        CUresult r = batch_one(&ops[i], stream);
        if (r == CUDA_SUCCESS)
            continue;
        if (ret_failed)
            *ret_failed = i;
        return r;
    }
    return CUDA_SUCCESS;
}
API_PTSZ(cuMemcpy3DBatchAsync, batch,
         (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx, unsigned long long flags,
          CUstream hStream),
         (numOps, opList, failIdx, flags, hStream))
API_PTSZ(cuMemcpy3DBatchAsync_v2, batch,
         (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags,
          CUstream hStream),
         (numOps, opList, NULL, flags, hStream))
