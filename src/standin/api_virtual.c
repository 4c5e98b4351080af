/* api_virtual.c: physical memory by handles, addresses by reservation, and mappings that join them. */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "standin/memory.h"

#define GRANULARITY   ARENA_CHUNK
#define VIRTUAL_BYTES (1ull << 40)

struct physical {
    struct object object;
    struct device *device;
    CUmemAllocationProp props;
    uint64_t size;
    int fd;
    unsigned refs; /* of the program, and one for each mapping and multicast object */
    enum standin_kind kind;
    bool multicast; /* takes no memory of a device */
    unsigned bound;
};

/* Needs the lock, as do the two below. Takes `fd` on success. */
static CUresult physical_new(struct device *d, uint64_t size, int fd, enum standin_kind kind,
                             bool multicast, struct physical **ret)
{
    struct physical *p = calloc(1, sizeof(*p));

    if (!p)
        return CUDA_ERROR_OUT_OF_MEMORY;
    p->device = d;
    p->size = size;
    p->fd = fd;
    p->kind = kind;
    p->multicast = multicast;
    p->refs = 1;
    p->props = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_PINNED,
                                     .location = {CU_MEM_LOCATION_DEVICE, d->number}};
    object_add(&p->object, OBJECT_PHYSICAL, NULL);
    if (kind == STANDIN_PHYSICAL && !multicast)
        d->physical_bytes += size;
    if (!multicast)
        counts_live(kind, d, size);
    *ret = p;
    return CUDA_SUCCESS;
}

static void physical_unref(struct physical *p)
{
    if (--p->refs > 0)
        return;
    object_remove(&p->object);
    if (p->kind == STANDIN_PHYSICAL && !p->multicast)
        p->device->physical_bytes -= p->size;
    if (!p->multicast)
        counts_dead(p->kind, p->device, p->size);
    close(p->fd);
    free(p);
}

static struct physical *physical_of(CUmemGenericAllocationHandle handle)
{
    return object_of((const void *)(uintptr_t)handle, OBJECT_PHYSICAL);
}

