/* Pictures of the ledger. */
#include "fault.h"
#include "history/sample.h"
#include "ledger_world.h"

static struct ledger_process *world_process(struct world *w)
{
    struct book_builder b;
    book_begin(w, &b, "1.book", BOOK_SOURCE_CLIENT);
    uint32_t card = builder_device(&b, 1, 3, "card");
    account_add(&b, MEMOIR_SPACE_DRAM, card, 2, 5000);
    account_add(&b, MEMOIR_SPACE_L1, card, 1, 70);
    account_add(&b, MEMOIR_SPACE_HEAP, 0, 4, 900);
    builder_publish(&b);
    struct ledger_process *process = add(w, "1.book")->process;
    ledger_update_state(w->ledger, process);
    ledger_refresh(w->ledger);
    return process;
}

/* The value of that kind among values [first, end), or UINT64_MAX. */
static uint64_t value_of(const struct sample *s, size_t first, size_t end, uint32_t device,
                         uint32_t space, uint32_t metric)
{
    for (size_t i = first; i < end; i++)
        if (s->values[i].device == device && s->values[i].space == space &&
            s->values[i].metric == metric)
            return s->values[i].value;
    return UINT64_MAX;
}

static void picture_has_everything_once(void **state)
{
    struct world *w = *state;
    struct sample sample;
    const struct ledger_process *process = world_process(w);
    sample_init(&sample);
    for (int round = 0; round < 3; round++) { /* in the same memory */
        sample_take(&sample, w->ledger, 42, 1000);
        assert_int_equal(sample.real_ns, 42);
        assert_int_equal(sample.n_processes, 1);
        assert_int_equal(sample.n_devices, 1);
        assert_string_equal(sample.devices[0].name, "card");
        assert_int_equal(sample.devices[0].ordinal, 3);
        const struct sample_process *p = &sample.processes[0];
        assert_int_equal(p->pid, getpid());
        assert_int_equal(p->claim.pid, p->pid);
        assert_int_equal(p->claim.start_ticks, p->start_ticks);
        assert_int_equal(p->start_ticks, w->self.start_ticks);
        assert_int_equal(p->pid_ns, w->pid_ns);
        assert_int_equal(p->exec_id, process->exec_id);
        assert_int_equal(p->uid, process->uid);
        assert_string_equal(p->program, process->name);
        assert_string_equal(p->node, "");
        assert_int_equal(sample.devices[0].kind, 1);
        assert_int_equal(p->n_values, 4);
        size_t total = sample.first_total, end = sample.n_values;
        assert_int_equal(total, 4);
        assert_int_equal(value_of(&sample, 0, total, 1, MEMOIR_SPACE_DRAM, HISTORY_BYTES), 5000);
        assert_int_equal(value_of(&sample, 0, total, 1, MEMOIR_SPACE_L1, HISTORY_BYTES), 70);
        assert_int_equal(value_of(&sample, 0, total, 0, MEMOIR_SPACE_HEAP, HISTORY_BYTES), 900);
        assert_int_equal(value_of(&sample, 0, total, 0, 0, HISTORY_BLOCKS), 7);
        assert_int_equal(value_of(&sample, total, end, 1, MEMOIR_SPACE_DRAM, HISTORY_BYTES), 5000);
        assert_int_equal(value_of(&sample, total, end, 1, MEMOIR_SPACE_DRAM, HISTORY_BLOCKS), 2);
        assert_int_equal(value_of(&sample, total, end, 0, MEMOIR_SPACE_HEAP, HISTORY_BYTES), 900);
        assert_int_equal(value_of(&sample, total, end, 0, MEMOIR_SPACE_HEAP, HISTORY_BLOCKS), 4);
        assert_int_equal(sample.left_out, 0);
    }
    sample_release(&sample);
}

