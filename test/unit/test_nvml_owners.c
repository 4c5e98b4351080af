/* Who owns what the driver counts for a process. The figures of one GPU are as measured on an H200 with driver 580. */
#include "nvml/owners.h"

#include <errno.h>
#include <stdlib.h>

#include "check.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MIB          (UINT64_C(1) << 20)

static struct owners_row *rows;
static size_t n_rows;

static void compute(const struct owners_process *process, const struct owners_block *blocks,
                    size_t n)
{
    free(rows);
    assert_int_equal(owners_compute(process, blocks, n, &rows, &n_rows), 0);
    int64_t sum = 0;
    for (size_t i = 0; i < n_rows; i++) {
        sum += rows[i].bytes;
        assert_int_not_equal(rows[i].bytes, 0);
    }
    assert_int_equal(sum, process->driver_bytes); /* always */
}

/* All rows of a kind together. */
static int64_t bytes_of(enum owners_kind kind)
{
    int64_t sum = 0;
    for (size_t i = 0; i < n_rows; i++)
        sum += rows[i].kind == kind ? rows[i].bytes : 0;
    return sum;
}

static void three_gib_and_a_context_leave_nothing_unknown(void **unused)
{
    struct owners_block block = {"/home/u/train", "train.cu:12", OWNERS_DEVICE, 3072 * MIB, 1};
    struct owners_process process = {.driver_bytes = 3590 * MIB,
                                     .program = "/home/u/train",
                                     .has_context = true,
                                     .context_bytes = 518 * MIB};
    compute(&process, &block, 1);
    assert_int_equal(n_rows, 2);
    assert_int_equal(rows[0].kind, OWNERS_LINE);
    assert_string_equal(rows[0].library, "train");
    assert_string_equal(rows[0].site, "train.cu:12");
    assert_int_equal(rows[0].bytes, 3072 * MIB);
    assert_int_equal(rows[1].kind, OWNERS_CONTEXT);
    assert_int_equal(rows[1].bytes, 518 * MIB);
}

/* Each step with what the driver's figure rose by. */
static void rounding_is_what_the_driver_was_seen_to_take(void **unused)
{
    static const struct {
        uint64_t count, size, rose_mib;
    } steps[] = {{100, 4096, 2},    {10, 500 << 10, 4}, {10, 1 << 20, 10},
                 {10, 3 << 19, 20}, {10, 3 << 20, 40},  {3, 33 << 20, 102}};
    struct owners_block blocks[ARRAY_LEN(steps)];
    struct owners_process process = {
        .driver_bytes = 518 * MIB, .program = "", .has_context = true, .context_bytes = 518 * MIB};
    uint64_t asked = 0;
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        blocks[i] =
            (struct owners_block){"/x/app", "a", OWNERS_DEVICE, steps[i].size, steps[i].count};
        process.driver_bytes += steps[i].rose_mib * MIB;
        asked += steps[i].size * steps[i].count;
        compute(&process, blocks, i + 1);
        assert_int_equal(bytes_of(OWNERS_UNKNOWN), 0);
        assert_int_equal(bytes_of(OWNERS_CONTEXT), 518 * MIB);
        assert_int_equal(bytes_of(OWNERS_LINE), asked);
    }
}

static void a_pool_grows_by_32_mib(void **unused)
{
    struct owners_block block = {"/x/app", "a", OWNERS_POOL, 10 * MIB, 1};
    struct owners_process process = {.driver_bytes = 550 * MIB,
                                     .program = "/x/app",
                                     .has_context = true,
                                     .context_bytes = 518 * MIB};
    compute(&process, &block, 1);
    assert_int_equal(bytes_of(OWNERS_ROUNDING), 22 * MIB);
    assert_int_equal(bytes_of(OWNERS_UNKNOWN), 0);
}

