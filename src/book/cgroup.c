/* cgroup.c: see cgroup.h. */
#include "book/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "book/descriptor.h"
#include "book/lines.h"
#include "book/text.h"

/* Version 1 says "no limit" as a number near 2^63, rounded down to pages. */
#define V1_NO_LIMIT (UINT64_C(1) << 60)

enum { CGROUPS_DEEP = 64 };

/* Is "memory" in "cpu,memory:..."? */
static bool has_memory(const char *list, const char *end)
{
    while (list < end) {
        const char *comma = memchr(list, ',', (size_t)(end - list));
        size_t len = (size_t)((comma ? comma : end) - list);
        if (len == 6 && memcmp(list, "memory", 6) == 0)
            return true;
        list += len + 1;
    }
    return false;
}

bool cgroup_path_parse(struct lines *text, char *ret_path, size_t size, bool *ret_v1)
{
    char line[LINES_PATH_MAX];
    bool cut, found = false;
    while (lines_next(text, line, sizeof(line), &cut)) {
        const char *list = strchr(line, ':'), *where = list ? strchr(list + 1, ':') : NULL;
        if (!where || cut || where[1] != '/' || strlen(where + 1) >= size)
            continue;
        bool v1 = list + 1 != where;
        if (v1 && !has_memory(list + 1, where))
            continue;
        memcpy(ret_path, where + 1, strlen(where));
        *ret_v1 = v1;
        found = true;
        if (v1)
            break;
    }
    return found;
}

bool cgroup_path_outside(const char *path)
{
    for (const char *at = path; (at = strstr(at, "/..")); at += 3)
        if (at[3] == '/' || at[3] == '\0')
            return true;
    return false;
}

/* Apart from its callers: its buffers need not be on the stack together with others. */
__attribute__((noinline)) int cgroup_path_read(const char *proc, const char *process,
                                               char *ret_path, size_t size, bool *ret_v1)
{
    char name[32];
    struct lines lines;
    struct text text = text_begin(name, sizeof(name));
    text_add(&text, process);
    text_add(&text, "/cgroup");
    int r = text.cut ? -ENAMETOOLONG : lines_open(&lines, proc, name);
    if (r < 0)
        return r;
    if (!cgroup_path_parse(&lines, ret_path, size, ret_v1))
        r = -ENOENT;
    lines_close(&lines);
    return r;
}

/* ---- figures ---- */

/* Where a figure is: a file of one number, or of lines "key number". Figures of one file stand together. */
struct source {
    const char *file;
    const char *key; /* NULL: the file is the number */
    enum cgroup_figure figure;
};

static const struct source sources_v1[] = {
    {"memory.usage_in_bytes", NULL, CGROUP_CURRENT},
    {"memory.max_usage_in_bytes", NULL, CGROUP_PEAK},
    {"memory.limit_in_bytes", NULL, CGROUP_LIMIT},
    {"memory.kmem.usage_in_bytes", NULL, CGROUP_KERNEL},
    {"memory.oom_control", "oom_kill", CGROUP_OOM_KILLS},
    {"memory.stat", "total_rss", CGROUP_ANON},
    {"memory.stat", "total_cache", CGROUP_FILE},
    {"memory.stat", "total_shmem", CGROUP_SHMEM},
    {"memory.stat", "total_swap", CGROUP_SWAP},
    {"memory.stat", "total_inactive_file", CGROUP_INACTIVE},
    {0},
};

static const struct source sources_v2[] = {
    {"memory.current", NULL, CGROUP_CURRENT},
    {"memory.peak", NULL, CGROUP_PEAK},
    {"memory.max", NULL, CGROUP_LIMIT},
    {"memory.high", NULL, CGROUP_HIGH},
    {"memory.swap.current", NULL, CGROUP_SWAP},
    {"memory.events", "oom_kill", CGROUP_OOM_KILLS},
    {"memory.stat", "anon", CGROUP_ANON},
    {"memory.stat", "file", CGROUP_FILE},
    {"memory.stat", "shmem", CGROUP_SHMEM},
    {"memory.stat", "kernel", CGROUP_KERNEL},
    {"memory.stat", "slab", CGROUP_SLAB},
    {"memory.stat", "inactive_file", CGROUP_INACTIVE},
    {0},
};