static void processes_and_devices_keep_their_identity(void **state)
{
    struct world *w = *state;
    struct sample sample;
    struct ledger_process *process = world_process(w);
    size_t n;
    struct ledger_device *device = ledger_devices(w->ledger, &n)[0];
    strcpy(device->host, "far");
    strcpy(device->uid, "GPU-1");
    strcpy(device->bus, "0000:01:00.0");
    strcpy(process->host, "away");
    process->start_realtime_ns = 77;
    process->valid |= LEDGER_HAS_START;
    sample_init(&sample);
    sample_take(&sample, w->ledger, 1, 1000);
    assert_string_equal(sample.devices[0].node, "far");
    assert_string_equal(sample.devices[0].uid, "GPU-1");
    assert_string_equal(sample.devices[0].bus, "0000:01:00.0");
    assert_string_equal(sample.processes[0].node, "away");
    assert_int_equal(sample.processes[0].began_ns, 77);
    process->valid &= ~(uint32_t)LEDGER_HAS_START;
    sample_take(&sample, w->ledger, 1, 1000);
    assert_int_equal(sample.processes[0].began_ns, 0);
    sample_release(&sample);
    assert_null(sample.devices);
    assert_int_equal(sample.n_devices, 0);
}

static void sums_have_every_space_of_host_and_device(void **state)
{
    struct world *w = *state;
    struct book_builder b;
    struct sample sample;
    book_begin(w, &b, "1.book", BOOK_SOURCE_CLIENT);
    uint32_t card = builder_device(&b, 1, 3, "card");
    account_add(&b, MEMOIR_SPACE_MAX, card, 3, 30);
    account_add(&b, MEMOIR_SPACE_HEAP, 0, 4, 900);
    account_add(&b, MEMOIR_SPACE_PINNED, 0, 5, 800);
    account_add(&b, MEMOIR_SPACE_MAX, 0, 6, 700);
    builder_publish(&b);
    ledger_update_state(w->ledger, add(w, "1.book")->process);
    ledger_refresh(w->ledger);
    sample_init(&sample);
    sample_take(&sample, w->ledger, 1, 1000);
    size_t total = sample.first_total, end = sample.n_values;
    assert_int_equal(value_of(&sample, total, end, 0, MEMOIR_SPACE_HEAP, HISTORY_BYTES), 900);
    assert_int_equal(value_of(&sample, total, end, 0, MEMOIR_SPACE_PINNED, HISTORY_BYTES), 800);
    assert_int_equal(value_of(&sample, total, end, 1, MEMOIR_SPACE_MAX, HISTORY_BYTES), 30);
    assert_int_equal(value_of(&sample, total, end, 0, MEMOIR_SPACE_MAX, HISTORY_BYTES), 700);
    assert_int_equal(value_of(&sample, total, end, 0, MEMOIR_SPACE_MAX, HISTORY_BLOCKS), 6);
    sample_release(&sample);
}

/* A device past the limit of devices is in no sample, so no value may name it. */
static void accounts_of_devices_that_are_left_out_are_left_out(void **state)
{
    struct world *w = *state;
    struct sample sample;
    size_t n;
    world_process(w);
    struct ledger_device *device = ledger_devices(w->ledger, &n)[0];
    uint32_t index = device->index;
    sample_init(&sample);
    device->index = (uint32_t)n;
    sample_take(&sample, w->ledger, 1, 1000);
    assert_int_equal(sample.processes[0].n_values, 2); /* the heap, and blocks of all */
    assert_int_equal(value_of(&sample, 0, 2, 0, MEMOIR_SPACE_HEAP, HISTORY_BYTES), 900);
    assert_int_equal(value_of(&sample, 0, 2, 0, 0, HISTORY_BLOCKS), 7);
    assert_int_equal(sample.left_out, 2);
    device->index = index;
    sample_release(&sample);
}

/* Memory for devices, for processes and for values is asked for in turn. */
static void what_memory_is_missing_for_is_counted(void **state)
{
    struct world *w = *state;
    /* After 10 before: two accounts on the device; a process with three accounts, and two values more; one value; nothing. */
    static const uint64_t left_out[] = {12, 15, 11, 10};
    world_process(w);
    for (int nth = 0; fault_arm(nth); nth++) {
        struct sample sample;
        sample_init(&sample);
        sample.left_out = 10;
        sample_take(&sample, w->ledger, 1, 1000);
        fault_disarm();
        assert_in_range(nth, 0, 3);
        assert_int_equal(sample.n_devices, nth != 0);
        assert_int_equal(sample.n_processes, nth != 1);
        assert_int_equal(sample.left_out, left_out[nth]);
        sample_take(&sample, w->ledger, 2, 1000); /* it is there again */
        assert_int_equal(sample.left_out, left_out[nth]);
        assert_int_equal(sample.processes[0].n_values, 4);
        sample_release(&sample);
    }
}

