/* Call frame information and notes of a stranger's module: any bytes must be refused or yield rules
 * that stay inside the given memory.
 *
 * Input: 1 byte kind, 4 bytes pc relative to the section (little-endian), 8 bytes register seed, then
 * the section, which begins with .eh_frame_hdr (kind 0) or is a note segment (kind 1). */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "site/module.h"
#include "site/rules.h"

enum { HEADER = 13, STEPS = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The walked stack is the section itself. */
static bool read_section(void *context, uintptr_t addr, uintptr_t *ret_value)
{
    const struct cfi_section *s = context;
    if (addr < (uintptr_t)s->lo || addr > (uintptr_t)s->hi ||
        (uintptr_t)s->hi - addr < sizeof(addr))
        return false;
    memcpy(ret_value, (const void *)addr, sizeof(*ret_value));
    return true;
}

static void walk(const struct cfi_section *section, uintptr_t pc, uint64_t seed)
{
    struct cfi_regs regs = {.pc = pc, .valid = (uint32_t)(seed >> 32)};
    for (int i = 0; i < ARCH_REG_COUNT; i++)
        regs.r[i] = (uintptr_t)section->lo + (seed >> i) % 512;
    for (int step = 0; step < STEPS; step++) {
        struct rule_source source = {.section = *section};
        if (cfi_find(section, regs.pc, &source.row) < 0)
            return;
        rule_make(NULL, regs.pc, &source);
        if (cfi_step(section, &source.row, read_section, (void *)section, &regs) < 0)
            return;
    }
}

static void notes(const uint8_t *bytes, size_t len)
{
    const uint8_t *id;
    size_t id_len;
    if (module_note_build_id(bytes, len, &id, &id_len) < 0)
        return;
    if (id < bytes || id_len == 0 || id_len > (size_t)(bytes + len - id))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int32_t offset;
    uint64_t seed;
    if (size < HEADER)
        return 0;
    memcpy(&offset, data + 1, sizeof(offset));
    memcpy(&seed, data + 5, sizeof(seed));
    size_t len = size - HEADER;
    /* A copy of its own, so that a sanitizer sees one byte too many. */
    uint8_t *copy = malloc(len ? len : 1);
    if (!copy)
        return 0;
    memcpy(copy, data + HEADER, len);
    if (data[0] & 1) {
        notes(copy, len);
    } else {
        struct cfi_section section = {.hdr = copy, .lo = copy, .hi = copy + len};
        walk(&section, (uintptr_t)copy + (uintptr_t)(intptr_t)offset, seed);
    }
    free(copy);
    return 0;
}
