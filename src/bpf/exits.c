/* Loading and reading os.bpf.c. See exits.h. */
#include "bpf/exits.h"

#include <errno.h>
#include <stdlib.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bpf/exit_event.h"
#include "bpf/object.h"

/* The compiled programs, as bytes. libbpf wants them aligned. */
static const unsigned char direct_bytes[] __attribute__((aligned(16))) = {
#include "bpf/os_direct.bpf.inc"
};
static const unsigned char called_bytes[] __attribute__((aligned(16))) = {
#include "bpf/os.bpf.inc"
};

struct exits {
    struct bpf_object *object;
    struct bpf_link *link;
    struct ring_buffer *ring;
    struct exit_counters *counters; /* the program writes it */
    exits_fn *each;
    void *context;
    size_t left, done; /* of one exits_read() */
};

static int on_event(void *context, void *data, size_t size)
{
    struct exits *exits = context;
    if (size >= sizeof(struct exit_event))
        exits->each(data, exits->context);
    exits->done++;
    return --exits->left > 0 ? 0 : -EAGAIN; /* which ends ring_buffer__consume() */
}

static int settings_fill(const struct bpf_object *object)
{
    struct exit_settings *settings = object_settings(object, sizeof(*settings));
    if (!settings)
        return -EINVAL;
    *settings = (struct exit_settings){
        .pid_ns = object_namespace_inode("/proc/self/ns/pid"),
        .user_ns = object_namespace_inode("/proc/self/ns/user"),
    };
    return settings->pid_ns && settings->user_ns ? 0 : -ENOENT;
}

static int load(struct exits *exits, const void *bytes, size_t size, char *why)
{
    struct bpf_object_open_opts options = {.sz = sizeof(options), .object_name = "memoir_os"};
    exits->object = bpf_object__open_mem(bytes, size, &options);
    if (!exits->object)
        return object_fail(why, -errno, "opening the BPF program");
    struct bpf_map *events = bpf_object__find_map_by_name(exits->object, "events");
    struct bpf_program *program = bpf_object__find_program_by_name(exits->object, "process_exits");
    if (!events || !program || bpf_map__set_max_entries(events, EXITS_RING_BYTES) < 0)
        return object_fail(why, -EINVAL, "preparing the BPF program");
    int r = settings_fill(exits->object);
    if (r < 0)
        return object_fail(why, r, "preparing the BPF program");
    r = bpf_object__load(exits->object);
    if (r < 0)
        return object_fail(why, r, "loading the BPF program");
    exits->counters = object_variables(exits->object, sizeof(*exits->counters));
    if (!exits->counters)
        return object_fail(why, -EINVAL, "loading the BPF program");
    exits->ring = ring_buffer__new(bpf_map__fd(events), on_event, exits, NULL);
    if (!exits->ring)
        return object_fail(why, -errno, "mapping the BPF ring");
    exits->link = bpf_program__attach(program);
    if (!exits->link)
        return object_fail(why, -errno, "attaching to sched_process_exit");
    return 0;
}

static void release(struct exits *exits)
{
    bpf_link__destroy(exits->link);
    ring_buffer__free(exits->ring);
    object_variables_free(exits->counters, sizeof(*exits->counters));
    bpf_object__close(exits->object);
    *exits = (struct exits){.each = exits->each, .context = exits->context};
}

int exits_open(exits_fn *each, void *context, struct exits **ret_exits,
               char why[static EXITS_WHY_MAX])
{
    struct exits *exits = calloc(1, sizeof(*exits));
    if (!exits)
        return object_fail(why, -ENOMEM, "starting");
    object_log();
    *exits = (struct exits){.each = each, .context = context};
    int r = load(exits, direct_bytes, sizeof(direct_bytes), why);
    if (r < 0) { /* this kernel follows fewer pointers */
        release(exits);
        r = load(exits, called_bytes, sizeof(called_bytes), why);
    }
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
    release(exits);
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
