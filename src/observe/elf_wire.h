/* elf_wire.h: what the observer and its parser say to each other (elf_parser.h), over a stream socket.
 *
 * The observer sends a struct elf_ask, with `payload_bytes` bytes after it. The child answers by messages, then by one DONE:
 *  - READ asks for bytes of the file; the observer sends an int64_t, and as many bytes if that is positive;
 *  - PIECES asks for memory of the process; the observer sends a uint32_t, and so many bytes: one for each piece that says whether it
 *    could be read, then those that could, one after the other;
 *  - FUNCTIONS gives functions of the file.
 * Both are the same program, so there is no version. */
#pragma once

#include <assert.h>
#include <stdint.h>

#include "observe/elf_file.h"

enum {
    ELF_WIRE_NAME_MAX = 64,        /* of a symbol that is asked for, with its end */
    ELF_WIRE_READ_MAX = 256 << 10, /* bytes of the file at a time */
    ELF_WIRE_BATCH_MAX = 64 << 10, /* bytes of functions at a time */
    ELF_WIRE_PIECES_MAX = 256,     /* pieces of memory at a time */
    ELF_WIRE_PAYLOAD_MAX = 16384,  /* bytes after a question: a copied stack is the largest */
    ELF_WIRE_AUXV_MAX = 1024,      /* bytes of an auxiliary vector */
};
#define ELF_WIRE_READY UINT32_C(0x79646572)

enum elf_ask_kind {
    ELF_ASK_OPEN = 1,
    ELF_ASK_RULE,
    ELF_ASK_STEP,
    ELF_ASK_SYMBOL,
    ELF_ASK_DROP,
    ELF_ASK_CLOSE,
    ELF_ASK_EXPORTS,
    ELF_ASK_FUNCTIONS,
    ELF_ASK_PLACE,   /* vaddr: an offset in the file; lo: bytes of the function; cluster: needs */
    ELF_ASK_RETURNS, /* vaddr: an offset; told: a struct code_told_return for each place */
    ELF_ASK_FIRST,   /* vaddr: an offset */
    ELF_ASK_PYTHON_KEY, /* payload: struct python_key_ask */
    ELF_ASK_PYTHON_NAMES, /* payload: struct python_names_ask; told: a struct python_call_told for each call */
    ELF_ASK_LINK_MAP, /* payload: the auxiliary vector; told: a uint64_t for each library */
};

struct elf_ask {
    uint32_t kind;
    uint32_t slot;
    uint32_t cluster;       /* OPEN */
    uint32_t payload_bytes; /* at most ELF_WIRE_PAYLOAD_MAX; STEP: the stack */
    uint64_t vaddr;         /* RULE, STEP */
    uint64_t lo;            /* STEP: where the stack lies */
    struct cfi_regs regs;   /* STEP */
    char name[ELF_WIRE_NAME_MAX];
};

enum elf_tell_kind { ELF_TELL_READ = 1, ELF_TELL_FUNCTIONS, ELF_TELL_PIECES, ELF_TELL_DONE };

struct elf_tell {
    uint32_t kind;
    int32_t result;
    uint64_t offset;       /* READ */
    uint32_t bytes;        /* READ: wanted; else: that follow */
    uint32_t beyond;       /* STEP */
    uint64_t loaded_bytes; /* of the file's tables */
};

/* One of PIECES. */
struct elf_wire_piece {
    uint64_t address;
    uint32_t bytes;
    uint32_t spare;
};
static_assert(sizeof(struct elf_wire_piece) == 16, "no holes");

/* What follows DONE where the result is 0. */
struct elf_told_open {
    struct elf_segment segments[ELF_SEGMENTS_MAX];
    uint64_t dynamic, dynamic_bytes;
    uint32_t n_segments;
    uint8_t build_id_len;
    uint8_t build_id[MODULE_BUILD_ID_MAX];
};

struct elf_told_step {
    struct cfi_regs regs;
    uint8_t signal_frame, cfa_is_expression;
};

/* One of FUNCTIONS; its name follows, with its end. */
struct elf_told_function {
    uint64_t offset, address, bytes;
    uint16_t name_bytes;
    uint8_t exported, global;
    uint32_t spare;
};
static_assert(sizeof(struct elf_told_function) == 32, "no holes");
