/* The tree of cgroups. See cgroups.h.
 *
 * The rows are their own queue: reading one appends its children. When the last one is read they are put into the order
 * of the tree, which makes each row's parent the nearest one before it that is a level up, and sums go from the end to
 * the start. */
#include "ledger/cgroups.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "book/cgroup.h"
#include "book/lines.h"

enum { TEXT_MAX = 16 << 10, LIST_BYTES_MAX = 32 << 20 /* of cgroup.procs: 4 million processes */ };

struct cgroups {
    int root_fd;
    bool v1, whole;
    struct cgroup *rows;
    size_t n, size;
    size_t next; /* to be read */
    uint64_t left_out, time_ns;
};

/* ---- figures ---- */

static bool has(const struct cgroup *g, enum cgroup_figure figure)
{
    return g->valid >> figure & 1;
}

static void set(struct cgroup *g, enum cgroup_figure figure, uint64_t value)
{
    g->figures[figure] = value;
    g->valid |= 1u << figure;
    g->none &= ~(1u << figure);
}

static void figures_read(int dir_fd, bool v1, struct cgroup *g)
{
    struct cgroup_figures f;
    (void)cgroup_figures_read(dir_fd, v1, CGROUP_ALL_IN_FILES, &f);
    g->valid |= f.valid;
    g->none |= f.none;
    memcpy(g->figures, f.values, sizeof(f.values));
}

