/* The pure parts of `memoir trace`: which line a call site is known by, what pinning saves, what is waste. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

#include <memoir/memoir.h>

#include "base/buffer.h"
#include "cli/trace_hot.h"
#include "cli/trace_names.h"
#include "trace/history.h"
#include "trace/waste.h"

static const struct trace_module driver = {.path = "/usr/lib/libcuda.so.1"};
static const struct trace_module runtime = {.path = "/usr/lib/libcudart.so.13"};
static const struct trace_module torch = {.path = "/opt/torch/lib/libtorch_cuda.so"};
static const struct trace_module python = {.path = "/usr/lib/libpython3.11.so.1.0"};
static const struct trace_module app = {.path = "/home/ann/app"};
static const struct trace_line own_line = {"load", "/home/ann/train.py", 41};
static const struct trace_line main_line = {"<module>", "/home/ann/train.py", 80};
static const struct trace_line package_line = {
    "to", "/usr/lib/python3/dist-packages/torch/nn/module.py", 900};
static const struct trace_line static_line = {"cudaMalloc", "", 0};
static const struct trace_line function_line = {"fill_cache", "cache.c", 12};

#define NATIVE(m)                    \
    {                                \
        .module = &(m), .offset = 16 \
    }
#define NAMED(m, line_)                                               \
    {                                                                 \
        .module = &(m), .offset = 16, .lines = &(line_), .n_lines = 1 \
    }
#define SCRIPT(line_)                   \
    {                                   \
        .lines = &(line_), .n_lines = 1 \
    }
#define CHOICE(frames_)                                                                         \
    trace_frame_choose(&(struct trace_site){.n_frames = sizeof(frames_) / sizeof((frames_)[0]), \
                                            .frames = (frames_)})

static void a_site_is_known_by_the_line_of_the_users_script(void **state)
{
    (void)state;
    const struct trace_frame frames[] = {NATIVE(runtime),      NATIVE(torch),    NATIVE(python),
                                         SCRIPT(package_line), SCRIPT(own_line), SCRIPT(main_line)};
    assert_int_equal(CHOICE(frames), 4);
}

static void the_interpreters_way_into_native_code_is_no_own_line(void **state)
{
    (void)state;
    const struct trace_module ffi = {.path = "/usr/lib/libffi.so.8"};
    const struct trace_module ctypes = {.path = "/usr/lib/_ctypes.cpython-311.so"};
    const struct trace_frame frames[] = {NATIVE(driver), NATIVE(ffi), NATIVE(ctypes), NATIVE(app)};
    assert_int_equal(CHOICE(frames), 3);
}

static void a_line_of_a_package_serves_where_the_script_has_none(void **state)
{
    (void)state;
    const struct trace_frame frames[] = {NATIVE(torch), SCRIPT(package_line), NATIVE(python)};
    assert_int_equal(CHOICE(frames), 1);
    const struct trace_frame embeds[] = {NATIVE(torch), SCRIPT(package_line), NATIVE(app)};
    assert_int_equal(CHOICE(embeds), 2);
}

static void the_runtime_and_known_libraries_are_skipped(void **state)
{
    (void)state;
    const struct trace_frame frames[] = {NATIVE(driver), NATIVE(runtime), NATIVE(torch),
                                         NATIVE(app)};
    assert_int_equal(CHOICE(frames), 3);
    const struct trace_frame no_app[] = {NATIVE(driver), NATIVE(runtime), NATIVE(torch)};
    assert_int_equal(CHOICE(no_app), 2);
    const struct trace_frame only_runtime[] = {NATIVE(runtime)};
    assert_int_equal(CHOICE(only_runtime), 0);
    assert_int_equal(trace_frame_choose(&(struct trace_site){0}), -1);
}

static void a_runtime_that_is_linked_statically_is_known_by_its_names(void **state)
{
    (void)state;
    const struct trace_frame frames[] = {NAMED(app, static_line), NAMED(app, function_line)};
    assert_int_equal(CHOICE(frames), 1);
}

static void calls_compiled_into_each_other_are_looked_through(void **state)
{
    (void)state;
    const struct trace_line lines[] = {{"std::vector<float>::resize(unsigned long)",
                                        "/usr/include/c++/12/bits/stl_vector.h", 1011},
                                       {"batch_load(int)", "/home/ann/batch.cpp", 31},
                                       {"main", "/home/ann/batch.cpp", 90}};
    const struct trace_frame frames[] = {NATIVE(driver),
                                         {.module = &app, .lines = lines, .n_lines = 3}};
    assert_int_equal(CHOICE(frames), 1);
    assert_int_equal(trace_frame_line(&frames[1])->line, 31);
    assert_null(trace_frame_line(&frames[0]));
}

static void the_module_is_the_library_that_asked(void **state)
{
    (void)state;
    const struct trace_frame frames[] = {NATIVE(runtime), NATIVE(torch), NATIVE(python),
                                         SCRIPT(own_line)};
    struct trace_site site = {.n_frames = 4, .frames = frames};
    assert_string_equal(trace_site_module(&site), torch.path);
}

static void the_caller_is_of_the_same_language(void **state)
{
    (void)state;
    const struct trace_frame frames[] = {SCRIPT(own_line), NATIVE(python), SCRIPT(package_line),
                                         SCRIPT(main_line), NATIVE(app)};
    struct trace_site site = {.n_frames = 5, .frames = frames};
    assert_int_equal(trace_frame_caller(&site, 0), 3);
    assert_int_equal(trace_frame_caller(&site, 3), -1);
}

static void lines_that_several_stacks_share_tell_their_caller(void **state)
{
    (void)state;
    static const struct trace_line a = {"first", "/home/ann/train.py", 10},
                                   b = {"second", "/home/ann/train.py", 20};
    static const struct trace_line alone = {"alone", "/home/ann/other.py", 5};
    const struct trace_frame one[] = {SCRIPT(own_line), SCRIPT(a)},
                             two[] = {SCRIPT(own_line), SCRIPT(b)},
                             three[] = {SCRIPT(alone), SCRIPT(a)};
    struct trace_sites *sites = NULL;
    char text[TRACE_LABEL_MAX];
    assert_int_equal(trace_sites_new(&sites), 0);
    trace_sites_define(sites, &(struct trace_site){.number = 1, .n_frames = 2, .frames = one});
    trace_sites_define(sites, &(struct trace_site){.number = 2, .n_frames = 2, .frames = two});
    trace_sites_define(sites, &(struct trace_site){.number = 3, .n_frames = 2, .frames = three});
    struct trace_names *names = trace_names_new();
    trace_names_set(names, sites, 0, false, 0);
    assert_string_equal(trace_names_label(names, 1, text),
                        "train.py:41 in load < train.py:10 in first");
    assert_string_equal(trace_names_label(names, 2, text),
                        "train.py:41 in load < train.py:20 in second");
    assert_string_equal(trace_names_label(names, 3, text), "other.py:5 in alone");
    assert_string_equal(trace_names_label(names, 0, text), "unknown");
    assert_string_equal(trace_names_label(names, 99, text), "unknown");
    trace_names_free(names);
    trace_sites_free(sites);
}

static void pinning_saves_the_difference_of_the_rates(void **state)
{
    (void)state;
    struct waste_rates rates = {UINT64_C(10000000000), UINT64_C(50000000000)};
    assert_int_equal(waste_saving_ns(&rates, 0), 0);
    assert_int_equal(waste_saving_ns(&rates, UINT64_C(10000000000)), UINT64_C(800000000));
    assert_int_equal(waste_saving_ns(&(struct waste_rates){5, 5}, 100), 0);
    assert_int_equal(waste_saving_ns(&(struct waste_rates){9, 5}, 100), 0); /* never negative */
    assert_int_equal(waste_saving_ns(&(struct waste_rates){1, UINT64_MAX}, UINT64_MAX),
                     UINT64_MAX - 1000000000); /* saturates */
}

