/* The mappings of a process with what is resident in each: /proc/PID/smaps.
 *
 * The kernel walks the page tables of the process for it: about 10 ms for a GB of small pages, during which the process
 * cannot map memory. The text is read in pieces and never held as a whole. Paths in it are chosen by the process. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"

enum {
    SMAPS_MAPPINGS_MAX = 1 << 20, /* 16 times the kernel's default limit */
    SMAPS_NAMES_MAX = 64 << 20,   /* bytes of all names together */
    SMAPS_LINE_MAX =
        4 * 4096 + 256, /* a path of PATH_MAX with every byte escaped, and the fields before it */
};

struct smaps_mapping {
    uint64_t start, end, inode;
    bool readable, writable, executable, shared;
    uint32_t name;          /* offset of a string in smaps.names; "" is anonymous */
    uint64_t rss;           /* bytes, as all below */
    uint64_t private_bytes; /* of rss: no other process maps these pages */
    uint64_t anonymous;     /* of rss: pages of no file */
    uint64_t huge;          /* of rss: transparent huge pages, anonymous, of tmpfs or of a file */
    uint64_t hugetlb;       /* not in rss: pages of hugetlbfs */
    uint64_t swap;          /* not in rss */
};

struct smaps {
    struct smaps_mapping *all; /* by address */
    size_t n, room;
    struct buffer names;
    uint64_t rss; /* the sum */
};

/* -ESRCH: no such process, or it has no memory of its own (a kernel thread, a zombie); -EACCES; -EBADMSG: a line that cannot
 * be parsed; -E2BIG: more mappings than SMAPS_MAPPINGS_MAX; -errno. */
int smaps_read(pid_t pid, struct smaps *ret_smaps);

/* The text of such a file. */
int smaps_parse(const char *text, size_t len, struct smaps *ret_smaps);
void smaps_release(struct smaps *smaps);

static inline const char *smaps_name(const struct smaps *smaps, const struct smaps_mapping *m)
{
    return smaps->names.data + m->name;
}
