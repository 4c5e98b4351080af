/* Code of other processes. See modules.h. */
#include "observe/modules.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/accountable.h"
#include "base/buffer.h"
#include "base/fs.h"
#include "base/procfs.h"

/* ---- modules of a process ---- */

static void info_fill(struct module *module, const struct module_range *range, const char *path)
{
    struct book_module *info = &module->info;
    size_t len = strlen(path);
    info->bias = module->bias;
    info->map_start = range->start;
    info->map_end = range->end;
    if (module->file) {
        const struct elf_image *image = &module->file->elf.image;
        uint64_t lo, hi;
        elf_image_span(image, &lo, &hi);
        info->map_start = lo + module->bias;
        info->map_end = hi + module->bias;
        info->build_id_len = image->build_id_len;
        memcpy(info->build_id, image->build_id, image->build_id_len);
    }
    if (len >= sizeof(info->path)) {
        len = sizeof(info->path) - 1;
        info->flags |= BOOK_MODULE_PATH_CUT;
    }
    memcpy(info->path, path, len);
}

static bool module_is(const struct module *m, const struct module_range *range, const char *path,
                      const struct module_file *file, uint64_t bias)
{
    return m->dev == range->dev && m->ino == range->ino && m->file == file && m->bias == bias &&
           strncmp(m->info.path, path, sizeof(m->info.path) - 1) == 0;
}

struct module *module_map_module(struct module_map *map, struct module_range *range)
{
    if (range->tried || range->kind != MODULE_RANGE_FILE)
        return range->module;
    range->tried = true;
    const char *path = map->names + range->name;
    struct module_file *file = NULL;
    uint64_t bias = range->start - range->offset;
    if (module_files_open(map->cache, map->pid, map->owner, range, path, &file) < 0 ||
        elf_image_bias(&file->elf.image, range->start, range->offset, &bias) < 0)
        file = NULL;
    for (uint32_t i = 0; i < map->n_modules; i++)
        if (module_is(map->modules[i], range, path, file, bias))
            return range->module = map->modules[i];
    struct module *module = map->n_modules < MODULES_MAX ? calloc(1, sizeof(*module)) : NULL;
    if (!module) {
        map->cut = true;
        return NULL;
    }
    module->file = file;
    module->dev = range->dev;
    module->ino = range->ino;
    module->bias = bias;
    if (file)
        file->references++;
    info_fill(module, range, path);
    map->modules[map->n_modules++] = module;
    return range->module = module;
}

struct module_range *module_map_range(const struct module_map *map, uint64_t pc)
{
    uint32_t low = 0, high = map->n_ranges;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (map->ranges[mid].end <= pc)
            low = mid + 1;
        else
            high = mid;
    }
    return low < map->n_ranges && map->ranges[low].start <= pc ? &map->ranges[low] : NULL;
}

static uint32_t kind_of(const struct module_range *range, const char *name, size_t len)
{
    static const char trampoline[] = "[uprobes";
    if (len >= sizeof(trampoline) - 1 && memcmp(name, trampoline, sizeof(trampoline) - 1) == 0)
        return MODULE_RANGE_TRAMPOLINE;
    return range->ino != 0 && len > 0 && name[0] != '[' ? MODULE_RANGE_FILE
                                                        : MODULE_RANGE_ANONYMOUS;
}

/* Copy a name as the program knows it: newlines come as \012, and what was deleted is marked. */
static size_t name_copy(char *to, const char *name, size_t len)
{
    static const char deleted[] = " (deleted)";
    size_t n = 0;
    if (len >= sizeof(deleted) &&
        memcmp(name + len - (sizeof(deleted) - 1), deleted, sizeof(deleted) - 1) == 0)
        len -= sizeof(deleted) - 1;
    for (size_t i = 0; i < len; i++) {
        if (len - i >= 4 && memcmp(name + i, "\\012", 4) == 0) {
            to[n++] = '\n';
            i += 3;
        } else {
            to[n++] = name[i];
        }
    }
    to[n] = '\0';
    return n + 1;
}

