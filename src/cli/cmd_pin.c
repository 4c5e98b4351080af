/* memoir pin: host memory that is pinned when that pays. This file has the command itself, and
 * calibrate. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/pin.h"

/* ---- calibrate ---- */

static const struct option_spec calibrate_options[] = {OPTION_HELP, {0}};

/* A context on the first device; the driver is not linked. */
static const char *context_make(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    int (*init)(unsigned) = NULL, (*retain)(void **, int) = NULL, (*set)(void *) = NULL;
    void *context = NULL;
    if (!driver)
        return "no CUDA driver (libcuda.so.1) on this machine";
    *(void **)&init = dlsym(driver, "cuInit");
    *(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
    *(void **)&set = dlsym(driver, "cuCtxSetCurrent");
    if (!init || !retain || !set || init(0) != 0 || retain(&context, 0) != 0 || set(context) != 0)
        return "the CUDA driver has no usable device";
    return NULL;
}

static int calibrate_run(const void *values, const struct operands *operands)
{
    char library[PATH_MAX], path[PATH_MAX] = "";
    int (*calibrate)(char *, size_t) = NULL;
    if (!pin_library_find(library, sizeof(library)))
        return command_fail(
            "libmemoir-cuda.so is neither beside memoir nor in its library directory");
    setenv("MEMOIR_PIN", "auto", 1);
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle)
        *(void **)&calibrate = dlsym(handle, "memoir_pin_calibrate");
    if (!calibrate)
        return command_fail("cannot load '%s': %s", library, dlerror());
    const char *why = context_make();
    if (why)
        return command_fail("cannot calibrate: %s", why);
    int r = calibrate(path, sizeof(path));
    if (r < 0)
        return command_fail("cannot calibrate: %s", strerror(-r));
    printf("Calibrated; saved in %s\n", path);
    return COMMAND_OK;
}

static const struct command_example calibrate_examples[] = {
    {"memoir pin calibrate", "measure copies and registrations on this machine"},
    {0},
};

const struct command cmd_pin_calibrate = {
    .name = "pin calibrate",
    .usage = "pin calibrate",
    .help = "measure what copies and pinning cost on this machine",
    .description =
        "Measures pageable and pinned copies by size and direction, and registering and unregistering, on the first GPU, and saves them for this GPU and driver "
        "in $XDG_CACHE_HOME/memoir (~/.cache/memoir). Takes about a second. Programs that run by memoir pin run do this themselves once; run it again after a change "
        "of hardware. A file in /var/lib/memoir serves all users.",
    .options = calibrate_options,
    .examples = calibrate_examples,
    .values_size = sizeof(pin_defaults),
    .defaults = &pin_defaults,
    .run = calibrate_run,
};

/* ---- the command ---- */

static const struct command_common defaults = {0};
static const struct option_spec options[] = {OPTION_HELP, {0}};
static const struct command *const parts[] = {&cmd_pin_run, &cmd_pin_explain, &cmd_pin_advise,
                                              &cmd_pin_calibrate, NULL};

static const struct command_example examples[] = {
    {"memoir pin run python3 train.py", "pin what pays, while it runs"},
    {"memoir pin run --mode shadow ./app", "pin nothing, and say what pinning would save"},
    {"memoir pin explain 4242", "why each allocation is pinned or not"},
    {0},
};

static int pin_run(const void *values, const struct operands *operands)
{
    return COMMAND_USAGE; /* command_run() never gets here */
}

const struct command cmd_pin = {
    .name = "pin",
    .usage = "pin SUBCOMMAND [OPTION...]",
    .help = "host memory that is pinned for CUDA when that pays",
    .description =
        "Copies between host and GPU are several times faster from pinned memory, and pinned memory is lost for everything else. memoir pin runs unchanged "
        "programs with a library that pins allocations once their copies have cost as much as pinning them, within a budget, and that gives a reason for each.",
    .options = options,
    .examples = examples,
    .parts = parts,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = pin_run,
};
