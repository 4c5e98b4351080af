/* Reading NVML. See library.h. */
#include "nvml/library.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "nvml/abi.h"
#include "nvml/who.h"
#include "nvml/wire.h"

enum {
    TEXT_MAX = 96,    /* of UUIDs and names, as NVML asks for */
    LIST_ROOM = 64,   /* processes of one device, at first */
    LIST_TRIES = 3,   /* when more came meanwhile */
    MIG_MAX = 64,     /* instances of one GPU */
    UNTOUCHED = 0xa5, /* fills lists before the call, so that the length of entries shows */
};

struct nvml_library {
    struct nvml_calls call;
    unsigned char *list; /* room for LIST_ROOM or more of the longest entries */
    unsigned list_room;
};

/* What is read, before it is sent. */
struct reading {
    struct nvml_device devices[NVML_DEVICES_MAX];
    struct nvml_process processes[NVML_PROCESSES_MAX];
    size_t n_devices, n_processes, devices_left_out, processes_left_out;
};

/* ---- loading ---- */

static void calls_find(void *library, struct nvml_calls *call)
{
    const struct {
        const char *name;
        void *to;
    } entries[] = {
        {"nvmlInit_v2", &call->init},
        {"nvmlErrorString", &call->error_string},
        {"nvmlSystemGetDriverVersion", &call->driver_version},
        {"nvmlDeviceGetCount_v2", &call->count},
        {"nvmlDeviceGetHandleByIndex_v2", &call->handle},
        {"nvmlDeviceGetName", &call->name},
        {"nvmlDeviceGetUUID", &call->uuid},
        {"nvmlDeviceGetPciInfo_v3", &call->pci},
        {"nvmlDeviceGetMemoryInfo", &call->memory},
        {"nvmlDeviceGetMemoryInfo_v2", &call->memory_v2},
        {"nvmlDeviceGetComputeRunningProcesses_v3", &call->compute_v3},
        {"nvmlDeviceGetComputeRunningProcesses_v2", &call->compute_v2},
        {"nvmlDeviceGetComputeRunningProcesses", &call->compute_v1},
        {"nvmlDeviceGetGraphicsRunningProcesses_v3", &call->graphics_v3},
        {"nvmlDeviceGetGraphicsRunningProcesses_v2", &call->graphics_v2},
        {"nvmlDeviceGetGraphicsRunningProcesses", &call->graphics_v1},
        {"nvmlDeviceGetMigMode", &call->mig_mode},
        {"nvmlDeviceGetMaxMigDeviceCount", &call->mig_max},
        {"nvmlDeviceGetMigDeviceHandleByIndex", &call->mig_handle},
        {"nvmlDeviceGetNumGpuCores", &call->cores},
        {"nvmlDeviceGetMaxClockInfo", &call->clock_max},
    };
    for (size_t i = 0; i < sizeof(entries) / sizeof(*entries); i++) {
        void *found = dlsym(library, entries[i].name);
        memcpy(entries[i].to, &found, sizeof(found));
    }
}

static const char *error_text(const struct nvml_calls *call, int result)
{
    const char *text = call->error_string ? call->error_string(result) : NULL;
    return text ? text : "unknown error";
}

/* The loader says "cannot open shared object file" also when a library that it needs is missing. */
static int loader_error(const char *path, char ret_why[static NVML_WHY_MAX])
{
    const char *said = dlerror();
    const char *name = path ? path : NVML_LIBRARY;
    if (!said || (strncmp(said, name, strlen(name)) == 0 && strstr(said, "No such file"))) {
        snprintf(ret_why, NVML_WHY_MAX, "%s not found", name);
        return -ENOENT;
    }
    snprintf(ret_why, NVML_WHY_MAX, "%s cannot be loaded: %s", name, said);
    return -ENOEXEC;
}

