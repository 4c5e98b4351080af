/* See owners.h. */
#include "nvml/owners.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static const struct {
    const char *begins, *name;
} libraries[] = {
    {"libtorch", "torch"},
    {"libc10", "torch"},
    {"libnccl", "NCCL"},
    {"libcublas", "cuBLAS"},
    {"libcudnn", "cuDNN"},
    {"libcufft", "cuFFT"},
    {"libcurand", "cuRAND"},
    {"libcusolver", "cuSOLVER"},
    {"libcusparse", "cuSPARSE"},
    {"libcutensor", "cuTENSOR"},
    {"libnvshmem", "NVSHMEM"},
    {"libnvinfer", "TensorRT"},
    {"libtensorflow", "TensorFlow"},
    {"xla_", "XLA"},
    {"libonnxruntime", "ONNX Runtime"},
    {"librmm", "RMM"},
    {"libuct_cuda", "UCX"},
    {"libucp", "UCX"},
};

/* "libcuda.so.1", "libcudart.so.13", "libnvidia-ptxjitcompiler.so"; not libcudadebugger or libcudart_like. */
static bool is_runtime(const char *module)
{
    const char *name = base_name(module);
    return begins(name, "libcuda.so") || begins(name, "libcudart.so") ||
           begins(name, "libcudart-") || begins(name, "libnvidia-");
}

const char *owners_library(char text[static OWNERS_LIBRARY_MAX], const char *module,
                           const char *program)
{
    const char *name = base_name(module);
    const char *known = NULL;
    for (size_t i = 0; i < sizeof(libraries) / sizeof(*libraries) && !known; i++)
        if (begins(name, libraries[i].begins))
            known = libraries[i].name;
    if (program && *module && strcmp(module, program) == 0)
        known = name;
    snprintf(text, OWNERS_LIBRARY_MAX, "%s", known ? known : *name ? name : "unknown");
    return text;
}

const char *owners_caller(const char *const *modules, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (modules[i] && *modules[i] && !is_runtime(modules[i]))
            return modules[i];
    return "";
}

const char *owners_kind_name(enum owners_kind kind)
{
    static const char *const names[] = {
        [OWNERS_LINE] = "allocated",       [OWNERS_ROUNDING] = "rounding",
        [OWNERS_CONTEXT] = "CUDA context", [OWNERS_ON_DEVICE] = "managed, on the device",
        [OWNERS_BEFORE] = "before attach", [OWNERS_GRAPHS] = "CUDA graphs",
        [OWNERS_UNKNOWN] = "unknown",      [OWNERS_EXCESS] = "not counted by the driver",
    };
    return names[kind];
}

/* ---- figures ---- */

/* Sums of what is accounted. `taken` is what the driver holds for it. */
struct sums {
    uint64_t lines;   /* all but managed */
    uint64_t managed; /* which is on the device in part */
    uint64_t graphs;  /* the same of what graphs recorded */
    uint64_t small, pool;
    uint64_t taken;
    bool overflow;
};

static uint64_t add(uint64_t a, uint64_t b, bool *overflow)
{
    uint64_t sum;
    if (__builtin_add_overflow(a, b, &sum) || sum > INT64_MAX) {
        *overflow = true;
        return INT64_MAX;
    }
    return sum;
}

static uint64_t multiply(uint64_t a, uint64_t b, bool *overflow)
{
    uint64_t product;
    if (__builtin_mul_overflow(a, b, &product) || product > INT64_MAX) {
        *overflow = true;
        return INT64_MAX;
    }
    return product;
}

static uint64_t round_up(uint64_t bytes, uint64_t to, bool *overflow)
{
    uint64_t rest = bytes % to;
    return rest ? add(bytes, to - rest, overflow) : bytes;
}

static void sum_block(struct sums *s, const struct owners_block *block, uint64_t granule)
{
    uint64_t bytes = multiply(block->size, block->count, &s->overflow);
    if (block->memory == OWNERS_MANAGED) {
        s->managed = add(s->managed, bytes, &s->overflow);
        return;
    }
    if (block->memory == OWNERS_RECORDED) {
        s->graphs = add(s->graphs, bytes, &s->overflow);
        return;
    }
    s->lines = add(s->lines, bytes, &s->overflow);
    if (block->memory == OWNERS_POOL) {
        s->pool = add(s->pool, bytes, &s->overflow);
    } else if (block->memory == OWNERS_DEVICE && block->size <= OWNERS_SMALL_MAX) {
        uint64_t each = round_up(block->size, OWNERS_SMALL_ALIGN, &s->overflow);
        s->small = add(s->small, multiply(each, block->count, &s->overflow), &s->overflow);
    } else {
        uint64_t each = round_up(block->size, granule, &s->overflow);
        s->taken = add(s->taken, multiply(each, block->count, &s->overflow), &s->overflow);
    }
}

