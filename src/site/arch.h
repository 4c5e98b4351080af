/* What an unwinder must know about a processor: how DWARF numbers its registers, how to read them,
 * where a call leaves its return address, and one system call without errno. Everything else in this
 * folder is the same everywhere; a new architecture is a new block here. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

/* Where a walk starts: the registers with which the function around `pc` goes on. */
struct unwind_state {
    uintptr_t pc;
    uintptr_t sp;
    uintptr_t fp;
    /* 0; or, where it can only be taken further in: the function around `pc` is left out, and returns there */
    uintptr_t leave;
};

/* Where the walk begins that is told: in the function that called the one with UNWIND_STATE_CALLER(). */
static inline uintptr_t unwind_state_caller(const struct unwind_state *s)
{
    return s->leave ? s->leave : s->pc;
}

#if defined(__x86_64__)

enum {
    ARCH_REG_FP = 6,  /* rbp */
    ARCH_REG_SP = 7,  /* rsp */
    ARCH_REG_RA = 16, /* the return address column */
    ARCH_REG_COUNT = 17,
    /* A user address has 47 bits (wider ones exist only for programs that ask for them; such code is
     * unwound uncached) and code starts at any byte. */
    ARCH_PC_BITS = 47,
    ARCH_PC_SHIFT = 0,
    /* Cached rules: bits for the frame's size and for where the frame pointer is saved. */
    ARCH_CFA_SHIFT = 3,
    ARCH_CFA_BITS = 12,
    ARCH_FP_BITS = 5,
    /* `call` pushes the return address: it is always just below the frame (CFA). */
    ARCH_RA_BELOW_CFA = 1,
    /* The signal trampoline has tables that restore every register. */
    ARCH_SIGNAL_REGS_AT = 0,
};

static inline int arch_is_sigreturn(const uint32_t code[2])
{
    return 0;
}

/* The state of the function that called the one this is used in: no frame of the user's own is
 * walked. The compiler keeps a frame pointer in a function that asks for its frame address. */
#define UNWIND_STATE_CALLER()                                               \
    ({                                                                      \
        const uintptr_t *unwind_frame_ = __builtin_frame_address(0);        \
        (struct unwind_state){.pc = (uintptr_t)__builtin_return_address(0), \
                              .sp = (uintptr_t)(unwind_frame_ + 2),         \
                              .fp = unwind_frame_[0]};                      \
    })

/* All registers that a function keeps for its caller, and the place in the code they belong to. */
#define ARCH_CAPTURE(regs, pc)                 \
    __asm__ volatile("movq %%rbx, 24(%1)\n\t"  \
                     "movq %%rbp, 48(%1)\n\t"  \
                     "movq %%rsp, 56(%1)\n\t"  \
                     "movq %%r12, 96(%1)\n\t"  \
                     "movq %%r13, 104(%1)\n\t" \
                     "movq %%r14, 112(%1)\n\t" \
                     "movq %%r15, 120(%1)\n\t" \
                     "leaq 0(%%rip), %0"       \
                     : "=&r"(pc)               \
                     : "r"(regs)               \
                     : "memory")
#define ARCH_CAPTURED ((1u << 3) | (1u << 6) | (1u << 7) | (0xfu << 12))

static inline uintptr_t arch_thread_pointer(void)
{
    uintptr_t tp;
    __asm__("movq %%fs:0, %0" : "=r"(tp));
    return tp;
}

static inline uintptr_t arch_strip_pc(uintptr_t pc)
{
    return pc;
}

static inline long arch_syscall4(long nr, long a, long b, long c, long d)
{
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
}

#elif defined(__aarch64__)

enum {
    ARCH_REG_FP = 29,
    ARCH_REG_RA = 30, /* the link register */
    ARCH_REG_SP = 31,
    ARCH_REG_COUNT = 32,
    ARCH_PC_BITS = 46, /* 48, of which two are always zero */
    ARCH_PC_SHIFT = 2,
    ARCH_CFA_SHIFT = 4,
    ARCH_CFA_BITS = 9,
    ARCH_FP_BITS = 8,
    /* The frame record {fp, lr} may be anywhere in the frame; lr is stored above fp. */
    ARCH_RA_BELOW_CFA = 0,
    /* Tables have no column for the pc, so those of the signal trampoline cannot tell where code was
     * interrupted. Instead: x0 to x30, sp, pc, this far above the trampoline's sp. */
    ARCH_SIGNAL_REGS_AT = 312,
};

/* mov x8, #139; svc #0 */
static inline int arch_is_sigreturn(const uint32_t code[2])
{
    return code[0] == 0xd2801168 && code[1] == 0xd4000001;
}

/* The caller's stack pointer is not to be had from the frame address, so the walk starts in the
 * user's own function and leaves it out. */
#define UNWIND_STATE_CALLER()                                                              \
    ({                                                                                     \
        struct unwind_state unwind_s_ = {.leave = (uintptr_t)__builtin_return_address(0)}; \
        __asm__ volatile("adr %0, .\n\tmov %1, sp\n\tmov %2, x29"                          \
                         : "=&r"(unwind_s_.pc), "=&r"(unwind_s_.sp), "=&r"(unwind_s_.fp)); \
        unwind_s_.pc++; /* it is looked up one byte lower, as return addresses are */      \
        unwind_s_;                                                                         \
    })

#define ARCH_CAPTURE(regs, pc)                     \
    __asm__ volatile("stp x19, x20, [%1, 152]\n\t" \
                     "stp x21, x22, [%1, 168]\n\t" \
                     "stp x23, x24, [%1, 184]\n\t" \
                     "stp x25, x26, [%1, 200]\n\t" \
                     "stp x27, x28, [%1, 216]\n\t" \
                     "stp x29, x30, [%1, 232]\n\t" \
                     "mov %0, sp\n\t"              \
                     "str %0, [%1, 248]\n\t"       \
                     "adr %0, ."                   \
                     : "=&r"(pc)                   \
                     : "r"(regs)                   \
                     : "memory")
#define ARCH_CAPTURED 0xfff80000u

static inline uintptr_t arch_thread_pointer(void)
{
    uintptr_t tp;
    __asm__("mrs %0, tpidr_el0" : "=r"(tp));
    return tp;
}

/* Return addresses may carry a pointer authentication code: hint 7 is xpaclri. */
static inline uintptr_t arch_strip_pc(uintptr_t pc)
{
    register uintptr_t lr __asm__("x30") = pc;
    __asm__("hint 7" : "+r"(lr));
    return lr;
}

static inline long arch_syscall4(long nr, long a, long b, long c, long d)
{
    register long x8 __asm__("x8") = nr;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
}

#else
#error "src/site/arch.h knows x86-64 and aarch64"
#endif
