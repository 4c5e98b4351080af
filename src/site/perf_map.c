/* See perf_map.h. */
#include "site/perf_map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/procfs.h"
#include "site/symbol_file.h"

struct entry {
    uint64_t start, size;
    uint32_t order; /* in the file */
    uint32_t name;  /* where it begins in the texts */
};

struct perf_map {
    struct entry *entries; /* by start, then by order */
    size_t n, room;
    char *texts;
    size_t texts_len;
};

void perf_map_free(struct perf_map *map)
{
    if (!map)
        return;
    free(map->entries);
    free(map->texts);
    free(map);
}

size_t perf_map_entries(const struct perf_map *map)
{
    return map->n;
}

/* ---- parsing ---- */

/* A hexadecimal number and the blank after it. */
static bool take_number(const char **at, const char *end, uint64_t *ret_number)
{
    const char *p = *at;
    uint64_t number = 0;
    unsigned digits = 0;
    if (end - p > 2 && p[0] == '0' && (p[1] == 'x' || p[1] == 'X'))
        p += 2;
    for (; p < end; p++, digits++) {
        unsigned digit = *p >= '0' && *p <= '9'   ? (unsigned)(*p - '0')
                         : *p >= 'a' && *p <= 'f' ? (unsigned)(*p - 'a') + 10
                         : *p >= 'A' && *p <= 'F' ? (unsigned)(*p - 'A') + 10
                                                  : 16;
        if (digit == 16)
            break;
        number = number << 4 | digit;
    }
    if (digits == 0 || digits > 16 || p == end || *p != ' ')
        return false;
    *at = p + 1;
    *ret_number = number;
    return true;
}

static int entry_add(struct perf_map *map, uint64_t start, uint64_t size, const char *name,
                     size_t len)
{
    if (map->n == map->room) {
        size_t room = map->room ? map->room * 2 : 256;
        struct entry *entries = reallocarray(map->entries, room, sizeof(*entries));
        if (!entries)
            return -ENOMEM;
        map->entries = entries;
        map->room = room;
    }
    map->entries[map->n] = (struct entry){start, size, (uint32_t)map->n, (uint32_t)map->texts_len};
    map->n++;
    for (size_t i = 0; i < len; i++) /* shown to people, one on a line */
        map->texts[map->texts_len++] = (unsigned char)name[i] < ' ' ? ' ' : name[i];
    map->texts[map->texts_len++] = '\0';
    return 0;
}

static int line_take(struct perf_map *map, const char *line, const char *end)
{
    uint64_t start, size;
    if (!take_number(&line, end, &start) || !take_number(&line, end, &size) || line == end ||
        size == 0 || start + size < start)
        return 0;
    size_t len = (size_t)(end - line);
    return entry_add(map, start, size, line, len < PERF_MAP_NAME_MAX ? len : PERF_MAP_NAME_MAX);
}

static int by_start(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

int perf_map_parse(const char *text, size_t len, struct perf_map **ret_map)
{
    struct perf_map *map = calloc(1, sizeof(*map));
    int r = 0;
    len = len < PERF_MAP_BYTES_MAX ? len : PERF_MAP_BYTES_MAX;
    if (map)
        map->texts =
            malloc(len + 1); /* a name is shorter than its line, by more than a terminator */
    if (!map || !map->texts)
        r = -ENOMEM;
    const char *end = text + len;
    for (const char *line = text; r == 0 && line < end && map->n < PERF_MAP_ENTRIES_MAX;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        stop = stop ? stop : end;
        r = line_take(map, line, stop);
        line = stop + 1;
    }
    if (r < 0) {
        perf_map_free(map);
        return r;
    }
    if (map->n)
        qsort(map->entries, map->n, sizeof(*map->entries), by_start);
    *ret_map = map;
    return 0;
}

const char *perf_map_find(const struct perf_map *map, uint64_t address)
{
    size_t low = 0, high = map->n; /* behind the last that starts at or before the address */
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (map->entries[mid].start <= address)
            low = mid + 1;
        else
            high = mid;
    }
    const struct entry *found = NULL;
    for (size_t i = 0; i < PERF_MAP_OVERLAP_MAX && low > i; i++) {
        const struct entry *e = &map->entries[low - 1 - i];
        if (address - e->start < e->size && (!found || e->order > found->order))
            found = e;
    }
    return found ? map->texts + found->name : NULL;
}

/* ---- reading ---- */

enum { STATUS_MAX = 8192 };

/* Its number in its own namespace, where it named the file. */
static pid_t own_pid(pid_t pid)
{
    char path[64], text[STATUS_MAX];
    pid_t first, inner = pid;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    (void)procfs_status_pids(text, &first, 1, &inner);
    return inner > 0 ? inner : pid;
}

static int text_read(int fd, size_t size, struct perf_map **ret_map)
{
    size = size < PERF_MAP_BYTES_MAX ? size : PERF_MAP_BYTES_MAX;
    MEMOIR_CLEANUP(freep)
    char *text = malloc(size + 1);
    size_t len = 0;
    if (!text)
        return -ENOMEM;
    while (len < size) {
        ssize_t n = pread(fd, text + len, size - len, (off_t)len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    return perf_map_parse(text, len, ret_map);
}

int perf_map_read(pid_t pid, const struct symbol_host *host, uint32_t owner,
                  struct perf_map **ret_map)
{
    char path[64];
    struct stat process, file;
    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    if (pid <= 0 || stat(path, &process) < 0)
        return -ENOENT;
    snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)own_pid(pid));
    struct symbol_wanted wanted = {.pid = pid, .mapped = -1, .in_root = path};
    MEMOIR_CLEANUP(closep)
    int fd = host ? host->open(host->context, owner, &wanted) : symbol_wanted_open(&wanted);
    if (fd < 0)
        return fd;
    if (fstat(fd, &file) < 0)
        return -errno;
    if (!S_ISREG(file.st_mode) || (file.st_uid != process.st_uid && file.st_uid != 0))
        return -EPERM;
    return text_read(fd, (size_t)file.st_size, ret_map);
}
