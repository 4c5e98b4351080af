/* elf_parser_internal.h: what elf_file.c asks of elf_parser.c. */
#pragma once

#include "observe/elf_parser.h"
#include "observe/elf_wire.h"

/* A question with what it needs to be answered. */
struct elf_question {
    struct elf_ask ask;
    const uint8_t *stack; /* ask.stack_bytes */
    elf_read_fn *read;    /* bytes of the file */
    void *read_context;
    elf_function_fn *each; /* EXPORTS, FUNCTIONS */
    void *each_context;
    void *told; /* what follows DONE: exactly told_bytes where the result is 0 */
    size_t told_bytes;
    struct elf_tell done;
};

/* Ask the child, which runs. done.result; -EPIPE: it died or had to be ended, and the question may be why. */
int elf_parser_ask(struct elf_parser *parser, struct elf_question *question);

/* Have a child that runs: 0, -EPERM, -EBUSY if too many died lately. Its generation changes with each start. */
int elf_parser_ensure(struct elf_parser *parser);
uint32_t elf_parser_generation(const struct elf_parser *parser);

/* Numbers for files: -ENOSPC. */
int elf_parser_slot_take(struct elf_parser *parser, uint32_t *ret_slot);
void elf_parser_slot_give(struct elf_parser *parser, uint32_t slot);