static void lines_of_one_place_are_one_row_and_the_largest_comes_first(void **unused)
{
    static const struct owners_block blocks[] = {
        {"/p/libnccl.so.2", "init", OWNERS_DEVICE, 2 * MIB, 3},
        {"/p/libc10_cuda.so", "train.py:7", OWNERS_DEVICE, 20 * MIB, 2},
        {"/p/libtorch_cuda.so", "train.py:7", OWNERS_DEVICE, 2 * MIB, 1},
        {"/p/libtorch_cuda.so", "train.py:9", OWNERS_DEVICE, 2 * MIB, 1},
        {"/p/libtorch_cuda.so", "train.py:9", OWNERS_VIRTUAL, 4 * MIB, 1},
        {"/p/libtorch_cuda.so", "freed", OWNERS_DEVICE, 4 * MIB, 0},
        {"", "", OWNERS_DEVICE, 2 * MIB, 1},
    };
    struct owners_process process = {.driver_bytes = 100 * MIB, .program = "/usr/bin/python3"};
    compute(&process, blocks, ARRAY_LEN(blocks));
    assert_int_equal(n_rows, 6);
    assert_string_equal(rows[0].library, "torch");
    assert_string_equal(rows[0].site, "train.py:7");
    assert_int_equal(rows[0].bytes, 42 * MIB);
    assert_int_equal(rows[0].blocks, 3);
    assert_string_equal(rows[1].library, "NCCL");
    assert_int_equal(rows[2].memory, OWNERS_VIRTUAL);
    assert_int_equal(rows[5].kind, OWNERS_UNKNOWN);
    assert_int_equal(rows[5].bytes, (100 - 42 - 6 - 4 - 2 - 2) * MIB);
}

static void what_is_older_than_the_observation_is_no_mystery(void **unused)
{
    struct owners_block block = {"/x/app", "a", OWNERS_DEVICE, 100 * MIB, 1};
    struct owners_process process = {.driver_bytes = 1000 * MIB,
                                     .program = "/x/app",
                                     .has_context = true,
                                     .context_bytes = 500 * MIB,
                                     .context_estimate = true,
                                     .has_before = true,
                                     .before_bytes = 390 * MIB};
    compute(&process, &block, 1);
    assert_int_equal(bytes_of(OWNERS_BEFORE), 390 * MIB);
    assert_int_equal(bytes_of(OWNERS_UNKNOWN), 10 * MIB);
    assert_true(rows[1].kind == OWNERS_CONTEXT && rows[1].estimate);
}

static void parts_never_exceed_what_is_left(void **unused)
{
    struct owners_block block = {"/x/app", "a", OWNERS_DEVICE, 101 * MIB, 1};
    struct owners_process process = {.driver_bytes = 110 * MIB,
                                     .program = "/x/app",
                                     .has_context = true,
                                     .context_bytes = 518 * MIB,
                                     .has_before = true,
                                     .before_bytes = 50 * MIB};
    compute(&process, &block, 1);
    assert_int_equal(bytes_of(OWNERS_ROUNDING), 1 * MIB);
    assert_int_equal(bytes_of(OWNERS_CONTEXT), 8 * MIB);
    assert_int_equal(bytes_of(OWNERS_BEFORE), 0);
}

static void managed_memory_is_on_the_device_only_as_far_as_room_is_left(void **unused)
{
    struct owners_block blocks[] = {{"/x/app", "a", OWNERS_DEVICE, 100 * MIB, 1},
                                    {"/x/app", "b", OWNERS_MANAGED, 1000 * MIB, 1}};
    struct owners_process process = {.driver_bytes = 700 * MIB,
                                     .program = "/x/app",
                                     .has_context = true,
                                     .context_bytes = 500 * MIB};
    compute(&process, blocks, 2);
    assert_int_equal(bytes_of(OWNERS_LINE), 100 * MIB);
    assert_int_equal(bytes_of(OWNERS_ON_DEVICE), 100 * MIB);
    assert_int_equal(bytes_of(OWNERS_UNKNOWN), 0);
}

static void memory_of_graphs_explains_what_is_left_and_no_more(void **unused)
{
    struct owners_block blocks[] = {{"/x/app", "a", OWNERS_DEVICE, 100 * MIB, 1},
                                    {"/x/app", "b", OWNERS_RECORDED, 5 * MIB, 2}};
    struct owners_process process = {.driver_bytes = 600 * MIB,
                                     .program = "/x/app",
                                     .has_context = true,
                                     .context_bytes = 500 * MIB};
    compute(&process, blocks, 2); /* not launched */
    assert_int_equal(bytes_of(OWNERS_LINE), 100 * MIB);
    assert_int_equal(bytes_of(OWNERS_GRAPHS), 0);
    process.driver_bytes += 12 * MIB;
    compute(&process, blocks, 2);
    assert_int_equal(bytes_of(OWNERS_GRAPHS), 12 * MIB);
    assert_int_equal(bytes_of(OWNERS_UNKNOWN), 0);
    process.driver_bytes += 70 * MIB; /* as pools: in pieces of 32 MiB */
    compute(&process, blocks, 2);
    assert_int_equal(bytes_of(OWNERS_GRAPHS), 32 * MIB);
    assert_int_equal(bytes_of(OWNERS_UNKNOWN), 50 * MIB);
    process.graph_peak_bytes = 33 * MIB; /* of graphs that are gone */
    compute(&process, blocks, 2);
    assert_int_equal(bytes_of(OWNERS_GRAPHS), 64 * MIB);
}

