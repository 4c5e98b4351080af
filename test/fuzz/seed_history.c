/* Makes the first inputs of fuzz_history anew, after a change of the format: seed_history corpus/history */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "history/pack.h"
#include "history/recent.h"

static void save(const char *dir, const char *name, const void *data, size_t len)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = fopen(path, "we");
    if (!file || fwrite(data, 1, len, file) != len || fclose(file) != 0)
        exit(1);
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"unchanged", "leak", "sawtooth", "jump", "gaps", "max"};
    struct buffer row = BUFFER_INIT(1 << 20);
    if (argc != 2)
        return 2;
    for (unsigned k = 0; k < sizeof(names) / sizeof(*names); k++) {
        struct pack_points points = {.n = 60, .has_max = k == 5};
        uint8_t bytes[PACK_BYTES_MAX];
        for (unsigned i = 0; i < points.n; i++) {
            uint64_t values[] = {1 << 20, 4096 * i, i * 37 % 11, i < 30 ? 7 : UINT64_MAX,
                                 i * i,   i * 5};
            points.slot[i] = (uint8_t)(k == 4 ? 2 * i : i + 3);
            points.last[i] = values[k];
            points.max[i] = values[k] + (k == 5 ? i % 4 : 0);
        }
        size_t len = pack_encode(&points, bytes);
        save(argv[1], names[k], bytes, len);
        recent_append(&row, k * 1000, (k + 1) * 1000, bytes, len);
    }
    save(argv[1], "row", row.data, row.len);
    save(argv[1], "empty", "", 0);
    save(argv[1], "no-end", "\x10\x78\xff\xff\xff\xff\xff\xff\xff\xff", 10);
    buffer_release(&row);
    return 0;
}
