/* See uprobe_link.h. */
#include "observe/uprobe_link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LINK_CREATE = 28, MULTI_RETURN = 1 };

/* As linux/bpf.h has it since 6.6. */
struct link_attr {
    uint32_t prog_fd, target_fd, attach_type, flags;
    struct {
        uint64_t path, offsets, ref_ctr_offsets, cookies;
        uint32_t cnt, flags, pid;
    } uprobe_multi;
};

int uprobe_link_make(int program, int fd, enum uprobe_link_type type,
                     const struct uprobe_places *places, bool returns, pid_t pid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    struct link_attr attr = {
        .prog_fd = (uint32_t)program,
        .attach_type = type,
        .uprobe_multi = {.path = (uintptr_t)path,
                         .offsets = (uintptr_t)places->offsets,
                         .cookies = (uintptr_t)places->cookies,
                         .cnt = places->n,
                         .flags = returns ? MULTI_RETURN : 0,
                         .pid = (uint32_t)pid},
    };
    int link = (int)syscall(SYS_bpf, LINK_CREATE, &attr, sizeof(attr));
    return link < 0 ? -errno : link;
}

int uprobe_link_fail(char *why, size_t size, int error)
{
    if (error == -EINVAL || error == -EOPNOTSUPP)
        snprintf(
            why, size,
            "the kernel refuses to attach probes (%s): it needs Linux 6.6 or later for uprobe_multi",
            strerror(-error));
    else
        snprintf(why, size, "attaching probes failed: %s", strerror(-error));
    return error;
}
