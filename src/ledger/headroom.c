/* Limits of memory. See headroom.h. */
#include "ledger/headroom.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "book/cgroup.h"
#include "book/lines.h"
#include "book/pressure_source.h"

const char *headroom_word(enum headroom_kind kind)
{
    static const char *const words[] = {NULL, "cgroup", "machine", "device"};
    return words[kind];
}

static void take_less(struct headroom *h, enum headroom_kind kind, uint64_t bytes, uint64_t limit)
{
    if (h->kind != HEADROOM_UNKNOWN && h->bytes <= bytes)
        return;
    *h = (struct headroom){kind, bytes, limit};
}

static void limit_take(const struct cgroup_memory *memory, void *context)
{
    take_less(context, HEADROOM_CGROUP, cgroup_memory_headroom(memory), memory->limit_bytes);
}

static void cgroups_look(const char *proc, const char *cgroups, pid_t pid, struct headroom *h)
{
    char folder[CGROUP_FOLDER_MAX], *path = folder + CGROUP_ROOT_MAX, process[16];
    bool v1;
    snprintf(process, sizeof(process), "%d", (int)pid);
    if (cgroup_path_read(proc, process, path, sizeof(folder) - CGROUP_ROOT_MAX, &v1) < 0 ||
        cgroup_path_outside(path))
        return;
    int top = cgroup_folder(cgroups, v1, path, folder, sizeof(folder));
    if (top >= 0)
        (void)cgroup_memory_each(folder, (size_t)top, v1, limit_take, h);
}

struct headroom headroom_below(const char *proc, const char *cgroups, pid_t pid)
{
    struct headroom h = {0};
    struct lines lines;
    if (lines_open(&lines, proc, "meminfo") == 0) {
        struct pressure_inputs machine = {0};
        if (pressure_parse_meminfo(&lines, &machine))
            take_less(&h, HEADROOM_MACHINE, machine.available_bytes, machine.total_bytes);
        lines_close(&lines);
    }
    cgroups_look(proc, cgroups, pid, &h);
    return h;
}

struct headroom headroom_of(pid_t pid)
{
    return headroom_below("/proc", "/sys/fs/cgroup", pid);
}
