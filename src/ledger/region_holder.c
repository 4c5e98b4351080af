/* See region_holder.h. */
#include "ledger/region_holder.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/procfs.h"
#include "ledger/proc.h"

enum {
    START_SLACK_MS = 1000, /* start times are in ticks, and the clock may have been set since */
    READ_BYTES = 65536,
};
/* Inode of the pid namespace that a machine starts with. */
#define INITIAL_PID_NS UINT64_C(0xeffffffc)

enum region_verdict region_owner_find(const struct region_slot *slot,
                                      const struct region_file *file,
                                      struct region_owner *ret_owner, bool *ret_absent)
{
    struct proc_stat stat;
    struct proc_ids ids;
    *ret_absent = false;
    int r = proc_stat_read(slot->pid, &stat);
    if (r >= 0 && !stat.dead)
        r = proc_ids_read(slot->pid, &ids);
    if (r == -ESRCH && kill(slot->pid, 0) < 0 && errno == EPERM)
        return REGION_UNKNOWN; /* /proc hides it from us */
    if (r < 0 && r != -ESRCH)
        return REGION_UNKNOWN;
    /* A process of a container has another pid to itself, and that is the one which it writes. */
    bool owned = r >= 0 && !stat.dead && ids.levels == 1 &&
                 (file->uid == 0 || proc_ids_are(&ids, file->uid));
    if (!owned) {
        *ret_absent = true;
        return REGION_GHOST;
    }
    *ret_owner = (struct region_owner){
        .pid = slot->pid,
        .uid = file->uid != 0 ? file->uid : ids.effective_uid,
        .start_ticks = stat.start_ticks,
    };
    return REGION_HOLDER;
}

/* "7f00-7f10 rw-s 00000000 00:1a 12 /dev/shm/tt_device_0_memory" */
static void line_take(char *line, struct region_maps *maps)
{
    struct procfs_mapping m;
    if (!strstr(line, "tt_device_") || maps->n == REGION_MAPS_MAX ||
        !procfs_mapping_parse(line, line + strlen(line), &m))
        return;
    maps->files[maps->n].dev = makedev(m.dev_major, m.dev_minor);
    maps->files[maps->n++].ino = m.inode;
}

static int maps_take(pid_t pid, struct region_maps *maps, size_t *left)
{
    char path[64];
    maps->n = 0;
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    MEMOIR_CLEANUP(freep)
    char *text = malloc(READ_BYTES + 1);
    if (!text)
        return -ENOMEM;
    size_t kept = 0, total = 0;
    ssize_t got;
    while (total < REGION_MAPS_BYTES_MAX && (got = read(fd, text + kept, READ_BYTES - kept)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if ((size_t)got > *left)
            return -EDQUOT;
        *left -= (size_t)got;
        kept += (size_t)got;
        text[kept] = '\0';
        char *line = text;
        for (char *end; (end = strchr(line, '\n')); line = end + 1) {
            *end = '\0';
            line_take(line, maps);
        }
        kept = (size_t)(text + kept - line);
        if (kept == READ_BYTES)
            kept = 0; /* no line is that long */
        memmove(text, line, kept);
    }
    return 0;
}

static bool maps_have(const struct region_maps *maps, const struct region_file *file)
{
    for (size_t i = 0; i < maps->n; i++)
        if (maps->files[i].dev == file->dev && maps->files[i].ino == file->ino)
            return true;
    return false;
}

/* Without a look at the mappings. Names change, so another one proves nothing either. */
static enum region_verdict circumstances(const struct region_owner *owner,
                                         const struct region_slot *slot, bool *ret_absent)
{
    char comm[PROC_COMM_MAX];
    if (proc_ticks_realtime_ns(owner->start_ticks) >
        slot->updated_ns + START_SLACK_MS * NS_PER_MS) {
        *ret_absent = true;
        return REGION_GHOST;
    }
    bool same = proc_comm_read(owner->pid, comm) == 0 && strcmp(comm, slot->name) == 0;
    return same ? REGION_HOLDER : REGION_UNKNOWN;
}

enum region_verdict region_owner_proof(const struct region_owner *owner,
                                       const struct region_slot *slot,
                                       const struct region_file *file, struct region_maps *maps,
                                       size_t *maps_left, bool *ret_absent)
{
    uint64_t now = clock_monotonic_ns();
    bool fresh = maps->taken_ns && now - maps->taken_ns < REGION_MAPS_AGE_MS * NS_PER_MS;
    *ret_absent = false;
    if (fresh && maps->error == 0 && maps_have(maps, file))
        return REGION_HOLDER;
    /* A region that he opened since has a slot that changed since. */
    if (!fresh || slot->updated_ns >= maps->taken_real_ns) {
        maps->taken_ns = now;
        maps->taken_real_ns = clock_real_ns();
        maps->error = maps_take(owner->pid, maps, maps_left);
    }
    if (maps->error == -EDQUOT)
        return REGION_UNKNOWN;
    if (maps->error < 0)
        return circumstances(owner, slot, ret_absent);
    *ret_absent = !maps_have(maps, file);
    return *ret_absent ? REGION_GHOST : REGION_HOLDER;
}

enum region_verdict region_absent(pid_t pid, uint64_t own_pid_ns, struct pidns_map *pidns)
{
    /* From inside a container those outside it cannot be seen. */
    if (own_pid_ns != INITIAL_PID_NS || pidns_has_inner(pidns, pid))
        return REGION_UNKNOWN;
    return REGION_GHOST;
}
