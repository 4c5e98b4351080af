/* See heap_kernel.h. */
#include "observe/heap_kernel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "base/cleanup.h"
#include "bpf/object.h"
#include "observe/uprobe_link.h"

static const unsigned char object_bytes[] __attribute__((aligned(16))) = {
#include "observe/heap.bpf.inc"
};

enum { LINKS_MAX = 24, WALK_BATCH = 4096 };
#define NODES_BYTES ((size_t)HEAP_NODES_MAX * sizeof(struct heap_node))

struct heap_kernel {
    struct bpf_object *object;
    struct bpf_program *session, *enter, *leave, *free, *new, *new_return;
    struct bpf_link *exec, *fork;
    bool has_session;
    pid_t pid;
    struct heap_state *state;
    struct heap_node *nodes;
    int blocks;
    struct ring_buffer *ring;
    int links[LINKS_MAX];
    size_t n_links;
    void (*each)(void *context, const void *record, size_t bytes);
    void *each_context;
};

static int on_record(void *context, void *data, size_t size)
{
    struct heap_kernel *k = context;
    k->each(k->each_context, data, size);
    return 0;
}

static int object_open(struct heap_kernel *k, const struct heap_kernel_options *options)
{
    struct bpf_object_open_opts open = {.sz = sizeof(open), .object_name = "memoir_heap"};
    k->object = bpf_object__open_mem(object_bytes, sizeof(object_bytes), &open);
    if (!k->object)
        return -errno;
    k->session = bpf_object__find_program_by_name(k->object, "heap_session");
    k->enter = bpf_object__find_program_by_name(k->object, "heap_enter");
    k->leave = bpf_object__find_program_by_name(k->object, "heap_leave");
    k->free = bpf_object__find_program_by_name(k->object, "heap_free");
    k->new = bpf_object__find_program_by_name(k->object, "heap_new");
    k->new_return = bpf_object__find_program_by_name(k->object, "heap_new_return");
    struct bpf_map *blocks = bpf_object__find_map_by_name(k->object, "blocks");
    if (!k->session || !k->enter || !k->leave || !k->free || !k->new || !k->new_return || !blocks)
        return -EINVAL;
    bpf_program__set_expected_attach_type(k->session, (enum bpf_attach_type)UPROBE_LINK_SESSION);
    bpf_program__set_expected_attach_type(k->enter, (enum bpf_attach_type)UPROBE_LINK_MULTI);
    bpf_program__set_expected_attach_type(k->leave, (enum bpf_attach_type)UPROBE_LINK_MULTI);
    bpf_program__set_expected_attach_type(k->free, (enum bpf_attach_type)UPROBE_LINK_MULTI);
    bpf_program__set_expected_attach_type(k->new, (enum bpf_attach_type)UPROBE_LINK_MULTI);
    bpf_program__set_expected_attach_type(k->new_return, (enum bpf_attach_type)UPROBE_LINK_MULTI);
    bpf_program__set_autoload(bpf_object__find_program_by_name(k->object, "heap_fork"),
                              options->children);
    bpf_program__set_autoload(k->session, k->has_session);
    bpf_program__set_autoload(k->enter, !k->has_session);
    bpf_program__set_autoload(k->leave, !k->has_session);
    int r = options->blocks_max ? bpf_map__set_max_entries(blocks, options->blocks_max) : 0;
    return r < 0 ? r : bpf_object__load(k->object);
}

static int object_load(struct heap_kernel *k, const struct heap_kernel_options *options)
{
    k->has_session = !options->two_links;
    int r = object_open(k, options);
    if (r >= 0 || !k->has_session || r == -EPERM || r == -EACCES)
        return r;
    bpf_object__close(k->object);
    k->object = NULL;
    k->has_session = false;
    return object_open(k, options);
}

/* Tracepoints: at its exec, and where its children are followed at its fork. */
static int points_attach(struct heap_kernel *k, bool children)
{
    const struct bpf_program *exec = bpf_object__find_program_by_name(k->object, "heap_exec");
    const struct bpf_program *fork = bpf_object__find_program_by_name(k->object, "heap_fork");
    k->exec = exec ? bpf_program__attach(exec) : NULL;
    if (!k->exec)
        return exec ? -errno : -EINVAL;
    k->fork = children && fork ? bpf_program__attach(fork) : NULL;
    return children && !k->fork ? -errno : 0;
}

