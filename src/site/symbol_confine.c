/* See symbol_confine.h. Each step is followed by a check of its effect: a step that fails without a word, as setgroups()
 * does under a service manager's bounding set, must not leave a worker with more rights than it should have. */
#include "site/symbol_confine.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/capabilities.h"
#include "base/seccomp.h"

/* Users may run services as nobody, and a process can be stopped by any other of its user: so the worker has a uid of its own. It is
 * above the ranges that distributions, directories (2,000,200,000) and containers (1,879,048,191) give out, and is not in user
 * namespaces with a small map: there it is nobody's. */
enum { OWN = 2147483646, NOBODY = 65534 };

/* ---- users ---- */

static int user_drop(void)
{
    uid_t ruid, euid, suid;
    gid_t rgid, egid, sgid;
    if (getresuid(&ruid, &euid, &suid) < 0)
        return -errno;
    if (ruid != 0 && euid != 0 && suid != 0)
        return 0; /* a plain user stays what it is */
    if (setgroups(0, NULL) < 0)
        return -errno;
    uint32_t id = setresgid(OWN, OWN, OWN) < 0 && errno == EINVAL ? NOBODY : OWN;
    if (setresgid(id, id, id) < 0 || setresuid(id, id, id) < 0)
        return -errno;
    if (getresuid(&ruid, &euid, &suid) < 0 || getresgid(&rgid, &egid, &sgid) < 0)
        return -errno;
    bool dropped = ruid == id && euid == id && suid == id && rgid == id && egid == id &&
                   sgid == id && getgroups(0, NULL) == 0;
    return dropped ? 0 : -EPERM;
}

/* ---- system calls ---- */

/* Calls that name nothing outside the process but descriptors that it already has. All others fail with EPERM. */
static const int allowed[] = {
    SYS_brk,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_close,
    SYS_dup,
    SYS_exit,
    SYS_exit_group,
    SYS_fstat,
    SYS_fstatfs,
    SYS_futex,
    SYS_getpid,
    SYS_getrandom,
    SYS_gettid,
    SYS_lseek,
    SYS_madvise,
    SYS_mincore,
    SYS_mremap,
    SYS_munmap,
    SYS_nanosleep,
    SYS_ppoll,
    SYS_pread64,
    SYS_preadv,
    SYS_read,
    SYS_readv,
    SYS_recvfrom,
    SYS_recvmsg,
    SYS_restart_syscall,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sched_yield,
    SYS_sendmsg,
    SYS_sendto,
    SYS_sigaltstack,
    SYS_sysinfo,
    SYS_timer_settime,
    SYS_write,
#ifdef SYS_poll
    SYS_poll,
#endif
#ifdef SYS_time
    SYS_time,
#endif
};

enum { N_ALLOWED = sizeof(allowed) / sizeof(*allowed), PROGRAM_MAX = 2 * N_ALLOWED + 32 };

/* Allow `number` if the argument has the bit (`want`) or lacks it. For other calls the filter goes on behind this part. */
static size_t add_checked(struct sock_filter *at, int number, int argument, uint32_t bit, bool want)
{
    const struct sock_filter part[] = {
        FILTER_IF_EQUAL(number, 0, 4),
        FILTER_LOAD(args[argument]), /* the low half: both architectures are little-endian */
        FILTER_IF_BITS(bit, want ? 0 : 1, want ? 1 : 0),
        FILTER_RETURN(SECCOMP_RET_ALLOW),
        FILTER_RETURN(SECCOMP_RET_ERRNO | EPERM),
    };
    memcpy(at, part, sizeof(part));
    return sizeof(part) / sizeof(*part);
}

/* Of fcntl() only what asks for flags, duplicates and sets FD_CLOEXEC: a descriptor can be made to send any signal to
 * other processes of nobody's (F_SETOWN, F_SETSIG). */
static size_t add_fcntl(struct sock_filter *at)
{
    const struct sock_filter part[] = {
        FILTER_IF_EQUAL(SYS_fcntl, 0, 4),
        FILTER_LOAD(args[1]),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, F_GETFL, 1, 0), /* F_DUPFD is 0, F_GETFL 3 */
        FILTER_RETURN(SECCOMP_RET_ALLOW),
        FILTER_RETURN(SECCOMP_RET_ERRNO | EPERM),
    };
    memcpy(at, part, sizeof(part));
    return sizeof(part) / sizeof(*part);
}

static size_t program_make(struct sock_filter program[static PROGRAM_MAX])
{
    size_t n = 0;
    const struct sock_filter head[] = {
        FILTER_LOAD(arch), FILTER_IF_EQUAL(FILTER_ARCH, 1, 0),
        FILTER_RETURN(SECCOMP_RET_KILL_PROCESS),
        FILTER_LOAD(nr), /* x32 calls have numbers of their own, which are not among the allowed */
    };
    memcpy(program, head, sizeof(head));
    n += sizeof(head) / sizeof(*head);
    n += add_checked(program + n, SYS_mmap, 2, PROT_EXEC, false);
    n += add_checked(program + n, SYS_mprotect, 2, PROT_EXEC, false);
    n += add_fcntl(program + n);
    /* fstat() of newer C libraries. It can tell the size of a file by its path, but not open it. */
    n += add_checked(program + n, SYS_newfstatat, 3, AT_EMPTY_PATH, true);
    for (size_t i = 0; i < N_ALLOWED; i++) {
        program[n++] = (struct sock_filter)FILTER_IF_EQUAL(allowed[i], 0, 1);
        program[n++] = (struct sock_filter)FILTER_RETURN(SECCOMP_RET_ALLOW);
    }
    program[n++] = (struct sock_filter)FILTER_RETURN(SECCOMP_RET_ERRNO | EPERM);
    return n;
}

static int calls_drop(void)
{
    struct sock_filter program[PROGRAM_MAX];
    struct sock_fprog filter = {.len = (unsigned short)program_make(program), .filter = program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
        return -errno;
    /* Is it in force? */
    if (syscall(SYS_openat, AT_FDCWD, "/", O_RDONLY | O_CLOEXEC) >= 0 || errno != EPERM ||
        syscall(SYS_socket, 1, 1, 0) >= 0 || errno != EPERM)
        return -EPERM;
    return 0;
}

static int confine(bool user_must)
{
    int r = user_drop();
    if (r == -EPERM && !user_must)
        r = 0;
    if (r == 0)
        r = capabilities_drop();
    /* A change of the user sets it anew. */
    if (r == 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        r = -errno;
    return r == 0 ? calls_drop() : r;
}

int symbol_confine(void)
{
    return confine(true);
}

int symbol_confine_alone(void)
{
    return confine(false);
}
