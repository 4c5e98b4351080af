/* code_file.h: instructions of an ELF file of another process, decoded where that does no harm.
 *
 * Probes are put where instructions at the start and the end of a function make that cheap (probe_place.h, code_returns.h). The bytes
 * are those of a user's file, so the parser decodes them (elf_parser.h) and the observer checks the answer: registers, conditions and
 * distances are in range. NULL for the parser: this process decodes, for tests. `read` gives bytes of the file. One thread at a time. */
#pragma once

#include <stdint.h>

#include "observe/code_instruction.h"
#include "observe/code_returns.h"
#include "observe/elf_image.h"
#include "observe/probe_place.h"

struct elf_parser;

/* probe_place_find() for a function at `offset`, of `bytes` bytes (0: unknown). Without an answer: the entry, with the arguments
 * where they come. */
void code_file_place(struct elf_parser *parser, elf_read_fn *read, void *context, uint64_t offset,
                     uint64_t bytes, uint32_t needs, struct probe_place *ret_place);

/* code_returns_find(); also -EBADMSG, -EPERM, -EBUSY: there is no answer. */
int code_file_returns(struct elf_parser *parser, elf_read_fn *read, void *context, uint64_t offset,
                      struct code_return ret_places[static CODE_RETURNS_MAX]);

/* code_instruction_read() at `offset`; without an answer CODE_BAD. */
struct code_instruction code_file_first(struct elf_parser *parser, elf_read_fn *read, void *context,
                                        uint64_t offset);

/* ---- for code_file.c and the child ---- */

/* As they travel. */
struct code_told_place {
    uint32_t offset;
    uint8_t cheap, at[PROBE_ARGUMENTS];
};

struct code_told_return {
    uint64_t at;
    uint32_t up;
    uint8_t slow, result, conditional, taken, condition, spare[7];
};

struct code_told_first {
    uint32_t flow, bytes;
    uint8_t call, nop, spare[6];
    int64_t target;
};

void code_place_here(elf_read_fn *read, void *context, uint64_t offset, uint64_t bytes,
                     uint32_t needs, struct probe_place *ret_place);
int code_returns_here(elf_read_fn *read, void *context, uint64_t offset,
                      struct code_return ret_places[static CODE_RETURNS_MAX]);
struct code_instruction code_first_here(elf_read_fn *read, void *context, uint64_t offset);