static int shared_map(struct heap_kernel *k)
{
    struct bpf_map *nodes = bpf_object__find_map_by_name(k->object, "nodes");
    struct bpf_map *blocks = bpf_object__find_map_by_name(k->object, "blocks");
    struct bpf_map *ring = bpf_object__find_map_by_name(k->object, "ring");
    if (!nodes || !blocks || !ring)
        return -EINVAL;
    k->blocks = bpf_map__fd(blocks);
    k->state = object_variables(k->object, sizeof(*k->state));
    void *at = mmap(NULL, NODES_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(nodes), 0);
    k->nodes = at == MAP_FAILED ? NULL : at;
    k->ring = ring_buffer__new(bpf_map__fd(ring), on_record, k, NULL);
    if (!k->state || !k->nodes || !k->ring)
        return -ENOMEM;
    k->state->pid = (uint32_t)k->pid;
    return 0;
}

int heap_kernel_open(const struct heap_kernel_options *options, struct heap_kernel **ret_kernel,
                     char why[static HEAP_KERNEL_WHY_MAX])
{
    struct heap_kernel *k = calloc(1, sizeof(*k));
    if (!k)
        return object_fail(why, -ENOMEM, "loading the probes");
    k->pid = options->pid;
    object_log();
    libbpf_set_strict_mode(LIBBPF_STRICT_ALL);
    int r = object_load(k, options);
    if (r >= 0)
        r = shared_map(k);
    if (r >= 0)
        r = points_attach(k, options->children);
    if (r < 0) {
        object_fail(why, r, "loading the probes");
        heap_kernel_close(k);
        return r;
    }
    *ret_kernel = k;
    return 0;
}

void heap_kernel_detach(struct heap_kernel *k)
{
    for (size_t i = 0; i < k->n_links; i++)
        close(k->links[i]);
    k->n_links = 0;
}

void heap_kernel_close(struct heap_kernel *k)
{
    if (!k)
        return;
    heap_kernel_detach(k);
    bpf_link__destroy(k->exec);
    bpf_link__destroy(k->fork);
    ring_buffer__free(k->ring);
    object_variables_free(k->state, sizeof(*k->state));
    if (k->nodes)
        munmap(k->nodes, NODES_BYTES);
    bpf_object__close(k->object);
    free(k);
}

/* ---- links ---- */

static int link_add(struct heap_kernel *k, const struct bpf_program *program, int fd,
                    enum uprobe_link_type type, const struct uprobe_places *places, bool returns)
{
    if (places->n == 0)
        return 0;
    if (k->n_links == LINKS_MAX)
        return -EUSERS;
    int link = uprobe_link_make(bpf_program__fd(program), fd, type, places, returns, k->pid);
    if (link < 0)
        return link;
    k->links[k->n_links++] = link;
    return 0;
}

/* Which link a function belongs to. */
enum group { FREES, NEWS, NEW_RETURNS, ALLOCS, GROUPS };

static enum group group_of(uint32_t role)
{
    return role == HEAP_FREE         ? FREES
           : role == HEAP_NEW        ? NEWS
           : role == HEAP_NEW_RETURN ? NEW_RETURNS
                                     : ALLOCS;
}

