/* At the end the only pointer is in a register: it is kept mixed with a mask, and taken out in one instruction. */
#include <sys/syscall.h>

#include "truth.h"

extern char *plain;
char *plain;
static uintptr_t hidden;
static const uintptr_t mask = (uintptr_t)UINT64_C(0x5aa5a55a3cc3c33c);

static void step(int number)
{
    if (number == 0)
        hidden = (uintptr_t)MALLOC(104) ^ mask; /* HELD */
}

int main(int argc, char **argv)
{
    truth_run(argc, argv, step);
    truth_forget();
    truth_tell();
    fflush(stdout);
#if defined(__x86_64__)
    __asm__ volatile("mov %0, %%r12\n\t"
                     "xor %1, %%r12\n\t"
                     "syscall"
                     :
                     : "m"(hidden), "r"(mask), "a"(SYS_exit_group), "D"(0)
                     : "r12", "rcx", "r11", "memory");
#endif
    plain = (char *)(hidden ^ mask); /* no such instruction is known for this machine */
    return 0;
}
