/* The writer of history. See history.h. */
#include "daemon/history.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/worker.h"
#include "daemon/history_host.h"
#include "history/recorder.h"
#include "history/steady.h"

enum {
    WRITER_NICE = 5,       /* deaths come first */
    TELL_LOST_EVERY_S = 60 /* at most */
};

struct history {
    struct worker worker; /* its lock is held for no longer than to move a pointer */
    char *path;           /* constant */

    /* Locked. */
    struct sample *ready[HISTORY_PICTURES_MAX]; /* oldest first */
    size_t n_ready;
    struct sample *spare[HISTORY_PICTURES_MAX];
    size_t n_spare;
    bool renewed; /* settings changed */
    struct history_settings settings;

    /* The loop's thread only. */
    size_t n_made; /* pictures that exist */
    uint64_t taken_s;
    uint64_t per_user_max;

    /* Counters: written by one thread each, read by the loop's. */
    uint64_t taken, lost, left_out;
    uint64_t written, dropped, left_out_late;
    uint32_t stopped;

    /* The writer's thread only. */
    struct history_settings current;
    struct store *store;
    struct recorder *recorder;
    struct history_host *host;
    struct steady steady;
    uint64_t dropped_then, lost_then, left_out_then; /* when it was last said */
    uint64_t told_lost_ns;
};

/* ---- the file ---- */

static void say_stopped(struct history *h, int error, const char *words)
{
    if (!h->stopped)
        log_error("history stops: cannot write '%s': %s; it is tried again with every flush",
                  h->path,
                  error == -ENOSPC    ? "no room left"
                  : words && words[0] ? words
                                      : strerror(-error));
    store_relaxed(&h->stopped, 1);
}

static int set_aside(struct history *h)
{
    char name[STORE_PATH_MAX];
    int r = store_set_aside(h->path, name);
    if (r < 0)
        say_stopped(h, r, NULL);
    else
        log_warn("'%s' is damaged or no history of this version: it is kept as '%s', and a new one "
                 "begun",
                 h->path, name);
    return r;
}

static int file_open(struct history *h)
{
    if (h->store)
        return 0;
    int r = store_open(h->path, &h->current.limits, &h->store);
    if (r == -EBADMSG) {
        r = set_aside(h);
        if (r == 0)
            r = store_open(h->path, &h->current.limits, &h->store);
    }
    if (r < 0)
        say_stopped(h, r, NULL);
    return r;
}

static void file_close(struct history *h)
{
    store_free(h->store);
    h->store = NULL;
    recorder_forget(h->recorder);
}

static void say_goes_on(struct history *h)
{
    if (!h->stopped)
        return;
    log_info("history goes on; %" PRIu64 " values were lost meanwhile",
             h->dropped - h->dropped_then);
    h->dropped_then = h->dropped;
    store_relaxed(&h->stopped, 0);
}

static int flush(struct history *h, uint64_t now_s)
{
    int r = file_open(h);
    if (r < 0)
        return r;
    store_hold_age(h->store, !steady_look(&h->steady, clock_real_ns(), clock_boot_ns()));
    r = recorder_flush(h->recorder, h->store, now_s);
    if (r == -EBADMSG) { /* it opened, so the damage is inside */
        file_close(h);
        r = set_aside(h);
        if (r == 0)
            r = file_open(h);
        if (r == 0)
            r = recorder_flush(h->recorder, h->store, now_s);
    }
    store_relaxed(&h->written, recorder_written(h->recorder));
    if (r < 0)
        say_stopped(h, r, h->store ? store_error(h->store) : NULL);
    else
        say_goes_on(h);
    return r;
}

static void record(struct history *h, struct sample *sample)
{
    uint64_t now_s = sample->real_ns / NS_PER_S;
    sample->left_out = 0;
    history_host_fill(h->host, sample, h->current.processes_max, h->current.per_user_max);
    add_relaxed(&h->left_out_late, sample->left_out);
    int r = recorder_add(h->recorder, sample);
    if (r == -EAGAIN) {
        if (flush(h, now_s) < 0 && recorder_pending(h->recorder))
            store_relaxed(&h->dropped, h->dropped + recorder_drop(h->recorder));
        r = recorder_add(h->recorder, sample);
    }
    if (r < 0)
        store_relaxed(&h->dropped, h->dropped + sample->n_values);
}

static void say_lost(struct history *h, uint64_t now_ns)
{
    uint64_t lost = load_relaxed(&h->lost);
    uint64_t left_out = load_relaxed(&h->left_out) + h->left_out_late;
    if ((lost == h->lost_then && left_out == h->left_out_then) ||
        (h->told_lost_ns && now_ns - h->told_lost_ns < TELL_LOST_EVERY_S * NS_PER_S))
        return;
    if (lost != h->lost_then)
        log_warn("history fell behind: %" PRIu64 " seconds were lost", lost - h->lost_then);
    if (left_out != h->left_out_then)
        log_warn("history left out %" PRIu64 " values: one process or one user has too many",
                 left_out - h->left_out_then);
    h->lost_then = lost;
    h->left_out_then = left_out;
    h->told_lost_ns = now_ns;
}

/* ---- the writer's thread ---- */