int nvml_library_open(const char *path, struct nvml_library **ret_library,
                      char ret_why[static NVML_WHY_MAX])
{
    dlerror();
    void *loaded = dlopen(path ? path : NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!loaded)
        return loader_error(path, ret_why);
    struct nvml_library *library = calloc(1, sizeof(*library));
    if (!library)
        return -ENOMEM;
    struct nvml_calls *call = &library->call;
    calls_find(loaded, call);
    if (!call->init || !call->count || !call->handle) {
        snprintf(ret_why, NVML_WHY_MAX, "%s lacks nvmlInit_v2 or the functions for devices",
                 path ? path : NVML_LIBRARY);
        free(library);
        return -ENOEXEC;
    }
    int result = call->init();
    if (result != NVML_SUCCESS) {
        snprintf(ret_why, NVML_WHY_MAX, "NVML cannot be initialised: %s", error_text(call, result));
        free(library);
        return -ENODEV;
    }
    *ret_library = library;
    return 0;
}

/* ---- devices ---- */

/* "00000000:1B:00.0" is "0000:1b:00.0" for Linux, whose domains have four digits or more. */
static void bus_take(char ret_bus[static NVML_BUS_MAX], const struct nvml_pci *pci)
{
    char text[sizeof(pci->bus_id) + 1] = "";
    memcpy(text, pci->bus_id, sizeof(pci->bus_id));
    const char *from = text, *colon = strchr(text, ':');
    while (colon && colon - from > 4 && *from == '0')
        from++;
    size_t i = 0;
    for (; from[i] && i < NVML_BUS_MAX - 1; i++)
        ret_bus[i] = (char)tolower((unsigned char)from[i]);
    ret_bus[i] = '\0';
}

static void text_take(char *to, size_t size, const char text[static TEXT_MAX])
{
    size_t len = strnlen(text, TEXT_MAX);
    if (len > size - 1)
        len = size - 1;
    memcpy(to, text, len);
    to[len] = '\0';
}

static void memory_take(const struct nvml_calls *call, nvml_handle handle, struct nvml_device *d)
{
    struct nvml_memory_v2 v2 = {.version = NVML_MEMORY_V2};
    struct nvml_memory v1;
    uint64_t total, used, reserved = NVML_VALUE_NOT_AVAILABLE;
    if (call->memory_v2 && call->memory_v2(handle, &v2) == NVML_SUCCESS) {
        total = v2.total;
        used = v2.used;
        reserved = v2.reserved;
    } else if (call->memory && call->memory(handle, &v1) == NVML_SUCCESS) {
        total = v1.total;
        used = v1.used;
    } else {
        return;
    }
    const struct {
        uint64_t value, *to;
        uint32_t bit;
    } figures[] = {{total, &d->total_bytes, NVML_HAS_TOTAL},
                   {used, &d->used_bytes, NVML_HAS_USED},
                   {reserved, &d->reserved_bytes, NVML_HAS_RESERVED}};
    for (size_t i = 0; i < sizeof(figures) / sizeof(*figures); i++)
        if (figures[i].value != NVML_VALUE_NOT_AVAILABLE && (total > 0 || i > 0)) {
            *figures[i].to = figures[i].value;
            d->valid |= figures[i].bit;
        }
}

static void speed_take(const struct nvml_calls *call, nvml_handle handle, struct nvml_device *d)
{
    unsigned cores, mhz;
    if (!call->cores || !call->clock_max || call->cores(handle, &cores) != NVML_SUCCESS ||
        call->clock_max(handle, NVML_CLOCK_SM, &mhz) != NVML_SUCCESS)
        return;
    d->speed = (uint64_t)cores * mhz;
    d->valid |= NVML_HAS_SPEED;
}

/* ---- processes ---- */

