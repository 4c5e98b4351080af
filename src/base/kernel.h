/*
 * kernel.h: a system call without the C library: where it is made in every program, a page of that would be touched for it. Gives what
 * the kernel does, an errno as a negative number.
 */
#pragma once

#include <errno.h>
#include <unistd.h>

static inline long kernel_call(long number, long a, long b, long c, long d, long e)
{
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
    return x0;
#else
    int saved = errno;
    long result = syscall(number, a, b, c, d, e);
    result = result == -1 ? -errno : result;
    errno = saved;
    return result;
#endif
}
