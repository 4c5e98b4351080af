/* Every process that ends on this machine, told by the kernel: os.bpf.c, loaded and read.
 *
 * Needs root (CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN), a kernel with BTF (Linux 5.8 and later) that is not
 * locked down, and a build with clang and libbpf. One thread uses it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct exit_event;
struct exits;

enum {
    EXITS_RING_BYTES = 1 << 20, /* room for about 6,800 exits that were not read yet */
    EXITS_WHY_MAX = 256,
};

/* Borrows `event`. */
typedef void exits_fn(const struct exit_event *event, void *context);

/* Load and attach: takes about 50 ms. On failure -errno and, for people, `why`: "the kernel has no BTF ...". */
int exits_open(exits_fn *each, void *context, struct exits **ret_exits,
               char why[static EXITS_WHY_MAX]);
void exits_free(struct exits *exits); /* NULL is fine */

/* Readable (EPOLLIN) when there are events. Belongs to `exits`. */
int exits_fd(const struct exits *exits);

/* Call `each` for at most `max` events; never waits. How many there were: `max` means that there may be more.
 * -errno when the ring cannot be read. */
int exits_read(struct exits *exits, size_t max);

/* Events that found the ring full, since exits_open(). */
uint64_t exits_lost(const struct exits *exits);
