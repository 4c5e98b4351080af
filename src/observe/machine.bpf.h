/* machine.bpf.h: arguments, stack and result of a probed call, as the processor has them. */
#pragma once

#ifdef __TARGET_ARCH_x86

enum { RETURN_ADDRESS_BYTES = 8 }; /* that a call pushes and a return takes away */

struct pt_regs {
    unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs,
        flags, sp, ss;
};

static __always_inline uint64_t stack_pointer(const struct pt_regs *regs)
{
    return regs->sp;
}

static __always_inline int32_t returned(const struct pt_regs *regs)
{
    return (int32_t)regs->ax;
}

/* What unwinding starts from, into a record that has these fields. */
#define REGISTERS_TAKE(s, regs) \
    do {                        \
        (s)->ip = (regs)->ip;   \
        (s)->sp = (regs)->sp;   \
        (s)->bp = (regs)->bp;   \
        (s)->bx = (regs)->bx;   \
        (s)->r12 = (regs)->r12; \
        (s)->r13 = (regs)->r13; \
        (s)->r14 = (regs)->r14; \
        (s)->r15 = (regs)->r15; \
    } while (0)

enum { REGISTER_ARGUMENTS = 6 };

/* The arguments that come in registers. Taken all at once: the verifier refuses a context
 * pointer that the compiler has computed with. */
struct arguments {
    uint64_t value[8];
    uint64_t sp;
};

static __always_inline void arguments_read(const struct pt_regs *regs, struct arguments *a)
{
    const volatile struct pt_regs *r = regs;
    a->value[1] = r->di;
    a->value[2] = r->si;
    a->value[3] = r->dx;
    a->value[4] = r->cx;
    a->value[5] = r->r8;
    a->value[6] = r->r9;
    a->value[0] = a->value[7] = 0;
    a->sp = r->sp;
}

/* 0 for a role that the function does not have. */
static __always_inline uint64_t argument(const struct arguments *a, uint8_t number)
{
    uint64_t value = 0;
    if (number <= REGISTER_ARGUMENTS)
        return a->value[number & 7];
    if (number <= WIRE_ARGUMENTS_MAX)
        bpf_probe_read_user(&value, sizeof(value),
                            (void *)(a->sp + (number - REGISTER_ARGUMENTS) * 8ull));
    return value;
}

#else
#error "probes know the registers of x86-64 only"
#endif
