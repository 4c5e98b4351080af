/* The cache of unwind rules: what a code address says about its frame, in one 64-bit word.
 *
 *     tag            the address without its lowest bits
 *     module  8 bits 0: permanent; else 1 + index into unwind_cache.modules
 *     fp             where the caller's frame pointer is, enum rule_fp
 *     cfa            offset of the CFA in bytes; its lowest bits are zero and make room for
 *     base    2 bits how the frame (CFA) is found, enum rule_base
 *
 * The set is the rest of the address, exclusive-or'ed with bits of the tag. So tag and set together
 * are the whole address and a match is never a coincidence. A walk waits for each of these operations
 * in turn, frame after frame; hence the cheap hash and a CFA offset that needs only a mask. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "site/arch.h"
#include "site/cfi.h"
#include "site/module.h"
#include "site/unwind.h"

enum rule_base {
    RULE_SP = 0,       /* CFA = sp + cfa */
    RULE_FP = 1,       /* CFA = fp + cfa */
    RULE_FP_DEREF = 2, /* CFA = *(fp - cfa): functions that realign their stack */
    RULE_SPECIAL = 3,  /* fp is an enum rule_special */
};

enum rule_special {
    RULE_END = 1,  /* the outermost frame */
    RULE_FULL = 2, /* not expressible here: interpret the tables each time */
};

enum rule_fp {
    RULE_FP_SAME = 0,
    RULE_FP_AT_FP = 1, /* *(fp) */
    /* n >= 2: *(CFA - 8 n). One word below the CFA is the return address or nothing. */
};

enum {
    RULE_SET_BITS = 12,
    RULE_CFA_END = ARCH_CFA_SHIFT + ARCH_CFA_BITS,
    RULE_FP_AT = RULE_CFA_END,
    RULE_MODULE_AT = RULE_FP_AT + ARCH_FP_BITS,
    RULE_BITS = RULE_MODULE_AT + 8,
    RULE_TAG_BITS = ARCH_PC_BITS - RULE_SET_BITS,
};
static_assert(1 << RULE_SET_BITS == UNWIND_SETS, "sets");
static_assert(ARCH_CFA_SHIFT >= 2, "room for the base");
static_assert(RULE_BITS + RULE_TAG_BITS <= 64, "a rule is one word");
static_assert(RULE_BITS <= 32, "a rule without its tag");

#define RULE_MASK     ((UINT64_C(1) << RULE_BITS) - 1)
#define RULE_CFA_MASK ((UINT64_C(1) << RULE_CFA_END) - (UINT64_C(1) << ARCH_CFA_SHIFT))
#define RULE_PC_MASK  ((UINT64_C(1) << ARCH_PC_BITS) - 1)

static inline unsigned rule_base(uint32_t rule)
{
    return rule & 3;
}

static inline uintptr_t rule_cfa(uint32_t rule)
{
    return rule & RULE_CFA_MASK;
}

static inline unsigned rule_fp(uint32_t rule)
{
    return rule >> RULE_FP_AT & ((1u << ARCH_FP_BITS) - 1);
}

static inline unsigned rule_module(uint32_t rule)
{
    return rule >> RULE_MODULE_AT & 0xff;
}

static inline bool rule_is_full(uint32_t rule)
{
    return rule_base(rule) == RULE_SPECIAL && rule_fp(rule) == RULE_FULL;
}

/* Where a code address belongs; false for addresses that have too many bits. */
static inline bool rule_place(uintptr_t pc, size_t *ret_set, uint64_t *ret_tag)
{
    uint64_t address = (uint64_t)pc >> ARCH_PC_SHIFT;
    *ret_tag = address >> RULE_SET_BITS;
    *ret_set = (address ^ *ret_tag) & (UNWIND_SETS - 1);
    return address <= RULE_PC_MASK;
}

/* The rule for a code address (not a return address), or 0. */
static inline uint32_t rule_find(const struct unwind_cache *cache, uintptr_t pc)
{
    size_t set;
    uint64_t tag;
    if (!rule_place(pc, &set, &tag))
        return 0;
    for (unsigned way = 0; way < UNWIND_WAYS; way++) {
        uint64_t word = load_relaxed(&cache->rules[set][way]);
        if (word >> RULE_BITS == tag)
            return (uint32_t)(word & RULE_MASK);
    }
    return 0;
}

/* Everything known about the module at a code address, for making a rule. */
struct rule_source {
    struct module_object object;
    struct cfi_section section;
    struct cfi_row row;
    unsigned module; /* as in a rule; meaningful if cacheable */
    uint32_t seq;    /* of that module's entry when it was looked up */
    bool cacheable;
};

/* Find module and row for a code address: 0, or -ENOENT and the like from cfi_find(). `cache` may be
 * NULL. */
int rule_source_find(struct unwind_cache *cache, uintptr_t pc, struct rule_source *ret_source);

/* What a row says, as a rule without module. `pc` is the code address as the section's pointers have it; of its value only the
 * lowest four bits matter. Never 0: a rule that has no compact form says so. */
uint32_t rule_compress(const struct cfi_section *section, const struct cfi_row *row, uintptr_t pc);

/* Put what the row says into a rule (0 module bits included) and keep it if it may be kept. */
uint32_t rule_make(struct unwind_cache *cache, uintptr_t pc, const struct rule_source *source);

/* Is the module numbered `module` still what it was, and around pc? Gives its identity, not 0. */
bool rule_module_verify(const struct unwind_cache *cache, unsigned module, uintptr_t pc,
                        uint64_t *ret_identity);

/* The identity of a cacheable source's unloadable module. */
uint64_t rule_source_identity(const struct rule_source *source);

/* The identity of the code around pc without its rule: 0 permanent, UINT64_MAX unknown. */
uint64_t rule_identity_find(struct unwind_cache *cache, uintptr_t pc);
