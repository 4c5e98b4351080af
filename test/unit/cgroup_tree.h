/* Trees of cgroups as files, below tree_root, and a look at them. */
#pragma once

#include "host_tree.h"
#include "ledger/cgroups.h"

static inline struct cgroups *look(void)
{
    struct cgroups *cgroups = NULL;
    assert_int_equal(cgroups_new(tree_root, &cgroups), 0);
    assert_int_equal(cgroups_read(cgroups, UINT64_MAX), 1);
    return cgroups;
}

static inline const struct cgroup *find(const struct cgroups *cgroups, const char *path)
{
    size_t n;
    const struct cgroup *rows = cgroups_rows(cgroups, &n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].path, path) == 0)
            return &rows[i];
    return NULL;
}

static inline bool known(const struct cgroup *g, enum cgroup_figure figure)
{
    return g->valid >> figure & 1;
}

static inline bool none(const struct cgroup *g, enum cgroup_figure figure)
{
    return g->none >> figure & 1;
}

/* Neither known nor known to be none: it could not be read. */
static inline bool unknown(const struct cgroup *g, enum cgroup_figure figure)
{
    return !known(g, figure) && !none(g, figure);
}

#define assert_figure(g, figure, value)                \
    do {                                               \
        assert_true(known(g, figure));                 \
        assert_int_equal((g)->figures[figure], value); \
    } while (0)

static inline void v2_root(void)
{
    tree_printf("cgroup.controllers", "cpu memory pids\n");
    tree_printf("cgroup.procs", "2\n3\n");
    tree_printf("memory.stat", "anon 900\nfile 90\nkernel 9\nslab 5\nshmem 1\n");
}

struct v2 {
    const char *path, *current, *limit, *procs;
    unsigned long kills, inactive;
};

#define FILE_OF(file) (snprintf(name, sizeof(name), "%s/" file, folder), name)

static inline void v2_make(const struct v2 *g)
{
    const char *folder = g->path;
    char name[512];
    tree_printf(FILE_OF("memory.current"), "%s\n", g->current);
    tree_printf(FILE_OF("memory.peak"), "5000\n");
    tree_printf(FILE_OF("memory.max"), "%s\n", g->limit);
    tree_printf(FILE_OF("memory.high"), "max\n");
    tree_printf(FILE_OF("memory.swap.current"), "7\n");
    tree_printf(FILE_OF("memory.stat"),
                "anon 100\nfile 200\nkernel 30\nkernel_stack 99\n"
                "slab_reclaimable 98\nslab 20\nshmem 3\n"
                "inactive_anon 77\ninactive_file %lu\n",
                g->inactive);
    tree_printf(FILE_OF("memory.events"),
                "low 0\nhigh 0\nmax 4\noom 3\noom_kill %lu\n"
                "oom_group_kill 77\n",
                g->kills);
    tree_printf(FILE_OF("cgroup.procs"), "%s", g->procs);
}

static inline void v1_make(const char *path, unsigned long used, unsigned long long limit,
                           unsigned long kills)
{
    char name[512], folder[256];
    snprintf(folder, sizeof(folder), "memory%s", path);
    tree_printf(FILE_OF("memory.usage_in_bytes"), "%lu\n", used);
    tree_printf(FILE_OF("memory.max_usage_in_bytes"), "%lu\n", used * 2);
    tree_printf(FILE_OF("memory.limit_in_bytes"), "%llu\n", limit);
    tree_printf(FILE_OF("memory.kmem.usage_in_bytes"), "11\n");
    tree_printf(FILE_OF("memory.oom_control"), "oom_kill_disable 0\nunder_oom 0\noom_kill %lu\n",
                kills);
    tree_printf(FILE_OF("memory.stat"), "cache 1\nrss 2\nswap 3\ntotal_cache 40\ntotal_rss 50\n"
                                        "total_rss_huge 9\ntotal_shmem 6\ntotal_swap 70\n");
    tree_printf(FILE_OF("cgroup.procs"), "10\n11\n");
}

#define V1_NONE 9223372036854771712ull