static int memory_file(const char *name, uint64_t size)
{
    int fd = memfd_create(name, MFD_CLOEXEC);

    if (fd >= 0 && ftruncate(fd, (off_t)size) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static CUresult physical_create(struct device *d, uint64_t size, bool multicast,
                                CUmemGenericAllocationHandle *ret)
{
    struct physical *p;

    if (!multicast && !device_has_room(d, size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    int fd = memory_file("standin-handle", size);
    if (fd < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult r = physical_new(d, size, fd, STANDIN_PHYSICAL, multicast, &p);
    if (r == CUDA_SUCCESS)
        *ret = (uintptr_t)p;
    else
        close(fd);
    return r;
}

static CUresult create(CUmemGenericAllocationHandle *ret, size_t size,
                       const CUmemAllocationProp *props, unsigned long long flags)
{
    if (!ret || !props || size == 0 || size % GRANULARITY || flags != 0 ||
        props->type != CU_MEM_ALLOCATION_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (props->location.type != CU_MEM_LOCATION_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct device *d = device_of(props->location.id);
    if (!d)
        return CUDA_ERROR_INVALID_DEVICE;
    state_lock();
    CUresult r = physical_create(d, size, false, ret);
    if (r == CUDA_SUCCESS)
        physical_of(*ret)->props = *props;
    state_unlock();
    return r;
}
API(cuMemCreate, create,
    (CUmemGenericAllocationHandle * handle, size_t size, const CUmemAllocationProp *prop,
     unsigned long long flags),
    (handle, size, prop, flags))

static CUresult release(CUmemGenericAllocationHandle handle)
{
    state_lock();
    struct physical *p = physical_of(handle);
    if (p)
        physical_unref(p);
    state_unlock();
    return p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API(cuMemRelease, release, (CUmemGenericAllocationHandle handle), (handle))

static CUresult properties(CUmemAllocationProp *ret, CUmemGenericAllocationHandle handle)
{
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    struct physical *p = physical_of(handle);
    if (p)
        *ret = p->props;
    state_unlock();
    return p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API(cuMemGetAllocationPropertiesFromHandle, properties,
    (CUmemAllocationProp * prop, CUmemGenericAllocationHandle handle), (prop, handle))

static CUresult granularity(size_t *ret, const void *props)
{
    if (!ret || !props)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = GRANULARITY;
    return CUDA_SUCCESS;
}
API(cuMemGetAllocationGranularity, granularity,
    (size_t * granularity_out, const CUmemAllocationProp *prop, int option),
    (granularity_out, prop))
API(cuMulticastGetGranularity, granularity,
    (size_t * granularity_out, const CUmulticastObjectProp *prop, int option),
    (granularity_out, prop))

static CUresult reserve(CUdeviceptr *ret, size_t size, size_t alignment, CUdeviceptr wanted,
                        unsigned long long flags)
{
    struct arena *a = &standin.addresses;
    struct block *b;

    if (!ret || size == 0 || size % GRANULARITY || flags != 0 || (alignment & (alignment - 1)))
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = CUDA_SUCCESS;
    if (!a->base && arena_open_bare(a, VIRTUAL_BYTES) < 0)
        r = CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t address = 0;
    if (r == CUDA_SUCCESS && wanted)
        address = arena_take_at(a, wanted, size);
    if (r == CUDA_SUCCESS && !address)
        address = arena_take(a, size);
    if (!address)
        r = CUDA_ERROR_OUT_OF_MEMORY;
    /* There is a place at a multiple of the alignment if there is one after it. */
    if (r == CUDA_SUCCESS && alignment && address % alignment) {
        arena_give(a, address, size);
        for (uint64_t at = (a->base + alignment - 1) / alignment * alignment;; at += alignment) {
            address = arena_take_at(a, at, size);
            if (address || at + size > a->base + a->chunks * ARENA_CHUNK)
                break;
        }
        r = address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (r == CUDA_SUCCESS)
        r = memory_add(STANDIN_RESERVED, &standin.devices[0], NULL, address, size, &b);
    if (r == CUDA_SUCCESS) {
        b->arena = a;
        *ret = address;
    }
    state_unlock();
    return r;
}
API(cuMemAddressReserve, reserve,
    (CUdeviceptr * ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags),
    (ptr, size, alignment, addr, flags))

static struct block *reservation_of(uint64_t address, uint64_t size)
{
    struct node *n = tree_floor(&standin.reservations, address);
    struct block *b = NODE_OF(n, struct block, node);

    return b && address - b->node.key < b->size && size <= b->size - (address - b->node.key) ? b
                                                                                             : NULL;
}

static CUresult address_free(CUdeviceptr address, size_t size)
{
    state_lock();
    struct block *b = reservation_of(address, size);
    CUresult r = CUDA_SUCCESS;
    if (!b || b->node.key != address || b->size != size || memory_overlaps(address, size))
        r = CUDA_ERROR_INVALID_VALUE;
    else
        memory_drop(b);
    state_unlock();
    return r;
}
API(cuMemAddressFree, address_free, (CUdeviceptr ptr, size_t size), (ptr, size))

static CUresult map(CUdeviceptr address, size_t size, size_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    struct block *b;

    if (size == 0 || size % GRANULARITY || address % GRANULARITY || offset % GRANULARITY || flags)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    struct physical *p = physical_of(handle);
    CUresult r = CUDA_SUCCESS;
    if (!p || offset > p->size || size > p->size - offset || !reservation_of(address, size) ||
        memory_overlaps(address, size))
        r = CUDA_ERROR_INVALID_VALUE;
    else if (mmap((void *)address, size, PROT_NONE, MAP_SHARED | MAP_FIXED, p->fd, (off_t)offset) ==
             MAP_FAILED)
        r = CUDA_ERROR_OUT_OF_MEMORY;
    if (r == CUDA_SUCCESS) {
        madvise((void *)address, size, MADV_DONTFORK);
        r = memory_add(STANDIN_MAPPED, p->device, NULL, address, size, &b);
    }
    if (r == CUDA_SUCCESS) {
        b->physical = p;
        b->offset = offset;
        p->refs++;
    }
    state_unlock();
    return r;
}
API(cuMemMap, map,
    (CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
     unsigned long long flags),
    (ptr, size, offset, handle, flags))

/* Whether [address, +size) is made of whole mappings. Needs the lock. */
static bool whole_mappings(uint64_t address, uint64_t size)
{
    while (size > 0) {
        struct block *b = memory_begins(address);
        if (!b || b->kind != STANDIN_MAPPED || b->size > size)
            return false;
        address += b->size;
        size -= b->size;
    }
    return true;
}

static CUresult unmap(CUdeviceptr address, size_t size)
{
    if (size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    /* Reserved addresses without a mapping are unmapped already. */
    bool none = reservation_of(address, size) && !memory_overlaps(address, size);
    bool whole = none || whole_mappings(address, size);
    for (uint64_t at = address; whole && !none && at < address + size;) {
        struct block *b = memory_begins(at);
        struct physical *p = b->physical;
        mmap((void *)at, b->size, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        at += b->size;
        memory_drop(b);
        physical_unref(p);
    }
    state_unlock();
    return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API(cuMemUnmap, unmap, (CUdeviceptr ptr, size_t size), (ptr, size))

static CUresult set_access(CUdeviceptr address, size_t size, const CUmemAccessDesc *access,
                           size_t count)
{
    if (!access || count == 0 || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned flags = access[0].flags; /* 0: none, 1: read, 3: read and write */
    if (flags != 0 && flags != 1 && flags != 3)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    bool whole = whole_mappings(address, size);
    for (uint64_t at = address; whole && at < address + size;) {
        struct block *b = memory_begins(at);
        mprotect((void *)at, b->size,
                 flags == 0   ? PROT_NONE
                 : flags == 1 ? PROT_READ
                              : PROT_READ | PROT_WRITE);
        b->flags = flags;
        at += b->size;
    }
    state_unlock();
    return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API(cuMemSetAccess, set_access,
    (CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count),
    (ptr, size, desc, count))

static CUresult get_access(unsigned long long *ret, const CUmemLocation *location,
                           CUdeviceptr address)
{
    if (!ret || !location)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    struct block *b = memory_at(address);
    if (b)
        *ret = b->kind == STANDIN_MAPPED ? b->flags : 3;
    state_unlock();
    return b ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API(cuMemGetAccess, get_access,
    (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr),
    (flags, location, ptr))

static CUresult export_handle(void *ret, CUmemGenericAllocationHandle handle, int type)
{
    if (!ret || type != CU_MEM_HANDLE_POSIX_FD)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    struct physical *p = physical_of(handle);
    int fd = p ? dup(p->fd) : -1;
    state_unlock();
    if (fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    *(int *)ret = fd;
    return CUDA_SUCCESS;
}
API(cuMemExportToShareableHandle, export_handle,
    (void *shareableHandle, CUmemGenericAllocationHandle handle, int handleType,
     unsigned long long flags),
    (shareableHandle, handle, handleType))

static CUresult import_handle(CUmemGenericAllocationHandle *ret, void *handle, int type)
{
    struct physical *p;
    struct context *c;
    struct stat st;

    if (!ret || type != CU_MEM_HANDLE_POSIX_FD)
        return CUDA_ERROR_INVALID_VALUE;
    int fd = dup((int)(uintptr_t)handle);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_size == 0 || (uint64_t)st.st_size % GRANULARITY) {
        if (fd >= 0)
            close(fd);
        return CUDA_ERROR_INVALID_VALUE;
    }
    state_lock();
    struct device *d = context_current(&c) == CUDA_SUCCESS ? c->device : &standin.devices[0];
    CUresult r = physical_new(d, (uint64_t)st.st_size, fd, STANDIN_IMPORTED, false, &p);
    if (r == CUDA_SUCCESS)
        *ret = (uintptr_t)p;
    else
        close(fd);
    state_unlock();
    return r;
}
API(cuMemImportFromShareableHandle, import_handle,
    (CUmemGenericAllocationHandle * handle, void *osHandle, int shHandleType),
    (handle, osHandle, shHandleType))

static CUresult retain_handle(CUmemGenericAllocationHandle *ret, void *address)
{
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    struct block *b = memory_at((uintptr_t)address);
    bool mapped = b && b->kind == STANDIN_MAPPED;
    if (mapped) {
        b->physical->refs++;
        *ret = (uintptr_t)b->physical;
    }
    state_unlock();
    return mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API(cuMemRetainAllocationHandle, retain_handle, (CUmemGenericAllocationHandle * handle, void *addr),
    (handle, addr))

static CUresult multicast_create(CUmemGenericAllocationHandle *ret,
                                 const CUmulticastObjectProp *props)
{
    if (!ret || !props || props->devices == 0 || props->size == 0 || props->size % GRANULARITY)
        return CUDA_ERROR_INVALID_VALUE;
    state_lock();
    CUresult r = physical_create(&standin.devices[0], props->size, true, ret);
    state_unlock();
    return r;
}
API(cuMulticastCreate, multicast_create,
    (CUmemGenericAllocationHandle * mcHandle, const CUmulticastObjectProp *prop), (mcHandle, prop))

/* Needs the lock. */
static struct physical *multicast_of(CUmemGenericAllocationHandle handle)
{
    struct physical *p = physical_of(handle);

    return p && p->multicast ? p : NULL;
}

static CUresult multicast_add(CUmemGenericAllocationHandle handle, CUdevice dev)
{
    state_lock();
    CUresult r = !device_of(dev)         ? CUDA_ERROR_INVALID_DEVICE
                 : !multicast_of(handle) ? CUDA_ERROR_INVALID_VALUE
                                         : CUDA_SUCCESS;
    state_unlock();
    return r;
}
API(cuMulticastAddDevice, multicast_add, (CUmemGenericAllocationHandle mcHandle, CUdevice dev),
    (mcHandle, dev))

static CUresult multicast_bind(CUmemGenericAllocationHandle handle, size_t offset,
                               CUmemGenericAllocationHandle memory, size_t memory_offset,
                               size_t size)
{
    state_lock();
    struct physical *m = multicast_of(handle), *p = physical_of(memory);
    bool fits = m && p && !p->multicast && size > 0 && offset <= m->size &&
                size <= m->size - offset && memory_offset <= p->size &&
                size <= p->size - memory_offset;
    if (fits)
        m->bound++;
    state_unlock();
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API(cuMulticastBindMem, multicast_bind,
    (CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUmemGenericAllocationHandle memHandle,
     size_t memOffset, size_t size, unsigned long long flags),
    (mcHandle, mcOffset, memHandle, memOffset, size))

static CUresult multicast_bind_address(CUmemGenericAllocationHandle handle, size_t offset,
                                       CUdeviceptr address, size_t size)
{
    state_lock();
    struct physical *m = multicast_of(handle);
    bool fits = m && size > 0 && offset <= m->size && size <= m->size - offset &&
                memory_covers(address, size);
    if (fits)
        m->bound++;
    state_unlock();
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API(cuMulticastBindAddr, multicast_bind_address,
    (CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUdeviceptr memptr, size_t size,
     unsigned long long flags),
    (mcHandle, mcOffset, memptr, size))

static CUresult multicast_unbind(CUmemGenericAllocationHandle handle, CUdevice dev)
{
    state_lock();
    struct physical *m = multicast_of(handle);
    bool bound = m && m->bound && device_of(dev);
    if (bound)
        m->bound--;
    state_unlock();
    return bound ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API(cuMulticastUnbind, multicast_unbind,
    (CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset, size_t size),
    (mcHandle, dev))
