/* From pictures to rows. See recorder.h.
 *
 * Processes are in a hash table by identity. Each has its series in the order of the picture, which hardly
 * ever changes, so a value finds its series at the place where the last one's was. Values of a series stand in
 * the columns of `slots`, the moments that are pending; a bit tells which are there. */
#include "history/recorder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "book/identity.h"
#include "history/recent.h"
#include "history/store.h"

enum {
    BUCKETS_MIN = 256,
    IDLE_S = 30,         /* a process that was in no picture for this long is forgotten */
    DEVICE_IDLE_S = 900, /* a device that nobody uses holds nothing, and is forgotten after that */
    DEVICES_MAX = 2 * SAMPLE_DEVICES_MAX,
    ROW_BYTES_MAX = 64 << 20 /* of one row of `recent` */
};

struct series {
    int64_t id;      /* 0: not asked for yet */
    uint32_t device; /* 1 + number in recorder.devices, 0: the host */
    uint16_t space, metric;
    uint64_t present; /* bit i: values[i] is there */
    uint64_t *values; /* one for each pending moment */
};

struct process {
    struct process *next; /* in its bucket */
    uint64_t hash;
    int64_t id; /* 0: not asked for yet */
    uint64_t seen_s;
    struct series *series;
    size_t n, cap;
    struct sample_process who;
};

struct device {
    int64_t id;
    uint64_t hash; /* 0: the place is free */
    uint64_t seen_s;
    struct sample_device who;
};

struct recorder {
    uint64_t boot;
    unsigned room;   /* pending moments */
    uint64_t window; /* of what is pending */
    uint8_t slots[RECORDER_PENDING_MAX];
    unsigned n_slots;
    struct process **buckets;
    size_t n_buckets, n_processes;
    struct process machine; /* sums of devices and of the host, which belong to no process */
    struct device *devices;
    size_t n_devices, cap_devices;
    uint32_t *device_map; /* numbers of the picture's devices in ours; SAMPLE_DEVICES_MAX of them */
    uint64_t marked_window; /* when names were last marked as seen */
    uint64_t written;
    struct buffer row;
};

/* ---- begin and end ---- */

uint64_t history_boot(void)
{
    uint8_t id[16];
    book_boot_id(id);
    return hash_bytes(id, sizeof(id), 0);
}

int recorder_new(uint64_t boot, unsigned flush_s, struct recorder **ret_recorder)
{
    MEMOIR_CLEANUP(recorder_freep)
    struct recorder *recorder = calloc(1, sizeof(*recorder));
    if (!recorder)
        return -ENOMEM;
    buffer_init(&recorder->row, ROW_BYTES_MAX);
    recorder->boot = boot;
    recorder->room = flush_s + 2 < RECORDER_PENDING_MAX ? flush_s + 2 : RECORDER_PENDING_MAX;
    recorder->n_buckets = BUCKETS_MIN;
    recorder->buckets = calloc(BUCKETS_MIN, sizeof(*recorder->buckets));
    recorder->device_map = calloc(SAMPLE_DEVICES_MAX, sizeof(*recorder->device_map));
    if (!recorder->buckets || !recorder->device_map)
        return -ENOMEM;
    *ret_recorder = MEMOIR_TAKE(recorder);
    return 0;
}

static void process_release(struct process *process)
{
    for (size_t i = 0; i < process->n; i++)
        free(process->series[i].values);
    free(process->series);
}

void recorder_free(struct recorder *recorder)
{
    if (!recorder)
        return;
    for (size_t i = 0; recorder->buckets && i < recorder->n_buckets; i++) {
        for (struct process *p = recorder->buckets[i], *next; p; p = next) {
            next = p->next;
            process_release(p);
            free(p);
        }
    }
    process_release(&recorder->machine);
    free(recorder->buckets);
    free(recorder->devices);
    free(recorder->device_map);
    buffer_release(&recorder->row);
    free(recorder);
}

void recorder_freep(struct recorder **recorder)
{
    recorder_free(*recorder);
}

uint64_t recorder_pending(const struct recorder *recorder)
{
    return recorder->n_slots;
}

uint64_t recorder_written(const struct recorder *recorder)
{
    return recorder->written;
}

