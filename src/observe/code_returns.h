/* code_returns.h: where a function returns.
 *
 * The kernel's return probe replaces the return address on the stack, and an exception cannot pass that. A function that may throw
 * (operator new) is probed inside instead: its code is followed from the entry, through every jump, also into functions that it ends with
 * a jump to. Calls are passed over; jumps through memory (a stub of the PLT) and tables are not followed. This needs no symbols, and keeps
 * to instruction boundaries as the processor does, because it follows what the processor would run.
 *
 * A probe on the ret itself would be single-stepped, which takes ten times as long. So it goes on the jump before it, which the
 * kernel carries out itself, where the instructions between are such that one knows which register will be the result, how far up the
 * return address lies, and on which condition the jump leads there. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CODE_RETURNS_MAX = 64,            /* places of one function */
    CODE_RETURNS_INSTRUCTIONS = 8192, /* that are looked at */
    CODE_RETURNS_UP_MAX = 2040,       /* bytes up to a return address: what a cookie can say */
};

/* A place from which the function returns for certain, if the condition holds. */
struct code_return {
    uint64_t at;
    bool slow;        /* the ret instruction */
    uint8_t result;   /* register that has the result, by the processor's number */
    uint32_t up;      /* bytes from the stack pointer to the return address */
    bool conditional; /* it returns if the jump with this condition... */
    bool taken;       /* ... is taken; or is not */
    uint8_t condition;
};

/* Copies up to `n` bytes of code from a place; returns how many. */
typedef size_t code_read_fn(void *context, uint64_t at, uint8_t *to, size_t n);

/* All places that code from `start` on returns from: how many, or -errno: -E2BIG too many, -EILSEQ an unknown instruction: none can be
 * trusted then. */
int code_returns_find(code_read_fn *read, void *context, uint64_t start,
                      struct code_return ret_places[static CODE_RETURNS_MAX]);
