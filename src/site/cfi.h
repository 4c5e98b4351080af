/* Call frame information: what .eh_frame says about the frame around a code address.
 *
 * Works on bytes in memory that may be anything (a stranger's module, possibly damaged), so every
 * read stays inside [lo, hi), every loop has a bound and no result is trusted by the caller before it
 * is checked. No allocation, no state: async-signal-safe. Costs about half a microsecond, so callers
 * cache what comes out. Stack use is about 1.5 KiB. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "site/arch.h"

enum {
    CFI_REMEMBER_MAX = 6,         /* nesting of DW_CFA_remember_state */
    CFI_PROGRAM_MAX = 64 * 1024,  /* bytes of one frame program */
    CFI_EXPRESSION_STEPS = 256,   /* operations of one expression */
    CFI_EXPRESSION_DEPTH = 16,    /* values on its stack */
    CFI_EXPRESSION_BYTES = 65535, /* length of one expression */
};

/* The readable bytes that hold a module's .eh_frame_hdr and .eh_frame. */
struct cfi_section {
    const uint8_t *hdr; /* .eh_frame_hdr */
    const uint8_t *lo;
    const uint8_t *hi;
    /* What to add to absolute addresses in them, for tables that are read elsewhere than at the address they were linked
     * or relocated for. 0 in the process itself. */
    uintptr_t shift;
};

/* How to find one register of the caller. */
enum cfi_how {
    CFI_SAME = 0,   /* unchanged */
    CFI_UNDEFINED,  /* lost; for the return address: the outermost frame */
    CFI_OFFSET,     /* in memory at CFA + value */
    CFI_VAL_OFFSET, /* is CFA + value */
    CFI_REGISTER,   /* in register `value` */
    CFI_EXPRESSION, /* in memory at the expression at lo + value */
    CFI_VAL_EXPRESSION,
};

/* The rules that hold at one address. */
struct cfi_row {
    int32_t value[ARCH_REG_COUNT];
    uint8_t how[ARCH_REG_COUNT]; /* enum cfi_how */
    uint8_t cfa_is_expression;
    uint8_t signal_frame; /* the frame was made by a signal: the caller's pc is no return address */
    uint16_t cfa_reg; /* CFA is this register + cfa_value, or the expression at lo + cfa_value */
    uint16_t ra_reg;  /* which column holds the return address */
    int32_t cfa_value;
};

/* Find the rules for code address `pc`: 0, -ENOENT if the section does not cover it, -EBADMSG if its
 * bytes make no sense, -ENOTSUP if it uses what we do not know. */
int cfi_find(const struct cfi_section *section, uintptr_t pc, struct cfi_row *ret_row);

/* Register values of a frame; bit r of `valid` says that r[r] is known. */
struct cfi_regs {
    uintptr_t r[ARCH_REG_COUNT];
    uint32_t valid;
    uintptr_t pc;
};

/* Reads one aligned or unaligned word of the walked stack; false if it is not readable. */
typedef bool cfi_read_fn(void *context, uintptr_t addr, uintptr_t *ret_value);

/* Apply a row: replaces `regs` by the registers of the caller. 0, or -ENODATA when this was the
 * outermost frame, -EFAULT when memory is not readable, -EBADMSG or -ENOTSUP as above, -EAGAIN when
 * the row needs a register that is not known. On failure regs are as before. */
int cfi_step(const struct cfi_section *section, const struct cfi_row *row, cfi_read_fn *read,
             void *context, struct cfi_regs *regs);

/* A DWARF expression: length (uleb128) and operations, at lo + at. `push_cfa` with its value is the
 * initial stack of register rules. For cfi.c and its tests. */
struct cfi_expression {
    const struct cfi_section *section;
    const struct cfi_regs *regs;
    cfi_read_fn *read;
    void *context;
    bool push_cfa;
    uintptr_t cfa;
};
int cfi_evaluate(const struct cfi_expression *expression, uint32_t at, uintptr_t *ret_value);

/* A position in bytes; reads past `end` return 0 and set `bad`, so callers check once. */
struct cfi_cursor {
    const uint8_t *at;
    const uint8_t *end;
    bool bad;
};
uint64_t cfi_read_fixed(struct cfi_cursor *cursor, unsigned bytes);
uint64_t cfi_read_uleb(struct cfi_cursor *cursor);
int64_t cfi_read_sleb(struct cfi_cursor *cursor);
