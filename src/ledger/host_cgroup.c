/* Cgroups. See host_cgroup.h.
 *
 * A process may take as much as every cgroup from its own up to the root lets it, so the headroom is the least
 * of them, and the limit that of the one with the least. */
#include "ledger/host_cgroup.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "book/cgroup.h"
#include "book/lines.h"
#include "ledger/host_parse.h"
#include "ledger/index.h"

struct row {
    struct host_cgroup g; /* first */
    struct index_node node;
    struct row *next, **at; /* all of them */
    size_t users;
    bool v1;
};

struct host_cgroups {
    const char *root;
    struct index index;
    struct row *first;
    struct row *turn; /* whose figures are read next; NULL: the first one's */
};

/* ---- texts ---- */

int host_parse_cgroup(const char *text, char *ret_path, size_t size, bool *ret_v1)
{
    struct lines lines = {.fd = -1, .data = text, .n = strlen(text)};
    return cgroup_path_parse(&lines, ret_path, size, ret_v1) ? 0 : -EBADMSG;
}

/* ---- what a path tells ---- */

enum { ID_LEN = 64, UUID_LEN = 36 };

static size_t hex_run(const char *text)
{
    size_t n = 0;
    while (isxdigit((unsigned char)text[n]) && !isupper((unsigned char)text[n]))
        n++;
    return n;
}

/* "6f1ed2a4-…" with dashes, or with the underscores that systemd's slices need. */
static bool uuid_at(const char *text, char ret[static UUID_LEN])
{
    for (size_t i = 0; i < UUID_LEN; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? text[i] != '-' && text[i] != '_' : !isxdigit((unsigned char)text[i]))
            return false;
        ret[i] = dash ? '-' : text[i];
    }
    return true;
}

static void copy(char *ret, size_t size, const char *text, size_t len)
{
    if (len >= size)
        len = size - 1;
    memcpy(ret, text, len);
    ret[len] = '\0';
}

/* One name of the path. Container runtimes write the 64 digits of a container's identity with or without
 * words around them: "docker-ID.scope", "cri-containerd-ID.scope", "ID". */
static void name_words(const char *name, size_t len, char *container, char *pod, char *job,
                       size_t size)
{
    char uuid[UUID_LEN];
    for (size_t i = 0; i + ID_LEN <= len; i++)
        if ((i == 0 || !isalnum((unsigned char)name[i - 1])) && hex_run(name + i) == ID_LEN)
            copy(container, size, name + i, ID_LEN);
    for (size_t i = 0; i + 3 + UUID_LEN <= len; i++)
        if (memcmp(name + i, "pod", 3) == 0 && (i == 0 || name[i - 1] == '-') &&
            uuid_at(name + i + 3, uuid))
            copy(pod, size, uuid, UUID_LEN);
    if (len > 12 && memcmp(name, "lxc.payload.", 12) == 0)
        copy(container, size, name + 12, len - 12);
    size_t digits = 4;
    while (digits < len && isdigit((unsigned char)name[digits]))
        digits++;
    /* The outermost: inside of it the job's owner may name cgroups as he likes. */
    if (!*job && len > 4 && memcmp(name, "job_", 4) == 0 && digits == len)
        copy(job, size, name + 4, len - 4);
}

/* Where Slurm itself makes cgroups: a user who may make some of his own can call them anything. */
static bool of_slurm(const char *path)
{
    static const char system[] = "/system.slice/";
    if (strncmp(path, "/slurm", 6) == 0)
        return true;
    if (strncmp(path, system, sizeof(system) - 1) != 0)
        return false;
    const char *name = path + sizeof(system) - 1, *found = strstr(name, "slurmstepd");
    return found && found < strchrnul(name, '/');
}

void host_cgroup_words(const char *path, char *ret_container, char *ret_pod, char *ret_job,
                       size_t size)
{
    bool slurm = of_slurm(path);
    *ret_container = *ret_pod = *ret_job = '\0';
    while (*path) {
        const char *end = strchrnul(path, '/');
        name_words(path, (size_t)(end - path), ret_container, ret_pod, ret_job, size);
        path = *end ? end + 1 : end;
    }
    if (!slurm) /* others may call something job_1 too */
        *ret_job = '\0';
}

