/* cuda.h: the part of the CUDA driver interface that the stand-in implements.
 *
 * Written from the public documentation of the interface; no vendor header is used. Sizes and offsets of structures are
 * asserted below, because callers were compiled against the vendor's. */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_DEINITIALIZED = 4,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_MAP_FAILED = 205,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_ILLEGAL_STATE = 401,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE = 708,
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
    CUDA_ERROR_NOT_PERMITTED = 800,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
    CUDA_ERROR_UNKNOWN = 999,
} CUresult;

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned int CUdeviceptr_v1; /* of the 32-bit forms, before version 3.2 */
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct context *CUcontext;
typedef struct stream *CUstream;
typedef struct event *CUevent;
typedef struct pool *CUmemoryPool;
typedef struct array *CUarray;
typedef struct mipmap *CUmipmappedArray;
typedef struct graph *CUgraph;
typedef struct graph_node *CUgraphNode;
typedef struct graph_exec *CUgraphExec;
typedef struct external *CUexternalMemory;
typedef struct green *CUgreenCtx;
typedef struct resources *CUdevResourceDesc;
typedef struct function *CUfunction;

typedef struct {
    char bytes[16];
} CUuuid;

typedef struct {
    char reserved[64];
} CUipcMemHandle;

typedef struct {
    unsigned char reserved[64];
} CUmemPoolPtrExportData;

enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_UNIFIED };
enum { CU_MEM_LOCATION_DEVICE = 1, CU_MEM_LOCATION_HOST = 2 };
enum { CU_MEM_ALLOCATION_PINNED = 1, CU_MEM_ALLOCATION_MANAGED = 2 };
enum { CU_MEM_HANDLE_POSIX_FD = 1 };
enum { CU_PROC_DEFAULT = 0, CU_PROC_LEGACY_STREAM = 1, CU_PROC_PER_THREAD_STREAM = 2 };
enum { CU_PROC_FOUND = 0, CU_PROC_SYMBOL_NOT_FOUND = 1, CU_PROC_VERSION_NOT_SUFFICIENT = 2 };

typedef struct {
    int type;
    int id;
} CUmemLocation;

typedef struct {
    size_t src_x, src_y;
    unsigned int src_type;
    const void *src_host;
    CUdeviceptr src_device;
    CUarray src_array;
    size_t src_pitch;
    size_t dst_x, dst_y;
    unsigned int dst_type;
    void *dst_host;
    CUdeviceptr dst_device;
    CUarray dst_array;
    size_t dst_pitch;
    size_t width, height;
} CUDA_MEMCPY2D;
static_assert(sizeof(CUDA_MEMCPY2D) == 128, "the vendor's size");
static_assert(offsetof(CUDA_MEMCPY2D, dst_type) == 72, "the vendor's offset");

/* Also CUDA_MEMCPY3D_PEER, whose contexts lie in the two reserved words. */
typedef struct {
    size_t src_x, src_y, src_z, src_lod;
    unsigned int src_type;
    const void *src_host;
    CUdeviceptr src_device;
    CUarray src_array;
    CUcontext src_context;
    size_t src_pitch, src_height;
    size_t dst_x, dst_y, dst_z, dst_lod;
    unsigned int dst_type;
    void *dst_host;
    CUdeviceptr dst_device;
    CUarray dst_array;
    CUcontext dst_context;
    size_t dst_pitch, dst_height;
    size_t width, height, depth;
} CUDA_MEMCPY3D;
static_assert(sizeof(CUDA_MEMCPY3D) == 200, "the vendor's size");
static_assert(offsetof(CUDA_MEMCPY3D, dst_type) == 120, "the vendor's offset");

typedef struct {
    size_t width, height;
    unsigned int format, channels;
} CUDA_ARRAY_DESCRIPTOR;
static_assert(sizeof(CUDA_ARRAY_DESCRIPTOR) == 24, "the vendor's size");

typedef struct {
    size_t width, height, depth;
    unsigned int format, channels, flags;
} CUDA_ARRAY3D_DESCRIPTOR;
static_assert(sizeof(CUDA_ARRAY3D_DESCRIPTOR) == 40, "the vendor's size");

typedef struct {
    unsigned int type, handle_types;
    CUmemLocation location;
    void *win32;
    unsigned char flags[8];
} CUmemAllocationProp;
static_assert(sizeof(CUmemAllocationProp) == 32, "the vendor's size");

typedef struct {
    CUmemLocation location;
    unsigned int flags;
} CUmemAccessDesc;

