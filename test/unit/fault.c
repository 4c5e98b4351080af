/* Fault injection by the linker's --wrap: calls of malloc() arrive at __wrap_malloc(). */
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>

static struct {
    bool armed;
    bool fired;
    bool wide;
    int left;  /* calls that still succeed */
    int error; /* of the one that fails; 0: the usual one of that call */
} fault;

bool fault_arm(int nth)
{
    if (nth > 0 && !fault.fired) {
        fault_disarm();
        return false;
    }
    fault.armed = true;
    fault.fired = false;
    fault.left = nth;
    return true;
}

bool fault_fired(void)
{
    return fault.fired;
}

void fault_widen(void)
{
    fault.wide = true;
}

void fault_error(int error)
{
    fault.error = error;
}

void fault_disarm(void)
{
    fault.armed = false;
}

static bool fails(int error)
{
    if (!fault.armed || fault.fired || fault.left-- > 0)
        return false;
    fault.fired = true;
    errno = fault.error ? fault.error : error;
    return true;
}

/* For calls that many may see fail without being the worse for it. */
static bool fails_wide(int error)
{
    return fault.wide && fails(error);
}

/* wrap(type, name, parameters, arguments, value and errno of the failure) */
#define WRAP(type, name, parameters, arguments, failure, error)  \
    type __real_##name parameters;                               \
    type __wrap_##name parameters;                               \
    type __wrap_##name parameters                                \
    {                                                            \
        return fails(error) ? failure : __real_##name arguments; \
    }

WRAP(void *, malloc, (size_t size), (size), NULL, ENOMEM)
WRAP(void *, calloc, (size_t n, size_t size), (n, size), NULL, ENOMEM)
WRAP(void *, realloc, (void *p, size_t size), (p, size), NULL, ENOMEM)
WRAP(void *, reallocarray, (void *p, size_t n, size_t size), (p, n, size), NULL, ENOMEM)
WRAP(char *, strdup, (const char *text), (text), NULL, ENOMEM)
WRAP(ssize_t, read, (int fd, void *to, size_t n), (fd, to, n), -1, EIO)
WRAP(ssize_t, write, (int fd, const void *from, size_t n), (fd, from, n), -1, ENOSPC)
WRAP(int, fsync, (int fd), (fd), -1, EIO)
WRAP(int, rename, (const char *from, const char *to), (from, to), -1, EIO)
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode), -1, ENOSPC)
WRAP(int, ftruncate, (int fd, off_t size), (fd, size), -1, ENOSPC)
WRAP(void *, mmap, (void *p, size_t n, int prot, int flags, int fd, off_t at),
     (p, n, prot, flags, fd, at), MAP_FAILED, ENOMEM)

/* Where off_t has 64 bits by request, the headers call these by other names. */
WRAP(int, ftruncate64, (int fd, off_t size), (fd, size), -1, ENOSPC)
WRAP(void *, mmap64, (void *p, size_t n, int prot, int flags, int fd, off_t at),
     (p, n, prot, flags, fd, at), MAP_FAILED, ENOMEM)
WRAP(ssize_t, pwrite, (int fd, const void *from, size_t n, off_t at), (fd, from, n, at), -1, ENOSPC)
WRAP(ssize_t, pwrite64, (int fd, const void *from, size_t n, off_t at), (fd, from, n, at), -1,
     ENOSPC)
WRAP(int, mprotect, (void *p, size_t n, int prot), (p, n, prot), -1, ENOMEM)

int __real_flock(int fd, int what);
int __wrap_flock(int fd, int what);
int __wrap_flock(int fd, int what)
{
    return fails_wide(ENOLCK) ? -1 : __real_flock(fd, what);
}

int __real_madvise(void *p, size_t n, int advice);
int __wrap_madvise(void *p, size_t n, int advice);
int __wrap_madvise(void *p, size_t n, int advice)
{
    return fails_wide(EFAULT) ? -1 : __real_madvise(p, n, advice);
}

int fault_opens, fault_standard_opens;

static int opened(int fd, int flags)
{
    fault_opens++;
    if (fd >= 0 && fd <= 2 && !(flags & O_PATH))
        fault_standard_opens++;
    return fd;
}

int __real_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, mode_t mode)
{
    return fails(EMFILE) ? -1 : opened(__real_open(path, flags, mode), flags);
}

int __real_openat(int dir, const char *path, int flags, mode_t mode);
int __wrap_openat(int dir, const char *path, int flags, mode_t mode);
int __wrap_openat(int dir, const char *path, int flags, mode_t mode)
{
    return fails(EMFILE) ? -1 : opened(__real_openat(dir, path, flags, mode), flags);
}

int __real_open64(const char *path, int flags, mode_t mode);
int __wrap_open64(const char *path, int flags, mode_t mode);
int __wrap_open64(const char *path, int flags, mode_t mode)
{
    return fails(EMFILE) ? -1 : opened(__real_open64(path, flags, mode), flags);
}

int __real_openat64(int dir, const char *path, int flags, mode_t mode);
int __wrap_openat64(int dir, const char *path, int flags, mode_t mode);
int __wrap_openat64(int dir, const char *path, int flags, mode_t mode)
{
    return fails(EMFILE) ? -1 : opened(__real_openat64(dir, path, flags, mode), flags);
}

/* Some open by hand, where they must not be cancelled. */
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
    long a[6];
    va_list list;
    va_start(list, number);
    for (size_t i = 0; i < sizeof(a) / sizeof(a[0]); i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (number != SYS_openat)
        return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    return fails(EMFILE) ? -1
                         : opened((int)__real_syscall(number, a[0], a[1], a[2], a[3]), (int)a[2]);
}
