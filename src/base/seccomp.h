/* seccomp.h: words for writing filters of system calls. */
#pragma once

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#define FILTER_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define FILTER_ARCH AUDIT_ARCH_AARCH64
#else
#error "which architecture do system calls have here?"
#endif

#define FILTER_LOAD(field) \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offsetof(struct seccomp_data, field))
#define FILTER_RETURN(what) BPF_STMT(BPF_RET | BPF_K, (what))
#define FILTER_IF_EQUAL(value, yes, no) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(value), yes, no)
#define FILTER_IF_BITS(value, yes, no) \
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (uint32_t)(value), yes, no)
