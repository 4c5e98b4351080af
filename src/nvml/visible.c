/* See visible.h. */
#include "nvml/visible.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { NONE = -1, PREFIX_LEN = 4 /* "GPU-", "MIG-" */ };

const char *visible_environ(const char *environ_bytes, size_t len, const char *name)
{
    size_t name_len = strlen(name);
    for (size_t at = 0; at < len;) {
        const char *entry = environ_bytes + at, *end = memchr(entry, '\0', len - at);
        if (!end)
            return NULL; /* cut */
        if ((size_t)(end - entry) > name_len && memcmp(entry, name, name_len) == 0 &&
            entry[name_len] == '=')
            return entry + name_len + 1;
        at += (size_t)(end - entry) + 1;
    }
    return NULL;
}

/* ---- CUDA's own order ---- */

static bool are_alike(const struct nvml_device *devices, const uint32_t *gpus, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (strcmp(devices[gpus[i]].name, devices[gpus[0]].name) != 0)
            return false;
    return true;
}

/* The fastest moves to the front; the others keep the order of their PCI addresses. */
static void fastest_first(const struct nvml_device *devices, uint32_t *gpus, size_t n)
{
    size_t fastest = 0;
    for (size_t i = 1; i < n; i++)
        if (devices[gpus[i]].speed > devices[gpus[fastest]].speed)
            fastest = i;
    uint32_t first = n ? gpus[fastest] : 0;
    memmove(gpus + 1, gpus, fastest * sizeof(*gpus));
    if (n)
        gpus[0] = first;
}

/* GPUs by CUDA's number. */
static size_t gpus_order(const char *order, const struct nvml_device *devices, size_t n,
                         uint32_t gpus[static NVML_DEVICES_MAX], bool *ret_certain)
{
    size_t found = 0;
    for (size_t i = 0; i < n && found < NVML_DEVICES_MAX; i++)
        if (devices[i].mig_index < 0)
            gpus[found++] = (uint32_t)i;
    for (size_t i = 1; i < found; i++) /* few, and nearly always in order */
        for (size_t k = i; k > 0 && devices[gpus[k]].index < devices[gpus[k - 1]].index; k--) {
            uint32_t swap = gpus[k];
            gpus[k] = gpus[k - 1];
            gpus[k - 1] = swap;
        }
    bool by_bus = order && strcmp(order, "PCI_BUS_ID") == 0;
    *ret_certain = by_bus || are_alike(devices, gpus, found);
    if (!by_bus && !*ret_certain)
        fastest_first(devices, gpus, found);
    return found;
}

/* ---- the list ---- */

/* What a GPU is for CUDA: itself, or in MIG mode its first instance; NONE where it has none. */
static int64_t enumerated(const struct nvml_device *devices, size_t n, uint32_t gpu)
{
    if (!devices[gpu].mig_count)
        return gpu;
    for (size_t i = 0; i < n; i++)
        if (devices[i].mig_index >= 0 && devices[i].index == devices[gpu].index)
            return (int64_t)i;
    return NONE;
}

/* The device whose UUID begins with these bytes; NONE where none or several do. */
static int64_t by_uuid(const struct nvml_device *devices, size_t n, const char *text, size_t len)
{
    int64_t found = NONE;
    if (len <= PREFIX_LEN) /* the word alone names no device, even where there is only one */
        return NONE;
    for (size_t i = 0; i < n; i++) {
        if (strncasecmp(devices[i].uuid, text, len) != 0)
            continue;
        if (found != NONE)
            return NONE;
        found = (int64_t)i;
    }
    return found;
}

static bool has_word(const char *text, const char *word)
{
    return strncmp(text, word, PREFIX_LEN) == 0;
}

/* One element of the list. NONE ends it. */
static int64_t element(const char *text, size_t len, const char *word, const uint32_t *gpus,
                       size_t n_gpus, const struct nvml_device *devices, size_t n)
{
    if (word)
        return len >= PREFIX_LEN && has_word(text, word) ? by_uuid(devices, n, text, len) : NONE;
    char *end;
    long number = strtol(text, &end, 10); /* as the driver does: "0x" is 0, " 1" is 1 */
    if (end == text || number < 0 || (unsigned long)number >= n_gpus)
        return NONE;
    return gpus[number];
}

static bool list_take(const char *list, const uint32_t *gpus, size_t n_gpus,
                      const struct nvml_device *devices, size_t n, struct visible *v)
{
    const char *word = has_word(list, "GPU-") ? "GPU-" : has_word(list, "MIG-") ? "MIG-" : NULL;
    for (;;) {
        size_t len = strcspn(list, ",");
        int64_t found = element(list, len, word, gpus, n_gpus, devices, n);
        if (found == NONE || v->n == NVML_DEVICES_MAX)
            return true; /* what comes before an invalid element counts */
        for (size_t i = 0; i < v->n; i++)
            if (v->devices[i] == (uint32_t)found)
                return false; /* named twice: CUDA refuses the whole list */
        v->devices[v->n++] = (uint32_t)found;
        if (!list[len])
            return true;
        list += len + 1;
    }
}

void visible_devices(const char *visible, const char *order, const struct nvml_device *devices,
                     size_t n, struct visible *ret_visible)
{
    uint32_t gpus[NVML_DEVICES_MAX];
    struct visible *v = ret_visible;
    *v = (struct visible){0};
    size_t n_gpus = gpus_order(order, devices, n, gpus, &v->certain);
    if (!visible) {
        memcpy(v->devices, gpus, n_gpus * sizeof(*gpus));
        v->n = n_gpus;
    } else if (!list_take(visible, gpus, n_gpus, devices, n, v)) {
        v->n = 0;
    }
    if (visible && (has_word(visible, "GPU-") || has_word(visible, "MIG-")))
        v->certain = true; /* an order of its own */
    size_t kept = 0;
    for (size_t i = 0; i < v->n; i++) {
        int64_t device = enumerated(devices, n, v->devices[i]);
        bool mig = device != NONE && devices[device].mig_index >= 0;
        if (device == NONE)
            continue;
        if (mig && v->n > 1)
            v->certain = false;
        v->devices[mig ? 0 : kept++] = (uint32_t)device;
        if (mig) { /* a process has one MIG instance and nothing else */
            kept = 1;
            break;
        }
    }
    v->n = kept;
}
