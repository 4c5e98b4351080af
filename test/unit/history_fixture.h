/* A history of one machine for tests: two processes (one keeps a book), a device, the machine's memory, for some seconds. */
#pragma once

#include <stdio.h>
#include <string.h>

#include <memoir/memoir.h>

#include "base/clock.h"
#include "check.h"
#include "history/recorder.h"
#include "history/sample.h"
#include "history/store.h"

enum {
    FIXTURE_T0 = 1800000000 - 1800000000 % 7200,
    FIXTURE_SECONDS = 45,
    FIXTURE_GAP_S = 25, /* nothing was recorded in this second */
};

/* What the process `p` of machine `m` has resident in second `s`. */
static inline uint64_t fixture_rss(unsigned m, unsigned p, uint64_t s)
{
    return (m + 1) * 1000000 + p * 10000 + s * 100;
}

static inline void fixture_process(struct sample *sample, unsigned m, unsigned p, uint64_t s)
{
    struct sample_process *process = sample_add_process(sample);
    process->pid = (pid_t)(1000 * (m + 1) + p);
    process->start_ticks = p + 1;
    process->began_ns = (FIXTURE_T0 - 100) * NS_PER_S;
    process->uid = 1000 + p;
    process->has_rss = true;
    process->rss_bytes = fixture_rss(m, p, s);
    process->has_pss = s % 10 == 3;
    process->pss_bytes = 500 * (m + 1);
    strcpy(process->program, p ? "serve" : "train");
    if (p)
        return;
    sample_add_value(sample, 0, MEMOIR_SPACE_HEAP, HISTORY_BYTES, 3000 + s);
    sample_add_value(sample, 0, MEMOIR_SPACE_REGISTERED, HISTORY_BYTES, 70);
    sample_add_value(sample, 1, MEMOIR_SPACE_DRAM, HISTORY_BYTES, 4000 * (m + 1));
    sample_add_value(sample, 1, MEMOIR_SPACE_SYSTEM, HISTORY_BYTES, 9);
    sample_add_value(sample, 0, 0, HISTORY_BLOCKS, 12);
}

static inline void fixture_second(struct sample *sample, unsigned m, unsigned processes, uint64_t s)
{
    sample_reset(sample, (FIXTURE_T0 + s) * NS_PER_S);
    struct sample_device *device = sample_add_device(sample);
    device->kind = MEMOIR_DEVICE_GPU;
    strcpy(device->name, "H200");
    snprintf(device->uid, sizeof(device->uid), "GPU-%u", m);
    for (unsigned p = 0; p < processes; p++)
        fixture_process(sample, m, p, s);
    sample_totals(sample);
    sample_add_value(sample, 1, MEMOIR_SPACE_DRAM, HISTORY_BYTES, 4000 * (m + 1));
    sample_add_value(sample, 1, MEMOIR_SPACE_DRAM, HISTORY_BLOCKS, 2);
    sample_add_value(sample, 1, MEMOIR_SPACE_DRAM, HISTORY_CAPACITY, 100000);
    sample_add_value(sample, 0, MEMOIR_SPACE_HEAP, HISTORY_BYTES, 3000 + s);
    sample_add_value(sample, 0, HISTORY_SYSTEM_TOTAL, HISTORY_SYSTEM, 1000000 * (m + 1));
    sample_add_value(sample, 0, HISTORY_SYSTEM_USED, HISTORY_SYSTEM, 600000 + s);
    sample_add_value(sample, 0, HISTORY_SYSTEM_PARTS, HISTORY_SYSTEM, 77);
    sample_add_value(sample, 0, HISTORY_PRESSURE_SOME, HISTORY_PRESSURE, 1234);
}

/* With `visit`, a third process lives from second 2 to 5. */
static inline void fixture_record_visit(const char *path, unsigned m, bool visit)
{
    struct store_limits limits = {UINT64_C(1) << 30, {3600, 86400, 30 * 86400}};
    struct store *store = NULL;
    struct recorder *recorder = NULL;
    struct sample sample;
    sample_init(&sample);
    assert_int_equal(store_open(path, &limits, &store), 0);
    assert_int_equal(recorder_new(1, 10, &recorder), 0);
    for (uint64_t s = 0; s < FIXTURE_SECONDS; s++) {
        if (s == FIXTURE_GAP_S)
            continue;
        fixture_second(&sample, m, visit && s >= 2 && s <= 5 ? 3 : 2, s);
        int r = recorder_add(recorder, &sample);
        if (r == -EAGAIN && (r = recorder_flush(recorder, store, FIXTURE_T0 + s)) == 0)
            r = recorder_add(recorder, &sample);
        assert_int_equal(r, 0);
    }
    assert_int_equal(recorder_flush(recorder, store, FIXTURE_T0 + FIXTURE_SECONDS), 0);
    recorder_free(recorder);
    store_free(store);
    sample_release(&sample);
}

static inline void fixture_record(const char *path, unsigned m)
{
    fixture_record_visit(path, m, false);
}