/* ---- rows ---- */

static int by_place(const void *a, const void *b)
{
    const struct owners_row *x = a, *y = b;
    int order = strcmp(x->library, y->library);
    if (!order)
        order = strcmp(x->site, y->site);
    return order ? order : (int)x->memory - (int)y->memory;
}

static int by_bytes(const void *a, const void *b)
{
    const struct owners_row *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return by_place(a, b);
}

/* One row for each library, line and kind of memory. */
static size_t lines_make(const struct owners_process *process, const struct owners_block *blocks,
                         size_t n, struct owners_row *rows)
{
    size_t n_rows = 0, kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (blocks[i].memory >= OWNERS_MANAGED || !blocks[i].size || !blocks[i].count)
            continue;
        struct owners_row *row = &rows[n_rows++];
        *row = (struct owners_row){
            .kind = OWNERS_LINE,
            .site = blocks[i].site ? blocks[i].site : "",
            .memory = blocks[i].memory,
            .bytes = (int64_t)(blocks[i].size * blocks[i].count), /* sum_block() looked */
            .blocks = blocks[i].count,
        };
        owners_library(row->library, blocks[i].module ? blocks[i].module : "", process->program);
    }
    qsort(rows, n_rows, sizeof(*rows), by_place);
    for (size_t i = 0; i < n_rows; i++) {
        if (kept && by_place(&rows[kept - 1], &rows[i]) == 0) {
            rows[kept - 1].bytes += rows[i].bytes;
            rows[kept - 1].blocks += rows[i].blocks;
        } else {
            rows[kept++] = rows[i];
        }
    }
    qsort(rows, kept, sizeof(*rows), by_bytes);
    return kept;
}

/* As much of it as is left. */
static void part_add(struct owners_row *rows, size_t *n, enum owners_kind kind, uint64_t bytes,
                     bool estimate, uint64_t *left)
{
    uint64_t part = bytes < *left ? bytes : *left;
    *left -= part;
    if (part > 0)
        rows[(*n)++] = (struct owners_row){
            .kind = kind, .site = "", .bytes = (int64_t)part, .estimate = estimate};
}

int owners_compute(const struct owners_process *process, const struct owners_block *blocks,
                   size_t n, struct owners_row **ret_rows, size_t *ret_n)
{
    uint64_t granule = process->granule ? process->granule : OWNERS_GRANULE;
    uint64_t pool_granule = process->pool_granule ? process->pool_granule : OWNERS_POOL_GRANULE;
    struct sums s = {.overflow = process->driver_bytes > INT64_MAX};
    for (size_t i = 0; i < n; i++)
        sum_block(&s, &blocks[i], granule);
    s.taken = add(s.taken, round_up(s.small, granule, &s.overflow), &s.overflow);
    s.taken = add(s.taken, round_up(s.pool, pool_granule, &s.overflow), &s.overflow);
    if (s.overflow)
        return -EOVERFLOW;
    struct owners_row *rows = calloc(n + OWNERS_EXCESS, sizeof(*rows));
    if (!rows)
        return -ENOMEM;
    size_t n_rows = lines_make(process, blocks, n, rows);
    uint64_t left = process->driver_bytes > s.lines ? process->driver_bytes - s.lines : 0;
    part_add(rows, &n_rows, OWNERS_ROUNDING, s.taken - s.lines, false, &left);
    part_add(rows, &n_rows, OWNERS_CONTEXT, process->has_context ? process->context_bytes : 0,
             process->context_estimate, &left);
    part_add(rows, &n_rows, OWNERS_ON_DEVICE, s.managed, true, &left);
    part_add(rows, &n_rows, OWNERS_BEFORE, process->has_before ? process->before_bytes : 0, false,
             &left);
    uint64_t graphs = process->graph_peak_bytes > s.graphs ? process->graph_peak_bytes : s.graphs;
    part_add(rows, &n_rows, OWNERS_GRAPHS, round_up(graphs, pool_granule, &s.overflow), true,
             &left);
    part_add(rows, &n_rows, OWNERS_UNKNOWN, left, false, &left);
    if (s.lines > process->driver_bytes)
        rows[n_rows++] =
            (struct owners_row){.kind = OWNERS_EXCESS,
                                .site = "",
                                .bytes = (int64_t)process->driver_bytes - (int64_t)s.lines};
    *ret_rows = rows;
    *ret_n = n_rows;
    return 0;
}
