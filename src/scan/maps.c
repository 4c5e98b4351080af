/* See maps.h. */
#include "scan/maps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/procfs.h"

enum { MAPS_BYTES_MAX = 256 << 20 }; /* a million mappings */

static bool begins_with(const char *text, const char *what)
{
    return strncmp(text, what, strlen(what)) == 0;
}

/* Memory of a driver: reading it may do things. Files of memory are no such. */
static bool is_device(const char *path)
{
    return begins_with(path, "/dev/") && !begins_with(path, "/dev/shm/") &&
           !begins_with(path, "/dev/zero");
}

/* A book names blocks by their addresses, and is nobody's pointer. */
static bool is_book(const char *path)
{
    const char *end = strstr(path, " (deleted)");
    size_t len = end ? (size_t)(end - path) : strlen(path);
    return len > 5 && memcmp(path + len - 5, ".book", 5) == 0;
}

/* Memory that processes share, by a name or without. */
static bool is_shared_memory(const char *path)
{
    return begins_with(path, "/dev/shm/") || begins_with(path, "/dev/zero") ||
           begins_with(path, "/memfd:") || begins_with(path, "/SYSV");
}

static bool is_libc(const char *path)
{
    const char *name = strrchr(path, '/');
    return name && (begins_with(name, "/libc.so.") || begins_with(name, "/libc-2."));
}

static void classify(struct scan_region *region, const struct scan_region *before, uint64_t inode,
                     const char *path)
{
    bool special = begins_with(path, "[v") || begins_with(path, "[uprobes"); /* vdso, vvar, ... */
    region->anonymous = inode == 0 && path[0] != '/' && !special;
    region->brk = region->anonymous && !region->shared && strcmp(path, "[heap]") == 0;
    bool begins = region->start % SCAN_ARENA_BYTES == 0 && region->readable && region->writable;
    bool goes_on = before && before->heap && !before->brk && before->end == region->start &&
                   region->start / SCAN_ARENA_BYTES == before->start / SCAN_ARENA_BYTES;
    region->heap = region->brk ||
                   (region->anonymous && !region->shared && path[0] != '[' && (begins || goes_on));
    /* What a program has protected from itself still counts. Of a file that it cannot write only what it has written before. */
    bool memory =
        region->writable || region->anonymous || (region->shared && is_shared_memory(path));
    region->altered = !memory && !region->shared;
    region->root = (memory || region->altered) && !special && !is_book(path) && !is_device(path);
    region->libc = region->writable && is_libc(path);
    region->guarded = strcmp(path, "[stack]") == 0 ||
                      (before && before->end == region->start && !before->readable);
}

static int parse_line(const char *line, const struct scan_region *before,
                      struct scan_region *ret_region)
{
    struct procfs_mapping m;
    if (!procfs_mapping_parse(line, line + strlen(line), &m) || (before && before->end > m.start))
        return -EBADMSG;
    *ret_region = (struct scan_region){
        .start = m.start,
        .end = m.end,
        .readable = m.readable,
        .writable = m.writable,
        .shared = m.shared,
    };
    classify(ret_region, before, m.inode, m.name);
    return 0;
}

int scan_regions_parse(const char *text, size_t len, struct scan_regions *ret_regions)
{
    struct scan_regions all = {0};
    size_t room = 0;
    MEMOIR_CLEANUP(freep)
    char *copy = strndup(text, len);
    if (!copy)
        return -ENOMEM;
    int r = 0;
    char *rest = copy, *line;
    while (r == 0 && (line = strsep(&rest, "\n"))) {
        if (!*line)
            continue;
        if (all.n == room) {
            room = room ? room * 2 : 256;
            struct scan_region *grown = reallocarray(all.regions, room, sizeof(*grown));
            if (!grown) {
                r = -ENOMEM;
                break;
            }
            all.regions = grown;
        }
        r = parse_line(line, all.n ? &all.regions[all.n - 1] : NULL, &all.regions[all.n]);
        all.n += r == 0;
    }
    if (r < 0) {
        scan_regions_release(&all);
        return r;
    }
    *ret_regions = all;
    return 0;
}

int scan_regions_read(pid_t pid, struct scan_regions *ret_regions)
{
    char path[64];
    struct buffer text = BUFFER_INIT(MAPS_BYTES_MAX);
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    int r = fs_read_file(path, &text);
    if (r == -ENOENT || (r == 0 && text.len == 0))
        r = -ESRCH; /* gone; what has exited has no mappings any more */
    if (r == 0)
        r = scan_regions_parse(text.data, text.len, ret_regions);
    buffer_release(&text);
    return r;
}

void scan_regions_release(struct scan_regions *regions)
{
    for (size_t i = 0; i < regions->n_runs; i++)
        free(regions->runs[i].page_first);
    free(regions->runs);
    free(regions->regions);
    *regions = (struct scan_regions){0};
}

struct scan_region *scan_region_of(const struct scan_regions *regions, uint64_t address)
{
    size_t lo = 0, hi = regions->n;
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if (regions->regions[middle].end <= address)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo < regions->n && regions->regions[lo].start <= address ? &regions->regions[lo] : NULL;
}
