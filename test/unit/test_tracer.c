/* libmemoir-tracer through its public header only. trace_observer.c stands for the observer. */
#include <errno.h>
#include <memoir/memoir.h>
#include <memoir/tracer.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

static struct memoir_tracer *tracer_of(int target, int pid)
{
    struct memoir_tracer *t = NULL;
    struct memoir_tracer_options options = {.struct_size = sizeof(options),
                                            .target = target,
                                            .pid = pid,
                                            .observe = TRACE_OBSERVER_PATH};
    assert_int_equal(memoir_tracer_new(&options, &t), 0);
    return t;
}

static struct memoir_tracer_status status_of(struct memoir_tracer *t)
{
    struct memoir_tracer_status s = {.struct_size = sizeof(s)};
    assert_int_equal(memoir_tracer_status(t, &s), 0);
    return s;
}

static struct memoir_trace_totals totals_of(struct memoir_trace *trace)
{
    struct memoir_trace_totals t = {.struct_size = sizeof(t)};
    assert_int_equal(memoir_trace_totals(trace, &t), 0);
    return t;
}

/* Wait until so many events came. */
static void wait_events(struct memoir_tracer *t, uint64_t n)
{
    for (int i = 0; status_of(t).events < n && i < 2000; i++)
        poll(NULL, 0, 5);
    assert_true(status_of(t).events >= n);
}

static void wait_state(struct memoir_tracer *t, int state)
{
    for (int i = 0; status_of(t).state != state && i < 2000; i++)
        poll(NULL, 0, 5);
    assert_int_equal(status_of(t).state, state);
}

enum { TOLD = 9 }; /* events that the observer tells at first */

static void a_process_is_traced_stopped_and_traced_on(void **state)
{
    (void)state;
    struct memoir_tracer *t = tracer_of(MEMOIR_TRACER_PID, 777);
    struct memoir_trace_block b[4] = {{.struct_size = sizeof(b[0])}};
    setenv("TRACE_OBSERVER", "plain", 1);
    assert_int_equal(memoir_tracer_stop(t), -EALREADY);
    assert_int_equal(memoir_tracer_start(t), 0);
    assert_int_equal(memoir_tracer_start(t), -EALREADY);
    assert_true(status_of(t).observer_pid > 0);
    wait_events(t, TOLD);
    struct memoir_trace *trace = memoir_tracer_trace(t, 777);
    assert_non_null(trace);
    assert_ptr_equal(memoir_tracer_trace(t, 0), trace);
    assert_null(memoir_tracer_trace(t, 778));
    assert_int_equal(totals_of(trace).live_blocks, 3);
    assert_string_equal(totals_of(trace).name, "told");
    struct memoir_trace_query device = {.struct_size = sizeof(device), .space = MEMOIR_SPACE_DRAM};
    assert_int_equal(memoir_trace_hot(trace, &device, b, 4), 3);
    assert_int_equal(b[0].address, 3 << 20);
    assert_int_equal(b[0].flow[MEMOIR_TRACE_TO_DEVICE].copies, 3);
    struct memoir_trace_frame frame = {.struct_size = sizeof(frame)};
    assert_int_equal(memoir_trace_frames(trace, b[0].site, &frame, 1), 1);
    assert_string_equal(frame.function, "forward");
    assert_int_equal(memoir_trace_site_key(trace, b[0].site), 77);
    /* What the observer still has when it is told to end comes, too. */
    assert_int_equal(memoir_tracer_stop(t), 0);
    assert_int_equal(status_of(t).state, MEMOIR_TRACER_STOPPED);
    assert_int_equal(status_of(t).observer_pid, 0);
    assert_int_equal(memoir_trace_find(trace, 9 << 20, b), 0);
    /* On again: block 2 and the last one are no longer there. */
    setenv("TRACE_OBSERVER", "later", 1);
    assert_int_equal(memoir_tracer_start(t), 0);
    assert_ptr_equal(memoir_tracer_trace(t, 777), trace);
    wait_events(t, TOLD + 1 + TOLD - 1);
    for (int i = 0; totals_of(trace).live_blocks != 2 && i < 2000; i++)
        poll(NULL, 0, 5);
    assert_int_equal(totals_of(trace).live_blocks, 2);
    assert_int_equal(totals_of(trace).gaps, 1);
    assert_int_equal(memoir_trace_find(trace, 2 << 20, b), -ENOENT);
    assert_int_equal(memoir_trace_at(trace, 2 << 20, b, 4), 1);
    assert_int_equal(b[0].state, MEMOIR_TRACE_STATE_UNKNOWN);
    /* Anew: the old trace stays as it was. */
    setenv("TRACE_OBSERVER", "plain", 1);
    assert_int_equal(memoir_tracer_restart(t), 0);
    struct memoir_trace *anew = memoir_tracer_trace(t, 777);
    assert_ptr_not_equal(anew, trace);
    assert_int_equal(memoir_tracer_processes(t, NULL, 0), 1);
    assert_int_equal(totals_of(trace).gaps, 1);
    memoir_tracer_free(t);
}