static int by_pid(const void *a, const void *b)
{
    const struct nvml_process *x = a, *y = b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

/* How long the entries are that were written: see NVML_PROCESS_LONG. */
static size_t entry_length(const unsigned char *list, unsigned n, size_t declared)
{
    if (declared == sizeof(struct nvml_process_v1))
        return declared;
    for (size_t at = n * declared; at < (size_t)n * NVML_PROCESS_LONG; at++)
        if (list[at] != UNTOUCHED)
            return NVML_PROCESS_LONG;
    return declared;
}

static void process_add(struct reading *reading, size_t first, uint32_t device, uint32_t pid,
                        uint64_t used, enum nvml_use use)
{
    struct nvml_process *p = NULL;
    for (size_t i = first; i < reading->n_processes && !p; i++)
        if (reading->processes[i].pid == pid)
            p = &reading->processes[i];
    if (!p && reading->n_processes == NVML_PROCESSES_MAX) {
        reading->processes_left_out++;
        return;
    }
    if (!p) {
        p = &reading->processes[reading->n_processes++];
        *p = (struct nvml_process){.device = device, .pid = pid};
        nvml_who(p);
    }
    p->uses |= use;
    /* One that computes and draws is in both lists, with the same figure. */
    if (used != NVML_VALUE_NOT_AVAILABLE && used >= p->used_bytes) {
        p->used_bytes = used;
        p->has_used = 1;
    }
}

static int list_grow(struct nvml_library *library, unsigned room)
{
    if (room <= library->list_room)
        return 0;
    unsigned char *list = realloc(library->list, (size_t)room * NVML_PROCESS_LONG);
    if (!list)
        return -ENOMEM;
    library->list = list;
    library->list_room = room;
    return 0;
}

/* One list by one entry point. False: it has none, or refused. */
static bool list_take(struct nvml_library *library, nvml_processes_fn *call, size_t declared,
                      nvml_handle handle, unsigned *ret_n)
{
    unsigned room = LIST_ROOM;
    for (int tries = 0; call && tries < LIST_TRIES; tries++) {
        if (list_grow(library, room) < 0)
            return false;
        unsigned n = room = library->list_room;
        memset(library->list, UNTOUCHED, (size_t)room * NVML_PROCESS_LONG);
        int result = call(handle, &n, library->list);
        if (result == NVML_SUCCESS && n <= room) {
            *ret_n = n;
            return true;
        }
        if (result != NVML_ERROR_INSUFFICIENT_SIZE || n > NVML_PROCESSES_MAX)
            return false;
        room = n + LIST_ROOM;
    }
    return false;
}

static bool processes_take(struct nvml_library *library, struct reading *reading, size_t first,
                           nvml_handle handle, uint32_t device, enum nvml_use use)
{
    const struct nvml_calls *call = &library->call;
    bool compute = use == NVML_COMPUTE;
    const struct {
        nvml_processes_fn *call;
        size_t length;
    } ways[] = {
        {compute ? call->compute_v3 : call->graphics_v3, sizeof(struct nvml_process_v2)},
        {compute ? call->compute_v2 : call->graphics_v2, sizeof(struct nvml_process_v2)},
        {compute ? call->compute_v1 : call->graphics_v1, sizeof(struct nvml_process_v1)},
    };
    for (size_t way = 0; way < sizeof(ways) / sizeof(*ways); way++) {
        unsigned n;
        if (!list_take(library, ways[way].call, ways[way].length, handle, &n))
            continue;
        size_t length = entry_length(library->list, n, ways[way].length);
        for (unsigned i = 0; i < n; i++) {
            struct nvml_process_v1 entry; /* which all layouts begin with */
            memcpy(&entry, library->list + i * length, sizeof(entry));
            process_add(reading, first, device, entry.pid, entry.used, use);
        }
        return true;
    }
    return false;
}

/* ---- a reading ---- */

static struct nvml_device *device_add(struct nvml_library *library, struct reading *reading,
                                      nvml_handle handle, uint32_t index, int32_t mig_index)
{
    const struct nvml_calls *call = &library->call;
    char text[TEXT_MAX];
    if (reading->n_devices == NVML_DEVICES_MAX) {
        reading->devices_left_out++;
        return NULL;
    }
    struct nvml_device *d = &reading->devices[reading->n_devices++];
    *d = (struct nvml_device){.index = index, .mig_index = mig_index};
    struct nvml_pci pci = {.bus_id = ""};
    if (call->name && call->name(handle, text, sizeof(text)) == NVML_SUCCESS)
        text_take(d->name, sizeof(d->name), text);
    if (call->uuid && call->uuid(handle, text, sizeof(text)) == NVML_SUCCESS)
        text_take(d->uuid, sizeof(d->uuid), text);
    if (mig_index < 0 && call->pci && call->pci(handle, &pci) == NVML_SUCCESS)
        bus_take(d->bus, &pci);
    memory_take(call, handle, d);
    if (mig_index < 0)
        speed_take(call, handle, d);
    return d;
}

static void device_processes(struct nvml_library *library, struct reading *reading,
                             nvml_handle handle, struct nvml_device *d)
{
    size_t first = reading->n_processes, left_out = reading->processes_left_out;
    uint32_t device = (uint32_t)(d - reading->devices);
    bool compute = processes_take(library, reading, first, handle, device, NVML_COMPUTE);
    /* MIG instances have no graphics: only the first list has to be there. */
    (void)processes_take(library, reading, first, handle, device, NVML_GRAPHICS);
    qsort(reading->processes + first, reading->n_processes - first, sizeof(*reading->processes),
          by_pid);
    if (compute && reading->processes_left_out == left_out)
        d->valid |= NVML_HAS_PROCESSES;
}

/* The instances of a GPU in MIG mode. How many there are; 0 when it is not in that mode. */
static uint32_t mig_add(struct nvml_library *library, struct reading *reading, nvml_handle gpu,
                        const struct nvml_device *parent)
{
    const struct nvml_calls *call = &library->call;
    unsigned current = 0, pending, max = 0;
    uint32_t n = 0;
    if (!call->mig_mode || !call->mig_max || !call->mig_handle ||
        call->mig_mode(gpu, &current, &pending) != NVML_SUCCESS || !current ||
        call->mig_max(gpu, &max) != NVML_SUCCESS)
        return 0;
    for (unsigned i = 0; i < max && i < MIG_MAX; i++) {
        nvml_handle instance;
        if (call->mig_handle(gpu, i, &instance) != NVML_SUCCESS)
            continue; /* not in use */
        struct nvml_device *d = device_add(library, reading, instance, parent->index, (int32_t)i);
        if (d)
            device_processes(library, reading, instance, d);
        n++;
    }
    return n;
}

static void gpus_add(struct nvml_library *library, struct reading *reading, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        nvml_handle handle;
        if (library->call.handle(i, &handle) != NVML_SUCCESS)
            continue; /* fallen off the bus, or not ours to see */
        struct nvml_device *d = device_add(library, reading, handle, i, -1);
        if (!d)
            continue;
        d->mig_count = mig_add(library, reading, handle, d);
        if (!d->mig_count)
            device_processes(library, reading, handle, d);
    }
}