static int figure_take(struct cgroup_figures *figures, enum cgroup_figure figure,
                       const struct lines_value *value)
{
    bool limited = value->number < V1_NO_LIMIT;
    if (value->error == 0 && limited) {
        figures->values[figure] = value->number;
        figures->valid |= CGROUP_BIT(figure);
    } else if (value->error == 0 || value->error == -ENOENT) {
        figures->none |= CGROUP_BIT(figure);
    }
    return value->error;
}

int cgroup_figures_read(int dir_fd, bool v1, uint32_t wanted, struct cgroup_figures *ret_figures)
{
    struct cgroup_figures figures = {0};
    const struct source *source = v1 ? sources_v1 : sources_v2;
    int error = 0;
    while (source->file) {
        struct lines_value values[CGROUP_FILE_FIGURES];
        enum cgroup_figure of[CGROUP_FILE_FIGURES];
        const char *file = source->file;
        size_t n = 0;
        for (; source->file && strcmp(source->file, file) == 0; source++) {
            if (!(wanted & CGROUP_BIT(source->figure)))
                continue;
            of[n] = source->figure;
            values[n++] = (struct lines_value){.key = source->key};
        }
        if (n > 0)
            lines_read_numbers(dir_fd, file, values, n);
        for (size_t i = 0; i < n; i++) {
            int r = figure_take(&figures, of[i], &values[i]);
            error = error ? error : r;
        }
    }
    *ret_figures = figures;
    return error;
}

int cgroup_memory_read(const char *folder, bool v1, struct cgroup_memory *ret_memory)
{
    struct cgroup_figures f, more;
    int dir_fd = book_openat(AT_FDCWD, folder, O_PATH | O_DIRECTORY, 0);
    if (dir_fd < 0)
        return dir_fd;
    int r =
        cgroup_figures_read(dir_fd, v1, CGROUP_BIT(CGROUP_LIMIT) | CGROUP_BIT(CGROUP_CURRENT), &f);
    struct cgroup_memory m = {.limit_bytes = UINT64_MAX, .used_bytes = f.values[CGROUP_CURRENT]};
    if (r == 0 && f.valid & CGROUP_BIT(CGROUP_LIMIT)) {
        m.limit_bytes = f.values[CGROUP_LIMIT];
        (void)cgroup_figures_read(dir_fd, v1, CGROUP_BIT(CGROUP_INACTIVE), &more);
        m.inactive_bytes = more.values[CGROUP_INACTIVE];
    }
    (void)syscall(SYS_close, dir_fd);
    if (r == 0)
        *ret_memory = m;
    return r;
}

uint64_t cgroup_memory_headroom(const struct cgroup_memory *memory)
{
    if (memory->limit_bytes == UINT64_MAX)
        return UINT64_MAX;
    uint64_t used = memory->used_bytes > memory->inactive_bytes
                        ? memory->used_bytes - memory->inactive_bytes
                        : 0;
    return memory->limit_bytes > used ? memory->limit_bytes - used : 0;
}

int cgroup_folder(const char *root, bool v1, const char *path, char *ret_folder, size_t size)
{
    char head[CGROUP_ROOT_MAX];
    struct text whole = text_begin(head, sizeof(head));
    text_add(&whole, root);
    text_add(&whole, v1 ? "/memory" : "");
    size_t top = strlen(head), len = strlen(path);
    if (whole.cut || top + len >= size)
        return -ENAMETOOLONG;
    memmove(ret_folder + top, path, len + 1);
    memcpy(ret_folder, head, top);
    return (int)top;
}

int cgroup_memory_each(char *folder, size_t top, bool v1,
                       void (*each)(const struct cgroup_memory *memory, void *context),
                       void *context)
{
    int error = 0;
    for (int deep = 0; deep < CGROUPS_DEEP; deep++) {
        struct cgroup_memory memory;
        size_t len = strlen(folder);
        while (len > top && folder[len - 1] == '/')
            folder[--len] = '\0';
        int r = cgroup_memory_read(folder, v1, &memory);
        if (r == 0 && memory.limit_bytes != UINT64_MAX)
            each(&memory, context);
        if (r < 0 && r != -ENOENT && error == 0)
            error = r;
        char *slash = strrchr(folder + top, '/');
        if (!slash)
            break;
        *slash = '\0';
    }
    return error;
}
