/* Nobody tells which pid a process of a container has out here, so /proc is asked for all processes of
 * other namespaces: status has the pid at every level (NSpid), ns/pid says which namespace the last one
 * belongs to. */
#include "ledger/pidns.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "ledger/proc.h"

struct pidns_entry {
    uint64_t ns, start_ticks;
    pid_t inner, outer;
};

struct pidns_map {
    struct pidns_entry *entries; /* sorted by ns, inner */
    size_t n, room;
    uint64_t taken_ns; /* 0: never */
    uint64_t cost_ns;  /* that it took */
};

int pidns_map_new(struct pidns_map **ret_map)
{
    struct pidns_map *map = calloc(1, sizeof(*map));
    if (!map)
        return -ENOMEM;
    *ret_map = map;
    return 0;
}

void pidns_map_free(struct pidns_map *map)
{
    if (!map)
        return;
    free(map->entries);
    free(map);
}

static int compare(const void *a, const void *b)
{
    const struct pidns_entry *x = a, *y = b;
    if (x->ns != y->ns)
        return x->ns < y->ns ? -1 : 1;
    return (x->inner > y->inner) - (x->inner < y->inner);
}

static void map_add(struct pidns_map *map, pid_t pid)
{
    struct proc_ids ids;
    if (proc_ids_read(pid, &ids) < 0 || ids.levels < 2)
        return; /* of our own namespace: no translation needed */
    struct pidns_entry entry = {.inner = ids.inner_pid, .outer = pid};
    struct proc_stat stat;
    if (proc_pid_ns(pid, &entry.ns) < 0 || proc_stat_read(pid, &stat) < 0)
        return;
    entry.start_ticks = stat.start_ticks;
    if (map->n == map->room) {
        size_t room = map->room ? map->room * 2 : 64;
        struct pidns_entry *entries = realloc(map->entries, room * sizeof(*entries));
        if (!entries)
            return; /* that process stays unknown, as if it were hidden */
        map->entries = entries;
        map->room = room;
    }
    map->entries[map->n++] = entry;
}

/* False when it is too early. */
static bool map_take(struct pidns_map *map)
{
    uint64_t now = clock_monotonic_ns(), rest_ns = map->cost_ns * PIDNS_SHARE;
    if (rest_ns < PIDNS_INTERVAL_MS * NS_PER_MS)
        rest_ns = PIDNS_INTERVAL_MS * NS_PER_MS;
    if (map->taken_ns && now - map->taken_ns < rest_ns)
        return false;
    map->taken_ns = now;
    map->n = 0;
    DIR *dir = opendir("/proc");
    if (!dir)
        return true;
    struct dirent *entry;
    while ((entry = readdir(dir))) {
        char *end;
        long pid = strtol(entry->d_name, &end, 10);
        if (pid > 0 && *end == '\0')
            map_add(map, (pid_t)pid);
    }
    closedir(dir);
    if (map->n > 0)
        qsort(map->entries, map->n, sizeof(*map->entries), compare);
    map->cost_ns = clock_monotonic_ns() - now;
    return true;
}

static const struct pidns_entry *map_find(const struct pidns_map *map, uint64_t ns, pid_t pid)
{
    struct pidns_entry key = {.ns = ns, .inner = pid};
    return map->n == 0 ? NULL : bsearch(&key, map->entries, map->n, sizeof(key), compare);
}

static pid_t map_lookup(const struct pidns_map *map, uint64_t ns, pid_t pid, uint64_t start_ticks)
{
    const struct pidns_entry *entry = map_find(map, ns, pid);
    return entry && proc_same_start(entry->start_ticks, start_ticks) ? entry->outer : 0;
}

pid_t pidns_find(struct pidns_map *map, uint64_t ns, pid_t pid, uint64_t start_ticks)
{
    pid_t outer = map_lookup(map, ns, pid, start_ticks);
    if (outer == 0) {
        (void)map_take(map);
        outer = map_lookup(map, ns, pid, start_ticks);
    }
    return outer;
}

int pidns_find_any(struct pidns_map *map, uint64_t ns, pid_t pid, pid_t *ret_outer)
{
    const struct pidns_entry *entry = map_find(map, ns, pid);
    if (!entry && !map_take(map))
        return -EAGAIN;
    entry = map_find(map, ns, pid);
    if (!entry)
        return -ESRCH;
    *ret_outer = entry->outer;
    return 0;
}

bool pidns_has_inner(struct pidns_map *map, pid_t pid)
{
    (void)map_take(map);
    for (size_t i = 0; i < map->n; i++)
        if (map->entries[i].inner == pid)
            return true;
    return false;
}