/* Lines of cgroup.procs. A threaded cgroup of v2 refuses: its processes count where they began to share. */
static void processes_count(int dir_fd, struct cgroup *g)
{
    char text[TEXT_MAX];
    uint64_t lines = 0;
    size_t all = 0;
    MEMOIR_CLEANUP(closep)
    int fd = openat(dir_fd, "cgroup.procs", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : 0;
    while (fd >= 0 && all < LIST_BYTES_MAX && (n = read(fd, text, sizeof(text))) > 0) {
        all += (size_t)n;
        for (ssize_t i = 0; i < n; i++)
            lines += text[i] == '\n';
    }
    if (n == 0)
        set(g, CGROUP_OWN_PROCESSES, lines);
    else if (n < 0 && (errno == EOPNOTSUPP || errno == ENOENT))
        g->none |= 1u << CGROUP_OWN_PROCESSES;
}

/* ---- the tree ---- */

static int row_append(struct cgroups *cgroups, char *path, uint32_t depth)
{
    if (cgroups->n == cgroups->size) {
        size_t size = cgroups->size ? cgroups->size * 2 : 64;
        struct cgroup *rows = reallocarray(cgroups->rows, size, sizeof(*rows));
        if (!rows)
            return -ENOMEM;
        cgroups->rows = rows;
        cgroups->size = size;
    }
    cgroups->rows[cgroups->n++] = (struct cgroup){.path = path, .depth = depth};
    return 0;
}

static int child_append(struct cgroups *cgroups, size_t parent, const char *name)
{
    struct cgroup *g = &cgroups->rows[parent];
    size_t len = g->depth ? strlen(g->path) : 0;
    if (cgroups->n >= CGROUPS_MAX || g->depth + 1 >= CGROUPS_DEPTH_MAX ||
        len + 1 + strlen(name) >= CGROUPS_PATH_MAX) {
        cgroups->left_out++;
        g->cut = true;
        return 0;
    }
    char *path;
    if (asprintf(&path, "%.*s/%s", (int)len, g->path, name) < 0)
        return -ENOMEM;
    int r = row_append(cgroups, path, g->depth + 1);
    if (r < 0)
        free(path);
    return r;
}

static bool is_directory(int dir_fd, const struct dirent *entry)
{
    struct stat st;
    if (entry->d_type != DT_UNKNOWN)
        return entry->d_type == DT_DIR;
    return fstatat(dir_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* Takes the descriptor. */
static int children_append(struct cgroups *cgroups, size_t parent, int dir_fd)
{
    DIR *list = fdopendir(dir_fd);
    const struct dirent *entry;
    int r = 0;
    if (!list) {
        r = errno == ENOMEM ? -ENOMEM : 0;
        close(dir_fd);
        return r;
    }
    while (r == 0 && (entry = readdir(list)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            is_directory(dirfd(list), entry))
            r = child_append(cgroups, parent, entry->d_name);
    closedir(list);
    return r;
}

/* Version 1 leaves the kernel's part out of what the root holds, and counts it below: children would hold more than
 * all. The root of a container is none of that kind and has it. */
static void root_complete(struct cgroup *g)
{
    static const enum cgroup_figure parts[] = {CGROUP_ANON, CGROUP_FILE, CGROUP_KERNEL};
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        sum += has(g, parts[i]) ? g->figures[parts[i]] : 0;
    if (has(g, CGROUP_CURRENT) && g->figures[CGROUP_CURRENT] < sum)
        g->figures[CGROUP_CURRENT] = sum;
}

/* One that has gone meanwhile stays without a path. */
static int row_read(struct cgroups *cgroups, size_t i)
{
    struct cgroup *g = &cgroups->rows[i];
    struct stat st;
    MEMOIR_CLEANUP(closep)
    int fd = openat(cgroups->root_fd, g->depth ? g->path + 1 : ".",
                    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ENOENT || errno == ENOTDIR)
            free(MEMOIR_TAKE(g->path));
        return errno == ENOMEM ? -ENOMEM : 0;
    }
    figures_read(fd, cgroups->v1, g);
    if (cgroups->v1 && g->depth == 0)
        root_complete(g);
    processes_count(fd, g);
    if (fstat(fd, &st) == 0 && st.st_nlink == 2) /* a directory without directories */
        return 0;
    return children_append(cgroups, i, MEMOIR_TAKE_FD(fd));
}

/* Parents before children, and all below a cgroup before the next one: '/' comes before any other byte. */
static int by_tree(const void *a, const void *b)
{
    const unsigned char *x = (const unsigned char *)((const struct cgroup *)a)->path;
    const unsigned char *y = (const unsigned char *)((const struct cgroup *)b)->path;
    while (*x && *x == *y) {
        x++;
        y++;
    }
    int left = *x == '/' ? 1 : *x ? *x + 1 : 0, right = *y == '/' ? 1 : *y ? *y + 1 : 0;
    return left - right;
}

/* The least room of it and all around it. */
static void headroom_set(struct cgroup *g)
{
    uint64_t room = UINT64_MAX;
    if (g->parent && has(g->parent, CGROUP_HEADROOM))
        room = g->parent->figures[CGROUP_HEADROOM];
    if (has(g, CGROUP_LIMIT) && has(g, CGROUP_CURRENT)) {
        uint64_t own = cgroup_memory_headroom(&(struct cgroup_memory){
            .limit_bytes = g->figures[CGROUP_LIMIT],
            .used_bytes = g->figures[CGROUP_CURRENT],
            .inactive_bytes = has(g, CGROUP_INACTIVE) ? g->figures[CGROUP_INACTIVE] : 0,
        });
        room = own < room ? own : room;
    }
    if (room != UINT64_MAX)
        set(g, CGROUP_HEADROOM, room);
    else
        g->none |= 1u << CGROUP_HEADROOM;
}

static void forget(struct cgroup *g, enum cgroup_figure figure)
{
    g->valid &= ~(1u << figure);
    g->none &= ~(1u << figure);
}

/* Into the parent, whose own sum is done after all below it. A sum that lacks some is not known. */
static void sum_up(struct cgroup *g, enum cgroup_figure figure)
{
    struct cgroup *parent = (struct cgroup *)g->parent;
    if (g->cut)
        forget(g, figure);
    if (!parent || g->none >> figure & 1)
        return;
    if (!has(g, figure))
        forget(parent, figure);
    else if (has(parent, figure))
        parent->figures[figure] += g->figures[figure];
}

static void finish(struct cgroups *cgroups)
{
    struct cgroup *around[CGROUPS_DEPTH_MAX] = {NULL};
    size_t kept = 0;
    for (size_t i = 0; i < cgroups->n; i++)
        if (cgroups->rows[i].path)
            cgroups->rows[kept++] = cgroups->rows[i];
    cgroups->n = kept;
    if (kept)
        qsort(cgroups->rows, kept, sizeof(*cgroups->rows), by_tree);
    for (size_t i = 0; i < kept; i++) {
        struct cgroup *g = &cgroups->rows[i];
        const char *slash = strrchr(g->path, '/');
        g->name = g->depth ? slash + 1 : g->path;
        around[g->depth] = g;
        g->parent = g->depth ? around[g->depth - 1] : NULL;
        headroom_set(g);
        if (has(g, CGROUP_OWN_PROCESSES))
            set(g, CGROUP_PROCESSES, g->figures[CGROUP_OWN_PROCESSES]);
        else if (g->none >> CGROUP_OWN_PROCESSES & 1)
            g->none |= 1u << CGROUP_PROCESSES;
    }
    for (size_t i = kept; i-- > 0;) {
        sum_up(&cgroups->rows[i], CGROUP_PROCESSES);
        if (cgroups->v1) /* v2 sums them itself */
            sum_up(&cgroups->rows[i], CGROUP_OOM_KILLS);
    }
    cgroups->whole = true;
}

/* ---- begin and end ---- */

static bool has_memory_controller(int dir_fd, bool v1)
{
    struct lines lines;
    struct cgroup_figures f;
    char line[LINES_LINE_MAX];
    bool cut, found = false;
    if (v1)
        return cgroup_figures_read(dir_fd, true, CGROUP_BIT(CGROUP_CURRENT), &f) == 0;
    if (lines_open_at(&lines, dir_fd, "cgroup.controllers") < 0)
        return false;
    while (!found && lines_next(&lines, line, sizeof(line), &cut))
        found = strstr(line, "memory");
    lines_close(&lines);
    return found;
}

/* Systemd mounts v2 at the root, or beside v1 without the memory controller, which is v1's then. */
static int root_open(struct cgroups *cgroups, const char *root)
{
    static const struct {
        const char *folder;
        bool v1;
    } places[] = {{"/memory", true}, {"", false}, {"/unified", false}};
    char path[CGROUPS_PATH_MAX];
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        if (snprintf(path, sizeof(path), "%s%s", root, places[i].folder) >= (int)sizeof(path))
            return -ENAMETOOLONG;
        MEMOIR_CLEANUP(closep)
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 || !has_memory_controller(fd, places[i].v1))
            continue;
        cgroups->v1 = places[i].v1;
        cgroups->root_fd = MEMOIR_TAKE_FD(fd);
        return 0;
    }
    return -ENOENT;
}

int cgroups_new(const char *root, struct cgroups **ret_cgroups)
{
    struct cgroups *cgroups = calloc(1, sizeof(*cgroups));
    char *path = strdup("/");
    int r = cgroups && path ? row_append(cgroups, path, 0) : -ENOMEM;
    if (r < 0)
        free(path);
    if (cgroups)
        cgroups->root_fd = -1;
    if (r == 0)
        r = root_open(cgroups, root ? root : "/sys/fs/cgroup");
    if (r < 0) {
        cgroups_free(cgroups);
        return r;
    }
    cgroups->time_ns = clock_monotonic_ns();
    *ret_cgroups = cgroups;
    return 0;
}

void cgroups_free(struct cgroups *cgroups)
{
    if (!cgroups)
        return;
    for (size_t i = 0; i < cgroups->n; i++)
        free(cgroups->rows[i].path);
    free(cgroups->rows);
    if (cgroups->root_fd >= 0)
        close(cgroups->root_fd);
    free(cgroups);
}

void cgroups_freep(struct cgroups **cgroups)
{
    cgroups_free(*cgroups);
}

int cgroups_read(struct cgroups *cgroups, uint64_t cpu_ns)
{
    uint64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    while (cgroups->next < cgroups->n) {
        int r = row_read(cgroups, cgroups->next++);
        if (r < 0)
            return r;
        if (clock_ns(CLOCK_THREAD_CPUTIME_ID) - began >= cpu_ns && cgroups->next < cgroups->n)
            return 0;
    }
    if (!cgroups->whole)
        finish(cgroups);
    return 1;
}

const struct cgroup *cgroups_rows(const struct cgroups *cgroups, size_t *ret_n)
{
    *ret_n = cgroups->whole ? cgroups->n : 0;
    return cgroups->rows;
}

uint64_t cgroups_left_out(const struct cgroups *cgroups)
{
    return cgroups->left_out;
}

uint64_t cgroups_time_ns(const struct cgroups *cgroups)
{
    return cgroups->time_ns;
}