/* Frees first: a block that is freed before its allocation is seen does no harm, one whose free is missed would stay. */
int heap_kernel_attach(struct heap_kernel *k, int fd, const struct heap_function *functions,
                       size_t n, char why[static HEAP_KERNEL_WHY_MAX])
{
    uint64_t offsets[GROUPS][HEAP_FUNCTIONS_MAX], cookies[GROUPS][HEAP_FUNCTIONS_MAX];
    struct uprobe_places all[GROUPS];
    for (size_t g = 0; g < GROUPS; g++)
        all[g] = (struct uprobe_places){offsets[g], cookies[g], 0};
    if (n > HEAP_FUNCTIONS_MAX)
        return object_fail(why, -E2BIG, "attaching probes");
    for (size_t i = 0; i < n; i++) {
        enum group g = group_of(HEAP_COOKIE_ROLE(functions[i].cookie));
        offsets[g][all[g].n] = functions[i].offset;
        cookies[g][all[g].n++] = functions[i].cookie;
    }
    if (all[NEWS].n)
        k->state->has_news = 1;
    int r = link_add(k, k->free, fd, UPROBE_LINK_MULTI, &all[FREES], false);
    if (r == 0)
        r = link_add(k, k->new_return, fd, UPROBE_LINK_MULTI, &all[NEW_RETURNS], false);
    if (r == 0)
        r = link_add(k, k->new, fd, UPROBE_LINK_MULTI, &all[NEWS], false);
    if (r == 0 && k->has_session)
        r = link_add(k, k->session, fd, UPROBE_LINK_SESSION, &all[ALLOCS], false);
    if (r == 0 && !k->has_session)
        r = link_add(k, k->leave, fd, UPROBE_LINK_MULTI, &all[ALLOCS], true);
    if (r == 0 && !k->has_session)
        r = link_add(k, k->enter, fd, UPROBE_LINK_MULTI, &all[ALLOCS], false);
    return r < 0 ? uprobe_link_fail(why, HEAP_KERNEL_WHY_MAX, r) : 0;
}

/* ---- what is there ---- */

struct heap_state *heap_kernel_state(struct heap_kernel *k)
{
    return k->state;
}

struct heap_node *heap_kernel_nodes(struct heap_kernel *k)
{
    return k->nodes;
}

bool heap_kernel_block(struct heap_kernel *k, uint64_t address, struct heap_block *ret_block)
{
    return bpf_map_lookup_elem(k->blocks, &address, ret_block) == 0;
}

void heap_kernel_block_remove(struct heap_kernel *k, uint64_t address)
{
    bpf_map_delete_elem(k->blocks, &address);
}

int heap_kernel_blocks(struct heap_kernel *k,
                       void (*each)(void *context, uint64_t address,
                                    const struct heap_block *block),
                       void *context)
{
    MEMOIR_CLEANUP(freep)
    uint64_t *keys = malloc(WALK_BATCH * sizeof(*keys));
    MEMOIR_CLEANUP(freep)
    struct heap_block *values = malloc(WALK_BATCH * sizeof(*values));
    uint32_t batch = 0;
    bool first = true;
    if (!keys || !values)
        return -ENOMEM;
    for (;;) {
        uint32_t n = WALK_BATCH;
        int r =
            bpf_map_lookup_batch(k->blocks, first ? NULL : &batch, &batch, keys, values, &n, NULL);
        int error = r < 0 ? errno : 0;
        if (error && error != ENOENT)
            return -error;
        for (uint32_t i = 0; i < n; i++)
            each(context, keys[i], &values[i]);
        if (error)
            return 0;
        first = false;
    }
}

int heap_kernel_fd(const struct heap_kernel *k)
{
    return ring_buffer__epoll_fd(k->ring);
}

void heap_kernel_read(struct heap_kernel *k,
                      void (*each)(void *context, const void *record, size_t bytes), void *context)
{
    k->each = each;
    k->each_context = context;
    ring_buffer__consume(k->ring);
}

static double cost_of(const struct bpf_program *program, double *ret_runs)
{
    struct bpf_prog_info info = {0};
    uint32_t len = sizeof(info);
    *ret_runs = 0;
    if (!bpf_program__autoload(program) ||
        bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &len) < 0 || !info.run_cnt)
        return 0;
    *ret_runs = (double)info.run_cnt;
    return (double)info.run_time_ns / (double)info.run_cnt;
}

void heap_kernel_costs(struct heap_kernel *k, double *ret_alloc_ns, double *ret_free_ns)
{
    double runs;
    *ret_alloc_ns = k->has_session ? 2 * cost_of(k->session, &runs)
                                   : cost_of(k->enter, &runs) + cost_of(k->leave, &runs);
    *ret_free_ns = cost_of(k->free, &runs);
}
