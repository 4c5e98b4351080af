/* Asking NVML without its risks: a worker process (worker.h) loads the library, reads it and sends what it found. A call
 * that hangs is ended with the worker; one that crashes ends only the worker. The next question starts another one, after
 * a pause that doubles with each failure.
 *
 *     struct nvml *nvml;
 *     struct nvml_facts facts;
 *     int r = nvml_new(&nvml);
 *     r = nvml_ask(nvml, NVML_WAIT_MS, &facts);     // blocks: never on a loop
 *     if (r < 0)
 *         log_info("NVML: %s", nvml_why(nvml));
 *
 * One thread at a time, except for nvml_cancel(). A reading of one H200 with one process takes the worker 0.1 ms, its start
 * and NVML's initialisation 15 ms. An idle worker keeps the driver's device files open: nvml_rest() ends it. */
#pragma once

#include <stdint.h>

struct nvml;
struct nvml_facts;

enum {
    NVML_WAIT_MS =
        3000, /* for an answer; initialisation takes up to 2 s where no process uses the GPU */
    NVML_PAUSE_MIN_MS = 1000,   /* after a hang or crash; doubles up to the next one */
    NVML_PAUSE_MAX_MS = 300000, /* and after "there is no library" at once half of it */
    NVML_WORKERS_MAX = 4,       /* killed and not yet ended; then no more are started */
};

int nvml_new(struct nvml **ret_nvml);
void nvml_free(struct nvml *nvml); /* NULL is fine; kills the worker */

/* One reading. `ret_facts` is then the caller's: nvml_facts_release(). On failure:
 *   -ENOENT    there is no library, or MEMOIR_NVML=off
 *   -ENODEV    NVML refused: no driver, another version
 *   -ENOEXEC   the library is not NVML, or cannot be loaded
 *   -ETIME     no answer within `wait_ms`
 *   -ECHILD    the worker died
 *   -EBADMSG   an invalid answer
 *   -EAGAIN    the pause after a failure is not over; nvml_why() still tells of that failure
 *   -ECANCELED nvml_cancel()
 *   -errno     the worker could not be started */
int nvml_ask(struct nvml *nvml, unsigned wait_ms, struct nvml_facts *ret_facts);

/* Why the last question failed, in one line without full stop; "" when it did not. */
const char *nvml_why(const struct nvml *nvml);

/* Ends the worker, which holds the library; the next question starts another. */
void nvml_rest(struct nvml *nvml);

/* Any thread: the question under way and all later ones return -ECANCELED at once. */
void nvml_cancel(struct nvml *nvml);

/* $MEMOIR_NVML when it is a path, NULL for the loader's own search. */
const char *nvml_library_path(void);
