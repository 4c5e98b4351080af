/* pin_chain.c: small blocks in segments that are pinned whole. Links libmemoir-malloc for its chains
 * and libmemoir-cuda for the segments; checks every byte that it copies, and prints one line of
 * JSON. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memoir/malloc.h>
#include <memoir/pin.h>

#include "driver.h"

enum { SEGMENT = 1 << 20, BLOCKS = 300, ROUNDS = 12 };

static unsigned wrong, segments;

static void fail(const char *what, long at)
{
    if (wrong++ < 10)
        fprintf(stderr, "pin_chain: %s (%ld)\n", what, at);
}

/* ---- the source of the chain ---- */

static void *request(void *user, size_t bytes, size_t *ret_bytes)
{
    *ret_bytes = bytes > SEGMENT ? (bytes + 4095) & ~(size_t)4095 : SEGMENT;
    void *segment = memoir_pin_alloc(*ret_bytes);
    segments += segment != NULL;
    return segment;
}

static void give_back(void *user, void *segment, size_t bytes)
{
    memoir_pin_free(segment);
    segments--;
}

/* ---- blocks ---- */

struct small {
    unsigned char *bytes;
    size_t size;
};

static void round_trip(struct small *b, CUdeviceptr device, unsigned seed)
{
    for (size_t i = 0; i < b->size; i++)
        b->bytes[i] = (unsigned char)(seed + i * 7);
    if (CU(cuMemcpyHtoD_v2)(device, b->bytes, b->size))
        fail("to the device", seed);
    memset(b->bytes, 0, b->size);
    if (CU(cuMemcpyDtoH_v2)(b->bytes, device, b->size))
        fail("from the device", seed);
    for (size_t i = 0; i < b->size; i++)
        if (b->bytes[i] != (unsigned char)(seed + i * 7)) {
            fail("round trip", seed);
            break;
        }
}

static bool is_pinned(const void *block)
{
    struct memoir_pin_why why = {.struct_size = sizeof(why)};
    return memoir_pin_why(block, &why) == 0 && why.pinned;
}

int main(void)
{
    CUcontext context;
    CUdeviceptr device;
    struct memoir_chain *chain;
    struct small block[BLOCKS] = {0};
    struct memoir_chain_options options = {
        .struct_size = sizeof(options), .request = request, .give_back = give_back};
    driver_open(DRIVER_BY_VERSION);
    if (CU(cuInit)(0) || CU(cuDevicePrimaryCtxRetain)(&context, 0) ||
        CU(cuCtxSetCurrent)(context) || CU(cuMemAlloc_v2)(&device, 64 << 10) ||
        memoir_chain_init(NULL, SEGMENT, &options, &chain) != 0) {
        fprintf(stderr, "pin_chain: no driver or no chain\n");
        return 2;
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        block[i].size = 64 + i * 7919 % (32 << 10);
        block[i].bytes = memoir_chain_alloc(chain, block[i].size);
        if (!block[i].bytes)
            fail("no memory", i);
    }
    for (unsigned n = 0; n < ROUNDS; n++)
        for (unsigned i = 0; i < BLOCKS; i++) {
            round_trip(&block[i], device, n + i);
            if (i % 5 == n % 5) { /* blocks come and go inside their segment */
                memoir_chain_free(chain, block[i].bytes);
                block[i].bytes = memoir_chain_alloc(chain, block[i].size);
            }
        }
    unsigned pinned = 0, most = segments;
    for (unsigned i = 0; i < BLOCKS; i++)
        pinned += is_pinned(block[i].bytes);
    struct memoir_pin_stats stats = {.struct_size = sizeof(stats)};
    memoir_pin_stats(&stats);
    memoir_chain_destroy(chain);
    if (segments)
        fail("segments are left", segments);
    printf("{\"wrong\": %u, \"blocks\": %d, \"pinned_blocks\": %u, \"segments\": %u, "
           "\"registers\": %llu, \"pinned_bytes\": %llu, \"pinned_copies\": %llu}\n",
           wrong, BLOCKS, pinned, most, (unsigned long long)stats.registers,
           (unsigned long long)stats.pinned_bytes, (unsigned long long)stats.pinned_copies);
    return wrong != 0;
}
