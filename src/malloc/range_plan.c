/* range_plan.c: see range_plan.h. */
#include "malloc/range_plan.h"

#include <errno.h>

/* 24 TiB. With the usual 256 slots of 64 GiB they end at 40 TiB: above the shadow of AddressSanitizer and the heaps of Go and of Java,
 * below where the kernel puts programs (85 TiB), libraries (127 TiB), and mappings of programs with an unlimited stack (42 TiB). */
#define BASE_AUTO ((uint64_t)24 << 40)
#define UNIT      ((uint64_t)2 << 20) /* of the address map */
#define BYTES_MIN (16 * UNIT)
#define BYTES_MAX ((uint64_t)16 << 40)
#define USER_END  ((uint64_t)1 << 47)

int range_plan(const struct malloc_settings *s, struct range_plan *ret, const char **ret_why)
{
    uint64_t base = s->range_base == SETTING_AUTO ? BASE_AUTO : s->range_base;
    uint64_t bytes = s->range_bytes;
    if (base == 0)
        return 0;
    const char *why = NULL;
    if (base % UNIT != 0)
        why = "range is not a multiple of 2 MiB";
    else if (bytes % UNIT != 0 || bytes < BYTES_MIN || bytes > BYTES_MAX)
        why = "range_bytes is not a multiple of 2 MiB from 32M to 16T";
    else if (s->slot >= s->slots)
        why = "slot is not one of the slots";
    else if (base >= USER_END || s->slots > (USER_END - base) / bytes)
        why = "the slots do not fit below 0x800000000000";
    if (why) {
        *ret_why = why;
        return -EINVAL;
    }
    *ret = (struct range_plan){base, bytes, (uint32_t)s->slot, (uint32_t)s->slots};
    return 1;
}