/* ---- whom values belong to ---- */

static uint64_t process_hash(const struct sample_process *p)
{
    uint64_t hash = hash_string(p->node, (uint64_t)p->pid);
    hash = hash_combine(hash, p->start_ticks);
    hash = hash_combine(hash, p->exec_id);
    return hash_combine(hash, p->pid_ns);
}

static bool same_process(const struct sample_process *a, const struct sample_process *b)
{
    return a->pid == b->pid && a->start_ticks == b->start_ticks && a->exec_id == b->exec_id &&
           a->pid_ns == b->pid_ns && strcmp(a->node, b->node) == 0;
}

static void buckets_grow(struct recorder *recorder)
{
    size_t n = recorder->n_buckets * 2;
    struct process **grown = calloc(n, sizeof(*grown));
    if (!grown)
        return; /* longer chains do too */
    for (size_t i = 0; i < recorder->n_buckets; i++) {
        for (struct process *p = recorder->buckets[i], *next; p; p = next) {
            next = p->next;
            p->next = grown[p->hash & (n - 1)];
            grown[p->hash & (n - 1)] = p;
        }
    }
    free(recorder->buckets);
    recorder->buckets = grown;
    recorder->n_buckets = n;
}

static struct process *process_find(struct recorder *recorder, const struct sample_process *who)
{
    uint64_t hash = process_hash(who);
    struct process *p = recorder->buckets[hash & (recorder->n_buckets - 1)];
    while (p && (p->hash != hash || !same_process(&p->who, who)))
        p = p->next;
    if (p)
        return p;
    p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    if (recorder->n_processes >= recorder->n_buckets)
        buckets_grow(recorder);
    p->hash = hash;
    p->who = *who;
    p->next = recorder->buckets[hash & (recorder->n_buckets - 1)];
    recorder->buckets[hash & (recorder->n_buckets - 1)] = p;
    recorder->n_processes++;
    return p;
}

static struct series *series_find(struct recorder *recorder, struct process *p, size_t hint,
                                  const struct sample_value *value, uint32_t device)
{
    for (size_t i = 0; i < p->n; i++) {
        size_t at = hint + i < p->n ? hint + i : hint + i - p->n;
        struct series *s = &p->series[at];
        if (s->device == device && s->space == value->space && s->metric == value->metric)
            return s;
    }
    if (p->n == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 4;
        struct series *grown = reallocarray(p->series, cap, sizeof(*grown));
        if (!grown)
            return NULL;
        p->series = grown;
        p->cap = cap;
    }
    uint64_t *values = malloc(recorder->room * sizeof(*values));
    if (!values)
        return NULL;
    p->series[p->n] = (struct series){
        .device = device, .space = value->space, .metric = value->metric, .values = values};
    return &p->series[p->n++];
}

static uint64_t device_hash(const struct sample_device *d)
{
    uint64_t hash = hash_string(d->uid, d->kind);
    hash = hash_string(d->bus, hash);
    hash = hash_string(d->name, hash);
    hash = hash_string(d->node, hash);
    return hash_combine(hash, (uint64_t)d->ordinal) | 1;
}

/* Our number of a device, from 1; the ledger keeps their order, so the first look mostly finds it. 0 past the
 * limit, or without memory. */
static uint32_t device_find(struct recorder *recorder, size_t hint, const struct sample_device *who)
{
    uint64_t hash = device_hash(who);
    size_t free_place = SIZE_MAX;
    for (size_t i = 0; i < recorder->n_devices; i++) {
        size_t at = (hint + i) % recorder->n_devices;
        if (recorder->devices[at].hash == hash)
            return (uint32_t)at + 1;
        if (!recorder->devices[at].hash)
            free_place = at;
    }
    if (free_place == SIZE_MAX) {
        if (recorder->n_devices == recorder->cap_devices) {
            size_t cap = recorder->cap_devices ? recorder->cap_devices * 2 : 16;
            struct device *grown =
                cap > DEVICES_MAX ? NULL : reallocarray(recorder->devices, cap, sizeof(*grown));
            if (!grown)
                return 0;
            recorder->devices = grown;
            recorder->cap_devices = cap;
        }
        free_place = recorder->n_devices++;
    }
    recorder->devices[free_place] = (struct device){.hash = hash, .who = *who};
    return (uint32_t)free_place + 1;
}

