/* code_instruction.h: how long an instruction of x86-64 is, and where it goes on. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CODE_INSTRUCTION_MAX = 15 }; /* bytes, as the processor has it */

enum code_flow {
    CODE_BAD,    /* not known */
    CODE_NEXT,   /* goes on behind it, also after a call */
    CODE_JUMP,   /* goes on at `target` */
    CODE_BRANCH, /* at either */
    CODE_RETURN,
    CODE_STOP, /* a jump that cannot be followed, or the end */
};

struct code_instruction {
    enum code_flow flow;
    size_t bytes;
    bool call, nop;
    int64_t target; /* from the first byte of the instruction */
};

/* One instruction. CODE_BAD: it does not fit in `n` bytes, or is not known. */
struct code_instruction code_instruction_read(const uint8_t *code, size_t n);
