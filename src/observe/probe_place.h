/* probe_place.h: where at the start of a function a probe costs least.
 *
 * The kernel carries out push, nop and jumps itself; any other instruction under a probe is single-stepped, which takes
 * ten times as long. From the entry on, instructions are passed over that leave the stack pointer alone and the arguments in some
 * register, up to the first cheap one. At the least doubt it is the entry: a probe inside an instruction would break the
 * program. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PROBE_PLACE_BYTES = 64 }; /* of a function that are looked at */

/* Arguments of a function, and the registers that they come in, by the processor's numbers. */
enum { PROBE_ARGUMENTS = 3, PROBE_RDI = 7, PROBE_RSI = 6, PROBE_RDX = 2 };

struct probe_place {
    size_t offset;               /* from the entry */
    bool cheap;                  /* the kernel carries out the instruction there itself */
    uint8_t at[PROBE_ARGUMENTS]; /* registers that the arguments are in there */
};

/* Of a function with `n` bytes at `code`. `needs`: arguments that must be found, as bits. */
void probe_place_find(const uint8_t *code, size_t n, uint32_t needs, struct probe_place *ret_place);

/* Registers, by the processor's numbers, and one that holds nothing that is looked for. */
enum { PROBE_REGISTERS = 16, PROBE_NONE = 255 };

/* What one instruction of `n` bytes does to what registers hold. False: it is not known, or changes the stack pointer. */
bool probe_instruction_follow(const uint8_t *code, size_t n, uint8_t holds[static PROBE_REGISTERS]);