/* Take away the series on devices that were given up. */
static void series_sweep(struct recorder *recorder, struct process *p)
{
    size_t kept = 0;
    for (size_t i = 0; i < p->n; i++) {
        struct series *s = &p->series[i];
        if (s->device && !recorder->devices[s->device - 1].hash)
            free(s->values);
        else
            p->series[kept++] = *s;
    }
    p->n = kept;
}

/* Nothing is pending. */
static void devices_sweep(struct recorder *recorder, uint64_t now_s)
{
    bool any = false;
    for (size_t i = 0; i < recorder->n_devices; i++) {
        struct device *d = &recorder->devices[i];
        if (d->hash && now_s > d->seen_s && now_s - d->seen_s > DEVICE_IDLE_S) {
            d->hash = 0;
            any = true;
        }
    }
    if (!any)
        return;
    for (size_t i = 0; i < recorder->n_buckets; i++)
        for (struct process *p = recorder->buckets[i]; p; p = p->next)
            series_sweep(recorder, p);
    series_sweep(recorder, &recorder->machine);
}

/* ---- adding ---- */

static int value_add(struct recorder *recorder, struct process *p, size_t hint, unsigned column,
                     const struct sample_value *value)
{
    uint32_t device = value->device ? recorder->device_map[value->device - 1] : 0;
    if (value->device && !device)
        return -ENOMEM;
    struct series *s = series_find(recorder, p, hint, value, device);
    if (!s)
        return -ENOMEM;
    s->values[column] = value->value;
    s->present |= UINT64_C(1) << column;
    return 0;
}

static int process_add(struct recorder *recorder, const struct sample *sample,
                       const struct sample_process *who, uint64_t now_s, unsigned column)
{
    struct process *p = process_find(recorder, who);
    if (!p)
        return -ENOMEM;
    p->seen_s = now_s;
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < who->n_values; i++)
        r = value_add(recorder, p, i, column, &sample->values[who->first_value + i]);
    if (r == 0 && who->has_rss) {
        struct sample_value rss = {.metric = HISTORY_RSS, .value = who->rss_bytes};
        r = value_add(recorder, p, who->n_values, column, &rss);
    }
    if (r == 0 && who->has_pss) {
        struct sample_value pss = {.metric = HISTORY_PSS, .value = who->pss_bytes};
        r = value_add(recorder, p, who->n_values + 1u, column, &pss);
    }
    return r;
}

/* Resident sizes are not the ledger's, so their sum is made here. */
static int machine_rss(struct recorder *recorder, const struct sample *sample, unsigned column)
{
    struct sample_value rss = {.metric = HISTORY_RSS};
    bool any = false;
    for (size_t i = 0; i < sample->n_processes; i++) {
        const struct sample_process *p = &sample->processes[i];
        any |= p->has_rss && !p->bookless;
        rss.value += p->has_rss && !p->bookless ? p->rss_bytes : 0;
    }
    return any ? value_add(recorder, &recorder->machine, sample->n_values - sample->first_total,
                           column, &rss)
               : 0;
}

/* The ledger forgets a device, and a space of the host, with the last process that used it. So we know that nothing
 * is held there. */
static void machine_zeros(struct recorder *recorder, unsigned column)
{
    for (size_t i = 0; i < recorder->machine.n; i++) {
        struct series *s = &recorder->machine.series[i];
        if (s->present >> column & 1 || s->metric == HISTORY_CAPACITY ||
            s->metric == HISTORY_SYSTEM || s->metric == HISTORY_PRESSURE)
            continue;
        s->values[column] = 0;
        s->present |= UINT64_C(1) << column;
    }
}

