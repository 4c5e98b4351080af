/* Code of other processes. See modules.h. */
#include "observe/modules.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/fs.h"

/* ---- files ---- */

static int64_t file_read(void *context, uint64_t offset, void *to, size_t n)
{
    const struct module_file *file = context;
    ssize_t done;
    do
        done = pread(file->fd, to, n, (off_t)offset);
    while (done < 0 && errno == EINTR);
    return done < 0 ? -errno : done;
}

static void file_free(struct module_file *file)
{
    elf_image_release(&file->image);
    if (file->fd >= 0)
        close(file->fd);
    free(file);
}

void module_files_release(struct module_files *cache)
{
    for (uint32_t i = 0; i < cache->n; i++)
        file_free(cache->files[i]);
    *cache = (struct module_files){0};
}

/* A place for one more file: that of the one which no process uses and which was looked at longest ago. */
static bool cache_make_room(struct module_files *cache)
{
    uint32_t oldest = MODULE_FILES_MAX;
    if (cache->n < MODULE_FILES_MAX)
        return true;
    for (uint32_t i = 0; i < cache->n; i++)
        if (cache->files[i]->references == 0 &&
            (oldest == MODULE_FILES_MAX || cache->files[i]->used < cache->files[oldest]->used))
            oldest = i;
    if (oldest == MODULE_FILES_MAX)
        return false;
    file_free(cache->files[oldest]);
    cache->files[oldest] = cache->files[--cache->n];
    return true;
}

/* The file behind a descriptor, which is taken in any case. */
static int cache_take(struct module_files *cache, int fd, struct module_file **ret_file)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return -ENOEXEC;
    }
    uint64_t mtime_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000 + (uint64_t)st.st_mtim.tv_nsec;
    for (uint32_t i = 0; i < cache->n; i++) {
        struct module_file *f = cache->files[i];
        if (f->dev == st.st_dev && f->ino == st.st_ino && f->size == (uint64_t)st.st_size &&
            f->mtime_ns == mtime_ns) {
            close(fd);
            f->used = ++cache->turn;
            *ret_file = f;
            return 0;
        }
    }
    struct module_file *file = cache_make_room(cache) ? calloc(1, sizeof(*file)) : NULL;
    if (!file) {
        close(fd);
        return -ENOSPC;
    }
    *file = (struct module_file){
        .dev = st.st_dev,
        .ino = st.st_ino,
        .size = (uint64_t)st.st_size,
        .mtime_ns = mtime_ns,
        .number = ++cache->numbers,
        .fd = fd,
        .used = ++cache->turn,
    };
    int r = elf_image_init(&file->image, file_read, file);
    if (r < 0) {
        file_free(file);
        return r;
    }
    cache->files[cache->n++] = file;
    *ret_file = file;
    return 0;
}

/* Too many tables are in memory: those which were used longest ago go. */
static void cache_trim(struct module_files *cache, const struct module_file *but)
{
    uint64_t bytes = 0;
    struct module_file *oldest = NULL;
    for (uint32_t i = 0; i < cache->n; i++) {
        struct module_file *f = cache->files[i];
        uint64_t loaded = elf_image_loaded_bytes(&f->image);
        bytes += loaded;
        if (loaded > 0 && f != but && (!oldest || f->used < oldest->used))
            oldest = f;
    }
    if (bytes > MODULE_TABLES_MAX && oldest)
        elf_image_drop(&oldest->image);
}

int module_files_row(struct module_files *cache, struct module_file *file, uint64_t vaddr,
                     struct cfi_section *ret_section, struct cfi_row *ret_row)
{
    uint64_t before = elf_image_loaded_bytes(&file->image);
    file->used = ++cache->turn;
    int r = elf_image_row(&file->image, vaddr, ret_section, ret_row);
    if (elf_image_loaded_bytes(&file->image) != before)
        cache_trim(cache, file);
    return r;
}

/* ---- opening what is mapped ---- */

/* A descriptor that only names a file becomes one that reads it, if it is a regular file: opening a device or a FIFO
 * already does something. */
static int reopen_regular(int path_fd)
{
    struct stat st;
    char link[64];
    int fd = -ENOEXEC;
    if (path_fd < 0)
        return -errno;
    if (fstat(path_fd, &st) == 0 && S_ISREG(st.st_mode)) {
        snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd);
        fd = open(link, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        if (fd < 0)
            fd = -errno;
    }
    close(path_fd);
    return fd;
}