/* Processes of MIG instances came before those of later devices, and each list is sorted: all of it is. */
int nvml_library_read(struct nvml_library *library, struct buffer *out,
                      char ret_why[static NVML_WHY_MAX])
{
    const struct nvml_calls *call = &library->call;
    uint64_t began = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    unsigned n = 0;
    int result = call->count(&n);
    if (result != NVML_SUCCESS) {
        snprintf(ret_why, NVML_WHY_MAX, "NVML cannot count devices: %s", error_text(call, result));
        return -ENODEV;
    }
    struct reading *reading = calloc(1, sizeof(*reading));
    if (!reading)
        return -ENOMEM;
    gpus_add(library, reading, n);
    struct nvml_wire_head head = {
        .magic = NVML_WIRE_MAGIC,
        .n_devices = reading->n_devices,
        .n_processes = reading->n_processes,
        .devices_left_out = reading->devices_left_out,
        .processes_left_out = reading->processes_left_out,
    };
    if (call->driver_version)
        (void)call->driver_version(head.driver, sizeof(head.driver));
    head.cost_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - began;
    buffer_append(out, (const char *)&head, sizeof(head));
    buffer_append(out, (const char *)reading->devices,
                  reading->n_devices * sizeof(*reading->devices));
    buffer_append(out, (const char *)reading->processes,
                  reading->n_processes * sizeof(*reading->processes));
    free(reading);
    return out->error;
}
