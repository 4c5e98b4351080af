/* Exits in a build without clang or libbpf: there are none to be had. See exits.h. */
#include "bpf/exits.h"

#include <errno.h>
#include <stdio.h>

int exits_open(exits_fn *each, void *context, struct exits **ret_exits,
               char why[static EXITS_WHY_MAX])
{
    snprintf(why, EXITS_WHY_MAX, "memoird was built without BPF (meson option bpf)");
    return -ENOTSUP;
}

void exits_free(struct exits *exits)
{
}

int exits_fd(const struct exits *exits)
{
    return -1;
}

int exits_read(struct exits *exits, size_t max)
{
    return 0;
}

uint64_t exits_lost(const struct exits *exits)
{
    return 0;
}
