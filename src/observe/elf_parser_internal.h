/* elf_parser_internal.h: what elf_file.c asks of elf_parser.c. */
#pragma once

#include "observe/elf_parser.h"
#include "observe/elf_wire.h"
#include "observe/remote_memory.h"

/* A question with what it needs to be answered. */
struct elf_question {
    struct elf_ask ask;
    const void *payload; /* ask.payload_bytes */
    elf_read_fn *read;   /* bytes of the file; NULL: there is none */
    void *read_context;
    /* Memory of the process; NULL: none is read. What is left of it and of the pieces for this question: a child that asks for more is
     * ended. */
    remote_read_fn *memory;
    void *memory_context;
    uint64_t memory_left;
    uint32_t pieces_left;
    elf_function_fn *each; /* EXPORTS, FUNCTIONS */
    void *each_context;
    void *told;        /* what follows DONE where the result is 0: exactly told_bytes, */
    size_t told_bytes; /* or, with told_item, up to told_bytes in items of that size: done.bytes */
    size_t told_item;
    uint32_t answer_ms; /* 0: the time that tables of a large file may take */
    struct elf_tell done;
};

/* A question about memory of a process: ensures a child and asks it. done.result; -EBADMSG: the child died or had to be ended over it,
 * or over this process before: *deaths counts, up to ELF_FILE_DEATHS_MAX. -EPERM, -EBUSY: there is no child. */
int elf_parser_ask_process(struct elf_parser *parser, struct elf_question *question,
                           uint32_t *deaths);

/* Ask the child, which runs. done.result; -EPIPE: it died or had to be ended, and the question may be why. */
int elf_parser_ask(struct elf_parser *parser, struct elf_question *question);

/* Have a child that runs: 0, -EPERM, -EBUSY if too many died lately. Its generation changes with each start. */
int elf_parser_ensure(struct elf_parser *parser);
uint32_t elf_parser_generation(const struct elf_parser *parser);

/* Numbers for files: -ENOSPC. */
int elf_parser_slot_take(struct elf_parser *parser, uint32_t *ret_slot);
void elf_parser_slot_give(struct elf_parser *parser, uint32_t slot);

/* For tests: a parser whose child is whatever is at the other end of `fd`, which it takes. */
int elf_parser_for_test(int fd, struct elf_parser **ret_parser);