static int open_mapped(pid_t pid, const struct module_range *range)
{
    char name[96];
    snprintf(name, sizeof(name), "/proc/%d/map_files/%llx-%llx", (int)pid,
             (unsigned long long)range->start, (unsigned long long)range->end);
    return reopen_regular(open(name, O_PATH | O_CLOEXEC));
}

static int only_same(int fd, const struct module_range *range)
{
    struct stat st;
    if (fd < 0 || (fstat(fd, &st) == 0 && st.st_dev == range->dev && st.st_ino == range->ino))
        return fd;
    close(fd);
    return -ESTALE;
}

/* By its path, inside the root of the process while it lives. */
static int open_path(pid_t pid, const struct module_range *range, const char *path)
{
    char root[64];
    if (path[0] != '/')
        return -ENOENT;
    snprintf(root, sizeof(root), "/proc/%d/root", (int)pid);
    int root_fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC), fd = -ENOENT;
    if (root_fd >= 0) {
        struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                               .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
        fd = reopen_regular((int)syscall(SYS_openat2, root_fd, path, &how, sizeof(how)));
        close(root_fd);
        fd = only_same(fd, range);
    }
    if (fd < 0)
        fd = only_same(reopen_regular(open(path, O_PATH | O_CLOEXEC)), range);
    return fd;
}

static int file_open(struct module_map *map, const struct module_range *range, const char *path,
                     struct module_file **ret_file)
{
    int fd = open_mapped(map->pid, range);
    if (fd < 0)
        fd = open_path(map->pid, range, path);
    return fd < 0 ? fd : cache_take(map->cache, fd, ret_file);
}

/* ---- modules of a process ---- */

static void info_fill(struct module *module, const struct module_range *range, const char *path)
{
    struct book_module *info = &module->info;
    size_t len = strlen(path);
    info->bias = module->bias;
    info->map_start = range->start;
    info->map_end = range->end;
    if (module->file) {
        const struct elf_image *image = &module->file->image;
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
    if (file_open(map, range, path, &file) < 0 ||
        elf_image_bias(&file->image, range->start, range->offset, &bias) < 0)
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

/* ---- maps ---- */

static bool number_take(const char **at, const char *end, unsigned base, uint64_t *ret)
{
    uint64_t v = 0;
    const char *p = *at;
    for (; p < end; p++) {
        unsigned digit;
        if (*p >= '0' && *p <= '9')
            digit = (unsigned)(*p - '0');
        else if (*p >= 'a' && *p <= 'f')
            digit = (unsigned)(*p - 'a') + 10;
        else
            break;
        if (digit >= base || v >> 60)
            return false;
        v = v * base + digit;
    }
    bool some = p > *at;
    *at = p;
    *ret = v;
    return some;
}

static bool byte_take(const char **at, const char *end, char c)
{
    if (*at == end || **at != c)
        return false;
    ++*at;
    return true;
}

/* "start-end perms offset major:minor inode   name"; *ret_name is what follows the blanks. */
static bool line_parse(const char *at, const char *end, struct module_range *range, bool *ret_exec,
                       const char **ret_name)
{
    uint64_t major, minor;
    if (!number_take(&at, end, 16, &range->start) || !byte_take(&at, end, '-') ||
        !number_take(&at, end, 16, &range->end) || !byte_take(&at, end, ' ') || end - at < 5)
        return false;
    *ret_exec = at[2] == 'x';
    at += 4;
    if (!byte_take(&at, end, ' ') || !number_take(&at, end, 16, &range->offset) ||
        !byte_take(&at, end, ' ') || !number_take(&at, end, 16, &major) ||
        !byte_take(&at, end, ':') || !number_take(&at, end, 16, &minor) ||
        !byte_take(&at, end, ' ') || !number_take(&at, end, 10, &range->ino))
        return false;
    range->dev = makedev((unsigned)major, (unsigned)minor);
    while (at < end && *at == ' ')
        at++;
    *ret_name = at;
    return range->start < range->end;
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
        const char *stop = memchr(line, '\n', (size_t)(end - line)), *name;
        stop = stop ? stop : end;
        struct module_range range = {0};
        bool executable;
        if (line_parse(line, stop, &range, &executable, &name) && executable &&
            (n == 0 || range.start >= ranges[n - 1].end)) {
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
            range.kind = kind_of(&range, name, (size_t)(stop - name));
            range.name = (uint32_t)names_len;
            names_len += name_copy(names + names_len, name, (size_t)(stop - name));
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
    *map = (struct module_map){.cache = cache, .pid = pid};
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
