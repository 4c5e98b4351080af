/* checksum.c: see checksum.h. */
#include "pin/checksum.h"

#include <string.h>

#include "base/hash.h"
#include "pin/lock.h"
#include "pin/manager.h"
#include "pin/region.h"

enum { PART = 1 << 20 };

static char *again; /* PART bytes, pageable; under the lock: */
static uint32_t lock;

void pin_checksum(const void *host, CUdeviceptr device, uint64_t bytes, enum pin_direction to)
{
    const struct pin_driver *d = pin_driver();
    struct pin_counts *c = &pin_manager.counts;
    uint64_t sum = 0;
    bool same = true;
    if (!d || bytes == 0 || !pin_lock_take(&lock))
        return;
    if (!again)
        again = region_table(PART);
    for (uint64_t at = 0; again && at < bytes; at += PART) {
        uint64_t n = bytes - at < PART ? bytes - at : PART;
        const char *part = (const char *)host + at;
        bool outer = pin_inside;
        pin_inside = true;
        bool read = d->memcpyDtoH(again, device + at, n) == CUDA_SUCCESS;
        pin_inside = outer;
        same = same && read && memcmp(again, part, n) == 0;
        sum = hash_combine(sum, hash_bytes(again, n, at));
    }
    pin_lock_give(&lock);
    fetch_add_relaxed(&c->checked_copies, 1);
    fetch_add_relaxed(&c->checked_bytes, bytes);
    fetch_add_relaxed(&c->mismatches, !same);
    fetch_add_relaxed(&c->checksum, hash_combine(sum, (uint64_t)to));
}
