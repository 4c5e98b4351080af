/* mapper.c: a library that stands in front of mmap() and munmap() as well, and counts. */
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* Not from the header, which may give them other names. */
EXPORT void *mmap(void *hint, size_t bytes, int protection, int flags, int fd, long offset);
EXPORT int munmap(void *start, size_t bytes);

EXPORT int mapper_calls;

void *mmap(void *hint, size_t bytes, int protection, int flags, int fd, long offset)
{
    __atomic_fetch_add(&mapper_calls, 1, __ATOMIC_RELAXED);
    return (void *)syscall(SYS_mmap, hint, bytes, protection, flags, fd, offset);
}

int munmap(void *start, size_t bytes)
{
    __atomic_fetch_add(&mapper_calls, 1, __ATOMIC_RELAXED);
    return (int)syscall(SYS_munmap, start, bytes);
}
