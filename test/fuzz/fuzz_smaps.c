/* smaps, whose paths a process chooses. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "explain/owner.h"
#include "explain/smaps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void heads_look(const uint8_t *data)
{
    uint64_t left = 1 << 20, at = UINT64_C(0x7f0000000000);
    if (owner_glibc_chunk(data, left) > left || owner_glibc_arena(data, left) > left ||
        owner_python_arena(data, left) > left || owner_v8_chunk(data, at, left) > left ||
        owner_php_chunk(data, at, left) > left || owner_memoir_huge(data, at, left) > left)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct smaps smaps;
    if (size >= OWNER_HEAD)
        heads_look(data);
    if (smaps_parse((const char *)data, size, &smaps) < 0)
        return 0;
    uint64_t sum = 0;
    for (size_t i = 0; i < smaps.n; i++) {
        const struct smaps_mapping *m = &smaps.all[i];
        if (m->start >= m->end || (i && m[-1].end > m->start) || m->name >= smaps.names.len ||
            strlen(smaps_name(&smaps, m)) >= SMAPS_LINE_MAX)
            abort();
        sum += m->rss;
        if (sum < m->rss) /* saturates */
            sum = UINT64_MAX;
    }
    if (sum != smaps.rss)
        abort();
    smaps_release(&smaps);
    return 0;
}
