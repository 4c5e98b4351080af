/* kernels.c: binaries of compiled programs.
 *
 * A program's kernels have sizes once it was compiled for a device; the profiler's call tells them. One
 * copy of each binary is counted for each device. On the device they are written into every core that runs
 * them, into a ring of some 70 KB which programs share and overwrite: what is in it at a moment nobody on the
 * host can tell, so this is what programs need, not what L1 holds. */
#include <string.h>

#include <memoir/memoir.h>

#include "tt/tt.h"

enum {
    KEY_KERNELS = 1, /* and the number of the fan above it */
    META_BYTES_MAX = 512,
    BINARY_BYTES = 16, /* of KernelBinaryMeta: a number and, eight bytes further, the size */
    BINARY_SIZE_AT = 8,
    BINARIES_MAX = 64, /* a kernel has three at most */
};
#define BINARY_MAX (UINT64_C(64) << 20)

static uint64_t key_of(int fan)
{
    return (uint64_t)fan << 8 | KEY_KERNELS;
}

/* Sum of the sizes in one KernelMeta, whose last member is the vector of binaries; frees that. False if
 * it does not look like one. */
static bool meta_take(struct tt_api *api, const char *meta, size_t bytes, uint64_t *sum)
{
    struct tt_vector binaries;
    memcpy(&binaries, meta + bytes - sizeof(binaries), sizeof(binaries));
    size_t length = (size_t)(binaries.end - binaries.begin);
    if (!binaries.begin)
        return length == 0;
    if (binaries.end < binaries.begin || binaries.room < binaries.end || length % BINARY_BYTES ||
        length / BINARY_BYTES > BINARIES_MAX)
        return false;
    for (const char *at = binaries.begin; at < binaries.end; at += BINARY_BYTES) {
        uint64_t size;
        memcpy(&size, at + BINARY_SIZE_AT, sizeof(size));
        if (size > BINARY_MAX)
            return false;
        *sum += size;
    }
    api->vector_free(binaries.begin);
    return true;
}

/* The size of a KernelMeta differs from version to version, but there is one for each kernel. */
static bool binaries_sum(struct tt_api *api, const void *program, void *device, uint64_t *ret_sum)
{
    size_t kernels = api->num_kernels(program);
    struct tt_vector metas = api->kernel_meta(program, device);
    size_t length = (size_t)(metas.end - metas.begin), bytes = kernels ? length / kernels : 0;
    bool good = metas.end >= metas.begin && (kernels == 0 || length % kernels == 0) &&
                bytes <= META_BYTES_MAX && bytes % sizeof(void *) == 0 &&
                (kernels == 0 || bytes >= sizeof(struct tt_vector));
    *ret_sum = 0;
    for (size_t i = 0; good && i < kernels; i++)
        good = meta_take(api, metas.begin + i * bytes, bytes, ret_sum);
    if (metas.begin)
        api->vector_free(metas.begin);
    return good;
}

void tt_program_compiled(struct tt_api *api, const void *program, void *device,
                         const struct unwind_state *state)
{
    uint64_t sum = 0;
    int fan = tt_fan_find(api, device);
    if (fan < 0 || !tt_lock())
        return;
    bool known = tt_table_get((uintptr_t)program, key_of(fan), &sum);
    tt_unlock();
    if (known)
        return; /* compiling what is compiled does nothing */
    if (!binaries_sum(api, program, device, &sum)) {
        __atomic_fetch_and(&api->features, ~(uint32_t)TT_KERNELS, __ATOMIC_RELAXED);
        tt_say("kernels off: ", "this version tells their sizes in another form");
        return;
    }
    if (!tt_lock())
        return;
    bool fresh = tt_table_put((uintptr_t)program, key_of(fan), sum);
    tt_unlock();
    if (!fresh || sum == 0)
        return;
    struct tt_site site = tt_site_find(api, state);
    tt_report_alloc(fan, MEMOIR_SPACE_KERNEL, (uintptr_t)program, sum, &site);
}

void tt_program_gone(const void *program)
{
    for (int fan = 0, n = tt_fans(); fan < n; fan++) {
        uint64_t sum = 0;
        if (!tt_lock())
            return;
        bool known = tt_table_take((uintptr_t)program, key_of(fan), &sum);
        tt_unlock();
        if (known && sum > 0)
            tt_report_free(fan, MEMOIR_SPACE_KERNEL, (uintptr_t)program);
    }
    tt_cbs_of_program_gone(program);
}
