/* What a driver says, joined to devices that processes tell of. */
#include "ledger/driver.h"

#include "ledger_world.h"
#include "nvml/facts.h"

enum { TOTAL = 1000000 };

/* A reading as it comes from nvml_ask(): devices, then processes, in memory of its own. */
static struct nvml_facts reading(const struct nvml_device *devices, size_t n_devices,
                                 const struct nvml_process *processes, size_t n_processes)
{
    struct nvml_facts facts = {.n_devices = n_devices, .n_processes = n_processes, .driver = "1.2"};
    facts.memory = calloc(1, n_devices * sizeof(*devices) + n_processes * sizeof(*processes) + 1);
    assert_non_null(facts.memory);
    facts.devices = facts.memory;
    facts.processes = (struct nvml_process *)(facts.devices + n_devices);
    memcpy(facts.devices, devices, n_devices * sizeof(*devices));
    if (n_processes)
        memcpy(facts.processes, processes, n_processes * sizeof(*processes));
    return facts;
}

static const struct nvml_device gpu = {
    .mig_index = -1,
    .valid = NVML_HAS_TOTAL | NVML_HAS_USED | NVML_HAS_PROCESSES,
    .total_bytes = TOTAL,
    .used_bytes = 700,
    .uuid = "GPU-aa",
    .bus = "0000:1b:00.0",
    .name = "H200",
};

static void told(struct world *w, const struct nvml_device *devices, size_t n_devices,
                 const struct nvml_process *processes, size_t n_processes)
{
    struct nvml_facts facts = reading(devices, n_devices, processes, n_processes);
    assert_int_equal(ledger_driver_set(w->ledger, &facts), 0);
    assert_null(facts.memory); /* taken */
}

static struct ledger_device *only_device(struct world *w)
{
    size_t n;
    struct ledger_device *const *devices = ledger_devices(w->ledger, &n);
    assert_int_equal(n, 1);
    return devices[0];
}

static const struct ledger_capacity *dram(struct world *w)
{
    return &only_device(w)->spaces[MEMOIR_SPACE_DRAM];
}

/* This process has a book with one device. */
static void book(struct world *w, const char *name, int32_t ordinal, const char *uid,
                 const char *bus, uint64_t capacity, uint64_t bytes)
{
    struct book_builder b;
    book_begin(w, &b, name, BOOK_SOURCE_CLIENT);
    device_put(&b, ordinal, "H200", uid, bus, capacity, bytes);
    builder_publish(&b);
    add(w, name);
    ledger_refresh(w->ledger);
}

static void a_device_that_no_process_tells_of_is_there(void **state)
{
    struct world *w = *state;
    told(w, &gpu, 1, NULL, 0);
    assert_string_equal(only_device(w)->uid, "GPU-aa");
    assert_string_equal(only_device(w)->bus, "0000:1b:00.0");
    assert_int_equal(dram(w)->capacity, TOTAL);
    assert_true(dram(w)->confirmed);
    assert_string_equal(ledger_driver_version(w->ledger), "1.2");
    ledger_driver_clear(w->ledger);
    size_t n;
    ledger_devices(w->ledger, &n);
    assert_int_equal(n, 0);
    assert_string_equal(ledger_driver_version(w->ledger), "");
}

static void it_is_the_same_by_uuid_else_by_bus(void **state)
{
    struct world *w = *state;
    told(w, &gpu, 1, NULL, 0);
    book(w, "1.book", 0, "GPU-aa", "", 0, 300);
    assert_int_equal(dram(w)->used, 300);
    told(w, &gpu, 1, NULL, 0);
    assert_int_equal(dram(w)->used, 300);
    book(w, "2.book", 3, "", "0000:1b:00.0", 0, 50);
    assert_int_equal(only_device(w)->ordinal, 0);
}

static void a_confirmed_size_beats_claims_before_and_after(void **state)
{
    struct world *w = *state;
    book(w, "1.book", 0, "GPU-aa", "", TOTAL * 10, 300);
    assert_int_equal(dram(w)->capacity, TOTAL * 10);
    assert_int_equal(dram(w)->confirmed, geteuid() == 0); /* what root claims is confirmed, too */
    told(w, &gpu, 1, NULL, 0);
    assert_int_equal(dram(w)->capacity, TOTAL);
    ledger_refresh(w->ledger);
    assert_int_equal(dram(w)->capacity, TOTAL);
    book(w, "2.book", 0, "GPU-aa", "", TOTAL * 20, 1);
    assert_int_equal(dram(w)->capacity, TOTAL);
    ledger_driver_forget(w->ledger); /* nobody looks: the size is still the driver's */
    ledger_refresh(w->ledger);
    assert_int_equal(dram(w)->capacity, TOTAL);
}

static void a_driver_that_tells_no_size_leaves_claims(void **state)
{
    struct world *w = *state;
    struct nvml_device silent = gpu;
    silent.valid = 0;
    told(w, &silent, 1, NULL, 0);
    book(w, "1.book", 0, "GPU-aa", "", 5000, 300);
    assert_int_equal(dram(w)->capacity, 5000);
    assert_int_equal(dram(w)->confirmed, geteuid() == 0); /* what root claims is confirmed, too */
    uint64_t bytes;
    assert_false(ledger_driver_unattributed(only_device(w), &bytes));
}

static void the_number_is_the_drivers(void **state)
{
    struct world *w = *state;
    book(w, "1.book", 0, "GPU-aa", "", 0, 300); /* as CUDA_VISIBLE_DEVICES=5 has it */
    struct nvml_device fifth = gpu;
    fifth.index = 5;
    told(w, &fifth, 1, NULL, 0);
    assert_int_equal(only_device(w)->ordinal, 5);
    book(w, "2.book", 1, "GPU-aa", "", 0, 300);
    assert_int_equal(only_device(w)->ordinal, 5);
}