/* Wait for a picture, the end, or `until_ns`. */
static struct sample *wait_for_one(struct history *h, uint64_t until_ns, bool *ret_stop)
{
    struct sample *sample = NULL;
    worker_lock(&h->worker);
    while (h->n_ready == 0 && !h->worker.stop && !h->renewed && clock_monotonic_ns() < until_ns)
        worker_wait(&h->worker, until_ns);
    if (h->n_ready > 0) {
        sample = h->ready[0];
        h->n_ready--;
        memmove(h->ready, h->ready + 1, h->n_ready * sizeof(*h->ready));
    }
    if (h->renewed && h->store)
        store_set_limits(h->store, &h->settings.limits);
    h->renewed = false;
    h->current = h->settings;
    *ret_stop = h->worker.stop && !sample;
    worker_unlock(&h->worker);
    return sample;
}

static void give_back(struct history *h, struct sample *sample)
{
    worker_lock(&h->worker);
    h->spare[h->n_spare++] = sample;
    worker_unlock(&h->worker);
}

static void run(void *context)
{
    struct history *h = context;
    bool stop = false;
    (void)flush(h, clock_real_ns() / NS_PER_S); /* also closes what an earlier writer left */
    uint64_t flush_ns = clock_monotonic_ns() + h->current.flush_ns;
    while (!stop) {
        struct sample *sample = wait_for_one(h, flush_ns, &stop);
        if (sample) {
            record(h, sample);
            give_back(h, sample);
        }
        uint64_t now_ns = clock_monotonic_ns();
        if (now_ns >= flush_ns || stop) {
            (void)flush(h, clock_real_ns() / NS_PER_S);
            flush_ns = clock_monotonic_ns() + h->current.flush_ns;
            say_lost(h, now_ns);
        } else if (flush_ns - now_ns > h->current.flush_ns) {
            flush_ns = now_ns + h->current.flush_ns; /* it is shorter now */
        }
    }
    if (recorder_pending(h->recorder))
        log_warn("history ends with %" PRIu64 " seconds not written",
                 recorder_pending(h->recorder));
    file_close(h);
}

/* ---- begin and end ---- */

static void release(struct history *h)
{
    for (size_t i = 0; i < h->n_spare; i++) {
        sample_release(h->spare[i]);
        free(h->spare[i]);
    }
    recorder_free(h->recorder);
    history_host_free(h->host);
    free(h->path);
    free(h);
}

int history_new(const char *state_path, const struct history_settings *settings,
                struct hosts *hosts, struct history **ret_history)
{
    struct history *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    h->settings = h->current = *settings;
    h->per_user_max = settings->per_user_max;
    unsigned flush_s = (unsigned)((settings->flush_ns + NS_PER_S - 1) / NS_PER_S);
    int r = asprintf(&h->path, "%s/%s", state_path, HISTORY_FILE) < 0 ? -ENOMEM : 0;
    if (r < 0)
        h->path = NULL;
    if (r == 0)
        r = recorder_new(history_boot(), flush_s, &h->recorder);
    if (r == 0)
        r = history_host_new(hosts, clock_monotonic_ns(), &h->host);
    signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is a full disk, no reason to die */
    if (r == 0)
        r = worker_start(&h->worker, "history", WRITER_NICE, run, h);
    if (r < 0) {
        release(h);
        return r;
    }
    *ret_history = h;
    return 0;
}

void history_free(struct history *history)
{
    if (!history)
        return;
    worker_stop(&history->worker);
    release(history);
}

/* ---- the loop's thread ---- */

static struct sample *spare_one(struct history *h)
{
    struct sample *sample = NULL;
    worker_lock(&h->worker);
    if (h->n_spare > 0)
        sample = h->spare[--h->n_spare]; /* the warmest one */
    worker_unlock(&h->worker);
    if (sample || h->n_made == HISTORY_PICTURES_MAX)
        return sample;
    sample = malloc(sizeof(*sample));
    if (sample) {
        sample_init(sample);
        h->n_made++;
    }
    return sample;
}

void history_take(struct history *history, const struct ledger *ledger)
{
    uint64_t now_ns = clock_real_ns();
    if (now_ns / NS_PER_S == history->taken_s)
        return;
    history->taken_s = now_ns / NS_PER_S;
    struct sample *sample = spare_one(history);
    if (!sample) {
        add_relaxed(&history->lost, 1);
        return;
    }
    sample->left_out = 0;
    sample_take(sample, ledger, now_ns, history->per_user_max);
    add_relaxed(&history->left_out, sample->left_out);
    add_relaxed(&history->taken, 1);
    worker_lock(&history->worker);
    history->ready[history->n_ready++] = sample;
    worker_wake(&history->worker);
    worker_unlock(&history->worker);
}

void history_set(struct history *history, const struct history_settings *settings)
{
    history->per_user_max = settings->per_user_max;
    worker_lock(&history->worker);
    history->settings = *settings;
    history->renewed = true;
    worker_wake(&history->worker);
    worker_unlock(&history->worker);
}

struct history_counts history_counts(struct history *history)
{
    return (struct history_counts){
        .taken = load_relaxed(&history->taken),
        .lost = load_relaxed(&history->lost),
        .left_out = load_relaxed(&history->left_out) + load_relaxed(&history->left_out_late),
        .written = load_relaxed(&history->written),
        .dropped = load_relaxed(&history->dropped),
        .stopped = load_relaxed(&history->stopped),
    };
}