/* A mapping that is as it was has the module that it had. Both lists are in order. */
static void modules_carry(const struct module_map *map, struct module_range *ranges, uint32_t n,
                          const char *names)
{
    uint32_t i = 0;
    for (uint32_t k = 0; k < n; k++) {
        struct module_range *now = &ranges[k];
        while (i < map->n_ranges && map->ranges[i].start < now->start)
            i++;
        if (i == map->n_ranges)
            return;
        const struct module_range *was = &map->ranges[i];
        if (was->start != now->start || was->end != now->end || was->offset != now->offset ||
            was->dev != now->dev || was->ino != now->ino || was->kind != now->kind ||
            strcmp(map->names + was->name, names + now->name) != 0)
            continue;
        /* One that could not be opened is tried again. */
        now->tried = was->module && was->module->file;
        now->module = now->tried ? was->module : NULL;
    }
}

int module_map_parse(struct module_map *map, const char *text, size_t len)
{
    const char *end = text + len;
    uint32_t n = 0, room = 0;
    bool cut = false;
    struct module_range *ranges = NULL;
    char *names = malloc(len + 1); /* no name is longer than its line */
    size_t names_len = 0;
    if (!names)
        return -ENOMEM;
    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        stop = stop ? stop : end;
        struct procfs_mapping m;
        if (procfs_mapping_parse(line, stop, &m) && m.executable &&
            (n == 0 || m.start >= ranges[n - 1].end)) {
            if (n == MODULE_RANGES_MAX) {
                cut = true;
                break;
            }
            if (n == room) {
                room = room ? room * 2 : 64;
                struct module_range *more = realloc(ranges, room * sizeof(*more));
                if (!more) {
                    free(ranges);
                    free(names);
                    return -ENOMEM;
                }
                ranges = more;
            }
            struct module_range range = {
                .start = m.start,
                .end = m.end,
                .offset = m.offset,
                .dev = makedev(m.dev_major, m.dev_minor),
                .ino = m.inode,
                .name = (uint32_t)names_len,
            };
            range.kind = kind_of(&range, m.name, (size_t)(stop - m.name));
            names_len += name_copy(names + names_len, m.name, (size_t)(stop - m.name));
            ranges[n++] = range;
        }
        line = stop + 1;
    }
    modules_carry(map, ranges, n, names);
    free(map->ranges);
    free(map->names);
    map->ranges = ranges;
    map->n_ranges = n;
    map->names = names;
    map->cut = cut;
    return 0;
}

int module_map_read(struct module_map *map)
{
    char path[64];
    struct buffer text = BUFFER_INIT(MODULE_MAPS_MAX);
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)map->pid);
    int r = fs_read_file(path, &text);
    if (r == -ENOENT)
        r = -ESRCH;
    /* A process that has ended but was not reaped has empty maps. */
    if (r == 0 && text.len == 0)
        r = -ESRCH;
    if (r == 0)
        r = module_map_parse(map, text.data, text.len);
    buffer_release(&text);
    return r;
}

int module_map_init(struct module_map *map, struct module_files *cache, pid_t pid)
{
    char path[32];
    struct stat st;
    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    *map = (struct module_map){.cache = cache, .pid = pid};
    map->owner = stat(path, &st) == 0 ? accountable_uid(st.st_uid) : UINT32_MAX;
    map->modules = calloc(MODULES_MAX, sizeof(map->modules[0]));
    return map->modules ? 0 : -ENOMEM;
}

void module_map_release(struct module_map *map)
{
    for (uint32_t i = 0; i < map->n_modules; i++) {
        if (map->modules[i]->file)
            map->modules[i]->file->references--;
        free(map->modules[i]);
    }
    free(map->modules);
    free(map->ranges);
    free(map->names);
    *map = (struct module_map){0};
}