static void capacity_is_noted_where_it_is_known(void **state)
{
    struct world *w = *state;
    struct sample sample;
    size_t n;
    world_process(w);
    struct ledger_device *device = ledger_devices(w->ledger, &n)[0];
    device->spaces[MEMOIR_SPACE_DRAM].capacity = 123456;
    device->spaces[MEMOIR_SPACE_L1].capacity = 0;
    sample_init(&sample);
    sample_take(&sample, w->ledger, 1, 1000);
    size_t total = sample.first_total, end = sample.n_values;
    assert_int_equal(value_of(&sample, total, end, 1, MEMOIR_SPACE_DRAM, HISTORY_CAPACITY), 123456);
    assert_true(value_of(&sample, total, end, 1, MEMOIR_SPACE_L1, HISTORY_CAPACITY) == UINT64_MAX);
    sample_release(&sample);
}

static void what_could_not_be_read_is_absent(void **state)
{
    struct world *w = *state;
    struct sample sample;
    struct ledger_process *process = world_process(w);
    sample_init(&sample);
    for (size_t i = 0; i < process->n_accounts; i++)
        if (process->accounts[i].space != MEMOIR_SPACE_DRAM)
            process->accounts[i].valid = false;
    sample_take(&sample, w->ledger, 1, 1000);
    assert_int_equal(sample.processes[0].n_values, 2); /* the one account, and its blocks */
    assert_int_equal(value_of(&sample, 0, 2, 1, MEMOIR_SPACE_DRAM, HISTORY_BYTES), 5000);
    assert_int_equal(value_of(&sample, 0, 2, 0, 0, HISTORY_BLOCKS), 2);
    assert_true(value_of(&sample, 2, sample.n_values, 0, MEMOIR_SPACE_HEAP, HISTORY_BYTES) ==
                UINT64_MAX);
    for (size_t i = 0; i < process->n_accounts; i++)
        process->accounts[i].valid = false;
    sample_take(&sample, w->ledger, 1, 1000);
    assert_int_equal(sample.processes[0].n_values, 0);
    sample_release(&sample);
}

static void the_dead_are_not_in_it(void **state)
{
    struct world *w = *state;
    struct sample sample;
    world_process(w)->state = LEDGER_EXITED;
    sample_init(&sample);
    sample_take(&sample, w->ledger, 1, 1000);
    assert_int_equal(sample.n_processes, 0);
    assert_true(value_of(&sample, 0, sample.n_values, 0, MEMOIR_SPACE_HEAP, HISTORY_BYTES) ==
                UINT64_MAX);
    sample_release(&sample);
}

/* A daemon of a user does not limit that user, nor root. */
static void the_daemons_own_user_is_not_limited(void **state)
{
    struct world *w = *state;
    struct sample sample;
    static const uint32_t uids[] = {0, 4711, 4712}, there[] = {1, 1, 0};
    struct ledger_process *process = world_process(w);
    if (geteuid() != 0)
        skip();
    sample_init(&sample);
    assert_int_equal(seteuid(4711), 0);
    for (size_t i = 0; i < 3; i++) {
        process->uid = uids[i];
        sample_take(&sample, w->ledger, 1, 4);
        assert_int_equal(sample.n_processes, there[i]);
    }
    assert_int_equal(seteuid(0), 0);
    sample_release(&sample);
}

