/* Finding libraries. See targets.h. */
#include "observe/targets.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/procfs.h"
#include "observe/probe_table.h"

enum { MAPS_LINES_MAX = 1 << 17 };

static const char *const directories[] = {
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/cuda/compat",
    "/usr/lib/wsl/lib",
    "/lib/x86_64-linux-gnu",
    "/usr/local/lib",
};

static void path_try(const char *directory, size_t len, const struct probe_table *table,
                     targets_fn *each, void *context)
{
    char path[PATH_MAX];
    if (len == 0 || len > PATH_MAX - 64)
        return;
    snprintf(path, sizeof(path), "%.*s/%s.1", (int)len, directory, table->library);
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0)
        each(context, table, fd, path);
}

void targets_installed(const char *more, targets_fn *each, void *context)
{
    for (size_t t = 0; probe_tables[t]; t++) {
        for (const char *at = more; at && *at;) {
            size_t len = strcspn(at, ":");
            path_try(at, len, probe_tables[t], each, context);
            at += len + (at[len] == ':');
        }
        for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++)
            path_try(directories[i], strlen(directories[i]), probe_tables[t], each, context);
    }
}

/* The file behind a mapping: by the kernel's own link, which works for removed and for other namespaces' files. */
int targets_code(pid_t pid, targets_code_fn *each, void *context)
{
    char path[64];
    MEMOIR_CLEANUP(freep)
    char *line = NULL;
    size_t cap = 0;
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "re");
    if (!maps)
        return -errno;
    for (size_t i = 0; i < MAPS_LINES_MAX && getline(&line, &cap, maps) > 0; i++) {
        struct procfs_mapping m;
        char *end = line + strcspn(line, "\n");
        *end = '\0';
        if (procfs_mapping_parse(line, end, &m) && m.executable && m.name[0] == '/')
            each(context, m.start, m.end, m.name);
    }
    fclose(maps);
    return 0;
}

/* The file behind a mapping. Never by its path: the process chooses what lies there. */
int targets_open(pid_t pid, uint64_t start, uint64_t end)
{
    char link[128];
    snprintf(link, sizeof(link), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, (int)pid, start, end);
    int fd = open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

struct wanted {
    pid_t pid;
    targets_fn *each;
    void *context;
};

static void mapped_try(void *context, uint64_t start, uint64_t end, const char *path)
{
    const struct wanted *w = context;
    const char *name = strrchr(path, '/');
    const struct probe_table *table = name ? probe_table_for(name + 1) : NULL;
    if (!table)
        return;
    MEMOIR_CLEANUP(closep)
    int fd = targets_open(w->pid, start, end);
    if (fd >= 0)
        w->each(w->context, table, fd, path);
}

int targets_of(pid_t pid, targets_fn *each, void *context)
{
    struct wanted w = {pid, each, context};
    return targets_code(pid, mapped_try, &w);
}

void targets_running(targets_wanted_fn *wanted, targets_fn *each, void *context)
{
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; proc && (entry = readdir(proc));) {
        pid_t pid = isdigit((unsigned char)entry->d_name[0]) ? (pid_t)atoi(entry->d_name) : 0;
        if (pid > 0 && (!wanted || wanted(context, pid)))
            targets_of(pid, each, context);
    }
    if (proc)
        closedir(proc);
}

/* ---- again and again ---- */

enum { PIDS_MAX = 1 << 22, ROUNDS_MAX = 255 };

struct targets_scan {
    uint8_t *
        rounds; /* by PID: in how many scans it was there; pages without a process have no memory */
    pid_t *there; /* in the last scan, by PID */
    size_t n_there, cap;
};

int targets_scan_new(struct targets_scan **ret_scan)
{
    struct targets_scan *scan = calloc(1, sizeof(*scan));
    uint8_t *rounds = scan ? calloc(PIDS_MAX, 1) : NULL;
    if (!rounds) {
        free(scan);
        return -ENOMEM;
    }
    scan->rounds = rounds;
    *ret_scan = scan;
    return 0;
}

void targets_scan_free(struct targets_scan *scan)
{
    if (!scan)
        return;
    free(scan->rounds);
    free(scan->there);
    free(scan);
}

static bool scan_add(struct targets_scan *scan, pid_t pid)
{
    if (scan->n_there == scan->cap) {
        size_t cap = scan->cap ? scan->cap * 2 : 256;
        pid_t *there = realloc(scan->there, cap * sizeof(*there));
        if (!there)
            return false;
        scan->there = there;
        scan->cap = cap;
    }
    scan->there[scan->n_there++] = pid;
    return true;
}

/* A PID that is gone may come back as another process. */
static void gone_forget(struct targets_scan *scan)
{
    for (size_t i = 0; i < scan->n_there; i++) {
        char path[32];
        snprintf(path, sizeof(path), "/proc/%d", (int)scan->there[i]);
        if (access(path, F_OK) < 0)
            scan->rounds[scan->there[i]] = 0;
    }
    scan->n_there = 0;
}

void targets_scan(struct targets_scan *scan, targets_wanted_fn *wanted, targets_fn *each,
                  void *context)
{
    gone_forget(scan);
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; proc && (entry = readdir(proc));) {
        long pid = isdigit((unsigned char)entry->d_name[0]) ? atol(entry->d_name) : 0;
        if (pid <= 0 || pid >= PIDS_MAX || !scan_add(scan, (pid_t)pid))
            continue;
        uint8_t *rounds = &scan->rounds[pid];
        *rounds += *rounds < ROUNDS_MAX;
        if ((*rounds == 1 || *rounds == 4 || *rounds == 16) &&
            (!wanted || wanted(context, (pid_t)pid)))
            targets_of((pid_t)pid, each, context);
    }
    if (proc)
        closedir(proc);
}
