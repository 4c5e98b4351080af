/* Is the memory pressure published, and will programs trust the file? See doctor.h. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/units.h"
#include "book/pressure_level.h"
#include "book/pressure_source.h"
#include "book/pressure_word.h"
#include "cli/doctor.h"

static void tell_word(struct doctor *d, const char *dir, const struct pressure_page *word,
                      unsigned level)
{
    const struct pressure_inputs *in = &word->inputs;
    char available[UNITS_TEXT_MAX], total[UNITS_TEXT_MAX];
    uint32_t stall = pressure_stall(in);
    doctor_find(
        d, DOCTOR_OK, NULL,
        "%s/%s says %s: %s of %s available, programs wait for memory %u.%02u %% of the time", dir,
        PRESSURE_FILE_NAME, pressure_level_name(level),
        units_format_bytes(available, in->available_bytes, UNITS_DECIMAL),
        units_format_bytes(total, in->total_bytes, UNITS_DECIMAL), stall / 100, stall % 100);
}

/* True: this place has said something. */
static bool place_look(struct doctor *d, const char *dir)
{
    const struct pressure_page *page;
    struct pressure_page copy;
    unsigned level;
    int r = pressure_word_map(dir, NULL, &page);
    if (r == -EPERM || r == -EBADMSG)
        doctor_find(d, DOCTOR_WARN, "remove it and start memoird again, which makes its own",
                    "%s/%s is not believed: %s", dir, PRESSURE_FILE_NAME,
                    r == -EPERM ? "others than root and this user could have written it"
                                : "it is of another version, or no word at all");
    if (r < 0)
        return r == -EPERM || r == -EBADMSG;
    bool fresh = pressure_word_level(load_acquire(&page->word), clock_monotonic_ns(), &level) &&
                 pressure_page_read(page, &copy) == 0;
    if (fresh)
        tell_word(d, dir, &copy, level);
    pressure_word_unmap(page);
    return fresh;
}

static void check_pressure(struct doctor *d)
{
    struct pressure_places places;
    struct pressure_inputs in = {0};
    uint64_t waited_us;
    pressure_places_init(&places); /* --dir is in the environment by now */
    for (unsigned i = 0; i < places.n; i++)
        if (place_look(d, places.dirs[i]))
            return;
    pressure_source_machine("/proc", &in, &waited_us);
    if (in.valid)
        doctor_find(d, DOCTOR_OK, NULL,
                    "no memoird tells how scarce memory is: programs look for themselves (%s now)",
                    pressure_level_name(pressure_judge(&pressure_limits_default, &in, false)));
    else
        doctor_find(d, DOCTOR_WARN, "mount /proc, or run memoird",
                    "programs cannot learn how scarce memory is, and keep what they have freed");
}

const struct doctor_check doctor_pressure_checks[] = {
    {"pressure", check_pressure},
    {0},
};
