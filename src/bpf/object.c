/* Loading BPF objects. See object.h. */
#include "bpf/object.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bpf/libbpf.h>

#include "base/log.h"
#include "bpf/exits.h"

static int print(enum libbpf_print_level level, const char *fmt, va_list args)
{
    char line[512];
    if (level == LIBBPF_DEBUG || !log_enabled(LOG_LEVEL_DEBUG))
        return 0;
    int n = vsnprintf(line, sizeof(line), fmt, args);
    for (; n > 0 && n < (int)sizeof(line) && line[n - 1] == '\n'; n--)
        line[n - 1] = '\0';
    log_debug("%s", line);
    return 0;
}

void object_log(void)
{
    libbpf_set_print(print);
}

/* By the end of the name that libbpf gives the map of a section. */
static struct bpf_map *section(const struct bpf_object *object, const char *suffix)
{
    struct bpf_map *map;
    bpf_object__for_each_map(map, object)
    {
        const char *name = bpf_map__name(map);
        size_t len = strlen(name), end = strlen(suffix);
        if (len >= end && strcmp(name + len - end, suffix) == 0)
            return map;
    }
    return NULL;
}

void *object_settings(const struct bpf_object *object, size_t size)
{
    struct bpf_map *map = section(object, ".rodata");
    size_t have = 0;
    void *value = map ? (void *)bpf_map__initial_value(map, &have) : NULL;
    return have >= size ? value : NULL;
}

void *object_variables(const struct bpf_object *object, size_t size)
{
    struct bpf_map *map = section(object, ".bss");
    if (!map || bpf_map__value_size(map) < size)
        return NULL;
    void *value = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);
    return value == MAP_FAILED ? NULL : value;
}

void object_variables_free(void *variables, size_t size)
{
    if (variables)
        munmap(variables, size);
}

uint32_t object_namespace_inode(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (uint32_t)st.st_ino : 0;
}

int object_fail(char *why, int error, const char *what)
{
    if (error == -EPERM || error == -EACCES)
        snprintf(
            why, EXITS_WHY_MAX,
            "%s is not permitted: it needs root with CAP_BPF and CAP_PERFMON, and a kernel that "
            "is not locked down",
            what);
    else if (access("/sys/kernel/btf/vmlinux", R_OK) < 0)
        snprintf(why, EXITS_WHY_MAX,
                 "%s failed: there is no /sys/kernel/btf/vmlinux, so the kernel was built without "
                 "CONFIG_DEBUG_INFO_BTF, or /sys is not mounted",
                 what);
    else
        snprintf(why, EXITS_WHY_MAX, "%s failed: %s", what, strerror(-error));
    return error;
}