int recorder_add(struct recorder *recorder, const struct sample *sample)
{
    uint64_t now_s = sample->real_ns / NS_PER_S;
    uint64_t window = now_s / history_window_s(0);
    uint8_t slot = (uint8_t)(now_s % history_window_s(0) / history_step_s[0]);
    unsigned column = recorder->n_slots;
    if (column > 0 && recorder->window != window)
        return -EAGAIN;
    if (column > 0 && recorder->slots[column - 1] >= slot) {
        if (recorder->slots[column - 1] > slot)
            return -EAGAIN; /* the clock was put back */
        column--;
    }
    if (column == recorder->room)
        return -EAGAIN;
    for (size_t i = 0; i < sample->n_devices; i++) {
        recorder->device_map[i] = device_find(recorder, i, &sample->devices[i]);
        if (recorder->device_map[i])
            recorder->devices[recorder->device_map[i] - 1].seen_s = now_s;
    }
    recorder->window = window;
    recorder->slots[column] = slot;
    recorder->n_slots = column + 1;
    int r = 0;
    for (size_t i = 0; r == 0 && i < sample->n_processes; i++)
        r = process_add(recorder, sample, &sample->processes[i], now_s, column);
    for (size_t i = sample->first_total; r == 0 && i < sample->n_values; i++)
        r = value_add(recorder, &recorder->machine, i - sample->first_total, column,
                      &sample->values[i]);
    if (r == 0)
        r = machine_rss(recorder, sample, column);
    machine_zeros(recorder, column);
    return r;
}

/* ---- writing ---- */

struct line {
    uint64_t id;
    const struct series *series;
};

