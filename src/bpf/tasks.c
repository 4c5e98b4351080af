/* Loading and reading tasks.bpf.c. See tasks.h. */
#include "bpf/tasks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bpf/object.h"

static const unsigned char object_bytes[] __attribute__((aligned(16))) = {
#include "bpf/tasks.bpf.inc"
};

enum { READ_BYTES = 64 << 10, MARKS_MAX = 1 << 22 };
#define PID_NS_INITIAL UINT32_C(0xEFFFFFFC) /* PROC_PID_INIT_INO of the kernel */

struct tasks {
    int link_fd; /* keeps program and maps, too */
    char *marks; /* of struct task_mark */
    size_t size; /* bytes */
};

static int settings_fill(const struct bpf_object *object)
{
    struct task_settings *settings = object_settings(object, sizeof(*settings));
    int cpus = libbpf_num_possible_cpus();
    if (!settings || cpus <= 0)
        return -EINVAL;
    settings->cpus = (uint32_t)cpus;
    return cpus <= TASK_CPUS_MAX ? 0 : -E2BIG;
}

/* Run a program over all that it iterates over; what it writes goes to `ret`, `size` bytes at most. */
static ssize_t iterate(int link_fd, char *ret, size_t size)
{
    int fd = bpf_iter_create(link_fd);
    if (fd < 0)
        return -errno;
    size_t used = 0;
    ssize_t n;
    while ((n = read(fd, ret + used, size - used)) > 0)
        used += (size_t)n;
    int error = errno;
    close(fd);
    return n < 0 ? -error : (ssize_t)used;
}

static int offsets_find(const struct bpf_object *object, struct task_state *state)
{
    struct bpf_map *sample = bpf_object__find_map_by_name(object, "sample");
    struct bpf_program *program = bpf_object__find_program_by_name(object, "task_offsets");
    struct bpf_map_info info = {0};
    uint32_t len = sizeof(info);
    char nothing[64];
    if (!sample || !program)
        return -EINVAL;
    if (bpf_obj_get_info_by_fd(bpf_map__fd(sample), &info, &len) < 0)
        return -errno;
    state->sample_id = info.id;
    struct bpf_link *link = bpf_program__attach_iter(program, NULL);
    if (!link)
        return -errno;
    ssize_t n = iterate(bpf_link__fd(link), nothing, sizeof(nothing));
    bpf_link__destroy(link);
    if (n < 0)
        return (int)n;
    return state->offsets[0] ? 0 : -ENOTSUP;
}

/* -1, or a descriptor of the link that outlives all that libbpf has of it. */
static int attach(const struct bpf_program *program)
{
    struct bpf_link *link = bpf_program__attach_iter(program, NULL);
    int fd = link ? fcntl(bpf_link__fd(link), F_DUPFD_CLOEXEC, 0) : -1;
    int error = errno;
    bpf_link__destroy(link);
    errno = error;
    return fd;
}

static int load(struct bpf_object *object, int *ret_link_fd, char *why)
{
    struct bpf_program *program = bpf_object__find_program_by_name(object, "task_marks");
    int r = program ? settings_fill(object) : -EINVAL;
    if (r < 0)
        return object_fail(why, r, "preparing the BPF program");
    r = bpf_object__load(object);
    if (r < 0)
        return object_fail(why, r, "loading the BPF program");
    struct task_state *state = object_variables(object, sizeof(*state));
    r = state ? offsets_find(object, state) : -EINVAL;
    object_variables_free(state, sizeof(*state));
    if (r < 0)
        return object_fail(why, r, "finding what each processor counts");
    int fd = attach(program);
    if (fd < 0)
        return object_fail(why, -errno, "attaching to the list of tasks");
    *ret_link_fd = fd;
    return 0;
}

int tasks_open(struct tasks **ret_tasks, char why[static EXITS_WHY_MAX])
{
    struct bpf_object_open_opts options = {.sz = sizeof(options), .object_name = "memoir_tasks"};
    if (object_namespace_inode("/proc/self/ns/pid") != PID_NS_INITIAL)
        return object_fail(why, -ENOTSUP, "telling processes apart in a namespace of pids");
    object_log();
    struct tasks *tasks = calloc(1, sizeof(*tasks));
    struct bpf_object *object =
        tasks ? bpf_object__open_mem(object_bytes, sizeof(object_bytes), &options) : NULL;
    int r = object ? load(object, &tasks->link_fd, why)
                   : object_fail(why, -errno, "opening the BPF program");
    bpf_object__close(object);
    if (r < 0) {
        free(tasks);
        return r;
    }
    *ret_tasks = tasks;
    return 0;
}

void tasks_free(struct tasks *tasks)
{
    if (!tasks)
        return;
    close(tasks->link_fd);
    free(tasks->marks);
    free(tasks);
}

static int reserve(struct tasks *tasks, size_t used)
{
    if (used + READ_BYTES <= tasks->size)
        return 0;
    size_t size = used + used / 2 + READ_BYTES;
    if (size / sizeof(struct task_mark) > MARKS_MAX)
        return -E2BIG;
    char *marks = realloc(tasks->marks, size);
    if (!marks)
        return -ENOMEM;
    tasks->marks = marks;
    tasks->size = size;
    return 0;
}

int tasks_read(struct tasks *tasks, const struct task_mark **ret_marks, size_t *ret_n)
{
    size_t used = 0;
    ssize_t n = 0;
    int r, fd = bpf_iter_create(tasks->link_fd);
    if (fd < 0)
        return -errno;
    while ((r = reserve(tasks, used)) == 0 &&
           (n = read(fd, tasks->marks + used, tasks->size - used)) > 0)
        used += (size_t)n;
    if (r == 0 && n < 0)
        r = -errno;
    close(fd);
    if (r < 0)
        return r;
    *ret_marks = (const struct task_mark *)tasks->marks;
    *ret_n = used / sizeof(struct task_mark);
    return 0;
}
