/* See who.h. */
#include "nvml/who.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "nvml/facts.h"

enum { INITIAL_PID_NS = 0xEFFFFFFC }; /* PROC_PID_INIT_INO of the kernel */

static bool is_initial_namespace(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 && (uint32_t)st.st_ino == (uint32_t)INITIAL_PID_NS;
}

static bool has_device_open(int procfd)
{
    int fd = openat(procfd, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    static const char prefix[] = "/dev/nvidia";
    char target[64];
    bool found = false;
    if (fd >= 0 && !dir)
        close(fd);
    for (struct dirent *entry; dir && !found && (entry = readdir(dir));) {
        ssize_t n = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target));
        found = n >= (ssize_t)sizeof(prefix) - 1 && memcmp(target, prefix, sizeof(prefix) - 1) == 0;
    }
    if (dir)
        closedir(dir);
    return found;
}

void nvml_who(struct nvml_process *process)
{
    char path[32];
    struct stat st;
    snprintf(path, sizeof(path), "/proc/%u", process->pid);
    MEMOIR_CLEANUP(closep)
    int procfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (procfd < 0 || process->pid == 0 || fstat(procfd, &st) < 0)
        return;
    if (!is_initial_namespace() && !has_device_open(procfd))
        return;
    MEMOIR_CLEANUP(closep)
    int fd = openat(procfd, "comm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, process->comm, sizeof(process->comm) - 1);
    if (n <= 0)
        return;
    process->comm[n] = '\0';
    process->comm[strcspn(process->comm, "\n")] = '\0';
    process->uid = st.st_uid;
    process->is_here = 1;
}
