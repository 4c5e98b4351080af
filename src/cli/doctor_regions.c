/* The regions of tt-metal: their members, members that were not removed, and losses. */
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <string.h>

#include "base/units.h"
#include "cli/doctor.h"
#include "ledger/ledger.h"

static uint64_t sum(const uint64_t bytes[LEDGER_REGION_SPACES])
{
    uint64_t total = 0;
    for (size_t i = 0; i < LEDGER_REGION_SPACES; i++)
        if (__builtin_add_overflow(total, bytes[i], &total))
            return UINT64_MAX;
    return total;
}

static void find_part(struct doctor *d, const struct ledger_region *r,
                      const struct ledger_region_part *part, const char *remedy, const char *what)
{
    char text[UNITS_TEXT_MAX];
    if (part->processes == 0)
        return;
    units_format_bytes(text, sum(part->bytes), UNITS_DECIMAL);
    doctor_find(d, DOCTOR_WARN, remedy, "%s: %" PRIu32 " %s%s, %s: in no total", r->path,
                part->processes, what, part->processes == 1 ? "" : "s", text);
}

/* What the region adds up itself is never used; but who looks at it with other tools should know. */
static void find_drift(struct doctor *d, const struct ledger_region *r)
{
    char told[UNITS_TEXT_MAX], found[UNITS_TEXT_MAX];
    bool differs = false;
    uint64_t all[LEDGER_REGION_SPACES];
    for (size_t i = 0; i < LEDGER_REGION_SPACES; i++) {
        all[i] = r->live.bytes[i] + r->ghosts.bytes[i] + r->unknown.bytes[i];
        differs |= all[i] != r->told[i];
    }
    if (!differs)
        return;
    units_format_bytes(told, sum(r->told), UNITS_DECIMAL);
    units_format_bytes(found, sum(all), UNITS_DECIMAL);
    doctor_find(
        d, DOCTOR_WARN, NULL,
        "%s: its own total says %s, its processes %s: tt-metal loses updates; the processes' "
        "figures are used",
        r->path, told, found);
}

static void find_region(struct doctor *d, const struct ledger_region *r)
{
    char text[UNITS_TEXT_MAX];
    if (r->error < 0)
        return; /* among the problems, or not ours to read */
    units_format_bytes(text, sum(r->live.bytes), UNITS_DECIMAL);
    doctor_find(d, DOCTOR_OK, NULL,
                "%s (version %" PRIu32 "): device %" PRIu32 ", %" PRIu32 " process%s, %s", r->path,
                r->version, r->device_id, r->live.processes, r->live.processes == 1 ? "" : "es",
                text);
    find_part(d, r, &r->ghosts,
              "remove the file when no tt-metal program runs; none is harmed by it", "ghost slot");
    find_part(d, r, &r->unknown, "look as root, from outside of containers",
              "slot of an unknown process");
    if (r->nonsense)
        doctor_find(d, DOCTOR_WARN, "remove the file when no tt-metal program runs",
                    "%s: %" PRIu32 " invalid slots: not counted", r->path, r->nonsense);
    find_drift(d, r);
}

static void check_regions(struct doctor *d)
{
    size_t n = 0, foreign = 0;
    const struct ledger_region *regions = d->ledger ? ledger_regions(d->ledger, &n) : NULL;
    for (size_t i = 0; i < n; i++) {
        foreign += regions[i].error == -EACCES;
        find_region(d, &regions[i]);
    }
    if (foreign)
        doctor_find(d, DOCTOR_OK, NULL,
                    "%zu tt-metal region%s of other users: only root reads them", foreign,
                    foreign == 1 ? "" : "s");
}

const struct doctor_check doctor_region_checks[] = {{"tt-metal", check_regions}, {0}};