static void a_figure_below_the_accounts_is_told_as_a_negative_row(void **unused)
{
    struct owners_block block = {"/x/app", "a", OWNERS_DEVICE, 100 * MIB, 1};
    struct owners_process process = {.driver_bytes = 60 * MIB, .program = "/x/app"};
    compute(&process, &block, 1);
    assert_int_equal(bytes_of(OWNERS_EXCESS), -(int64_t)(40 * MIB));
}

static void a_process_without_blocks_is_all_context_or_unknown(void **unused)
{
    struct owners_process process = {.driver_bytes = 518 * MIB, .program = "/x/app"};
    compute(&process, NULL, 0);
    assert_int_equal(bytes_of(OWNERS_UNKNOWN), 518 * MIB);
    process.driver_bytes = 0;
    compute(&process, NULL, 0);
    assert_int_equal(n_rows, 0);
}

static void figures_that_cannot_be_are_refused(void **unused)
{
    struct owners_block block = {"/x/app", "a", OWNERS_DEVICE, UINT64_MAX / 2, 3};
    struct owners_process process = {.driver_bytes = 1, .program = "/x/app"};
    struct owners_row *none = NULL;
    size_t n = 0;
    assert_int_equal(owners_compute(&process, &block, 1, &none, &n), -EOVERFLOW);
    assert_null(none);
}

static void libraries_have_the_names_that_people_know(void **unused)
{
    static const struct {
        const char *module, *name;
    } cases[] = {
        {"/v/torch/lib/libtorch_cuda.so", "torch"},
        {"/v/torch/lib/libc10_cuda.so", "torch"},
        {"/v/nvidia/nccl/lib/libnccl.so.2", "NCCL"},
        {"/v/libcublasLt.so.13", "cuBLAS"},
        {"/v/libcublas.so.13", "cuBLAS"},
        {"/v/libcudnn_engines_precompiled.so.9", "cuDNN"},
        {"/opt/lib/libmine.so.1", "libmine.so.1"},
        {"/home/u/bin/train", "train"},
        {"", "unknown"},
    };
    char text[OWNERS_LIBRARY_MAX];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_string_equal(owners_library(text, cases[i].module, "/home/u/bin/train"),
                            cases[i].name);
}

static void the_caller_is_outside_the_runtime(void **unused)
{
    const char *torch[] = {"/usr/lib/libcuda.so.580.159.04", "/v/libcudart.so.13",
                           "/v/torch/lib/libc10_cuda.so", "/usr/bin/python3.11"};
    const char *none[] = {"/usr/lib/libcuda.so.1", "", NULL};
    assert_string_equal(owners_caller(torch, 4), "/v/torch/lib/libc10_cuda.so");
    assert_string_equal(owners_caller(none, 3), "");
    assert_string_equal(owners_caller(NULL, 0), "");
}

static int tear_down(void **unused)
{
    free(rows);
    rows = NULL;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_gib_and_a_context_leave_nothing_unknown),
        cmocka_unit_test(rounding_is_what_the_driver_was_seen_to_take),
        cmocka_unit_test(a_pool_grows_by_32_mib),
        cmocka_unit_test(lines_of_one_place_are_one_row_and_the_largest_comes_first),
        cmocka_unit_test(what_is_older_than_the_observation_is_no_mystery),
        cmocka_unit_test(parts_never_exceed_what_is_left),
        cmocka_unit_test(managed_memory_is_on_the_device_only_as_far_as_room_is_left),
        cmocka_unit_test(memory_of_graphs_explains_what_is_left_and_no_more),
        cmocka_unit_test(a_figure_below_the_accounts_is_told_as_a_negative_row),
        cmocka_unit_test(a_process_without_blocks_is_all_context_or_unknown),
        cmocka_unit_test(figures_that_cannot_be_are_refused),
        cmocka_unit_test(libraries_have_the_names_that_people_know),
        cmocka_unit_test(the_caller_is_outside_the_runtime),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
