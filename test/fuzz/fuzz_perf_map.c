/* Maps of code made at run time are written by the programs that are looked at. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "site/perf_map.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct perf_map *map = NULL;
    uint64_t address = 0;
    if (perf_map_parse((const char *)data, size, &map) < 0)
        return 0;
    if (perf_map_entries(map) > size / 4)
        abort();
    memcpy(&address, data, size < sizeof(address) ? size : sizeof(address));
    static const uint64_t addresses[] = {0, 0x1000, 0x7f0000000000, UINT64_MAX};
    for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
        const char *name = perf_map_find(map, addresses[i]);
        if (name && strlen(name) > PERF_MAP_NAME_MAX)
            abort();
    }
    (void)perf_map_find(map, address);
    perf_map_free(map);
    return 0;
}