static void users_have_a_share_but_sums_have_everything(void **state)
{
    struct world *w = *state;
    struct sample sample;
    struct ledger_process *process = world_process(w);
    sample_init(&sample);
    sample_take(&sample, w->ledger, 1, 1); /* our own are not limited */
    assert_int_equal(sample.n_processes, 1);
    process->uid = 4711;
    sample_take(&sample, w->ledger, 1, 5); /* three accounts, blocks and the resident size */
    assert_int_equal(sample.n_processes, 1);
    sample_take(&sample, w->ledger, 1, 4);
    assert_int_equal(sample.n_processes, 0);
    assert_int_equal(sample.left_out, 5);
    assert_int_equal(value_of(&sample, 0, sample.n_values, 0, MEMOIR_SPACE_HEAP, HISTORY_BYTES),
                     900);
    sample_release(&sample);
}

/* Many small processes count as one large one does. */
static void share_of_a_user_is_that_of_all_its_processes(void **state)
{
    struct world *w = *state;
    struct sample sample;
    static const uint32_t uids[] = {4711, 4711, 4712, 4711, 0};
    for (uint32_t i = 0; i < 5; i++) {
        struct book_builder b;
        char name[16];
        snprintf(name, sizeof(name), "%u.book", i);
        book_begin(w, &b, name, BOOK_SOURCE_CLIENT);
        b.h.exec_id = i + 1;
        account_add(&b, MEMOIR_SPACE_HEAP, 0, 1, 10);
        builder_publish(&b);
        struct ledger_process *process = add(w, name)->process;
        ledger_update_state(w->ledger, process);
        process->uid = uids[i];
    }
    ledger_refresh(w->ledger);
    sample_init(&sample);
    for (int again = 0; again < 2; again++) { /* each picture begins anew */
        uint64_t before = sample.left_out;
        sample_take(&sample, w->ledger, 1, 6); /* each takes 3: heap, blocks, resident size */
        size_t of[3] = {0};
        for (size_t i = 0; i < sample.n_processes; i++)
            of[sample.processes[i].uid == 4711 ? 0 : sample.processes[i].uid == 4712 ? 1 : 2]++;
        assert_int_equal(of[0], 2);
        assert_int_equal(of[1], 1);
        assert_int_equal(of[2], 1);
        assert_int_equal(sample.left_out, before + 3);
        assert_int_equal(value_of(&sample, sample.first_total, sample.n_values, 0,
                                  MEMOIR_SPACE_HEAP, HISTORY_BYTES),
                         50);
    }
    sample_take(&sample, w->ledger, 1, 3); /* one each, and root */
    assert_int_equal(sample.n_processes, 3);
    sample_release(&sample);
}

static void limits_hold_and_what_is_past_them_is_counted(void **state)
{
    struct sample sample;
    sample_init(&sample);
    sample_reset(&sample, 1);
    sample_add_process(&sample);
    for (unsigned i = 0; i < SAMPLE_VALUES_PER_PROCESS_MAX + 7; i++)
        sample_add_value(&sample, 0, i, HISTORY_BYTES, i);
    assert_int_equal(sample.processes[0].n_values, SAMPLE_VALUES_PER_PROCESS_MAX);
    assert_int_equal(sample.left_out, 7);
    for (unsigned i = 0; i < SAMPLE_DEVICES_MAX; i++)
        assert_non_null(sample_add_device(&sample));
    assert_null(sample_add_device(&sample));
    for (unsigned i = 1; i < SAMPLE_PROCESSES_MAX; i++)
        assert_non_null(sample_add_process(&sample));
    assert_null(sample_add_process(&sample));
    sample_release(&sample);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(picture_has_everything_once),
        TEST(processes_and_devices_keep_their_identity),
        TEST(sums_have_every_space_of_host_and_device),
        TEST(the_daemons_own_user_is_not_limited),
        TEST(accounts_of_devices_that_are_left_out_are_left_out),
        TEST(what_memory_is_missing_for_is_counted),
        TEST(capacity_is_noted_where_it_is_known),
        TEST(what_could_not_be_read_is_absent),
        TEST(the_dead_are_not_in_it),
        TEST(users_have_a_share_but_sums_have_everything),
        TEST(share_of_a_user_is_that_of_all_its_processes),
        TEST(limits_hold_and_what_is_past_them_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