typedef struct {
    unsigned int type, handle_types;
    CUmemLocation location;
    void *win32;
    size_t max_size;
    unsigned short usage;
    unsigned char reserved[54];
} CUmemPoolProps;
static_assert(sizeof(CUmemPoolProps) == 88, "the vendor's size");

typedef struct {
    CUmemPoolProps pool;
    const CUmemAccessDesc *access;
    size_t access_count;
    size_t bytesize;
    CUdeviceptr dptr; /* out */
} CUDA_MEM_ALLOC_NODE_PARAMS;
static_assert(sizeof(CUDA_MEM_ALLOC_NODE_PARAMS) == 120, "the vendor's size");

typedef struct {
    CUdeviceptr dst;
    size_t pitch;
    unsigned int value, element_size;
    size_t width, height;
} CUDA_MEMSET_NODE_PARAMS;
static_assert(sizeof(CUDA_MEMSET_NODE_PARAMS) == 40, "the vendor's size");

enum {
    CU_GRAPH_NODE_MEMCPY = 1,
    CU_GRAPH_NODE_MEMSET = 2,
    CU_GRAPH_NODE_EMPTY = 5,
    CU_GRAPH_NODE_MEM_ALLOC = 10,
    CU_GRAPH_NODE_MEM_FREE = 11,
};

typedef struct {
    unsigned int type;
    int reserved0[3];
    union {
        long long words[29];
        struct {
            int flags, reserved;
            CUcontext context;
            CUDA_MEMCPY3D copy;
        } memcpy;
        CUDA_MEMSET_NODE_PARAMS memset;
        CUDA_MEM_ALLOC_NODE_PARAMS alloc;
        CUdeviceptr free;
    };
    long long reserved2;
} CUgraphNodeParams;
static_assert(sizeof(CUgraphNodeParams) == 256, "the vendor's size");

typedef struct {
    unsigned long long flags;
    CUstream upload_stream;
    CUgraphNode error_node; /* out */
    unsigned int result;    /* out */
} CUDA_GRAPH_INSTANTIATE_PARAMS;
static_assert(sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS) == 32, "the vendor's size");

enum { CU_DEV_RESOURCE_SM = 1 };

typedef struct {
    unsigned int type;
    unsigned char padding[92];
    union {
        struct {
            unsigned int count, partition_min, aligned;
        } sm;
        unsigned char room[48];
    };
} CUdevResource;
static_assert(sizeof(CUdevResource) == 144, "the vendor's size");

typedef struct {
    unsigned int src_access_order;
    CUmemLocation src_hint, dst_hint;
    unsigned int flags;
} CUmemcpyAttributes;
static_assert(sizeof(CUmemcpyAttributes) == 24, "the vendor's size");

enum { CU_MEMCPY_OPERAND_POINTER = 1, CU_MEMCPY_OPERAND_ARRAY = 2 };
typedef struct {
    unsigned int type;
    union {
        struct {
            CUdeviceptr ptr;
            size_t row_length, layer_height; /* in elements of one byte; 0: packed */
            CUmemLocation hint;
        } pointer;
        struct {
            CUarray array;
            size_t x, y, z;
        } array;
    };
} CUmemcpy3DOperand;

typedef struct {
    CUmemcpy3DOperand src, dst;
    size_t width, height, depth;
    unsigned int src_access_order, flags;
} CUDA_MEMCPY3D_BATCH_OP;
static_assert(sizeof(CUDA_MEMCPY3D_BATCH_OP) == 112, "the vendor's size");

typedef struct {
    size_t src_bytes, dst_bytes;
    uint32_t *dst_actual;
    const void *src;
    void *dst;
    unsigned int algorithm;
    unsigned char padding[20];
} CUmemDecompressParams;
static_assert(sizeof(CUmemDecompressParams) == 64, "the vendor's size");

typedef struct {
    unsigned int devices;
    size_t size;
    unsigned long long handle_types, flags;
} CUmulticastObjectProp;

typedef struct {
    unsigned int type; /* 1: a descriptor */
    union {
        int fd;
        void *words[2];
    } handle;
    unsigned long long size;
    unsigned int flags;
    unsigned int reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;
static_assert(sizeof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC) == 104, "the vendor's size");

typedef struct {
    unsigned long long offset, size;
    unsigned int flags;
    unsigned int reserved[16];
} CUDA_EXTERNAL_MEMORY_BUFFER_DESC;
static_assert(sizeof(CUDA_EXTERNAL_MEMORY_BUFFER_DESC) == 88, "the vendor's size");
