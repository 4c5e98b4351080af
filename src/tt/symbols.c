/* symbols.c: find in libtt_metal.so what we need, by its exported names, and check the rest.
 *
 * The library may have been loaded by Python, privately, where RTLD_NEXT does not reach; so it is found
 * by the address of the code that called the hook, which lies in it. It then stays loaded, as it would
 * anyway, and what was found in it stays good.
 *
 * Two things are not exported in most versions, because they are inline functions:
 *  - Device::id(). It is virtual, and MeshDevice::id() is exported: where that stands in the mesh's
 *    table of virtual functions, the device's stands in its own, since both begin with IDevice's.
 *  - Buffer::size(), device() and buffer_type(). They are the first members, behind the weak pointer of
 *    enable_shared_from_this. For every buffer what is read there is compared with exported functions
 *    that say the same in another way.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "base/atomic.h"
#include "base/hash.h"
#include "site/module.h"
#include "site/stack.h"
#include "tt/tt.h"

#define TT_NS  "_ZN2tt8tt_metal"
#define TT_CNS "_ZNK2tt8tt_metal"

enum {
    APIS_MAX = 32,      /* libraries that call us; more are not watched */
    YIELDS_MAX = 20000, /* about a second */
    SLOTS_LOOKED = 32,  /* of a table of virtual functions */
    VTABLE_HEAD = 2,    /* words in front of the first function */
    AT_DEVICE = 16,     /* in a Buffer */
    AT_SIZE = 24,
    AT_TYPE = 32,
    TYPES = 5,
};

static const char *const hook_names[TT_HOOKS] = {
    [TT_TRACK_ALLOCATE] = TT_NS "12GraphTracker14track_allocateEPKNS0_6BufferE",
    [TT_TRACK_DEALLOCATE] = TT_NS "12GraphTracker16track_deallocateEPNS0_6BufferE",
    [TT_TRACK_ALLOCATE_CB] =
        TT_NS "12GraphTracker17track_allocate_cbERKNS0_12CoreRangeSetEmmbPKNS0_7IDeviceE",
    [TT_TRACK_DEALLOCATE_CB] = TT_NS "12GraphTracker19track_deallocate_cbEPKNS0_7IDeviceE",
    [TT_ALLOCATE_CBS] = TT_NS "6detail11ProgramImpl25allocate_circular_buffersEPKNS0_7IDeviceE",
    [TT_DEALLOCATE_CBS] = TT_NS "6detail11ProgramImpl27deallocate_circular_buffersEv",
    [TT_COMPILE] = TT_NS "6detail11ProgramImpl7compileEPNS0_7IDeviceEb",
    [TT_PROGRAM_DESTROYED] = TT_NS "9Inspector17program_destroyedEPKNS0_6detail11ProgramImplE",
};

static const struct accessor {
    const char *name;
    size_t at; /* in struct tt_api */
} accessors[] = {
    {TT_CNS "6Device2idEv", offsetof(struct tt_api, device_id)},
    {TT_CNS "11distributed10MeshDevice2idEv", offsetof(struct tt_api, mesh_id)},
    {TT_CNS "11distributed10MeshDevice11get_devicesEv", offsetof(struct tt_api, mesh_devices)},
    {"_ZdlPv", offsetof(struct tt_api, vector_free)},
    {TT_CNS "6Buffer4sizeEv", offsetof(struct tt_api, buffer_size)},
    {TT_CNS "6Buffer6deviceEv", offsetof(struct tt_api, buffer_device)},
    {TT_CNS "6Buffer11buffer_typeEv", offsetof(struct tt_api, buffer_type)},
    {TT_CNS "6Buffer7addressEv", offsetof(struct tt_api, buffer_address)},
    {TT_CNS "6Buffer9page_sizeEv", offsetof(struct tt_api, buffer_page_size)},
    {TT_CNS "6Buffer9num_pagesEv", offsetof(struct tt_api, buffer_num_pages)},
    {TT_CNS "6Buffer7is_dramEv", offsetof(struct tt_api, buffer_is_dram)},
    {TT_CNS "6Buffer5is_l1Ev", offsetof(struct tt_api, buffer_is_l1)},
    {TT_CNS "12CoreRangeSet9num_coresEv", offsetof(struct tt_api, num_cores)},
    {TT_CNS "6detail11ProgramImpl11num_kernelsEv", offsetof(struct tt_api, num_kernels)},
    {TT_CNS "6detail11ProgramImpl19collect_kernel_metaEPNS0_7IDeviceE",
     offsetof(struct tt_api, kernel_meta)},
    {TT_CNS "6Device17num_dram_channelsEv", offsetof(struct tt_api, num_dram_channels)},
    {TT_CNS "6Device21dram_size_per_channelEv", offsetof(struct tt_api, dram_size_per_channel)},
    {TT_CNS "6Device16l1_size_per_coreEv", offsetof(struct tt_api, l1_size_per_core)},
    {TT_CNS "6Device30compute_with_storage_grid_sizeEv", offsetof(struct tt_api, grid_size)},
};

