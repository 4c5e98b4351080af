/* Tenstorrent's messages come from any program that can open a socket, and have to be told apart by their
 * bytes alone. However a stream is cut into pieces, it means the same. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/tt_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool pid_ok(void *context, int32_t pid)
{
    return pid == 1000;
}

static void demand(bool holds)
{
    if (!holds)
        abort();
}

static void messages_round_trip(const uint8_t *data, size_t size)
{
    for (size_t at = 0; size - at >= TT_COMMON; at += TT_COMMON) {
        struct tt_answer answer = {.head = tt_decode(data + at)};
        for (int i = 0; i < TT_SIZES; i++) {
            uint8_t bytes[TT_SIZE_MAX];
            tt_encode(&answer, tt_sizes[i], bytes);
            struct tt_message again = tt_decode(bytes);
            demand(again.type == answer.head.type && again.device == answer.head.device &&
                   again.size == answer.head.size && again.pid == answer.head.pid &&
                   again.buffer_id == answer.head.buffer_id);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    messages_round_trip(data, size);
    struct tt_framing whole = {0}, pieces = {0};
    int r = tt_framing_look(&whole, data, size, pid_ok, NULL), again = 0;
    for (size_t n = 0; again == 0;) {
        again = tt_framing_look(&pieces, data, n, pid_ok, NULL);
        uint16_t guess = tt_framing_guess(&pieces, n);
        demand(guess == 0 || guess == n);
        if (n == size)
            break;
        n += 1 + data[n] % 7;
        n = n < size ? n : size;
    }
    demand(!pieces.proved || pieces.size == 72 || pieces.size == 112 || pieces.size == 128 ||
           pieces.size == 144);
    if (r == 0) {
        demand(again == 0);
        demand(whole.proved == pieces.proved);
        demand(!whole.proved || whole.size == pieces.size);
    }
    /* What comes after a guess is looked at from there. */
    for (int i = 0; i < TT_SIZES; i++) {
        struct tt_framing f = {.size = tt_sizes[i], .base = tt_sizes[i], .pid = 1000};
        if (tt_framing_look(&f, data, size, pid_ok, NULL) == 0 && f.proved)
            demand(f.size >= tt_sizes[i]);
    }
    return 0;
}
