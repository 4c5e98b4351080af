/* What unwinding asks of an ELF image. See elf_file.h. */
#include <errno.h>
#include <string.h>

#include "observe/elf_file.h"
#include "site/rules.h"

enum { UP_MAX = 1 << 20 };

int elf_image_rule(struct elf_image *image, uint64_t vaddr, struct elf_rule *ret_rule)
{
    struct cfi_section section;
    struct cfi_row row;
    int r = elf_image_row(image, vaddr, &section, &row);
    if (r < 0)
        return r;
    bool constant = !row.cfa_is_expression && row.cfa_reg == ARCH_REG_SP && !row.signal_frame &&
                    row.ra_reg < ARCH_REG_COUNT && row.how[row.ra_reg] == CFI_OFFSET;
    int64_t up = constant ? (int64_t)row.cfa_value + row.value[row.ra_reg] : 0;
    *ret_rule = (struct elf_rule){
        .rule = rule_compress(&section, &row, elf_image_pc(image, vaddr)),
        .up = up > 0 && up < UP_MAX ? (uint32_t)up : 0,
    };
    return 0;
}

struct reading {
    const struct elf_stack *stack;
    bool beyond;
};

static bool read_word(void *context, uintptr_t addr, uintptr_t *ret_value)
{
    struct reading *r = context;
    const struct elf_stack *s = r->stack;
    if (addr < s->lo || addr - s->lo >= s->n || s->n - (addr - s->lo) < sizeof(*ret_value)) {
        r->beyond = r->beyond || addr >= s->lo;
        return false;
    }
    memcpy(ret_value, s->bytes + (addr - s->lo), sizeof(*ret_value));
    return true;
}

int elf_image_step(struct elf_image *image, uint64_t vaddr, const struct elf_stack *stack,
                   struct elf_frame *frame)
{
    struct cfi_section section;
    struct cfi_row row;
    struct reading reading = {.stack = stack};
    int r = elf_image_row(image, vaddr, &section, &row);
    if (r < 0)
        return r == -ENODATA ? -EIO : r; /* of a step, the first means the outermost frame */
    struct cfi_regs regs = frame->regs;
    regs.pc = elf_image_pc(image, vaddr);
    r = cfi_step(&section, &row, read_word, &reading, &regs);
    frame->beyond |= reading.beyond;
    if (r < 0)
        return r;
    frame->regs = regs;
    frame->signal_frame = row.signal_frame;
    frame->cfa_is_expression = row.cfa_is_expression;
    return 0;
}
