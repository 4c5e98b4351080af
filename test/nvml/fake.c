/* A libnvidia-ml.so.1 for tests, whose figures are lines of the file $FAKE_NVML, read again with each count of devices:
 *
 *     driver 999.12
 *     gpu uuid=GPU-1 bus=00000000:1B:00.0 total=1000 used=300 reserved=20 cores=100 name=NVIDIA Fake
 *     mig uuid=MIG-1 total=500 used=100 name=...      of the GPU above; "gpu mig=1" switches the mode on
 *     process pid=12 used=200 use=c                   of the device above; used=- is "not available"; use=cg for both lists
 *     mode hang|crash|refuse|long|old|no-memory       what goes wrong: see below
 *
 * It stands for NVIDIA's library, so it shares no code with src/nvml, and declares the layouts again. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* NVIDIA's header declares them */

#define EXPORT __attribute__((visibility("default")))

enum {
    DEVICES = 64,
    PROCESSES = 8192,
    OK = 0,
    INVALID = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    SMALL = 7,
    NOT_LOADED = 9,
    NO_FUNCTION = 13
};

struct device {
    char uuid[96], bus[32], name[96];
    unsigned long long total, used, reserved;
    unsigned cores;
    int mig, gpu; /* mode of a GPU; place of an instance's GPU, or -1 */
};

struct process {
    int device;
    unsigned pid;
    unsigned long long used;
    int compute, graphics;
};

static struct device devices[DEVICES];
static struct process processes[PROCESSES];
static unsigned n_devices, n_processes;
static char mode[32], driver[80];

static unsigned long long number(const char *line, const char *key)
{
    const char *at = strstr(line, key);
    if (!at)
        return 0;
    return at[strlen(key)] == '-' ? ~0ull : strtoull(at + strlen(key), NULL, 10);
}

static void word(char *to, size_t size, const char *line, const char *key, const char *end)
{
    const char *at = strstr(line, key);
    snprintf(to, size, "%.*s", at ? (int)strcspn(at + strlen(key), end) : 0,
             at ? at + strlen(key) : "");
}

static void device_line(const char *line, int gpu)
{
    struct device *d = &devices[n_devices++];
    *d = (struct device){.gpu = gpu,
                         .total = number(line, " total="),
                         .used = number(line, " used="),
                         .reserved = number(line, " reserved="),
                         .cores = (unsigned)number(line, " cores="),
                         .mig = (int)number(line, " mig=")};
    word(d->uuid, sizeof(d->uuid), line, " uuid=", " \n");
    word(d->bus, sizeof(d->bus), line, " bus=", " \n");
    word(d->name, sizeof(d->name), line, " name=", "\n");
}

static void load(void)
{
    char line[512];
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    int gpu = -1;
    n_devices = n_processes = 0;
    *mode = *driver = '\0';
    while (file && fgets(line, sizeof(line), file)) {
        if (strncmp(line, "driver ", 7) == 0)
            word(driver, sizeof(driver), line, "driver ", "\n");
        else if (strncmp(line, "mode ", 5) == 0)
            word(mode, sizeof(mode), line, "mode ", "\n");
        else if (strncmp(line, "gpu ", 4) == 0 && n_devices < DEVICES) {
            gpu = (int)n_devices;
            device_line(line, -1);
        } else if (strncmp(line, "mig ", 4) == 0 && n_devices < DEVICES)
            device_line(line, gpu);
        else if (strncmp(line, "process ", 8) == 0 && n_processes < PROCESSES) {
            char use[8];
            word(use, sizeof(use), line, " use=", " \n");
            processes[n_processes++] = (struct process){
                (int)n_devices - 1, (unsigned)number(line, " pid="), number(line, " used="),
                strchr(use, 'c') != NULL, strchr(use, 'g') != NULL};
        }
    }
    if (file)
        fclose(file);
}

/* Handles are places plus 1. */
static struct device *of(void *handle)
{
    uintptr_t place = (uintptr_t)handle;
    if (!place || place > n_devices)
        abort(); /* which the test would have to hear of */
    return &devices[place - 1];
}

EXPORT int nvmlInit_v2(void)
{
    load();
    if (strcmp(mode, "crash-init") == 0)
        abort(); /* by a signal that sanitizers leave alone */
    return strcmp(mode, "refuse") == 0 ? NOT_LOADED : OK;
}

EXPORT const char *nvmlErrorString(int result)
{
    return result == NOT_LOADED ? "Driver Not Loaded" : "Some Error";
}

EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    snprintf(version, length, "%s", driver);
    return OK;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count)
{
    load();
    if (strcmp(mode, "crash") == 0)
        abort(); /* by a signal that sanitizers leave alone */
    while (strcmp(mode, "hang") == 0)
        pause();
    *count = 0;
    for (unsigned i = 0; i < n_devices; i++)
        *count += devices[i].gpu < 0;
    return OK;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    for (unsigned i = 0; i < n_devices; i++)
        if (devices[i].gpu < 0 && index-- == 0) {
            *device = (void *)(uintptr_t)(i + 1);
            return OK;
        }
    return INVALID;
}

EXPORT int nvmlDeviceGetName(void *device, char *name, unsigned length)
{
    snprintf(name, length, "%s", of(device)->name);
    return OK;
}

EXPORT int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length)
{
    snprintf(uuid, length, "%s", of(device)->uuid);
    return of(device)->uuid[0] ? OK : NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetPciInfo_v3(void *device, void *pci)
{
    snprintf((char *)pci + 36, 32, "%s", of(device)->bus);
    return of(device)->bus[0] ? OK : NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetNumGpuCores(void *device, unsigned *cores)
{
    *cores = of(device)->cores;
    return *cores ? OK : NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetMaxClockInfo(void *device, int clock, unsigned *mhz)
{
    *mhz = clock == 1 ? 1000 : 0;
    return OK;
}

static unsigned long long free_bytes(const struct device *d)
{
    return d->total - d->used - d->reserved;
}

EXPORT int nvmlDeviceGetMemoryInfo(void *device, unsigned long long memory[3])
{
    const struct device *d = of(device);
    if (strcmp(mode, "no-memory") == 0)
        return NOT_SUPPORTED;
    memory[0] = d->total;
    memory[1] = free_bytes(d);
    memory[2] = d->used + d->reserved;
    return OK;
}

EXPORT int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending)
{
    *current = *pending = (unsigned)of(device)->mig;
    return OK;
}

EXPORT int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count)
{
    *count = 7;
    return OK;
}

/* Every other place is empty, as after instances were destroyed. */
EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **instance)
{
    int gpu = (int)(of(device) - devices);
    unsigned wanted = index / 2;
    if (index % 2)
        return NOT_FOUND;
    for (unsigned i = 0; i < n_devices; i++)
        if (devices[i].gpu == gpu && wanted-- == 0) {
            *instance = (void *)(uintptr_t)(i + 1);
            return OK;
        }
    return NOT_FOUND;
}

static int list(void *device, unsigned *count, void *infos, size_t length, int graphics)
{
    int place = (int)(of(device) - devices);
    unsigned n = 0;
    for (unsigned i = 0; i < n_processes; i++) {
        const struct process *p = &processes[i];
        if (p->device != place || !(graphics ? p->graphics : p->compute))
            continue;
        if (n < *count) {
            char *to = (char *)infos + n * length;
            memset(to, 0, length);
            memcpy(to, &p->pid, sizeof(p->pid));
            memcpy(to + 8, &p->used, sizeof(p->used));
            if (length >= 24)
                memset(to + 16, 0xff, 8);
        }
        n++;
    }
    int result = n > *count ? SMALL : OK;
    *count = n;
    return result;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, void *infos)
{
    return list(device, count, infos, 16, 0);
}

EXPORT int nvmlDeviceGetGraphicsRunningProcesses(void *device, unsigned *count, void *infos)
{
    return list(device, count, infos, 16, 1);
}

#ifndef FAKE_OLD /* what libraries before version 11 lack */
EXPORT int nvmlDeviceGetMemoryInfo_v2(void *device, void *memory)
{
    const struct device *d = of(device);
    unsigned version;
    memcpy(&version, memory, sizeof(version));
    if (version != (40u | 2u << 24))
        return 25; /* NVML_ERROR_ARGUMENT_VERSION_MISMATCH */
    if (strcmp(mode, "no-memory") == 0)
        return NOT_SUPPORTED;
    unsigned long long figures[] = {d->total, d->reserved, free_bytes(d), d->used};
    memcpy((char *)memory + 8, figures, sizeof(figures));
    return OK;
}

static size_t length_v3(void)
{
    return strcmp(mode, "long") == 0 ? 32 : 24;
}

static int is_old(void)
{
    return strcmp(mode, "old") == 0;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(void *device, unsigned *count, void *infos)
{
    return list(device, count, infos, 24, 0);
}

EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v2(void *device, unsigned *count, void *infos)
{
    return list(device, count, infos, 24, 1);
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *infos)
{
    return is_old() ? NO_FUNCTION : list(device, count, infos, length_v3(), 0);
}

EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, void *infos)
{
    return is_old() ? NO_FUNCTION : list(device, count, infos, length_v3(), 1);
}
#endif
