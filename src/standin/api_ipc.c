/* api_ipc.c: memory of other processes, and memory of other interfaces. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "standin/export.h"

#define EXPORT_MAGIC 0x43504953u

/* The kinds of imported blocks: struct block.flags. */
enum { IMPORTED_IPC = 0, IMPORTED_EXTERNAL = 1 };

CUresult export_make(uint64_t address, bool whole, void *ret_handle)
{
    struct block *b = memory_at(address);

    if (!b || !b->arena || b->arena->fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t from = whole ? b->node.key : address;
    struct export e = {
        .magic = EXPORT_MAGIC,
        .pid = getpid(),
        .fd = b->arena->fd,
        .index = b->device->index,
        .offset = from - b->arena->base + b->arena->offset,
        .size = b->size - (from - b->node.key),
    };
    memset(ret_handle, 0, 64);
    memcpy(ret_handle, &e, sizeof(e));
    return CUDA_SUCCESS;
}

/* Map [offset, +size) of a file that need not begin at a page. */
static uint64_t map_file(int fd, uint64_t offset, uint64_t size)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), lead = offset & (page - 1);
    struct stat st;

    if (fstat(fd, &st) < 0 || (uint64_t)st.st_size < offset || (uint64_t)st.st_size - offset < size)
        return 0;
    void *p =
        mmap(NULL, size + lead, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(offset - lead));
    if (p == MAP_FAILED)
        return 0;
    madvise(p, size + lead, MADV_DONTFORK);
    return (uintptr_t)p + lead;
}

static struct device *device_by_index(int index)
{
    for (int i = 0; i < standin.device_count; i++)
        if (standin.devices[i].index == index)
            return &standin.devices[i];
    return NULL;
}

static struct block *import_find(const struct export *e)
{
    for (struct node *n = tree_ceiling(&standin.blocks, 0); n;
         n = tree_ceiling(&standin.blocks, n->key + 1)) {
        struct block *b = NODE_OF(n, struct block, node);
        if (b->kind == STANDIN_IMPORTED && b->import_pid == e->pid && b->offset == e->offset &&
            b->device->index == e->index)
            return b;
    }
    return NULL;
}

CUresult export_open(const void *handle, struct context *c, CUdeviceptr *ret)
{
    struct export e;
    char path[64];

    memcpy(&e, handle, sizeof(e));
    struct device *d = device_by_index(e.index);
    if (e.magic != EXPORT_MAGIC || !d || e.size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (e.pid == getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    struct block *b = import_find(&e);
    if (b) {
        b->users++;
        *ret = b->node.key;
        return CUDA_SUCCESS;
    }
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", e.pid, e.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    uint64_t address = fd >= 0 ? map_file(fd, e.offset, e.size) : 0;
    if (fd >= 0)
        close(fd);
    if (!address)
        return CUDA_ERROR_MAP_FAILED;
    CUresult r = memory_add(STANDIN_IMPORTED, d, c, address, e.size, &b);
    if (r != CUDA_SUCCESS)
        return r;
    b->import_pid = e.pid;
    b->offset = e.offset;
    b->users = 1;
    b->flags = IMPORTED_IPC;
    *ret = address;
    return CUDA_SUCCESS;
}

static CUresult ipc_get(CUipcMemHandle *ret, CUdeviceptr address)
{
    struct context *c;

    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = context_current(&c);
    struct block *b = memory_at(address);
    if (r == CUDA_SUCCESS && (!b || b->kind != STANDIN_DEVICE))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        r = export_make(address, true, ret);
    state_unlock();
    return r;
}
API(cuIpcGetMemHandle, ipc_get, (CUipcMemHandle * pHandle, CUdeviceptr dptr), (pHandle, dptr))

static CUresult ipc_open(CUdeviceptr *ret, const CUipcMemHandle *handle, unsigned flags)
{
    struct context *c;

    if (!ret || flags != 1) /* 1: peers get access, the only way */
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = context_current(&c);
    if (r == CUDA_SUCCESS)
        r = export_open(handle, c, ret);
    state_unlock();
    return r;
}
API(cuIpcOpenMemHandle, ipc_open, (CUdeviceptr * pdptr, CUipcMemHandle handle, unsigned int Flags),
    (pdptr, &handle, Flags))
API(cuIpcOpenMemHandle_v2, ipc_open,
    (CUdeviceptr * pdptr, CUipcMemHandle handle, unsigned int Flags), (pdptr, &handle, Flags))

static CUresult ipc_close(CUdeviceptr address)
{
    struct context *c;

    state_lock();
    CUresult r = context_current(&c);
    struct block *b = memory_begins(address);
    if (r == CUDA_SUCCESS && (!b || b->kind != STANDIN_IMPORTED || b->flags != IMPORTED_IPC))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS && --b->users == 0)
        memory_drop(b);
    state_unlock();
    return r;
}
API(cuIpcCloseMemHandle, ipc_close, (CUdeviceptr dptr), (dptr))

struct external {
    struct object object;
    int fd;
    uint64_t size;
};

/* As with the driver, the descriptor belongs to the driver once the call succeeded. */
static CUresult external_import(CUexternalMemory *ret, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *d)
{
    struct context *c;
    struct stat st;

    if (!ret || !d || d->size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (d->type != 1)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (fstat(d->handle.fd, &st) < 0 || (uint64_t)st.st_size < d->size)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = context_current(&c);
    struct external *e = r == CUDA_SUCCESS ? calloc(1, sizeof(*e)) : NULL;
    if (e) {
        e->fd = d->handle.fd;
        e->size = d->size;
        object_add(&e->object, OBJECT_EXTERNAL, NULL);
        *ret = e;
    } else if (r == CUDA_SUCCESS) {
        r = CUDA_ERROR_OUT_OF_MEMORY;
    }
    state_unlock();
    return r;
}
API(cuImportExternalMemory, external_import,
    (CUexternalMemory * extMem_out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memHandleDesc),
    (extMem_out, memHandleDesc))

static CUresult external_map(CUdeviceptr *ret, CUexternalMemory handle,
                             const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *d)
{
    struct context *c;

    if (!ret || !d || d->size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = context_current(&c);
    struct external *e = object_of(handle, OBJECT_EXTERNAL);
    if (r == CUDA_SUCCESS && !e)
        r = CUDA_ERROR_INVALID_HANDLE;
    if (r == CUDA_SUCCESS && (d->offset > e->size || d->size > e->size - d->offset))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS) {
        uint64_t address = map_file(e->fd, d->offset, d->size);
        struct block *b;
        r = address ? memory_add(STANDIN_IMPORTED, c->device, c, address, d->size, &b)
                    : CUDA_ERROR_MAP_FAILED;
        if (r == CUDA_SUCCESS) {
            b->flags = IMPORTED_EXTERNAL;
            *ret = address;
        }
    }
    state_unlock();
    return r;
}
API(cuExternalMemoryGetMappedBuffer, external_map,
    (CUdeviceptr * devPtr, CUexternalMemory extMem,
     const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *bufferDesc),
    (devPtr, extMem, bufferDesc))

/* Mapped buffers stay until cuMemFree(). */
static CUresult external_destroy(CUexternalMemory handle)
{
    state_lock();
    struct external *e = object_of(handle, OBJECT_EXTERNAL);
    if (e) {
        object_remove(&e->object);
        close(e->fd);
        free(e);
    }
    state_unlock();
    return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
API(cuDestroyExternalMemory, external_destroy, (CUexternalMemory extMem), (extMem))
