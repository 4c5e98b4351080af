/* See probe_load.h. */
#include "probe_load.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "observe/elf_image.h"
#include "probe_event.h"

enum { TRACE_UPROBE_MULTI = 48, LINK_CREATE = 28, MULTI_RETURN = 1, WAIT_MS = 10000 };

/* The kernel's, which the headers of Debian 12 do not have yet. */
struct link_attr {
    uint32_t prog_fd, target_fd, attach_type, flags;
    uint64_t path, offsets, ref_ctr_offsets, cookies;
    uint32_t cnt, multi_flags, pid, spare;
};

struct probe {
    struct bpf_object *object;
    struct ring_buffer *ring;
    int link;
    probe_each_fn *each;
    void *context;
    unsigned events;
};

static const uint8_t object_bytes[] __attribute__((aligned(8))) = {
#include "probe.bpf.inc"
};

static int on_event(void *context, void *data, size_t size)
{
    struct probe *probe = context;
    if (size >= sizeof(struct probe_event)) {
        probe->events++;
        probe->each(data, probe->context);
    }
    return 0;
}

static int64_t read_fd(void *context, uint64_t offset, void *to, size_t n)
{
    ssize_t r = pread(*(int *)context, to, n, (off_t)offset);
    return r < 0 ? -errno : r;
}

/* Where a function begins in its file. */
static int offset_find(const char *library, const char *function, uint64_t *ret_offset)
{
    struct elf_image image;
    struct elf_symbol symbol;
    int fd = open(library, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int r = elf_image_init(&image, read_fd, &fd, ELF_CLUSTER);
    if (r == 0) {
        r = elf_image_symbol(&image, function, &symbol);
        for (uint32_t i = 0; r == 0 && i < image.n_segments; i++)
            if (symbol.vaddr - image.segments[i].vaddr < image.segments[i].file_bytes)
                *ret_offset = symbol.vaddr - image.segments[i].vaddr + image.segments[i].offset;
        elf_image_release(&image);
    }
    close(fd);
    return r;
}

static int attach(struct probe *probe, const char *library, uint64_t offset, bool at_return,
                  pid_t pid)
{
    struct bpf_program *program = bpf_object__find_program_by_name(probe->object, "on_entry");
    struct link_attr attr = {
        .prog_fd = (uint32_t)bpf_program__fd(program),
        .attach_type = TRACE_UPROBE_MULTI,
        .path = (uint64_t)(uintptr_t)library,
        .offsets = (uint64_t)(uintptr_t)&offset,
        .cnt = 1,
        .multi_flags = at_return ? MULTI_RETURN : 0,
        .pid = (uint32_t)pid,
    };
    probe->link = (int)syscall(SYS_bpf, LINK_CREATE, &attr, sizeof(attr));
    return probe->link < 0 ? -errno : 0;
}

static int load(struct probe *probe)
{
    struct bpf_object_open_opts opts = {.sz = sizeof(opts), .object_name = "probe"};
    probe->object = bpf_object__open_mem(object_bytes, sizeof(object_bytes), &opts);
    if (!probe->object)
        return -errno;
    struct bpf_program *program = bpf_object__find_program_by_name(probe->object, "on_entry");
    bpf_program__set_expected_attach_type(program, (enum bpf_attach_type)TRACE_UPROBE_MULTI);
    int r = bpf_object__load(probe->object);
    if (r < 0)
        return r;
    int fd = bpf_object__find_map_fd_by_name(probe->object, "events");
    probe->ring = ring_buffer__new(fd, on_event, probe, NULL);
    return probe->ring ? 0 : -errno;
}

int probe_new(const char *library, const char *function, bool at_return, pid_t pid,
              struct probe **ret_probe)
{
    uint64_t offset = 0;
    int r = offset_find(library, function, &offset);
    if (r < 0)
        return r;
    struct probe *probe = calloc(1, sizeof(*probe));
    if (!probe)
        return -ENOMEM;
    probe->link = -1;
    r = load(probe);
    if (r == 0)
        r = attach(probe, library, offset, at_return, pid);
    if (r < 0) {
        probe_free(probe);
        return r;
    }
    *ret_probe = probe;
    return 0;
}

void probe_free(struct probe *probe)
{
    if (!probe)
        return;
    if (probe->link >= 0)
        close(probe->link);
    ring_buffer__free(probe->ring);
    bpf_object__close(probe->object);
    free(probe);
}

int probe_python(struct probe *probe, pid_t pid, const struct python_kernel_facts *facts)
{
    int fd = bpf_object__find_map_fd_by_name(probe->object, "pythons");
    uint32_t key = (uint32_t)pid;
    return bpf_map_update_elem(fd, &key, facts, 0);
}

int probe_wait(struct probe *probe, probe_each_fn *each, void *context)
{
    probe->each = each;
    probe->context = context;
    probe->events = 0;
    int r = ring_buffer__poll(probe->ring, WAIT_MS);
    return r < 0 ? r : probe->events ? 0 : -ETIME;
}
