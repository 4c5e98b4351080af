/* Whether programs can have their memory pinned when that pays (doc/pinning.md). See doctor.h. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/units.h"
#include "book/pressure_source.h"
#include "cli/doctor.h"
#include "cli/pin.h"
#include "pin/cost_file.h"
#include "pin/kernel_pinned.h"

/* Files of processes that were killed. */
static void check_left(struct doctor *d)
{
    unsigned removed = pin_state_sweep(d->dir, geteuid());
    if (removed)
        doctor_find(d, DOCTOR_OK, NULL, "removed %u file%s of pinned processes that were killed",
                    removed, removed == 1 ? "" : "s");
}

static void check_library(struct doctor *d)
{
    char path[PATH_MAX];
    if (!pin_library_find(path, sizeof(path)))
        doctor_find(d, DOCTOR_WARN, "install libmemoir-cuda.so beside Memoir's other libraries",
                    "libmemoir-cuda.so is missing: memoir pin run does nothing");
}

/* What a program that starts now may pin. */
static void check_budget(struct doctor *d)
{
    struct pressure_inputs in = {0};
    uint64_t waited_us, left;
    char budget[UNITS_TEXT_MAX], headroom[UNITS_TEXT_MAX];
    pressure_source_machine("/proc", &in, &waited_us);
    pressure_source_cgroup("/proc", "/sys/fs/cgroup", true, &in);
    bool machine = in.valid & PRESSURE_HAS_MEMORY, limit = in.valid & PRESSURE_HAS_LIMIT;
    if (!machine && !limit) {
        doctor_find(d, DOCTOR_WARN, "mount /proc, or set a budget: memoir pin run --budget 4G",
                    "how much memory is left cannot be read: programs may pin without a limit");
        return;
    }
    bool by_limit = limit && (!machine || in.headroom_bytes <= in.available_bytes);
    left = by_limit ? in.headroom_bytes : in.available_bytes;
    doctor_find(d, DOCTOR_OK, NULL, "a program may pin %s: half of the %s that %s left",
                units_format_bytes(budget, left / 2, UNITS_DECIMAL),
                units_format_bytes(headroom, left, UNITS_DECIMAL),
                by_limit ? "the cgroup has" : "the machine has");
}

static void check_kernel(struct doctor *d)
{
    uint64_t bytes;
    char text[UNITS_TEXT_MAX];
    if (pin_kernel_pinned("/proc/vmstat", &bytes) == 0)
        doctor_find(d, DOCTOR_OK, NULL, "the kernel holds %s of this machine pinned for devices",
                    units_format_bytes(text, bytes, UNITS_DECIMAL));
    else
        doctor_find(d, DOCTOR_OK, NULL,
                    "this kernel does not count pinned pages (nr_foll_pin_acquired in "
                    "/proc/vmstat): what programs pinned cannot be checked against it");
}

/* Drivers differ in whether they count registrations against this limit. */
static void check_limit(struct doctor *d)
{
    struct rlimit limit;
    char text[UNITS_TEXT_MAX];
    if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0)
        return;
    if (limit.rlim_cur == RLIM_INFINITY)
        doctor_find(d, DOCTOR_OK, NULL, "locked memory (RLIMIT_MEMLOCK) is not limited");
    else
        doctor_find(d, DOCTOR_OK, NULL,
                    "locked memory (RLIMIT_MEMLOCK) is limited to %s: a driver that enforces it "
                    "refuses more, which then stays pageable and is counted as failed",
                    units_format_bytes(text, limit.rlim_cur, UNITS_DECIMAL));
}

static bool is_current(const char *path)
{
    char text[sizeof(COST_FILE_HEAD)] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    return n > 0 && strcmp(text, COST_FILE_HEAD) == 0;
}

static unsigned calibrations(const char *directory, const char *below, char first[static PATH_MAX])
{
    char pattern[PATH_MAX];
    glob_t found;
    unsigned n = 0;
    if (!directory || *directory != '/' ||
        snprintf(pattern, sizeof(pattern), "%s%s/pin-cost-*", directory, below) >= PATH_MAX ||
        glob(pattern, GLOB_NOSORT, NULL, &found) != 0)
        return 0;
    for (size_t i = 0; i < found.gl_pathc; i++)
        if (is_current(found.gl_pathv[i]) && n++ == 0)
            snprintf(first, PATH_MAX, "%s", found.gl_pathv[i]);
    globfree(&found);
    return n;
}

static void check_calibration(struct doctor *d)
{
    char path[PATH_MAX] = "";
    const char *own = getenv("MEMOIR_PIN_CACHE"), *cache = getenv("XDG_CACHE_HOME");
    unsigned n = own && *own              ? calibrations(own, "", path)
                 : cache && *cache == '/' ? calibrations(cache, "/memoir", path)
                                          : calibrations(getenv("HOME"), "/.cache/memoir", path);
    if (n == 0 && !(own && *own))
        n = calibrations("/var/lib/memoir", "", path);
    if (n)
        doctor_find(d, DOCTOR_OK, NULL, "calibrated for %u GPU%s and driver: %s", n,
                    n == 1 ? "" : "s", path);
    else if (access("/proc/driver/nvidia/version", R_OK) == 0)
        doctor_find(d, DOCTOR_OK, "memoir pin calibrate",
                    "not calibrated: the first program that runs by memoir pin run measures, which "
                    "takes it a few tenths of a second");
    else
        doctor_find(d, DOCTOR_OK, NULL, "not calibrated, and no NVIDIA driver to calibrate");
}

const struct doctor_check doctor_pin_checks[] = {{"pinning", check_library},
                                                 {"pinning", check_left},
                                                 {"pinning", check_budget},
                                                 {"pinning", check_calibration},
                                                 {"pinning", check_kernel},
                                                 {"pinning", check_limit},
                                                 {0}};