static void all_processes_and_the_calling_one(void **state)
{
    (void)state;
    int pids[4];
    setenv("TRACE_OBSERVER", "plain", 1);
    struct memoir_tracer *t = tracer_of(MEMOIR_TRACER_ALL, 0);
    assert_int_equal(memoir_tracer_start(t), 0);
    wait_events(t, TOLD);
    assert_int_equal(memoir_tracer_processes(t, pids, 4), 1);
    assert_int_equal(pids[0], 12345);
    memoir_tracer_free(t);
    t = tracer_of(MEMOIR_TRACER_SELF, 0);
    assert_int_equal(memoir_tracer_start(t), 0);
    assert_non_null(memoir_tracer_trace(t, getpid()));
    memoir_tracer_free(t);
}

static void the_end_of_the_process_is_told(void **state)
{
    (void)state;
    setenv("TRACE_OBSERVER", "exit", 1);
    struct memoir_tracer *t = tracer_of(MEMOIR_TRACER_PID, 777);
    assert_int_equal(memoir_tracer_start(t), 0);
    wait_state(t, MEMOIR_TRACER_ENDED);
    assert_int_equal(totals_of(memoir_tracer_trace(t, 777)).exit_ns, 100);
    assert_int_equal(totals_of(memoir_tracer_trace(t, 777)).live_blocks, 0);
    memoir_tracer_free(t);
}

static void what_goes_wrong_is_said_in_words(void **state)
{
    (void)state;
    setenv("TRACE_OBSERVER", "refuse", 1);
    struct memoir_tracer *t = tracer_of(MEMOIR_TRACER_PID, 777);
    assert_int_equal(memoir_tracer_start(t), -EPERM);
    assert_string_equal(status_of(t).reason, "no privilege to load BPF programs");
    assert_int_equal(status_of(t).state, MEMOIR_TRACER_FAILED);
    setenv("TRACE_OBSERVER", "die", 1);
    assert_int_equal(memoir_tracer_start(t), -EPIPE);
    assert_string_equal(status_of(t).reason, "memoir-observe ended");
    setenv("TRACE_OBSERVER", "garbage", 1);
    assert_true(memoir_tracer_start(t) < 0);
    assert_non_null(strstr(status_of(t).reason, "bad data"));
    /* A failed tracer can be started again. */
    setenv("TRACE_OBSERVER", "plain", 1);
    assert_int_equal(memoir_tracer_start(t), 0);
    memoir_tracer_free(t);
    struct memoir_tracer_options options = {.struct_size = sizeof(options),
                                            .target = MEMOIR_TRACER_ALL,
                                            .observe = "/nowhere/memoir-observe"};
    assert_int_equal(memoir_tracer_new(&options, &t), 0);
    assert_int_equal(memoir_tracer_start(t), -ENOENT);
    assert_non_null(strstr(status_of(t).reason, "/nowhere/memoir-observe"));
    memoir_tracer_free(t);
}

