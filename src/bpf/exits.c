/* Loading and reading os.bpf.c. See exits.h. */
#include "bpf/exits.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "base/log.h"
#include "bpf/exit_event.h"

/* The compiled program, as bytes. libbpf wants them aligned. */
static const unsigned char object_bytes[] __attribute__((aligned(16))) = {
#include "bpf/os.bpf.inc"
};

struct exits {
    struct bpf_object *object;
    struct bpf_link *link;
    struct ring_buffer *ring;
    const struct exit_counters *counters; /* the program writes it */
    exits_fn *each;
    void *context;
    size_t left, done; /* of one exits_read() */
};

/* What libbpf says is for those who look for the cause. */
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

static int on_event(void *context, void *data, size_t size)
{
    struct exits *exits = context;
    if (size >= sizeof(struct exit_event))
        exits->each(data, exits->context);
    exits->done++;
    return --exits->left > 0 ? 0 : -EAGAIN; /* which ends ring_buffer__consume() */
}

static uint32_t namespace_inode(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (uint32_t)st.st_ino : 0;
}

/* A section of variables, by the name that libbpf gives its map. */
static void *variables(const struct bpf_object *object, const char *suffix, size_t size)
{
    struct bpf_map *map;
    bpf_object__for_each_map(map, object)
    {
        const char *name = bpf_map__name(map);
        size_t have = 0, len = strlen(name), end = strlen(suffix);
        if (len < end || strcmp(name + len - end, suffix) != 0)
            continue;
        void *value = (void *)bpf_map__initial_value(map, &have);
        return have >= size ? value : NULL;
    }
    return NULL;
}

static int settings_fill(const struct bpf_object *object)
{
    struct exit_settings *settings = variables(object, ".rodata", sizeof(*settings));
    if (!settings)
        return -EINVAL;
    *settings = (struct exit_settings){
        .pid_ns = namespace_inode("/proc/self/ns/pid"),
        .user_ns = namespace_inode("/proc/self/ns/user"),
    };
    return settings->pid_ns && settings->user_ns ? 0 : -ENOENT;
}

static int fail(char *why, int error, const char *what)
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

static int load(struct exits *exits, char *why)
{
    struct bpf_object_open_opts options = {.sz = sizeof(options), .object_name = "memoir_os"};
    exits->object = bpf_object__open_mem(object_bytes, sizeof(object_bytes), &options);
    if (!exits->object)
        return fail(why, -errno, "opening the BPF program");
    struct bpf_map *events = bpf_object__find_map_by_name(exits->object, "events");
    struct bpf_program *program = bpf_object__find_program_by_name(exits->object, "process_exits");
    if (!events || !program || bpf_map__set_max_entries(events, EXITS_RING_BYTES) < 0)
        return fail(why, -EINVAL, "preparing the BPF program");
    int r = settings_fill(exits->object);
    if (r < 0)
        return fail(why, r, "preparing the BPF program");
    r = bpf_object__load(exits->object);
    if (r < 0)
        return fail(why, r, "loading the BPF program");
    exits->counters = variables(exits->object, ".bss", sizeof(*exits->counters));
    if (!exits->counters)
        return fail(why, -EINVAL, "loading the BPF program");
    exits->ring = ring_buffer__new(bpf_map__fd(events), on_event, exits, NULL);
    if (!exits->ring)
        return fail(why, -errno, "mapping the BPF ring");
    exits->link = bpf_program__attach(program);
    if (!exits->link)
        return fail(why, -errno, "attaching to sched_process_exit");
    return 0;
}

int exits_open(exits_fn *each, void *context, struct exits **ret_exits,
               char why[static EXITS_WHY_MAX])
{
    struct exits *exits = calloc(1, sizeof(*exits));
    if (!exits)
        return fail(why, -ENOMEM, "starting");
    libbpf_set_print(print);
    *exits = (struct exits){.each = each, .context = context};
    int r = load(exits, why);
    if (r < 0) {
        exits_free(exits);
        return r;
    }
    *ret_exits = exits;
    return 0;
}

void exits_free(struct exits *exits)
{
    if (!exits)
        return;
    bpf_link__destroy(exits->link);
    ring_buffer__free(exits->ring);
    bpf_object__close(exits->object);
    free(exits);
}

int exits_fd(const struct exits *exits)
{
    return ring_buffer__epoll_fd(exits->ring);
}

int exits_read(struct exits *exits, size_t max)
{
    exits->left = max;
    exits->done = 0;
    int r = max > 0 ? ring_buffer__consume(exits->ring) : 0;
    return r < 0 && r != -EAGAIN ? r : (int)exits->done;
}

uint64_t exits_lost(const struct exits *exits)
{
    return __atomic_load_n(&exits->counters->lost, __ATOMIC_RELAXED);
}
