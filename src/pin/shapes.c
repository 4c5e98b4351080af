/* shapes.c: see shapes.h. */
#include "pin/shapes.h"

#include <string.h>

#include "pin/manager.h"

enum { TYPE_HOST = 1, TYPE_UNIFIED = 4, NODE_MEMCPY = 1, OPERAND_POINTER = 1 };

static uint64_t word(const void *params, size_t offset)
{
    uint64_t value;
    memcpy(&value, (const char *)params + offset, sizeof(value));
    return value;
}

static uint32_t half(const void *params, size_t offset)
{
    uint32_t value;
    memcpy(&value, (const char *)params + offset, sizeof(value));
    return value;
}

/* The pointer of a side whose type, host pointer and device pointer lie at these offsets; NULL: not
 * in host memory that is served. */
static const void *side(const void *params, size_t type, size_t host, size_t device)
{
    uint32_t kind = half(params, type);
    uint64_t at = kind == TYPE_HOST      ? word(params, host)
                  : kind == TYPE_UNIFIED ? word(params, device)
                                         : 0;
    return at && pin_owns((const void *)(uintptr_t)at) ? (const void *)(uintptr_t)at : NULL;
}

static bool choose(const void *src, const void *dst, uint64_t bytes, struct pin_shape *ret)
{
    *ret = (struct pin_shape){src ? src : dst, bytes, src ? PIN_TO_DEVICE : PIN_FROM_DEVICE};
    return ret->host != NULL;
}

bool pin_shape_2d(const void *p, struct pin_shape *ret)
{
    return p && choose(side(p, 16, 24, 32), side(p, 72, 80, 88), word(p, 112) * word(p, 120), ret);
}

bool pin_shape_3d(const void *p, struct pin_shape *ret)
{
    return p && choose(side(p, 32, 40, 48), side(p, 120, 128, 136),
                       word(p, 176) * word(p, 184) * word(p, 192), ret);
}

bool pin_shape_node(const void *p, struct pin_shape *ret)
{
    return p && half(p, 0) == NODE_MEMCPY && pin_shape_3d((const char *)p + 32, ret);
}

/* An operand has 40 bytes: its type, and 8 bytes on the pointer. */
bool pin_shape_batch(const void *p, struct pin_shape *ret)
{
    const void *at[2] = {NULL, NULL};
    for (unsigned i = 0; i < 2; i++) {
        const char *operand = (const char *)p + 40 * i;
        const void *pointer = (const void *)(uintptr_t)word(operand, 8);
        if (half(operand, 0) == OPERAND_POINTER && pin_owns(pointer))
            at[i] = pointer;
    }
    return choose(at[0], at[1], word(p, 80) * word(p, 88) * word(p, 96), ret);
}
