/* Instructions of a hostile file, decoded for places of probes: lengths, jumps, returns, registers (code_returns.h, probe_place.h). */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "observe/code_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct bytes {
    const uint8_t *at;
    size_t n;
};

static int64_t file_read(void *context, uint64_t offset, void *to, size_t n)
{
    const struct bytes *b = context;
    if (offset >= b->n)
        return 0;
    n = n < b->n - offset ? n : b->n - (size_t)offset;
    memcpy(to, b->at + offset, n);
    return (int64_t)n;
}

/* The first byte: which arguments are needed. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct code_return places[CODE_RETURNS_MAX];
    struct probe_place place;
    if (size < 2)
        return 0;
    struct bytes b = {.n = size - 1};
    uint8_t *copy = malloc(b.n);
    if (!copy)
        return 0;
    memcpy(copy, data + 1, b.n);
    b.at = copy;
    code_place_here(file_read, &b, 0, b.n, data[0] & 7, &place);
    if (place.offset >= PROBE_PLACE_BYTES || (place.offset > 0 && place.offset >= b.n))
        abort();
    for (int i = 0; i < PROBE_ARGUMENTS; i++)
        if (place.at[i] >= PROBE_REGISTERS)
            abort();
    int n = code_returns_here(file_read, &b, 0, places);
    for (int i = 0; i < n; i++)
        if (places[i].result >= PROBE_REGISTERS || places[i].condition > 15 ||
            places[i].up > CODE_RETURNS_UP_MAX || places[i].up % 8 != 0 || places[i].at >= b.n)
            abort();
    struct code_instruction first = code_first_here(file_read, &b, 0);
    if (first.bytes > CODE_INSTRUCTION_MAX || (first.flow != CODE_BAD && first.bytes > b.n))
        abort();
    free(copy);
    return 0;
}
