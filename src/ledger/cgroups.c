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

enum { TEXT_MAX = 16 << 10 };

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
    return g->valid & CGROUP_BIT(figure);
}

static bool has_none(const struct cgroup *g, enum cgroup_figure figure)
{
    return g->none & CGROUP_BIT(figure);
}

static void set(struct cgroup *g, enum cgroup_figure figure, uint64_t value)
{
    g->figures[figure] = value;
    g->valid |= CGROUP_BIT(figure);
}

static void set_none(struct cgroup *g, enum cgroup_figure figure)
{
    g->none |= CGROUP_BIT(figure);
}

static void figures_read(int dir_fd, bool v1, struct cgroup *g)
{
    struct cgroup_figures f;
    (void)cgroup_figures_read(dir_fd, v1, CGROUP_ALL_IN_FILES, &f);
    g->valid = f.valid;
    g->none = f.none;
    memcpy(g->figures, f.values, sizeof(f.values));
}

/* Lines of cgroup.procs, unless it has more than CGROUPS_LIST_MAX bytes. A threaded cgroup of v2 refuses to be read: its
 * processes count where they began to share. */
static void processes_count(int dir_fd, struct cgroup *g)
{
    char text[TEXT_MAX];
    uint64_t lines = 0;
    size_t all = 0;
    MEMOIR_CLEANUP(closep)
    int fd = openat(dir_fd, "cgroup.procs", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));
    for (; n > 0 && all < CGROUPS_LIST_MAX; n = read(fd, text, sizeof(text))) {
        all += (size_t)n;
        for (ssize_t i = 0; i < n; i++)
            lines += text[i] == '\n';
    }
    if (n == 0)
        set(g, CGROUP_OWN_PROCESSES, lines);
    else if (n < 0 && (errno == EOPNOTSUPP || errno == ENOENT))
        set_none(g, CGROUP_OWN_PROCESSES);
}

/* ---- the tree ---- */

/* Takes `path`; NULL is -ENOMEM. */
static int row_append(struct cgroups *cgroups, char *path, uint32_t depth)
{
    MEMOIR_CLEANUP(freep)
    char *taken = path;
    if (cgroups->n == cgroups->size) {
        size_t size = cgroups->size ? cgroups->size * 2 : 64;
        struct cgroup *rows = reallocarray(cgroups->rows, size, sizeof(*rows));
        if (!rows)
            return -ENOMEM;
        cgroups->rows = rows;
        cgroups->size = size;
    }
    if (!path)
        return -ENOMEM;
    cgroups->rows[cgroups->n++] = (struct cgroup){.path = MEMOIR_TAKE(taken), .depth = depth};
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
    return row_append(cgroups, path, g->depth + 1);
}

/* Takes the descriptor. The file systems of cgroups tell the type of each entry. */
static int children_append(struct cgroups *cgroups, size_t parent, int dir_fd)
{
    DIR *list = fdopendir(dir_fd);
    const struct dirent *entry;
    int r = 0;
    if (!list) {
        close(dir_fd);
        return -ENOMEM;
    }
    while (r == 0 && (entry = readdir(list)))
        if (entry->d_type == DT_DIR && strcmp(entry->d_name, ".") != 0 &&
            strcmp(entry->d_name, "..") != 0)
            r = child_append(cgroups, parent, entry->d_name);
    closedir(list);
    return r;
}

/* Version 1 leaves the kernel's part out of what the root holds, and counts it below: children would hold more than
 * all. The root of a container is none of that kind and has it. */
static void root_complete(struct cgroup *g)
{
    uint64_t parts = g->figures[CGROUP_ANON] + g->figures[CGROUP_FILE] + g->figures[CGROUP_KERNEL];
    if (g->figures[CGROUP_CURRENT] < parts)
        g->figures[CGROUP_CURRENT] = parts;
}

/* A cgroup that was removed meanwhile loses its path, and finish() its row. Of one that cannot be opened nothing is known. */
static int row_read(struct cgroups *cgroups, size_t i)
{
    struct cgroup *g = &cgroups->rows[i];
    struct stat st = {0};
    MEMOIR_CLEANUP(closep)
    int fd = openat(cgroups->root_fd, g->depth ? g->path + 1 : ".",
                    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ENOENT)
            free(MEMOIR_TAKE(g->path));
        return 0;
    }
    figures_read(fd, cgroups->v1, g);
    if (cgroups->v1 && g->depth == 0)
        root_complete(g);
    processes_count(fd, g);
    (void)fstat(fd, &st);
    if (st.st_nlink == 2) /* a directory without directories */
        return 0;
    return children_append(cgroups, i, MEMOIR_TAKE_FD(fd));
}

/* Parents before children, and all below a cgroup before the next one: '/' comes before any other byte. */
static int by_tree(const void *a, const void *b)
{
    const struct cgroup *g = a, *other = b;
    const unsigned char *x = (const unsigned char *)g->path;
    const unsigned char *y = (const unsigned char *)other->path;
    while (*x && *x == *y) {
        x++;
        y++;
    }
    int left = *x == '/' ? 0 : *x, right = *y == '/' ? 0 : *y;
    return left != right ? left - right : (int)g->depth - (int)other->depth;
}