/* ---- over histories ---- */

#define DEVICE UINT64_C(0x200000000)
#define HOST   UINT64_C(0x7f0000000000)

static struct trace_history *history_make(void)
{
    struct trace_history *h = NULL;
    assert_int_equal(trace_history_new(&(struct trace_identity){.pid = 1, .start_ns = 1}, NULL, &h),
                     0);
    return h;
}

static uint64_t now = 1;

static void allocate(struct trace_history *h, uint64_t address, uint64_t size, uint32_t site)
{
    trace_history_event(h, &(struct trace_event){.time_ns = ++now,
                                                 .kind = TRACE_ALLOC,
                                                 .address = address,
                                                 .size = size,
                                                 .site = site,
                                                 .space = MEMOIR_SPACE_DRAM});
}

static void copy(struct trace_history *h, uint64_t to, uint64_t from, uint64_t size, uint32_t site,
                 uint32_t flags)
{
    trace_history_event(h, &(struct trace_event){.time_ns = ++now,
                                                 .kind = TRACE_COPY,
                                                 .address = to,
                                                 .source = from,
                                                 .size = size,
                                                 .site = site,
                                                 .direction = TRACE_TO_DEVICE,
                                                 .flags = flags});
}

static void pageable_copies_are_told_by_line_the_largest_first(void **state)
{
    (void)state;
    struct trace_history *h = history_make();
    struct trace_copier *copiers;
    allocate(h, DEVICE, 1 << 20, 1);
    copy(h, DEVICE, HOST, 1000, 5, TRACE_FLAG_PAGEABLE);
    copy(h, DEVICE, HOST, 9000, 6, TRACE_FLAG_PAGEABLE);
    copy(h, DEVICE, HOST, 90000, 7, 0);
    assert_int_equal(waste_pageable(h, 9, &copiers), 2);
    assert_int_equal(copiers[0].site, 6);
    assert_int_equal(copiers[0].pageable.bytes, 9000);
    assert_int_equal(copiers[1].site, 5);
    free(copiers);
    trace_history_free(h);
}