/* It is killed, and neither start nor free hangs. */
static void an_observer_that_hangs_is_given_up(void **state)
{
    (void)state;
    setenv("TRACE_OBSERVER", "mute", 1);
    struct memoir_tracer *t = NULL;
    struct memoir_tracer_options options = {.struct_size = sizeof(options),
                                            .target = MEMOIR_TRACER_PID,
                                            .pid = 777,
                                            .observe = TRACE_OBSERVER_PATH,
                                            .ready_ms = 200};
    assert_int_equal(memoir_tracer_new(&options, &t), 0);
    assert_int_equal(memoir_tracer_start(t), -ETIMEDOUT);
    assert_string_equal(status_of(t).reason, "memoir-observe did not answer");
    assert_int_equal(status_of(t).observer_pid, 0);
    memoir_tracer_free(t);
}

static struct memoir_trace_event injected(int kind, uint64_t time_ns, uint64_t address,
                                          uint64_t size)
{
    return (struct memoir_trace_event){
        .struct_size = sizeof(struct memoir_trace_event),
        .pid = 5,
        .kind = kind,
        .time_ns = time_ns,
        .address = address,
        .size = size,
        .space = MEMOIR_SPACE_DRAM,
        .site = 3,
    };
}

static struct memoir_tracer *with_injected(unsigned copies)
{
    struct memoir_tracer *t = tracer_of(MEMOIR_TRACER_INJECTED, 0);
    struct memoir_trace_event e = injected(MEMOIR_TRACE_ALLOC, 10, 0x1000, 0x1000);
    assert_int_equal(memoir_tracer_inject(t, &e, 1), -ENOTCONN);
    assert_int_equal(memoir_tracer_start(t), 0);
    assert_int_equal(memoir_tracer_inject(t, &e, 1), 0);
    e = injected(MEMOIR_TRACE_COPY, 11, 0x1800, 100);
    e.direction = MEMOIR_TRACE_TO_DEVICE;
    for (unsigned i = 0; i < copies; i++)
        assert_int_equal(memoir_tracer_inject(t, &e, 1), 0);
    return t;
}

static void injected_events_are_read_dumped_loaded_and_compared(void **state)
{
    (void)state;
    char path[] = "/tmp/memoir-tracer-XXXXXX";
    close(mkstemp(path));
    struct memoir_tracer *t = with_injected(5), *u = with_injected(8);
    struct memoir_trace *trace = memoir_tracer_trace(t, 5), *loaded = NULL;
    for (int format = MEMOIR_TRACE_BINARY; format <= MEMOIR_TRACE_JSON; format++) {
        struct memoir_trace_block b = {.struct_size = sizeof(b)};
        struct memoir_trace_moment m[8] = {{.struct_size = sizeof(m[0])}};
        assert_int_equal(memoir_trace_save(trace, format, path), 0);
        assert_int_equal(memoir_trace_load(path, &loaded), 0);
        assert_int_equal(memoir_trace_find(loaded, 0x1fff, &b), 0);
        assert_int_equal(b.flow[MEMOIR_TRACE_TO_DEVICE].bytes, 500);
        assert_int_equal(memoir_trace_moments(loaded, b.id, m, 8), 6);
        assert_int_equal(m[0].kind, MEMOIR_TRACE_ALLOC);
        assert_int_equal(m[5].offset, 0x800);
        struct memoir_trace_difference d[2] = {{.struct_size = sizeof(d[0])}};
        assert_int_equal(memoir_trace_diff(loaded, memoir_tracer_trace(u, 5), d, 2), 1);
        assert_int_equal(d[0].change, MEMOIR_TRACE_BUSIER);
        assert_int_equal(d[0].copied_bytes, 300);
        struct memoir_trace_holder holders[2] = {{.struct_size = sizeof(holders[0])}};
        uint64_t cursor = 0;
        assert_int_equal(memoir_trace_holders(loaded, &cursor, holders, 2), 1);
        assert_int_equal(holders[0].live_bytes, 0x1000);
        cursor = 0;
        assert_int_equal(memoir_trace_blocks(loaded, NULL, &cursor, &b, 1), 1);
        assert_int_equal(memoir_trace_blocks(loaded, NULL, &cursor, &b, 1), 0);
        memoir_trace_free(loaded);
    }
    memoir_trace_free(trace); /* is the tracer's: nothing happens */
    assert_int_equal(totals_of(trace).events, 6);
    unlink(path);
    memoir_tracer_free(t);
    memoir_tracer_free(u);
}