/* ---- figures ---- */

static void limit_take(const struct cgroup_memory *memory, void *context)
{
    struct host_cgroup *g = context;
    uint64_t room = cgroup_memory_headroom(memory);
    if (!g->limited || room < g->headroom_bytes) {
        g->headroom_bytes = room;
        g->limit_bytes = memory->limit_bytes;
    }
    g->limited = true;
}

static void figures_read(struct host_cgroups *cgroups, struct row *row, uint64_t now_ns)
{
    struct host_cgroup *g = &row->g;
    char folder[CGROUP_FOLDER_MAX];
    g->read_ns = now_ns;
    g->known = g->limited = g->has_used = false;
    g->limit_bytes = g->headroom_bytes = g->used_bytes = 0;
    int top = cgroup_folder(cgroups->root, row->v1, g->path, folder, sizeof(folder));
    if (top < 0 || cgroup_path_outside(g->path))
        return;
    MEMOIR_CLEANUP(closep)
    int dir_fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct cgroup_figures f;
    if (dir_fd >= 0 && cgroup_figures_read(dir_fd, row->v1, CGROUP_BIT(CGROUP_CURRENT), &f) == 0) {
        g->has_used = true;
        g->used_bytes = f.values[CGROUP_CURRENT];
    }
    g->known = cgroup_memory_each(folder, (size_t)top, row->v1, limit_take, g) == 0;
}

/* ---- rows ---- */

int host_cgroups_new(const char *root, struct host_cgroups **ret_cgroups)
{
    struct host_cgroups *cgroups = calloc(1, sizeof(*cgroups));
    if (!cgroups)
        return -ENOMEM;
    cgroups->root = root;
    *ret_cgroups = cgroups;
    return 0;
}

static void row_free(struct host_cgroups *cgroups, struct row *row)
{
    if (cgroups->turn == row)
        cgroups->turn = row->next;
    index_remove(&cgroups->index, &row->node);
    *row->at = row->next;
    if (row->next)
        row->next->at = row->at;
    free(row);
}

void host_cgroups_free(struct host_cgroups *cgroups)
{
    if (!cgroups)
        return;
    while (cgroups->first)
        row_free(cgroups, cgroups->first);
    index_release(&cgroups->index);
    free(cgroups);
}

const struct host_cgroup *host_cgroup_ref(struct host_cgroups *cgroups, const char *path, bool v1)
{
    uint64_t hash = hash_string(path, v1);
    struct index_node *node = index_first(&cgroups->index, hash);
    for (; node; node = index_next(node->next, hash)) {
        struct row *row = index_row(node, struct row, node);
        if (row->v1 == v1 && strcmp(row->g.path, path) == 0) {
            row->users++;
            return &row->g;
        }
    }
    if (cgroups->index.n >= HOST_CGROUPS_MAX || index_reserve(&cgroups->index) < 0)
        return NULL;
    struct row *row = calloc(1, sizeof(*row));
    if (!row)
        return NULL;
    snprintf(row->g.path, sizeof(row->g.path), "%s", path);
    row->v1 = v1;
    row->users = 1;
    row->next = cgroups->first;
    row->at = &cgroups->first;
    if (row->next)
        row->next->at = &row->next;
    cgroups->first = row;
    index_insert(&cgroups->index, &row->node, hash);
    return &row->g;
}

void host_cgroup_unref(struct host_cgroups *cgroups, const struct host_cgroup *cgroup)
{
    struct row *row = (struct row *)cgroup;
    if (row && --row->users == 0)
        row_free(cgroups, row);
}

void host_cgroups_refresh(struct host_cgroups *cgroups, uint64_t now_ns, uint64_t age_ns,
                          size_t max)
{
    for (size_t looked = 0; looked < cgroups->index.n && max > 0; looked++) {
        struct row *row = cgroups->turn ? cgroups->turn : cgroups->first;
        if (row->g.read_ns == 0 || now_ns - row->g.read_ns >= age_ns) {
            figures_read(cgroups, row, now_ns);
            max--;
        }
        cgroups->turn = row->next;
    }
}
