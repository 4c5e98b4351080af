/* region_builder.h: compose a region of tt-metal in memory, for tests. */
#pragma once

#include <stdint.h>
#include <string.h>
#include <time.h>

#include "ledger/region.h"

enum { REGION_READY = 0x52454459 };

static inline void put_u32(uint8_t *at, uint32_t value)
{
    memcpy(at, &value, sizeof(value));
}

static inline void put_u64(uint8_t *at, uint64_t value)
{
    memcpy(at, &value, sizeof(value));
}

static inline uint64_t region_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline void region_compose(uint8_t bytes[REGION_BYTES], uint32_t version, uint64_t asic_id,
                                  uint32_t device_id)
{
    memset(bytes, 0, REGION_BYTES);
    put_u32(bytes, version);
    put_u64(bytes + 8, region_now_ns());
    put_u64(bytes + 32, asic_id);
    put_u32(bytes + 40, device_id);
    for (int i = 0; i < 16; i++)
        put_u32(bytes + 88 + i * 48, UINT32_MAX);
    if (version >= 4)
        put_u32(bytes + 8536, REGION_READY);
}

static inline void region_put_slot(uint8_t *bytes, int slot, int32_t pid, const uint64_t counts[5],
                                   const char *name)
{
    uint8_t *at = bytes + 856 + slot * 120;
    put_u32(at, (uint32_t)pid);
    for (int i = 0; i < 5; i++)
        put_u64(at + 8 + 8 * i, counts[i]);
    put_u64(at + 48, region_now_ns());
    strncpy((char *)at + 56, name, 64);
}
