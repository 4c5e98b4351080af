/* Whether the NVIDIA driver tells what it counts. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/units.h"
#include "cli/doctor.h"
#include "nvml/facts.h"
#include "nvml/nvml.h"

static const char *remedy_of(int error)
{
    switch (error) {
    case -ENOENT:
        return NULL; /* most machines have no NVIDIA device */
    case -ENODEV:
        return "load the NVIDIA driver; after an update of the driver, restart the machine; in a container, start it with "
               "access to the GPU";
    case -ETIME:
    case -ECHILD:
        return "run nvidia-smi: if it hangs or fails as well, the driver needs a restart";
    default:
        return "set MEMOIR_NVML to the path of libnvidia-ml.so.1, or to off";
    }
}

static void check_nvml(struct doctor *d)
{
    struct nvml *nvml = NULL;
    struct nvml_facts facts = {0};
    int r = nvml_new(&nvml);
    if (r == 0)
        r = nvml_ask(nvml, NVML_WAIT_MS, &facts);
    if (r < 0) {
        doctor_find(d, r == -ENOENT ? DOCTOR_OK : DOCTOR_WARN, remedy_of(r),
                    "NVML: %s: used memory as the driver counts it is not known",
                    nvml && *nvml_why(nvml) ? nvml_why(nvml) : strerror(-r));
    } else {
        size_t unknown = 0, gpus = 0;
        for (size_t i = 0; i < facts.n_processes; i++)
            unknown += !facts.processes[i].is_here;
        for (size_t i = 0; i < facts.n_devices; i++)
            gpus += facts.devices[i].mig_index < 0;
        char cost[UNITS_TEXT_MAX];
        doctor_find(d, DOCTOR_OK, NULL,
                    "NVML answers: driver %s, %zu GPU%s, %zu process%s on them; a reading takes %s",
                    *facts.driver ? facts.driver : "unknown", gpus, gpus == 1 ? "" : "s",
                    facts.n_processes, facts.n_processes == 1 ? "" : "es",
                    units_format_duration(cost, facts.cost_ns));
        if (unknown > 0)
            doctor_find(
                d, DOCTOR_WARN, "run Memoir in the initial PID namespace",
                "NVML: %zu of the processes on GPUs are not in this PID namespace, or ended: "
                "they have no name here",
                unknown);
    }
    nvml_facts_release(&facts);
    nvml_free(nvml);
}

const struct doctor_check doctor_driver_checks[] = {{"device driver", check_nvml}, {0}};
