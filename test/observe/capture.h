/* What a probe at a function's entry copies, taken by the process itself: for tests without probes. */
#pragma once

#include <stdint.h>
#include <string.h>

#include "observe/stacks.h"

struct capture {
    struct stack_registers registers; /* filled in by capture_take(), in this order */
    uint64_t n_bytes;
    uint64_t top; /* bytes from here on are not copied; 0: no limit */
    uint8_t bytes[STACK_BYTES_MAX];
    int result;
};

/* Called like the probed function: its return address is what `rsp` points to. It stores the registers and goes on in
 * capture_fill(), as if that had been called. */
int capture_take(struct capture *capture);
int capture_fill(struct capture *capture);

#ifdef CAPTURE_DEFINE
__asm__(".text\n"
        ".globl capture_take\n"
        ".type capture_take, @function\n"
        "capture_take:\n"
        "    .cfi_startproc\n"
        "    leaq capture_take(%rip), %rax\n"
        "    movq %rax, 0(%rdi)\n"
        "    movq %rsp, 8(%rdi)\n"
        "    movq %rbp, 16(%rdi)\n"
        "    movq %rbx, 24(%rdi)\n"
        "    movq %r12, 32(%rdi)\n"
        "    movq %r13, 40(%rdi)\n"
        "    movq %r14, 48(%rdi)\n"
        "    movq %r15, 56(%rdi)\n"
        "    jmp capture_fill\n"
        "    .cfi_endproc\n"
        ".size capture_take, . - capture_take\n");

__attribute__((no_sanitize("address"))) static inline void capture_copy(struct capture *c)
{
    const volatile uint8_t *from = (const volatile uint8_t *)c->registers.rsp;
    uint64_t n = c->top ? c->top - c->registers.rsp : STACK_BYTES_MAX;
    c->n_bytes = n < STACK_BYTES_MAX ? n : STACK_BYTES_MAX;
    for (uint64_t i = 0; i < c->n_bytes; i++)
        c->bytes[i] = from[i];
}
#endif