static void unattributed_is_what_the_driver_counts_beyond_the_accounts(void **state)
{
    struct world *w = *state;
    uint64_t bytes = 0;
    told(w, &gpu, 1, NULL, 0);
    assert_true(ledger_driver_unattributed(only_device(w), &bytes));
    assert_int_equal(bytes, 700);
    book(w, "1.book", 0, "GPU-aa", "", 0, 300);
    assert_true(ledger_driver_unattributed(only_device(w), &bytes));
    assert_int_equal(bytes, 400);
    book(w, "2.book", 0, "GPU-aa", "", 0, 900); /* more than the driver counts */
    assert_true(ledger_driver_unattributed(only_device(w), &bytes));
    assert_int_equal(bytes, 0);
    ledger_driver_forget(w->ledger);
    assert_false(ledger_driver_unattributed(only_device(w), &bytes));
}

static void processes_are_found_by_pid_and_device(void **state)
{
    struct world *w = *state;
    struct nvml_device two[] = {gpu, gpu};
    strcpy(two[1].uuid, "GPU-bb");
    strcpy(two[1].bus, "0000:1c:00.0");
    two[1].index = 1;
    static const struct nvml_process processes[] = {
        {.device = 0, .pid = 5, .used_bytes = 10, .has_used = 1, .is_here = 1},
        {.device = 0, .pid = 9, .used_bytes = 20, .has_used = 1, .is_here = 0},
        {.device = 1, .pid = 5, .used_bytes = 40, .has_used = 1, .is_here = 1},
        {.device = 1, .pid = 6, .is_here = 1},
    };
    told(w, two, 2, processes, 4);
    size_t n;
    struct ledger_device *const *devices = ledger_devices(w->ledger, &n);
    assert_int_equal(n, 2);
    struct ledger_driver_use use = ledger_driver_use(w->ledger, 5, NULL);
    assert_true(use.known && use.listed && !use.partly && use.bytes == 50);
    use = ledger_driver_use(w->ledger, 5, devices[1]);
    assert_true(use.known && use.bytes == 40);
    use = ledger_driver_use(w->ledger, 6, NULL);
    assert_true(use.listed && !use.known && use.partly);
    assert_false(ledger_driver_use(w->ledger, 6, devices[0]).listed);
    assert_false(ledger_driver_use(w->ledger, 9, NULL).listed); /* of another namespace */
    assert_false(ledger_driver_use(w->ledger, 7, NULL).listed);
    const struct nvml_process *list = ledger_driver_processes(w->ledger, devices[0], &n);
    assert_int_equal(n, 2);
    assert_int_equal(list[1].pid, 9);
    ledger_driver_forget(w->ledger);
    assert_false(ledger_driver_use(w->ledger, 5, NULL).listed);
    (void)ledger_driver_processes(w->ledger, devices[1], &n);
    assert_int_equal(n, 0);
}

static void a_gpu_in_mig_mode_is_its_instances(void **state)
{
    struct world *w = *state;
    struct nvml_device devices[] = {gpu, gpu, gpu};
    devices[0].mig_count = 2;
    for (int i = 1; i <= 2; i++) {
        devices[i].mig_index = i - 1;
        devices[i].bus[0] = '\0';
        snprintf(devices[i].uuid, sizeof(devices[i].uuid), "MIG-%d", i);
    }
    struct nvml_process process = {
        .device = 2, .pid = 5, .used_bytes = 10, .has_used = 1, .is_here = 1};
    told(w, devices, 3, &process, 1);
    size_t n;
    struct ledger_device *const *rows = ledger_devices(w->ledger, &n);
    assert_int_equal(n, 2);
    assert_string_equal(rows[0]->uid, "MIG-1");
    assert_string_equal(rows[1]->uid, "MIG-2");
    assert_int_equal(ledger_driver_use(w->ledger, 5, rows[1]).bytes, 10);
    assert_int_equal(ledger_driver_use(w->ledger, 5, NULL).bytes, 10);
}

static void devices_that_come_and_go_leave_no_trace(void **state)
{
    struct world *w = *state;
    struct nvml_device other = gpu;
    strcpy(other.uuid, "GPU-bb");
    strcpy(other.bus, "0000:1c:00.0");
    other.index = 1;
    for (int i = 0; i < 100; i++)
        told(w, i % 2 ? &gpu : &other, 1, NULL, 0);
    assert_string_equal(only_device(w)->uid, "GPU-aa");
    told(w, &gpu, 0, NULL, 0);
    size_t n;
    ledger_devices(w->ledger, &n);
    assert_int_equal(n, 0);
}

int main(void)
{
    book_guard_install();
    const struct CMUnitTest tests[] = {
        WORLD_TEST(a_device_that_no_process_tells_of_is_there),
        WORLD_TEST(it_is_the_same_by_uuid_else_by_bus),
        WORLD_TEST(a_confirmed_size_beats_claims_before_and_after),
        WORLD_TEST(a_driver_that_tells_no_size_leaves_claims),
        WORLD_TEST(the_number_is_the_drivers),
        WORLD_TEST(unattributed_is_what_the_driver_counts_beyond_the_accounts),
        WORLD_TEST(processes_are_found_by_pid_and_device),
        WORLD_TEST(a_gpu_in_mig_mode_is_its_instances),
        WORLD_TEST(devices_that_come_and_go_leave_no_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
