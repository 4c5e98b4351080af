/* Regions of tt-metal are any user's bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "book/layout.h"
#include "ledger/region.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct region_view view;
    uint64_t asic_id = 0;
    if (size >= 40)
        memcpy(&asic_id, data + 32, sizeof(asic_id)); /* whoever names a file knows the id */
    if (region_parse(data, size, asic_id, &view) < 0)
        return 0;
    require(size >= REGION_BYTES && view.n + view.nonsense <= REGION_SLOTS);
    for (size_t i = 0; i < view.n; i++) {
        const struct region_slot *slot = &view.slots[i];
        require(slot->pid > 0 && strnlen(slot->name, sizeof(slot->name)) < sizeof(slot->name));
        for (size_t s = 0; s < REGION_SPACES; s++)
            require(slot->bytes[s] <= BOOK_BLOCK_SIZE_MAX * REGION_SLOTS);
        for (size_t k = 0; k < i; k++)
            require(view.slots[k].pid != slot->pid);
    }
    return 0;
}