static struct {
    uint32_t state; /* 0: free, 1: being filled in, 2: good; stored (release) last, 3: given up */
    struct tt_api api;
} apis[APIS_MAX];
static struct tt_api nothing;

/* ---- words ---- */

static bool asked_for(const char *variable)
{
    const char *value = secure_getenv(variable);
    return value && value[0] && strcmp(value, "0") != 0;
}

/* Several libraries may call us, and each would say the same. */
static bool said_before(const char *first, const char *second)
{
    static uint32_t said;
    uint32_t bit = UINT32_C(1) << (hash_string(second, hash_string(first, 0)) % 32);
    return __atomic_fetch_or(&said, bit, __ATOMIC_RELAXED) & bit;
}

void tt_say(const char *first, const char *second)
{
    if (!asked_for("MEMOIR_VERBOSE") || said_before(first, second))
        return;
    static char start[] = "memoir-tt: ", end[] = "\n";
    struct iovec parts[] = {
        {start, sizeof(start) - 1},
        {(char *)(uintptr_t)first, strlen(first)},
        {(char *)(uintptr_t)second, strlen(second)},
        {end, 1},
    };
    (void)!writev(STDERR_FILENO, parts, 4);
}

/* ---- names ---- */

static void *find(void *library, const char *name, const void *own)
{
    void *found = library ? dlsym(library, name) : NULL;
    if (!found || found == own)
        found = dlsym(RTLD_NEXT, name);
    return found == own ? NULL : found;
}

static const void *vtable_find(void *library, const char *name)
{
    /* A program that names the class itself may have the table that all use. */
    const void *const *table = dlsym(RTLD_DEFAULT, name);
    if (!table)
        table = find(library, name, NULL);
    return table ? table + VTABLE_HEAD : NULL;
}

/* Where in the mesh's table the function stands that the device has in the same place. */
static bool id_slot_find(struct tt_api *api)
{
    const void *const *table = api->mesh_vtable;
    for (unsigned i = 0; table && api->mesh_id && i < SLOTS_LOOKED; i++)
        if (memcmp(&table[i], &api->mesh_id, sizeof(table[i])) == 0) {
            api->id_slot = i;
            return true;
        }
    return false;
}

/* Everything that a device is asked for is there? */
static bool devices_known(struct tt_api *api)
{
    if (!api->device_vtable) {
        tt_say("off: libtt_metal.so does not export the class Device", "");
        return false;
    }
    if (!api->device_id && !id_slot_find(api)) {
        tt_say("off: a device's number cannot be found", "");
        return false;
    }
    if (!api->mesh_vtable || !api->mesh_devices || !api->vector_free)
        tt_say("meshes off: their devices cannot be found", "");
    return true;
}

static void features_find(struct tt_api *api)
{
    if (!api->real[TT_TRACK_ALLOCATE] || !devices_known(api))
        return;
    bool direct = api->buffer_size && api->buffer_device && api->buffer_type;
    bool checked =
        api->buffer_page_size && api->buffer_num_pages && api->buffer_is_dram && api->buffer_is_l1;
    if (direct || checked)
        api->features |= TT_BUFFERS;
    else
        tt_say("buffers off: ", "neither their size nor a check of it is exported");
    if (api->num_cores && api->real[TT_TRACK_DEALLOCATE_CB])
        api->features |= TT_CBS;
    else
        tt_say("circular buffers off: ", "the number of their cores is not exported");
    if (api->real[TT_COMPILE] && api->kernel_meta && api->num_kernels && api->vector_free)
        api->features |= TT_KERNELS;
    else
        tt_say("kernels off: ", "the sizes of their binaries are not exported");
    tt_say("watching tt-metal", api->module_start ? "" : " from unknown code");
}

static void api_fill(struct tt_api *api, const struct module_object *object)
{
    api->module_start = object->map_start;
    api->module_end = object->map_end;
    /* Its own name in this process, so this loads nothing; NULL for the program itself. */
    const char *path = object->map ? object->map->l_name : NULL;
    void *library = path && path[0] ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    for (size_t i = 0; i < TT_HOOKS; i++)
        api->real[i] = find(library, hook_names[i], tt_own[i]);
    if (asked_for("MEMOIR_OFF"))
        return;
    for (size_t i = 0; i < sizeof(accessors) / sizeof(*accessors); i++) {
        void *found = find(library, accessors[i].name, NULL);
        memcpy((char *)api + accessors[i].at, &found, sizeof(found));
    }
    api->device_vtable = vtable_find(library, "_ZTVN2tt8tt_metal6DeviceE");
    api->mesh_vtable = vtable_find(library, "_ZTVN2tt8tt_metal11distributed10MeshDeviceE");
    features_find(api);
}

