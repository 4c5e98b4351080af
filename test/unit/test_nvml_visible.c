/* From CUDA's ordinals to devices: lists as they stand in environments, and which devices they mean. */
#include "nvml/visible.h"

#include <string.h>

#include "check.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#define GPU(n, id, device_name, device_speed)                                               \
    {                                                                                       \
        .index = n, .mig_index = -1, .uuid = id, .name = device_name, .speed = device_speed \
    }

static const struct nvml_device alike[] = {
    GPU(0, "GPU-aaaa1111-0000", "H200", 5),
    GPU(1, "GPU-aaab2222-0000", "H200", 5),
    GPU(2, "GPU-cccc3333-0000", "H200", 5),
};

/* The result as digits, which are places in the list. */
static const char *seen(const char *visible, const char *order, const struct nvml_device *devices,
                        size_t n)
{
    static char text[NVML_DEVICES_MAX + 1];
    struct visible v;
    visible_devices(visible, order, devices, n, &v);
    for (size_t i = 0; i < v.n; i++)
        text[i] = (char)('0' + v.devices[i]);
    text[v.n] = '\0';
    return text;
}

static void lists_mean_what_the_driver_makes_of_them(void **unused)
{
    static const struct {
        const char *visible, *devices;
    } cases[] = {
        {NULL, "012"},
        {"", ""},
        {"0", "0"},
        {"2,0", "20"},
        {"1,2,0", "120"},
        {" 1, 2", "12"},
        {"0x", "0"},    /* digits, as far as they go */
        {"1,7,0", "1"}, /* an invalid one ends the list */
        {"7,0", ""},    /* which may be empty then */
        {"-1", ""},
        {"1,-1,0", "1"},
        {"NoDevFiles", ""},
        {"0,0", ""},         /* named twice: none */
        {"0,GPU-cccc", "0"}, /* numbers and UUIDs do not mix */
        {"GPU-cccc,0", "2"},
        {"GPU-cccc3333-0000", "2"},
        {"GPU-cccc,GPU-aaaa", "20"},
        {"GPU-aaa", ""}, /* ambiguous */
        {"GPU-", ""},
        {"GPU-cccc,GPU-dddd,GPU-aaaa", "2"},
        {"GPU-cccc,GPU-cccc3", ""},
        {"MIG-1", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_string_equal(seen(cases[i].visible, NULL, alike, ARRAY_LEN(alike)),
                            cases[i].devices);
}

static void no_device_is_visible_where_there_is_none(void **unused)
{
    assert_string_equal(seen(NULL, NULL, alike, 0), "");
    assert_string_equal(seen("0", NULL, alike, 0), "");
}

static void unequal_gpus_come_fastest_first_unless_ordered_by_bus(void **unused)
{
    static const struct nvml_device mixed[] = {GPU(0, "GPU-1", "T4", 2), GPU(1, "GPU-2", "A100", 3),
                                               GPU(2, "GPU-3", "H100", 9)};
    struct visible v;
    assert_string_equal(seen(NULL, NULL, mixed, 3), "201");
    assert_string_equal(seen("0", NULL, mixed, 3), "2");
    assert_string_equal(seen(NULL, "FASTEST_FIRST", mixed, 3), "201");
    assert_string_equal(seen(NULL, "PCI_BUS_ID", mixed, 3), "012");
    assert_string_equal(seen("1,0", "PCI_BUS_ID", mixed, 3), "10");
    visible_devices(NULL, NULL, mixed, 3, &v);
    assert_false(v.certain);
    visible_devices(NULL, "PCI_BUS_ID", mixed, 3, &v);
    assert_true(v.certain);
    visible_devices("GPU-2", NULL, mixed, 3, &v);
    assert_true(v.certain); /* a UUID needs no order */
    visible_devices("1", NULL, alike, 3, &v);
    assert_true(v.certain); /* equal GPUs are in the order of the bus */
}

static void devices_are_numbered_by_nvml_not_by_their_place(void **unused)
{
    static const struct nvml_device shuffled[] = {
        GPU(2, "GPU-c", "H200", 0), GPU(0, "GPU-a", "H200", 0), GPU(1, "GPU-b", "H200", 0)};
    assert_string_equal(seen(NULL, "PCI_BUS_ID", shuffled, 3), "120");
    assert_string_equal(seen("2", NULL, shuffled, 3), "0");
}

static void a_process_has_one_mig_instance(void **unused)
{
    static const struct nvml_device mig[] = {
        {.index = 0, .mig_index = -1, .mig_count = 2, .uuid = "GPU-a", .name = "A100"},
        {.index = 0, .mig_index = 0, .uuid = "MIG-11111111-x", .name = "A100 MIG 1g.5gb"},
        {.index = 0, .mig_index = 2, .uuid = "MIG-22222222-x", .name = "A100 MIG 2g.10gb"},
    };
    assert_string_equal(seen(NULL, NULL, mig, 3), "1");
    assert_string_equal(seen("0", NULL, mig, 3), "1");
    assert_string_equal(seen("MIG-2222", NULL, mig, 3), "2");
    assert_string_equal(seen("MIG-2222,MIG-1111", NULL, mig, 3), "2");
    assert_string_equal(seen("GPU-a", NULL, mig, 3), "1");
}

static void old_names_of_mig_instances_are_uuids_too(void **unused)
{
    static const struct nvml_device mig[] = {
        {.index = 0, .mig_index = -1, .mig_count = 1, .uuid = "GPU-a", .name = "A100"},
        {.index = 0, .mig_index = 0, .uuid = "MIG-GPU-a/1/0", .name = "A100 MIG"},
    };
    assert_string_equal(seen("MIG-GPU-a/1/0", NULL, mig, 2), "1");
}

static void variables_are_found_in_the_bytes_of_an_environment(void **unused)
{
    static const char bytes[] =
        "PATH=/bin\0CUDA_VISIBLE_DEVICESX=9\0CUDA_VISIBLE_DEVICES=1,0\0EMPTY=\0"
        "CUDA_VISIBLE_DEVICES=7\0CUT=of";
    size_t len = sizeof(bytes) - 1; /* without the NUL at the end: the last one is cut */
    assert_string_equal(visible_environ(bytes, len, "CUDA_VISIBLE_DEVICES"), "1,0");
    assert_string_equal(visible_environ(bytes, len, "EMPTY"), "");
    assert_null(visible_environ(bytes, len, "CUDA_DEVICE_ORDER"));
    assert_null(visible_environ(bytes, len, "CUT"));
    assert_null(visible_environ("", 0, "PATH"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_mean_what_the_driver_makes_of_them),
        cmocka_unit_test(no_device_is_visible_where_there_is_none),
        cmocka_unit_test(unequal_gpus_come_fastest_first_unless_ordered_by_bus),
        cmocka_unit_test(devices_are_numbered_by_nvml_not_by_their_place),
        cmocka_unit_test(a_process_has_one_mig_instance),
        cmocka_unit_test(old_names_of_mig_instances_are_uuids_too),
        cmocka_unit_test(variables_are_found_in_the_bytes_of_an_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
