/* buffers.c: buffers that live. A buffer is known by its object, which nobody else is while it lives. */
#include "tt/tt.h"

enum { KEY_BUFFER = 0 };

void tt_buffer_made(struct tt_api *api, const void *buffer, const struct unwind_state *state)
{
    struct tt_buffer b;
    if (!tt_buffer_read(api, buffer, &b))
        return;
    int fan = tt_fan_find(api, b.device);
    if (fan < 0 || !tt_lock())
        return;
    bool fresh =
        tt_table_put((uintptr_t)buffer, KEY_BUFFER, (uint64_t)b.space << 32 | (uint32_t)fan);
    tt_unlock();
    if (!fresh)
        return;
    struct tt_site site = tt_site_find(api, state);
    tt_report_alloc(fan, b.space, (uintptr_t)buffer, b.bytes, &site);
}

/* Of a parent's buffers a child knows nothing, and nothing is told. */
void tt_buffer_gone(const void *buffer)
{
    uint64_t value = 0;
    if (!tt_lock())
        return;
    bool known = tt_table_take((uintptr_t)buffer, KEY_BUFFER, &value);
    tt_unlock();
    if (known)
        tt_report_free((int)(uint32_t)value, (int)(value >> 32), (uintptr_t)buffer);
}