static void allocations_without_a_copy_are_added_up_by_line(void **state)
{
    (void)state;
    struct trace_history *h = history_make();
    struct waste_uncopied *rows;
    allocate(h, DEVICE, 1 << 20, 1);
    allocate(h, DEVICE + (2 << 20), 1 << 20, 1);
    allocate(h, DEVICE + (4 << 20), 3 << 20, 2);
    allocate(h, DEVICE + (8 << 20), 1 << 20, 3);
    copy(h, DEVICE + (8 << 20), HOST, 100, 9, 0);
    assert_int_equal(waste_uncopied(h, 9, &rows), 2);
    assert_int_equal(rows[0].site, 2);
    assert_int_equal(rows[0].bytes, 3 << 20);
    assert_int_equal(rows[1].site, 1);
    assert_int_equal(rows[1].blocks, 2);
    assert_int_equal(rows[1].bytes, 2 << 20);
    free(rows);
    trace_history_free(h);
}

static void repeats_are_ranked_by_the_bytes_that_they_moved(void **state)
{
    (void)state;
    struct trace_history *h = history_make();
    struct waste_repeat *rows;
    allocate(h, DEVICE, 1 << 20, 1);
    allocate(h, DEVICE + (2 << 20), 1 << 20, 2);
    for (int i = 0; i < 10; i++)
        copy(h, DEVICE, HOST, 100, 5, 0);
    for (int i = 0; i < 3; i++)
        copy(h, DEVICE + (2 << 20), HOST + (2 << 20), 1 << 20, 6, 0);
    copy(h, DEVICE + 4096, HOST + 65536, 100, 5, 0); /* once is no repetition */
    assert_int_equal(waste_repeats(h, 5, &rows),
                     2); /* the host's side of each; the device's is written */
    assert_int_equal(rows[0].block.address, HOST + (2 << 20));
    assert_int_equal(rows[0].repeat.copies, 3);
    assert_int_equal(rows[0].repeat.size, 1 << 20);
    assert_int_equal(rows[1].repeat.copies, 10);
    free(rows);
    trace_history_free(h);
}

static void the_copying_line_is_that_of_most_copies(void **state)
{
    (void)state;
    struct trace_history *h = history_make();
    struct trace_block block;
    size_t sites;
    allocate(h, DEVICE, 1 << 20, 1);
    assert_int_equal(trace_history_find(h, DEVICE, &block), 0);
    assert_int_equal(trace_hot_copy_site(h, &block, &sites), 0);
    assert_int_equal(sites, 0);
    assert_null(trace_hot_host_side(&block));
    copy(h, DEVICE, HOST, 100, 5, 0);
    copy(h, DEVICE, HOST, 100, 6, TRACE_FLAG_PAGEABLE);
    copy(h, DEVICE, HOST, 100, 6, TRACE_FLAG_PAGEABLE);
    assert_int_equal(trace_history_find(h, DEVICE, &block), 0);
    assert_int_equal(trace_hot_copy_site(h, &block, &sites), 6);
    assert_int_equal(sites, 2);
    assert_string_equal(trace_hot_host_side(&block), "mixed");
    trace_history_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_site_is_known_by_the_line_of_the_users_script),
        cmocka_unit_test(the_interpreters_way_into_native_code_is_no_own_line),
        cmocka_unit_test(a_line_of_a_package_serves_where_the_script_has_none),
        cmocka_unit_test(the_runtime_and_known_libraries_are_skipped),
        cmocka_unit_test(a_runtime_that_is_linked_statically_is_known_by_its_names),
        cmocka_unit_test(calls_compiled_into_each_other_are_looked_through),
        cmocka_unit_test(the_module_is_the_library_that_asked),
        cmocka_unit_test(the_caller_is_of_the_same_language),
        cmocka_unit_test(lines_that_several_stacks_share_tell_their_caller),
        cmocka_unit_test(pinning_saves_the_difference_of_the_rates),
        cmocka_unit_test(pageable_copies_are_told_by_line_the_largest_first),
        cmocka_unit_test(allocations_without_a_copy_are_added_up_by_line),
        cmocka_unit_test(repeats_are_ranked_by_the_bytes_that_they_moved),
        cmocka_unit_test(the_copying_line_is_that_of_most_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