/* Another thread fills it in, which takes microseconds; but in a forked child it does not exist, and then
 * the place is given up. */
static bool api_wait(uint32_t *word)
{
    for (unsigned yields = 0; load_acquire(word) == 1; yields++) {
        uint32_t filling = 1;
        if (yields >= YIELDS_MAX)
            cas_acq_rel(word, &filling, 3);
        sched_yield();
    }
    return load_acquire(word) == 2;
}

bool tt_is_own(uintptr_t pc)
{
    static uintptr_t start, end; /* the same for whoever finds them */
    if (load_relaxed(&end) == 0) {
        struct module_object object;
        if (module_object_find((uintptr_t)tt_api_for, &object) < 0)
            return false;
        store_relaxed(&start, object.map_start);
        store_release(&end, object.map_end);
    }
    return pc < load_acquire(&end) && pc >= load_relaxed(&start);
}

struct tt_api *tt_api_for(uintptr_t caller)
{
    struct module_object object = {0};
    if (module_object_find(caller, &object) < 0)
        object = (struct module_object){0}; /* code that belongs to no library: RTLD_NEXT must do */
    /* A function that ends in a call leaves its own frame out of it: then we seem to be called by the hook
     * that called that function. */
    if (tt_outer && tt_is_own(caller))
        return tt_outer;
    for (size_t i = 0; i < APIS_MAX; i++) {
        uint32_t free_word = 0;
        if (load_acquire(&apis[i].state) == 0 && cas_acq_rel(&apis[i].state, &free_word, 1)) {
            api_fill(&apis[i].api, &object);
            store_release(&apis[i].state, 2);
        }
        if (api_wait(&apis[i].state) && apis[i].api.module_start == object.map_start)
            return &apis[i].api;
    }
    return &nothing;
}

void *tt_real(const struct tt_api *api, enum tt_hook hook)
{
    return api->real[hook] ? api->real[hook] : find(NULL, hook_names[hook], tt_own[hook]);
}

/* ---- buffers ---- */

static int space_of(int type)
{
    static const int spaces[TYPES] = {
        MEMOIR_SPACE_DRAM,     MEMOIR_SPACE_L1,    MEMOIR_SPACE_SYSTEM,
        MEMOIR_SPACE_L1_SMALL, MEMOIR_SPACE_TRACE,
    };
    return type >= 0 && type < TYPES ? spaces[type] : 0;
}

static bool class_known(const struct tt_api *api, const void *vtable)
{
    return vtable && (vtable == api->device_vtable || vtable == api->mesh_vtable);
}

/* Before anything is read through the pointer for the first time: is there memory, and a device in it? */
static bool layout_try(struct tt_api *api, const void *device)
{
    bool good = stack_probe((uintptr_t)device, sizeof(void *)) &&
                class_known(api, *(const void *const *)device);
    if (!good)
        tt_say("buffers off: ", "this version keeps them in another form");
    store_release(&api->layout, good ? 1u : 2u);
    return good;
}

static bool layout_read(struct tt_api *api, const void *buffer, struct tt_buffer *b, int *ret_type)
{
    const char *at = buffer;
    if (load_acquire(&api->layout) == 2)
        return false;
    memcpy(&b->device, at + AT_DEVICE, sizeof(b->device));
    memcpy(&b->bytes, at + AT_SIZE, sizeof(b->bytes));
    memcpy(ret_type, at + AT_TYPE, sizeof(*ret_type));
    bool dram = *ret_type == 0 || *ret_type == 4, l1 = *ret_type == 1 || *ret_type == 3;
    bool fits = b->bytes == api->buffer_page_size(buffer) * api->buffer_num_pages(buffer) &&
                space_of(*ret_type) != 0 && dram == api->buffer_is_dram(buffer) &&
                l1 == api->buffer_is_l1(buffer) && (uintptr_t)b->device % sizeof(void *) == 0;
    if (!fits || !b->device)
        return false;
    return load_acquire(&api->layout) == 1 || layout_try(api, b->device);
}

bool tt_buffer_read(struct tt_api *api, const void *buffer, struct tt_buffer *ret_buffer)
{
    struct tt_buffer b;
    int type;
    if (api->buffer_size && api->buffer_device && api->buffer_type) {
        b.device = api->buffer_device(buffer);
        b.bytes = api->buffer_size(buffer);
        type = api->buffer_type(buffer);
    } else if (!layout_read(api, buffer, &b, &type)) {
        return false;
    }
    b.space = space_of(type);
    /* A capture without dispatch hands out address 0 and takes no memory. */
    if (!b.space || b.bytes == 0 || !b.device ||
        (api->buffer_address && api->buffer_address(buffer) == 0))
        return false;
    *ret_buffer = b;
    return true;
}