static int compare_lines(const void *a, const void *b)
{
    const struct line *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

struct lines {
    struct line *lines;
    size_t n, cap;
};

static void lines_release(struct lines *lines)
{
    free(lines->lines);
}

/* Ask the store for all numbers of a process that has something pending. */
static int process_resolve(struct recorder *recorder, struct store *store, struct process *p,
                           uint64_t now_s, struct lines *lines)
{
    for (size_t i = 0; i < p->n; i++) {
        struct series *s = &p->series[i];
        int r = 0;
        if (!s->present)
            continue;
        struct device *device = s->device ? &recorder->devices[s->device - 1] : NULL;
        if (!p->id && p != &recorder->machine)
            r = store_process(store, &p->who, recorder->boot, now_s, &p->id);
        if (r == 0 && device && !device->id)
            r = store_device(store, &device->who, now_s, &device->id);
        if (r == 0 && !s->id)
            r = store_series(store, p->id, device ? device->id : 0, s->space, s->metric, &s->id);
        if (r < 0)
            return r;
        if (lines->n == lines->cap) {
            size_t cap = lines->cap ? lines->cap * 2 : 256;
            struct line *grown = reallocarray(lines->lines, cap, sizeof(*grown));
            if (!grown)
                return -ENOMEM;
            lines->lines = grown;
            lines->cap = cap;
        }
        lines->lines[lines->n++] = (struct line){(uint64_t)s->id, s};
    }
    return 0;
}

static void points_of(const struct recorder *recorder, const struct series *s,
                      struct pack_points *ret_points)
{
    unsigned n = 0;
    for (unsigned i = 0; i < recorder->n_slots; i++) {
        if (!(s->present >> i & 1))
            continue;
        ret_points->slot[n] = recorder->slots[i];
        ret_points->last[n++] = s->values[i];
    }
    ret_points->n = n;
    ret_points->has_max = false;
}

static int write_row(struct recorder *recorder, struct store *store, struct lines *lines,
                     uint64_t *ret_values)
{
    uint64_t before = 0, values = 0;
    qsort(lines->lines, lines->n, sizeof(*lines->lines), compare_lines);
    buffer_reset(&recorder->row);
    for (size_t i = 0; i < lines->n; i++) {
        struct pack_points points;
        uint8_t chunk[PACK_BYTES_MAX];
        points_of(recorder, lines->lines[i].series, &points);
        if (lines->lines[i].id == before)
            continue; /* two devices that the file does not tell apart: the first counts */
        size_t len = pack_encode(&points, chunk);
        recent_append(&recorder->row, before, lines->lines[i].id, chunk, len);
        before = lines->lines[i].id;
        values += points.n;
    }
    *ret_values = values;
    if (recorder->row.error)
        return recorder->row.error;
    return store_recent(store, recorder->window, recorder->row.data, recorder->row.len);
}

/* Once a window, so that the names of who is still there are not deleted. */
static int mark_seen(struct recorder *recorder, struct store *store, uint64_t now_s)
{
    int r = 0;
    for (size_t i = 0; i < recorder->n_buckets; i++)
        for (struct process *p = recorder->buckets[i]; p && r == 0; p = p->next)
            if (p->id)
                r = store_process_seen(store, p->id, p->seen_s);
    for (size_t i = 0; r == 0 && i < recorder->n_devices; i++)
        if (recorder->devices[i].id && recorder->devices[i].hash)
            r = store_device_seen(store, recorder->devices[i].id, now_s);
    return r;
}

static int write_all(struct recorder *recorder, struct store *store, uint64_t now_s,
                     uint64_t *ret_values)
{
    MEMOIR_CLEANUP(lines_release)
    struct lines lines = {0};
    int r = store_begin(store);
    for (size_t i = 0; i < recorder->n_buckets; i++)
        for (struct process *p = recorder->buckets[i]; p && r == 0; p = p->next)
            r = process_resolve(recorder, store, p, now_s, &lines);
    if (r == 0)
        r = process_resolve(recorder, store, &recorder->machine, now_s, &lines);
    if (r == 0 && lines.n > 0)
        r = write_row(recorder, store, &lines, ret_values);
    if (r == 0 && recorder->marked_window != recorder->window)
        r = mark_seen(recorder, store, now_s);
    return r == 0 ? store_commit(store) : r;
}

static void clear_pending(struct recorder *recorder, uint64_t now_s)
{
    for (size_t i = 0; i < recorder->n_buckets; i++) {
        struct process **link = &recorder->buckets[i];
        while (*link) {
            struct process *p = *link;
            for (size_t k = 0; k < p->n; k++)
                p->series[k].present = 0;
            if (now_s > p->seen_s && now_s - p->seen_s > IDLE_S) {
                *link = p->next;
                process_release(p);
                free(p);
                recorder->n_processes--;
                continue;
            }
            link = &p->next;
        }
    }
    for (size_t k = 0; k < recorder->machine.n; k++)
        recorder->machine.series[k].present = 0;
    recorder->n_slots = 0;
}

static int try_write(struct recorder *recorder, struct store *store, uint64_t now_s,
                     uint64_t *ret_values)
{
    int r = write_all(recorder, store, now_s, ret_values);
    if (r < 0) {
        store_rollback(store);
        recorder_forget(recorder); /* numbers of this transaction are gone */
    }
    return r;
}

int recorder_flush(struct recorder *recorder, struct store *store, uint64_t now_s)
{
    if (recorder->n_slots > 0) {
        uint64_t values = 0;
        int r = try_write(recorder, store, now_s, &values);
        if (r == -ENOSPC && store_reclaim(store) > 0)
            r = try_write(recorder, store, now_s, &values);
        if (r < 0)
            return r;
        recorder->written += values;
        recorder->marked_window = recorder->window;
        clear_pending(recorder, now_s);
        devices_sweep(recorder, now_s);
    }
    return store_maintain(store, now_s);
}

uint64_t recorder_drop(struct recorder *recorder)
{
    uint64_t values = 0;
    for (size_t i = 0; i < recorder->n_buckets; i++)
        for (struct process *p = recorder->buckets[i]; p; p = p->next)
            for (size_t k = 0; k < p->n; k++)
                values += (uint64_t)__builtin_popcountll(p->series[k].present);
    for (size_t k = 0; k < recorder->machine.n; k++)
        values += (uint64_t)__builtin_popcountll(recorder->machine.series[k].present);
    clear_pending(recorder, 0);
    return values;
}

void recorder_forget(struct recorder *recorder)
{
    for (size_t i = 0; i < recorder->n_buckets; i++) {
        for (struct process *p = recorder->buckets[i]; p; p = p->next) {
            p->id = 0;
            for (size_t k = 0; k < p->n; k++)
                p->series[k].id = 0;
        }
    }
    for (size_t k = 0; k < recorder->machine.n; k++)
        recorder->machine.series[k].id = 0;
    for (size_t i = 0; i < recorder->n_devices; i++)
        recorder->devices[i].id = 0;
    recorder->marked_window = 0;
}
