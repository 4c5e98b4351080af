/*
 * calls.c: system calls of the C library, in the shared library alone.
 *
 * Every name that we import is looked up whenever a program starts, and takes its part of the pages that the loader reads. Those of system
 * calls need not be: what is defined here stays inside, and all of our code that calls them (books, the tracker, pressure) finds these. None of
 * them is a point where a thread may be cancelled, and no other library stands in front of them. The calls for which that would be wrong, or that
 * are more than a system call in the C library, are left out: mmap, munmap and mremap (keep_out.c), and masks of signals. Sets of these, which
 * are no system calls but as simple, are here; what reads text is in texts.c.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- files ---- */

/* Then a mode is given. __O_TMPFILE is a flag of its own and O_DIRECTORY. */
static inline int makes_file(int flags)
{
    return (flags & O_CREAT) != 0 || (flags & __O_TMPFILE) == __O_TMPFILE;
}

int openat(int folder, const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = makes_file(flags) ? va_arg(list, mode_t) : 0;
    va_end(list);
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = makes_file(flags) ? va_arg(list, mode_t) : 0;
    va_end(list);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int fcntl(int fd, int command, ...)
{
    va_list list;
    va_start(list, command);
    long argument = va_arg(list, long);
    va_end(list);
    return (int)syscall(SYS_fcntl, fd, command, argument);
}

int close(int fd)
{
    return (int)syscall(SYS_close, fd);
}

ssize_t read(int fd, void *bytes, size_t n)
{
    return syscall(SYS_read, fd, bytes, n);
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    return syscall(SYS_write, fd, bytes, n);
}

ssize_t pread(int fd, void *bytes, size_t n, off_t at)
{
    return syscall(SYS_pread64, fd, bytes, n, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    return syscall(SYS_pwrite64, fd, bytes, n, at);
}

ssize_t readlink(const char *path, char *text, size_t n)
{
    return syscall(SYS_readlinkat, AT_FDCWD, path, text, n);
}

int fstat(int fd, struct stat *ret)
{
    return (int)syscall(SYS_fstat, fd, ret);
}

int stat(const char *path, struct stat *ret)
{
    return (int)syscall(SYS_newfstatat, AT_FDCWD, path, ret, 0);
}

int fstatfs(int fd, struct statfs *ret)
{
    return (int)syscall(SYS_fstatfs, fd, ret);
}

int ftruncate(int fd, off_t bytes)
{
    return (int)syscall(SYS_ftruncate, fd, bytes);
}

int fchmod(int fd, mode_t mode)
{
    return (int)syscall(SYS_fchmod, fd, mode);
}

int flock(int fd, int operation)
{
    return (int)syscall(SYS_flock, fd, operation);
}

int mkdirat(int folder, const char *path, mode_t mode)
{
    return (int)syscall(SYS_mkdirat, folder, path, mode);
}

int unlinkat(int folder, const char *path, int flags)
{
    return (int)syscall(SYS_unlinkat, folder, path, flags);
}

/* ---- memory ---- */

int madvise(void *p, size_t bytes, int advice)
{
    return (int)syscall(SYS_madvise, p, bytes, advice);
}

int mprotect(void *p, size_t bytes, int access)
{
    return (int)syscall(SYS_mprotect, p, bytes, access);
}

int munlock(const void *p, size_t bytes)
{
    return (int)syscall(SYS_munlock, p, bytes);
}

/* ---- processes ---- */

pid_t getpid(void)
{
    return (pid_t)syscall(SYS_getpid);
}

pid_t gettid(void)
{
    return (pid_t)syscall(SYS_gettid);
}

pid_t getppid(void)
{
    return (pid_t)syscall(SYS_getppid);
}

uid_t geteuid(void)
{
    return (uid_t)syscall(SYS_geteuid);
}

int getrlimit(__rlimit_resource_t resource, struct rlimit *ret)
{
    return (int)syscall(SYS_prlimit64, 0, resource, NULL, ret);
}

int kill(pid_t pid, int signal)
{
    return (int)syscall(SYS_kill, pid, signal);
}

void _exit(int status)
{
    for (;;)
        (void)syscall(SYS_exit_group, status);
}

int sigaltstack(const stack_t *stack, stack_t *ret_before)
{
    return (int)syscall(SYS_sigaltstack, stack, ret_before);
}

int nanosleep(const struct timespec *time, struct timespec *ret_left)
{
    return (int)syscall(SYS_nanosleep, time, ret_left);
}

int sched_yield(void)
{
    return (int)syscall(SYS_sched_yield);
}

/* ---- sets of signals ---- */

int sigemptyset(sigset_t *set)
{
    memset(set, 0, sizeof(*set));
    return 0;
}

/* Those that the C library keeps for itself are taken out where a mask is set. */
int sigfillset(sigset_t *set)
{
    memset(set, ~0, sizeof(*set));
    return 0;
}

int sigaddset(sigset_t *set, int signal)
{
    enum { BITS = 8 * sizeof(set->__val[0]) };
    set->__val[(unsigned)(signal - 1) / BITS] |= 1UL << (unsigned)(signal - 1) % BITS;
    return 0;
}
