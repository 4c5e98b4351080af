/* sandbox.h: a program locks itself up. */
#pragma once

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cases.h"

/* It refuses to open files, as those of servers and browsers do, or kills for that; and kills who makes another call than these. The last
 * allows all other calls, and is set behind the C library's back. */
enum sandbox { SANDBOX_REFUSES, SANDBOX_KILLS, SANDBOX_KILLS_BY_SYSCALL, SANDBOX_KILLS_UNSEEN };

/* Where sandbox_early.c leaves the mappings of the process to be read, which cannot be opened any more. */
enum { SANDBOX_MAPS = 200 };

static void sandbox_enter(enum sandbox kind)
{
    static const int allowed[] = {SYS_mmap,          SYS_munmap,       SYS_mremap,
                                  SYS_madvise,       SYS_mprotect,     SYS_brk,
                                  SYS_futex,         SYS_write,        SYS_exit_group,
                                  SYS_exit,          SYS_getpid,       SYS_gettid,
                                  SYS_clock_gettime, SYS_gettimeofday, SYS_sched_yield,
                                  SYS_getrandom,     SYS_rt_sigreturn, SYS_rt_sigprocmask,
                                  SYS_clone,         SYS_clone3,       SYS_set_robust_list,
                                  SYS_rseq,          SYS_wait4,        SYS_rt_sigaction};
    static const int refused[] = {
#ifdef SYS_open /* which newer architectures have not */
        SYS_open,
#endif
        SYS_openat, SYS_openat2};
    struct sock_filter filter[(COUNT_OF(allowed) + COUNT_OF(refused)) * 2 + 2];
    size_t n = 0;
    filter[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < COUNT_OF(allowed) + COUNT_OF(refused); i++) {
        bool good = i < COUNT_OF(allowed);
        unsigned call = (unsigned)(good ? allowed[i] : refused[i - COUNT_OF(allowed)]);
        filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1);
        filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, good ? SECCOMP_RET_ALLOW
                                                                    : kind == SANDBOX_REFUSES
                                                                        ? SECCOMP_RET_ERRNO | EACCES
                                                                        : SECCOMP_RET_KILL_PROCESS);
    }
    bool unseen = kind == SANDBOX_KILLS_UNSEEN;
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, unseen ? SECCOMP_RET_ALLOW
                                                                       : SECCOMP_RET_KILL_PROCESS);
    struct sock_fprog program = {(unsigned short)n, filter};
    MUST((unseen ? syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
                 : prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) == 0);
    long r = kind == SANDBOX_KILLS_BY_SYSCALL || unseen
                 ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)
                 : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    if (r != 0)
        case_skip("no seccomp: errno %d", errno);
}
