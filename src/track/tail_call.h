/*
 * tail_call.h: a wrapper of a loader function that the loader does not see.
 *
 * dlopen() and dlsym() look at their return address: it tells in which namespace to load, whose RPATH and $ORIGIN hold, and what
 * RTLD_NEXT means. So a wrapper must not call them. TAIL_CALL(name, prepare) defines `name` as a stub which saves three arguments, passes
 * them to `uintptr_t prepare(uintptr_t arguments[3])`, restores them as that left them, and jumps to the address that it returned: the
 * return address stays that of the program.
 */
#pragma once

#include <stdint.h>

#define TAIL_CALL_BEGIN(name)                                   \
    ".pushsection .text.tail_call_" #name ",\"ax\",@progbits\n" \
    ".balign 16\n"                                              \
    ".globl " #name "\n"                                        \
    ".type " #name ", @function\n" #name ":\n"                  \
    ".cfi_startproc\n"
#define TAIL_CALL_END(name)            \
    ".cfi_endproc\n"                   \
    ".size " #name ", . - " #name "\n" \
    ".popsection\n"

#define TAIL_CALL_PREPARE(prepare) \
    uintptr_t prepare(uintptr_t arguments[3]) __attribute__((visibility("hidden"), used))

#if defined(__x86_64__)
#define TAIL_CALL(name, prepare)                                \
    TAIL_CALL_PREPARE(prepare);                                 \
    __asm__(TAIL_CALL_BEGIN(name) "endbr64\n"                   \
                                  "push %rdx\n"                 \
                                  ".cfi_adjust_cfa_offset 8\n"  \
                                  "push %rsi\n"                 \
                                  ".cfi_adjust_cfa_offset 8\n"  \
                                  "push %rdi\n"                 \
                                  ".cfi_adjust_cfa_offset 8\n"  \
                                  "mov %rsp, %rdi\n"            \
                                  "call " #prepare "\n"         \
                                  "pop %rdi\n"                  \
                                  ".cfi_adjust_cfa_offset -8\n" \
                                  "pop %rsi\n"                  \
                                  ".cfi_adjust_cfa_offset -8\n" \
                                  "pop %rdx\n"                  \
                                  ".cfi_adjust_cfa_offset -8\n" \
                                  "jmp *%rax\n" TAIL_CALL_END(name))
#elif defined(__aarch64__)
#define TAIL_CALL(name, prepare)                                \
    TAIL_CALL_PREPARE(prepare);                                 \
    __asm__(TAIL_CALL_BEGIN(name) "hint #34\n" /* bti c */      \
                                  "stp x29, x30, [sp, #-48]!\n" \
                                  ".cfi_def_cfa_offset 48\n"    \
                                  ".cfi_offset 29, -48\n"       \
                                  ".cfi_offset 30, -40\n"       \
                                  "stp x0, x1, [sp, #16]\n"     \
                                  "str x2, [sp, #32]\n"         \
                                  "add x0, sp, #16\n"           \
                                  "bl " #prepare "\n"           \
                                  "mov x16, x0\n"               \
                                  "ldp x0, x1, [sp, #16]\n"     \
                                  "ldr x2, [sp, #32]\n"         \
                                  "ldp x29, x30, [sp], #48\n"   \
                                  ".cfi_restore 30\n"           \
                                  ".cfi_restore 29\n"           \
                                  ".cfi_def_cfa_offset 0\n"     \
                                  "br x16\n" TAIL_CALL_END(name))
#endif
