/* cgroup.c: see cgroup.h. */
#include "book/cgroup.h"

#include <errno.h>
#include <string.h>

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

uint64_t cgroup_limit(uint64_t number)
{
    return number >= V1_NO_LIMIT ? UINT64_MAX : number;
}

int cgroup_memory_read(const char *folder, bool v1, struct cgroup_memory *ret_memory)
{
    struct cgroup_memory m = {0};
    int r = lines_read_number(folder, v1 ? "memory.limit_in_bytes" : "memory.max", NULL,
                              &m.limit_bytes);
    if (r == 0)
        r = lines_read_number(folder, v1 ? "memory.usage_in_bytes" : "memory.current", NULL,
                              &m.used_bytes);
    if (r < 0)
        return r;
    m.limit_bytes = cgroup_limit(m.limit_bytes);
    if (m.limit_bytes != UINT64_MAX)
        (void)lines_read_number(folder, "memory.stat", v1 ? "total_inactive_file" : "inactive_file",
                                &m.inactive_bytes);
    *ret_memory = m;
    return 0;
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
