/* The loader's list of libraries in memory of a hostile process (link_map_walk()), from the auxiliary vector on. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "observe/elf_wire.h"
#include "observe/link_map.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MEMORY_AT UINT64_C(0x10000)

struct memory {
    const uint8_t *at;
    size_t n;
    uint64_t bytes_left, pieces_left;
};

static void memory_read(void *context, struct remote_piece *pieces, size_t n)
{
    struct memory *m = context;
    for (size_t i = 0; i < n; i++) {
        uint64_t at = pieces[i].address - MEMORY_AT;
        if (m->pieces_left == 0 || m->bytes_left < pieces[i].bytes)
            abort(); /* the child would be ended over a process that did nothing wrong */
        m->pieces_left--;
        m->bytes_left -= pieces[i].bytes;
        pieces[i].done = at <= m->n && pieces[i].bytes <= m->n - at;
        if (pieces[i].done)
            memcpy(pieces[i].to, m->at + at, pieces[i].bytes);
    }
}

/* The first byte: how many entries the vector has, of 16 bytes; all behind it is memory. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint64_t bases[LINK_MAP_MAX];
    if (size == 0)
        return 0;
    size_t auxv = data[0] * 16u;
    auxv = auxv < size - 1 ? auxv : size - 1;
    auxv = auxv < ELF_WIRE_AUXV_MAX ? auxv : ELF_WIRE_AUXV_MAX;
    uint8_t *copy = malloc(size);
    if (!copy)
        return 0;
    memcpy(copy, data + 1, size - 1);
    struct memory m = {copy + auxv, size - 1 - auxv, LINK_MAP_BYTES, LINK_MAP_PIECES};
    if (link_map_walk(copy, auxv, memory_read, &m, bases) > LINK_MAP_MAX)
        abort();
    free(copy);
    return 0;
}
