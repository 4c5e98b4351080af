/* Limits of memory. See headroom.h. */
#include "ledger/headroom.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fs.h"

enum {
    FILE_MAX = 64 << 10,
    PATH_BYTES_MAX = 4096,
    LEVELS_MAX = 64, /* of cgroups in cgroups */
};
/* Version 1 says "no limit" as a number near 2^63, rounded down to pages. */
#define V1_NO_LIMIT (UINT64_C(1) << 60)

const char *headroom_word(enum headroom_kind kind)
{
    static const char *const words[] = {NULL, "cgroup", "machine", "device"};
    return words[kind];
}

/* The number after `key` in a file of lines "key value", or of the file itself without a key; false: there is none,
 * also for "max". */
static bool number_in(const char *path, const char *key, uint64_t *ret)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(FILE_MAX);
    if (fs_read_file(path, &text) < 0)
        return false;
    const char *at = buffer_string(&text);
    size_t len = key ? strlen(key) : 0;
    while (key && (strncmp(at, key, len) != 0 || (at[len] != ' ' && at[len] != ':'))) {
        at = strchr(at, '\n');
        if (!at++)
            return false;
    }
    if (key)
        at += len + 1;
    at += strspn(at, " \t");
    if (*at < '0' || *at > '9')
        return false;
    *ret = strtoull(at, NULL, 10);
    return true;
}

static void take_less(struct headroom *h, enum headroom_kind kind, uint64_t bytes, uint64_t limit)
{
    if (h->kind != HEADROOM_UNKNOWN && h->bytes <= bytes)
        return;
    *h = (struct headroom){kind, bytes, limit};
}

static bool number_of(const char *folder, const char *name, const char *key, uint64_t *ret)
{
    char path[PATH_BYTES_MAX + NAME_MAX];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return number_in(path, key, ret);
}

static void level_look(const char *folder, bool v1, struct headroom *h)
{
    uint64_t limit, used, files = 0;
    if (!number_of(folder, v1 ? "memory.limit_in_bytes" : "memory.max", NULL, &limit) ||
        (v1 && limit >= V1_NO_LIMIT) ||
        !number_of(folder, v1 ? "memory.usage_in_bytes" : "memory.current", NULL, &used))
        return;
    (void)number_of(folder, "memory.stat", v1 ? "total_inactive_file" : "inactive_file", &files);
    used = used > files ? used - files : 0;
    take_less(h, HEADROOM_CGROUP, limit > used ? limit - used : 0, limit);
}

/* A limit above counts as well. */
static void cgroup_look(const char *root, const char *path, bool v1, struct headroom *h)
{
    char folder[PATH_BYTES_MAX];
    if (strstr(path, "..") || /* another cgroup namespace's */
        snprintf(folder, sizeof(folder), "%s%s%s", root, v1 ? "/memory" : "", path) >=
            (int)sizeof(folder))
        return;
    size_t top = strlen(root) + (v1 ? strlen("/memory") : 0);
    for (int level = 0; level < LEVELS_MAX; level++) {
        level_look(folder, v1, h);
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < top || strlen(folder) <= top)
            return;
        *slash = '\0';
    }
}

static bool has_memory(const char *controllers, size_t len)
{
    for (const char *at = controllers; at < controllers + len; at += strcspn(at, ",") + 1)
        if (strncmp(at, "memory", 6) == 0 && (at[6] == ',' || at[6] == ':'))
            return true;
    return false;
}

/* Lines "0::/path" of version 2, "9:memory:/path" of version 1. */
static void cgroups_look(const char *proc, const char *cgroups, pid_t pid, struct headroom *h)
{
    char path[PATH_BYTES_MAX];
    MEMOIR_CLEANUP(buffer_release)
    struct buffer text = BUFFER_INIT(FILE_MAX);
    snprintf(path, sizeof(path), "%s/%d/cgroup", proc, (int)pid);
    if (fs_read_file(path, &text) < 0)
        return;
    MEMOIR_CLEANUP(freep)
    char *lines = buffer_take(&text), *rest = lines;
    for (char *line; rest && (line = strsep(&rest, "\n"));) {
        char *controllers = strchr(line, ':'),
             *where = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!where)
            continue;
        controllers++;
        if (controllers == where)
            cgroup_look(cgroups, where + 1, false, h);
        else if (has_memory(controllers, (size_t)(where - controllers)))
            cgroup_look(cgroups, where + 1, true, h);
    }
}

struct headroom headroom_below(const char *proc, const char *cgroups, pid_t pid)
{
    struct headroom h = {0};
    char path[PATH_BYTES_MAX];
    uint64_t available, total;
    snprintf(path, sizeof(path), "%s/meminfo", proc);
    if (number_in(path, "MemAvailable", &available) && number_in(path, "MemTotal", &total))
        take_less(&h, HEADROOM_MACHINE, available * 1024, total * 1024);
    cgroups_look(proc, cgroups, pid, &h);
    return h;
}

struct headroom headroom_of(pid_t pid)
{
    return headroom_below("/proc", "/sys/fs/cgroup", pid);
}
