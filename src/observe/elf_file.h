/* elf_file.h: an ELF file of another process, parsed where that does no harm.
 *
 * The observer has the rights of root, and any user can write the files that it has to understand. So a child without rights
 * parses them (elf_parser.h). It asks for the bytes that it needs, and the observer reads them. What it answers is checked like
 * bytes of the file. If it dies or takes too long over a file twice, that file is refused from then on, and a new child serves
 * the others.
 *
 * Without a parser (NULL) the same functions parse in this process, for tests and for programs without rights of their own.
 *
 * One thread at a time for all files of a parser. A question takes about 20 us with a parser. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observe/elf_exports.h"
#include "observe/elf_image.h"

struct elf_parser;

/* A child that was killed for another reason does not cost the file that it had at hand. */
enum { ELF_FILE_DEATHS_MAX = 2 };

struct elf_file {
    struct elf_image image;    /* headers; the tables are in it without a parser only */
    struct elf_parser *parser; /* borrowed */
    uint32_t slot;             /* its number there */
    uint32_t generation;       /* of the child that has it open */
    uint64_t loaded_bytes;     /* of tables, in that child */
    uint32_t deaths;           /* children that died over it; ELF_FILE_DEATHS_MAX: it is refused */
};

/* As elf_image_init(), whose errors it returns; -EPERM: the parser could not be confined, so it does not run; -ENOSPC: the parser
 * has no room for one more file; -EBADMSG: also for a file over which the child died. Borrows `parser`. */
int elf_file_init(struct elf_file *file, struct elf_parser *parser, elf_read_fn *read,
                  void *context, uint32_t cluster);
void elf_file_release(struct elf_file *file);

/* What unwinding has to know about a code address. */
struct elf_rule {
    uint32_t rule; /* rule_compress() */
    uint32_t
        up; /* the return address lies so many bytes above the stack pointer; 0: at no constant place */
};

/* 0, or as elf_image_row(). */
int elf_file_rule(struct elf_file *file, uint64_t vaddr, struct elf_rule *ret_rule);

/* A copied stack: the bytes of [lo, lo + n). */
struct elf_stack {
    uint64_t lo;
    const uint8_t *bytes;
    uint32_t n;
};

/* A frame that is replaced by its caller's. */
struct elf_frame {
    struct cfi_regs regs;
    bool signal_frame, cfa_is_expression;
    bool beyond; /* a read failed above the copied bytes; told on failure, too */
};

/* Apply the row at a code address: 0, or as cfi_step() and elf_image_row(). On failure only `beyond` changes. */
int elf_file_step(struct elf_file *file, uint64_t vaddr, const struct elf_stack *stack,
                  struct elf_frame *frame);

/* elf_image_symbol(). */
int elf_file_symbol(struct elf_file *file, const char *name, struct elf_symbol *ret_symbol);

/* elf_image_drop(). */
void elf_file_drop(struct elf_file *file);
uint64_t elf_file_loaded_bytes(const struct elf_file *file);

/* elf_exports() and elf_functions() of a file that is read so. Names are cut after ELF_FUNCTION_NAME_MAX bytes. */
int elf_file_exports(struct elf_parser *parser, elf_read_fn *read, void *read_context,
                     elf_function_fn *each, void *context);
int elf_file_functions(struct elf_parser *parser, elf_read_fn *read, void *read_context,
                       elf_function_fn *each, void *context);

/* An elf_read_fn for a descriptor: `context` points to it. */
int64_t elf_file_pread(void *context, uint64_t offset, void *to, size_t n);

/* ---- for elf_file.c and the child ---- */

int elf_image_rule(struct elf_image *image, uint64_t vaddr, struct elf_rule *ret_rule);
int elf_image_step(struct elf_image *image, uint64_t vaddr, const struct elf_stack *stack,
                   struct elf_frame *frame);
