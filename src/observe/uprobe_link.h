/* uprobe_link.h: one link for many uprobes of a file. libbpf of Debian 12 does not know these links. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum uprobe_link_type {
    UPROBE_LINK_MULTI = 48,
    UPROBE_LINK_SESSION = 57, /* entry and return by one program, since Linux 6.13 */
};

struct uprobe_places {
    const uint64_t *offsets, *cookies; /* in the file; what the program gets */
    uint32_t n;
};

/* Attach `program` to places of the open file `fd`: a descriptor of the link, or -errno. `returns`: when the functions
 * return. `pid` is the only process that runs the program; 0: all. 10 to 50 ms. */
int uprobe_link_make(int program, int fd, enum uprobe_link_type type,
                     const struct uprobe_places *places, bool returns, pid_t pid);

/* Say why that failed: object_fail(), or that the kernel is too old. */
int uprobe_link_fail(char *why, size_t size, int error);
