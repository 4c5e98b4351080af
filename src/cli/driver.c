/* See driver.h. */
#include "cli/driver.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "ledger/driver.h"
#include "nvml/facts.h"
#include "nvml/nvml.h"

void driver_join(struct driver *driver, struct ledger *ledger, bool kept)
{
    struct nvml_facts facts;
    uint64_t now = clock_monotonic_ns();
    if (kept && driver->asked_ns && now - driver->asked_ns < NS_PER_S)
        return;
    driver->asked_ns = now;
    int r = driver->nvml ? 0 : nvml_new(&driver->nvml);
    if (r == 0)
        r = nvml_ask(driver->nvml, NVML_WAIT_MS, &facts);
    if (r == 0)
        r = ledger_driver_set(ledger, &facts);
    else if (kept)
        ledger_driver_forget(ledger);
    if (r == -EAGAIN)
        return; /* the last reason stands */
    driver->error = r;
    const char *why = driver->nvml ? nvml_why(driver->nvml) : "";
    snprintf(driver->why, sizeof(driver->why), "%s", r == 0 ? "" : *why ? why : strerror(-r));
}

const char *driver_problem(const struct driver *driver, bool has_gpu, char *text, size_t size)
{
    if (driver->error == 0 || (driver->error == -ENOENT && !has_gpu))
        return NULL;
    snprintf(text, size, "NVML: %s: used memory as the driver counts it is not known", driver->why);
    return text;
}

void driver_release(struct driver *driver)
{
    nvml_free(driver->nvml);
    *driver = (struct driver){0};
}