/* The least room of it and all around it; not known if a limit, or what is used of it, is not. */
static void headroom_set(struct cgroup *g)
{
    const struct cgroup *parent = g->parent;
    uint64_t room = UINT64_MAX;
    if (parent && has(parent, CGROUP_HEADROOM))
        room = parent->figures[CGROUP_HEADROOM];
    else if (parent && !has_none(parent, CGROUP_HEADROOM))
        return;
    if (!has_none(g, CGROUP_LIMIT)) {
        if (!has(g, CGROUP_LIMIT) || !has(g, CGROUP_CURRENT))
            return;
        uint64_t own = cgroup_memory_headroom(&(struct cgroup_memory){
            .limit_bytes = g->figures[CGROUP_LIMIT],
            .used_bytes = g->figures[CGROUP_CURRENT],
            .inactive_bytes = g->figures[CGROUP_INACTIVE],
        });
        room = own < room ? own : room;
    }
    if (room != UINT64_MAX)
        set(g, CGROUP_HEADROOM, room);
    else
        set_none(g, CGROUP_HEADROOM);
}

static void forget(struct cgroup *g, enum cgroup_figure figure)
{
    g->valid &= ~CGROUP_BIT(figure);
    g->none &= ~CGROUP_BIT(figure);
}

/* Into the parent, whose own sum is done after all below it. A sum that lacks some is not known. */
static void sum_up(struct cgroup *g, enum cgroup_figure figure)
{
    struct cgroup *parent = (struct cgroup *)g->parent;
    if (g->cut)
        forget(g, figure);
    if (!parent || has_none(g, figure))
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
        g->name = g->depth ? strrchr(g->path, '/') + 1 : g->path;
        around[g->depth] = g;
        g->parent = g->depth ? around[g->depth - 1] : NULL;
        headroom_set(g);
        if (has(g, CGROUP_OWN_PROCESSES))
            set(g, CGROUP_PROCESSES, g->figures[CGROUP_OWN_PROCESSES]);
        else if (has_none(g, CGROUP_OWN_PROCESSES))
            set_none(g, CGROUP_PROCESSES);
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
    bool cut;
    if (v1)
        return cgroup_figures_read(dir_fd, true, CGROUP_BIT(CGROUP_CURRENT), &f) == 0;
    if (lines_open_at(&lines, dir_fd, "cgroup.controllers") < 0)
        return false;
    bool found = lines_next(&lines, line, sizeof(line), &cut) && strstr(line, "memory");
    lines_close(&lines);
    return found;
}

/* Systemd mounts v2 at the root, or beside v1 without the memory controller, which is v1's then. Returns the descriptor. */
static int root_open(const char *root, bool *ret_v1)
{
    static const struct {
        const char *folder;
        bool v1;
    } places[] = {{"memory", true}, {".", false}, {"unified", false}, {0}};
    MEMOIR_CLEANUP(closep)
    int at = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (at < 0)
        return -errno;
    for (size_t i = 0; places[i].folder; i++) {
        MEMOIR_CLEANUP(closep)
        int fd = openat(at, places[i].folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (!has_memory_controller(fd, places[i].v1)) /* nor has a folder that is not there */
            continue;
        *ret_v1 = places[i].v1;
        return MEMOIR_TAKE_FD(fd);
    }
    return -ENOENT;
}

int cgroups_new(const char *root, struct cgroups **ret_cgroups)
{
    MEMOIR_CLEANUP(cgroups_freep)
    struct cgroups *cgroups = calloc(1, sizeof(*cgroups));
    if (!cgroups)
        return -ENOMEM;
    cgroups->root_fd = root_open(root ? root : "/sys/fs/cgroup", &cgroups->v1);
    if (cgroups->root_fd < 0)
        return cgroups->root_fd;
    cgroups->time_ns = clock_monotonic_ns();
    int r = row_append(cgroups, strdup("/"), 0);
    if (r < 0)
        return r;
    *ret_cgroups = MEMOIR_TAKE(cgroups);
    return 0;
}

void cgroups_free(struct cgroups *cgroups)
{
    if (!cgroups)
        return;
    for (size_t i = 0; i < cgroups->n; i++)
        free(cgroups->rows[i].path);
    free(cgroups->rows);
    close(cgroups->root_fd); /* may be an error's number, which is no descriptor */
    free(cgroups);
}

void cgroups_freep(struct cgroups **cgroups)
{
    cgroups_free(*cgroups);
}

int cgroups_read(struct cgroups *cgroups, uint64_t cpu_ns)
{
    uint64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    while (!cgroups->whole) {
        int r = row_read(cgroups, cgroups->next);
        if (r < 0)
            return r;
        if (++cgroups->next == cgroups->n)
            finish(cgroups);
        else if (clock_ns(CLOCK_THREAD_CPUTIME_ID) - began >= cpu_ns)
            return 0;
    }
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
