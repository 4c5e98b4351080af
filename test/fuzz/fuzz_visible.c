/* The environment of another process may hold anything; the devices that it means are among those that there are, each once. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "nvml/visible.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct nvml_device devices[] = {
    {.index = 2, .mig_index = -1, .uuid = "GPU-aaaa1111", .name = "A", .speed = 1},
    {.index = 0, .mig_index = -1, .uuid = "GPU-aaab2222", .name = "B", .speed = 9},
    {.index = 1, .mig_index = -1, .mig_count = 2, .uuid = "GPU-cccc3333", .name = "A", .speed = 5},
    {.index = 1, .mig_index = 0, .uuid = "MIG-dddd4444", .name = "A MIG"},
    {.index = 1, .mig_index = 3, .uuid = "MIG-GPU-eeee/1/0", .name = "A MIG"},
};
enum { N = sizeof(devices) / sizeof(*devices) };

static void demand(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *bytes =
        malloc(size ? size : 1); /* exactly, so that a sanitizer sees what is read beyond */
    if (!bytes)
        return 0;
    memcpy(bytes, data, size);
    const char *visible = visible_environ(bytes, size, "CUDA_VISIBLE_DEVICES");
    const char *order = visible_environ(bytes, size, "CUDA_DEVICE_ORDER");
    struct visible v;
    visible_devices(visible, order, devices, N, &v);
    demand(v.n <= N);
    for (size_t i = 0; i < v.n; i++) {
        demand(v.devices[i] < N && devices[v.devices[i]].mig_count == 0);
        for (size_t k = 0; k < i; k++)
            demand(v.devices[k] != v.devices[i]);
    }
    free(bytes);
    return 0;
}
