/* See driver_facts.h. */
#include "daemon/driver_facts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/worker.h"
#include "daemon/daemon.h"
#include "daemon/loop.h"
#include "ledger/driver.h"
#include "ledger/ledger.h"
#include "nvml/facts.h"
#include "nvml/nvml.h"

struct driver_facts {
    struct worker worker; /* whose lock is for what says so */
    struct daemon *daemon;
    struct loop_source *wake, *stale_timer;
    struct nvml *nvml; /* the thread's, except for nvml_cancel() */

    /* Locked. */
    uint64_t asked_ns;     /* when a view last asked; 0: never */
    uint64_t last_ns;      /* when the last question to NVML ended; 0: none did */
    struct nvml_facts new; /* for the loop, with `has_new` */
    bool has_new, failed;
    struct driver_facts_status status;

    uint64_t waiting_ns; /* the loop's: since when a question waits; 0: none does */
};

/* ---- the thread ---- */

static bool is_wanted(const struct driver_facts *f, uint64_t now_ns)
{
    return f->asked_ns && now_ns - f->asked_ns < DRIVER_FACTS_IDLE_S * NS_PER_S;
}

/* Until a reading is due. False at the end. */
static bool wait_for_turn(struct driver_facts *f)
{
    bool resting = false;
    worker_lock(&f->worker);
    while (!f->worker.stop) {
        uint64_t now = clock_monotonic_ns(), due = f->last_ns + DRIVER_FACTS_EVERY_MS * NS_PER_MS;
        if (f->last_ns == 0 || (is_wanted(f, now) && now >= due))
            break;
        if (is_wanted(f, now)) {
            worker_wait(&f->worker, due);
            continue;
        }
        if (!resting) { /* ending the worker process may take a moment */
            worker_unlock(&f->worker);
            nvml_rest(f->nvml);
            worker_lock(&f->worker);
            resting = true;
            continue;
        }
        worker_wait(&f->worker, UINT64_MAX);
    }
    bool go_on = !f->worker.stop;
    worker_unlock(&f->worker);
    return go_on;
}

/* Once for each reason. That there is no NVIDIA driver is no fault. */
static void tell(struct driver_facts *f, int r)
{
    const char *why = r < 0 ? nvml_why(f->nvml) : "";
    if (strcmp(why, f->status.why) == 0)
        return;
    if (r == -ENOENT)
        log_info("NVML: %s: used memory as the driver counts it is not known", why);
    else if (r < 0)
        log_warn("NVML: %s: used memory as the driver counts it is not known", why);
    else
        log_info("NVML answers again");
    snprintf(f->status.why, sizeof(f->status.why), "%s", why);
}

static void run(void *context)
{
    struct driver_facts *f = context;
    while (wait_for_turn(f)) {
        struct nvml_facts facts;
        int r = nvml_ask(f->nvml, NVML_WAIT_MS, &facts);
        if (r == -ECANCELED)
            break;
        worker_lock(&f->worker);
        f->last_ns = clock_monotonic_ns();
        f->failed = r < 0;
        if (r >= 0) {
            if (f->has_new)
                nvml_facts_release(&f->new);
            f->new = facts;
            f->has_new = true;
            f->status.readings++;
            f->status.cost_ns = facts.cost_ns;
        }
        if (r != -EAGAIN) {
            f->status.failures += r < 0;
            tell(f, r);
        }
        worker_unlock(&f->worker);
        loop_wake(f->wake);
    }
}

/* ---- the loop ---- */

/* A reading that is too old is not shown as current. */
static void on_stale(void *context)
{
    struct driver_facts *f = context;
    ledger_driver_forget(f->daemon->ledger);
}

static void on_wake(void *context)
{
    struct driver_facts *f = context;
    worker_lock(&f->worker);
    struct nvml_facts facts = f->new;
    bool has = f->has_new;
    f->has_new = false;
    f->new = (struct nvml_facts){0};
    worker_unlock(&f->worker);
    if (!has)
        return;
    int r = ledger_driver_set(f->daemon->ledger, &facts);
    if (r < 0)
        log_error("cannot join what the driver says: %s", strerror(-r));
    loop_timer_set(f->stale_timer, DRIVER_FACTS_STALE_MS * NS_PER_MS, 0);
}

void driver_facts_want(struct driver_facts *f)
{
    if (!f)
        return;
    uint64_t now = clock_monotonic_ns();
    worker_lock(&f->worker);
    if (now - f->last_ns >= DRIVER_FACTS_EVERY_MS * NS_PER_MS)
        worker_wake(&f->worker);
    f->asked_ns = now;
    worker_unlock(&f->worker);
}

bool driver_facts_ready(struct driver_facts *f)
{
    if (!f)
        return true;
    driver_facts_want(f);
    uint64_t now = clock_monotonic_ns(), then = ledger_driver_time_ns(f->daemon->ledger);
    worker_lock(&f->worker);
    bool failed = f->failed;
    worker_unlock(&f->worker);
    bool ready = failed || (then && now - then < DRIVER_FACTS_FRESH_MS * NS_PER_MS);
    if (!ready && !f->waiting_ns)
        f->waiting_ns = now;
    if (!ready && now - f->waiting_ns >= DRIVER_FACTS_PATIENCE_MS * NS_PER_MS)
        return true; /* and so it is for others, until there is a reading */
    if (ready)
        f->waiting_ns = 0;
    return ready;
}

void driver_facts_status(struct driver_facts *f, struct driver_facts_status *ret_status)
{
    worker_lock(&f->worker);
    *ret_status = f->status;
    worker_unlock(&f->worker);
}

/* ---- begin and end ---- */

int driver_facts_new(struct daemon *daemon, struct driver_facts **ret_facts)
{
    struct driver_facts *f = calloc(1, sizeof(*f));
    if (!f)
        return -ENOMEM;
    f->daemon = daemon;
    int r = nvml_new(&f->nvml);
    if (r >= 0)
        r = loop_add_wake(daemon->loop, on_wake, f, &f->wake);
    if (r >= 0)
        r = loop_add_timer(daemon->loop, on_stale, f, &f->stale_timer);
    if (r >= 0)
        r = worker_start(&f->worker, "nvml", 0, run, f);
    if (r < 0) {
        driver_facts_free(f);
        return r;
    }
    *ret_facts = f;
    return 0;
}

void driver_facts_free(struct driver_facts *f)
{
    if (!f)
        return;
    if (f->nvml)
        nvml_cancel(f->nvml);
    worker_stop(&f->worker);
    loop_source_free(f->wake);
    loop_source_free(f->stale_timer);
    if (f->has_new)
        nvml_facts_release(&f->new);
    nvml_free(f->nvml);
    free(f);
}