static void structs_of_other_sizes_and_nonsense_are_handled(void **state)
{
    (void)state;
    struct memoir_tracer *t = NULL;
    struct memoir_tracer_options options = {.target = MEMOIR_TRACER_ALL};
    assert_int_equal(memoir_tracer_new(&options, &t), -EINVAL); /* no size */
    options.struct_size = sizeof(options);
    options.target = 99;
    assert_int_equal(memoir_tracer_new(&options, &t), -EINVAL);
    options.target = MEMOIR_TRACER_PID;
    assert_int_equal(memoir_tracer_new(&options, &t), -EINVAL);
    t = with_injected(1);
    struct memoir_trace_event bad = injected(99, 1, 1, 1);
    assert_int_equal(memoir_tracer_inject(t, &bad, 1), -EINVAL);
    /* A caller that knows less, and one that knows more. */
    struct memoir_trace *trace = memoir_tracer_trace(t, 5);
    struct {
        size_t struct_size;
        uint64_t id, address, guard;
    } small = {.struct_size = 24, .guard = 0xabcdef};
    assert_int_equal(memoir_trace_find(trace, 0x1000, (struct memoir_trace_block *)(void *)&small),
                     0);
    assert_int_equal(small.address, 0x1000);
    assert_int_equal(small.guard, 0xabcdef);
    struct {
        struct memoir_trace_block block;
        uint64_t later;
    } large[2] = {{.block.struct_size = sizeof(large[0]), .later = 7}};
    assert_int_equal(memoir_trace_hot(trace, NULL, &large[0].block, 2), 1);
    assert_int_equal(large[0].block.struct_size, sizeof(large[0]));
    struct memoir_trace_block none = {0};
    assert_int_equal(memoir_trace_find(trace, 0x1000, &none), -EINVAL);
    assert_int_equal(memoir_trace_hot(NULL, NULL, &none, 1), -EINVAL);
    memoir_tracer_free(t);
    memoir_tracer_free(NULL);
    memoir_trace_free(NULL);
}

static void *read_trace(void *arg)
{
    struct memoir_trace_block b[4] = {{.struct_size = sizeof(b[0])}};
    for (int i = 0; i < 200; i++) {
        struct memoir_trace *trace = memoir_tracer_trace(arg, 777);
        if (trace)
            memoir_trace_hot(trace, NULL, b, 4);
        status_of(arg);
    }
    return NULL;
}

static void readers_run_beside_start_and_stop(void **state)
{
    (void)state;
    pthread_t threads[2];
    setenv("TRACE_OBSERVER", "plain", 1);
    struct memoir_tracer *t = tracer_of(MEMOIR_TRACER_PID, 777);
    for (unsigned i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, read_trace, t);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(memoir_tracer_start(t), 0);
        assert_int_equal(memoir_tracer_stop(t), 0);
    }
    for (unsigned i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    memoir_tracer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_is_traced_stopped_and_traced_on),
        cmocka_unit_test(all_processes_and_the_calling_one),
        cmocka_unit_test(the_end_of_the_process_is_told),
        cmocka_unit_test(what_goes_wrong_is_said_in_words),
        cmocka_unit_test(an_observer_that_hangs_is_given_up),
        cmocka_unit_test(injected_events_are_read_dumped_loaded_and_compared),
        cmocka_unit_test(structs_of_other_sizes_and_nonsense_are_handled),
        cmocka_unit_test(readers_run_beside_start_and_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
