/* memoir devices: how full each memory of each device is, and who holds it. Reads the books itself, so
 * it needs no daemon. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/sum.h"
#include "base/units.h"
#include "cli/absent.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/driver.h"
#include "cli/table.h"
#include "cli/view.h"
#include "cli/watch.h"
#include "cli/world.h"
#include "ledger/ledger.h"
#include "query/query.h"
#include "query/view.h"

enum { OUTPUT_MAX = 256 << 20, WATCH_MIN_MS = 50, WHERE_MAX = 4096 };

struct devices_values {
    struct command_common common;
    const char *state;
    struct view_options view;
    const char *dir;
    const char *device;
    bool watch;
    uint64_t watch_ns;
    uint64_t check; /* percent; 0: no check */
};

static const struct devices_values defaults = {.watch_ns = NS_PER_S};

#define AT(field) offsetof(struct devices_values, field)

static const struct option_spec options[] = {
    OPTION_HELP,
    {"device", 'd', OPTION_STRING, AT(device), "DEVICE",
     "only this device, by its number, uid, bus address or name"},
    {"watch", 'w', OPTION_DURATION, AT(watch_ns), "TIME",
     "full screen until q is pressed (default: new figures every second)", .value_optional = true,
     .given_offset = AT(watch)},
    {"check", 0, OPTION_NUMBER, AT(check), "PERCENT",
     "end with 1 when a memory of known size is at least so full"},
    VIEW_OPTION_WHERE,
    VIEW_OPTION_BY,
    VIEW_OPTION_SHOW,
    {"sort", 's', OPTION_STRING, AT(view.sort), "COLUMNS",
     "the order of rows: -used, +device ...; rows instead of bars, as in memoir query"},
    VIEW_OPTIONS_PRINT,
    OPTIONS_PAST,
    OPTIONS_ELSEWHERE,
    {"state", 0, OPTION_STRING, AT(state), "DIR",
     "with --at and --since: the daemon's state directory (default: that of the daemon that runs)",
     .completion = COMPLETE_DIRECTORY},
    OPTION_DIR,
    {0},
};

static const struct command_example examples[] = {
    {"memoir devices", "how full every device is, and who holds it"},
    {"memoir devices --watch", "the same live, with charts and processes; q ends it"},
    {"memoir devices --device 0 --check 90 || echo nearly full", "for scripts"},
    {"memoir devices --by space --show used,capacity,percent",
     "how full each kind of memory is on all devices"},
    {"memoir devices --json | jq '.rows[] | {device, space, percent}'", "for programs"},
    {0},
};

static const struct command_section sections[] = {
    {"BARS",
     "A bar is yellow from 75 and red from 90 percent on. \"L1 total\" is the on-chip memory: what "
     "buffers, circular buffers and kernels take of it together, each with its own texture in the "
     "stack and alone in the lines below. A size that no program told is shown as ?, without a "
     "bar.\n\n"
     "Only processes that live count. What was held by processes that are gone, but whose books no "
     "daemon has retired yet, is told in a line at the end."},
    {"DRIVER",
     "Of NVIDIA devices the driver (NVML) tells size, used memory and processes. The line \"driver\" "
     "is what it counts; \"unattributed\" is what it counts beyond what is accounted: CUDA "
     "contexts, rounding, and processes that keep no book. These appear among the holders with the "
     "driver's figure. Where it counts more for a process with a book, both figures stand there. "
     "NVML is read by a process of its own and given up after 3 seconds; MEMOIR_NVML=off switches "
     "it off, and a path there names another library."},
    {"JSON",
     "With --json, --csv, --where, --by, --show or --sort the answer is that of memoir query devices: one row for each kind of memory of each "
     "device. memoir query devices --columns lists the columns; who holds the memory is in memoir query accounts, and what the "
     "driver says of processes in memoir query device_processes. A value that is not known is null, never 0."},
    {0},
};

/* ---- words around the figures ---- */

static void mention_gone(const struct devices_view *view, const struct term *term,
                         struct buffer *out)
{
    char bytes[UNITS_TEXT_MAX];
    if (!view->gone)
        return;
    buffer_printf(
        out, "\n%s%zu process%s gone and no longer count%s (%s at the end): memoir ps%s\n",
        term_style(term, STYLE_DIM), view->gone, view->gone == 1 ? " is" : "es are",
        view->gone == 1 ? "s" : "", units_format_bytes(bytes, view->gone_bytes, UNITS_DECIMAL),
        term_plain(term, STYLE_DIM));
}

/* tt-metal's own totals keep what killed processes held; ours do not, which a comparison should take into account. */
static void mention_ghosts(const struct ledger *ledger, const struct term *term, struct buffer *out)
{
    char text[UNITS_TEXT_MAX];
    size_t n;
    const struct ledger_region *regions = ledger_regions(ledger, &n);
    for (size_t i = 0; i < n; i++) {
        uint64_t bytes = 0;
        for (size_t s = 0; s < LEDGER_REGION_SPACES; s++)
            sum_add(&bytes, regions[i].ghosts.bytes[s]);
        if (!regions[i].ghosts.processes)
            continue;
        buffer_printf(
            out,
            "\n%stt-metal's region of device %u still counts %s of %u dead process%s; it is "
            "left out here%s\n",
            term_style(term, STYLE_DIM), regions[i].device_id,
            units_format_bytes(text, bytes, UNITS_DECIMAL), regions[i].ghosts.processes,
            regions[i].ghosts.processes == 1 ? "" : "es", term_plain(term, STYLE_DIM));
    }
}

static void mention_driver(const struct driver *driver, const struct devices_view *view,
                           const struct term *term, struct buffer *out)
{
    char text[512];
    bool gpu = false;
    for (size_t i = 0; i < view->n; i++)
        gpu |= view->rows[i].gpu && !*view->rows[i].node;
    const char *problem = driver_problem(driver, gpu, text, sizeof(text));
    if (problem)
        buffer_printf(out, "\n%s%s%s\n", term_style(term, STYLE_DIM), problem,
                      term_plain(term, STYLE_DIM));
}

static int nothing(const struct devices_values *v, const struct driver *driver)
{
    char text[512];
    const char *problem = driver_problem(driver, false, text, sizeof(text));
    absent_books("No process reports a device, and no NVIDIA driver does.", "devices", v->dir);
    if (problem)
        fprintf(stderr, "%s\n", problem);
    return COMMAND_OK;
}

/* ---- running ---- */

/* One picture, printed into `out`. */
static int picture(const struct devices_values *v, const struct term *term, struct driver *driver,
                   struct buffer *out, size_t *ret_devices, double *ret_fullest)
{
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    MEMOIR_CLEANUP(devices_view_release)
    struct devices_view view = {0};
    int r = ledger_scan(v->dir, &ledger);
    if (r == 0)
        driver_join(driver, ledger, false);
    if (r == 0)
        r = devices_view_take(ledger, v->device, &view);
    if (r < 0)
        return r;
    *ret_devices = view.n;
    *ret_fullest = devices_fullest(&view);
    if (v->device && !v->watch)
        absent_device(ledger, v->device, false);
    devices_print(&view, &(struct devices_style){.owners = true}, term, out);
    mention_gone(&view, term, out);
    mention_ghosts(ledger, term, out);
    mention_driver(driver, &view, term, out);
    return out->error;
}

static int show_once(const struct devices_values *v)
{
    struct term term;
    term_init(&term, STDOUT_FILENO, (enum term_color)v->view.color);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    MEMOIR_CLEANUP(driver_release)
    struct driver driver = {0};
    size_t devices = 0;
    double fullest = 0;
    int r = picture(v, &term, &driver, &out, &devices, &fullest);
    if (r < 0)
        return r;
    if (devices > 0)
        r = command_output(&out);
    if (devices == 0 && r == COMMAND_OK)
        return v->device ? COMMAND_NOTHING : nothing(v, &driver);
    if (r == COMMAND_OK && v->check && fullest >= (double)v->check)
        return COMMAND_FAILED;
    return r;
}

/* Where there is no screen to draw on, pictures follow each other. */
static int show_again(const struct devices_values *v)
{
    struct term term;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    MEMOIR_CLEANUP(driver_release)
    struct driver driver = {0};
    for (bool first = true;; first = false) {
        term_init(&term, STDOUT_FILENO, (enum term_color)v->view.color);
        buffer_reset(&out);
        if (!first)
            buffer_append_char(&out, '\n');
        size_t devices = 0;
        double fullest = 0;
        int r = picture(v, &term, &driver, &out, &devices, &fullest);
        if (r == 0)
            r = command_output(&out);
        if (r != COMMAND_OK)
            return r;
        struct timespec pause = {(time_t)(v->watch_ns / NS_PER_S), (long)(v->watch_ns % NS_PER_S)};
        nanosleep(&pause, NULL);
    }
}

static int watch(const struct devices_values *v)
{
    struct watch_options screen = {
        .dir = v->dir,
        .device = v->device,
        .interval_ns = v->watch_ns,
        .color = (enum term_color)v->view.color,
    };
    int r = watch_run(&screen);
    return r == -ENOTTY ? show_again(v) : r;
}

/* ---- rows instead of bars ---- */

static bool wants_rows(const struct devices_values *v)
{
    return view_is_plain(&v->view) || v->view.where || v->view.sort;
}

static double fullest_of(struct ledger *ledger, const char *device)
{
    MEMOIR_CLEANUP(devices_view_release)
    struct devices_view view = {0};
    return devices_view_take(ledger, device, &view) == 0 ? devices_fullest(&view) : 0;
}

static int show_rows(const struct devices_values *v)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer where = BUFFER_INIT(WHERE_MAX);
    MEMOIR_CLEANUP(query_freep)
    struct query *query = NULL;
    MEMOIR_CLEANUP(world_release)
    struct world world = {0};
    struct query_result *result = NULL;
    struct world_options how = {.dir = v->dir, .repeated = v->watch, .selective = v->view.where};
    if (v->device)
        view_test_device(&where, v->device);
    int r = view_query(&cmd_devices, query_view_find("devices"), &v->view, buffer_string(&where),
                       &(struct view_layout){0}, &query);
    if (r == COMMAND_OK)
        r = query_result_new(query, 0, &result);
    for (bool first = true; r == COMMAND_OK && (first || v->watch); first = false) {
        struct timespec pause = {(time_t)(v->watch_ns / NS_PER_S), (long)(v->watch_ns % NS_PER_S)};
        if (!first)
            nanosleep(&pause, NULL);
        r = world_ask(&world, &how, query, result);
        if (r == COMMAND_OK)
            r = view_print(query, result, &v->view);
    }
    if (r == COMMAND_OK && query_result_rows(result) == 0 && (v->device || v->view.where)) {
        if (!v->device || !absent_device(world.ledger, v->device, false))
            command_fail("no memory of a device is like that");
        r = COMMAND_NOTHING;
    }
    if (r == COMMAND_OK && v->check && fullest_of(world.ledger, v->device) >= (double)v->check)
        r = COMMAND_FAILED;
    query_result_free(result);
    return r;
}

static int run(const void *values, const struct operands *operands)
{
    const struct devices_values *v = values;
    if (v->view.json && v->view.csv)
        return command_misuse(&cmd_devices, "--json and --csv exclude each other");
    if (v->watch && v->watch_ns < WATCH_MIN_MS * NS_PER_MS)
        return command_misuse(&cmd_devices, "--watch cannot be faster than every 0.05 seconds");
    if (v->watch && v->check)
        return command_misuse(&cmd_devices, "--check looks once and does not go with --watch");
    if (command_check_dir(v->dir) != COMMAND_OK)
        return COMMAND_FAILED;
    return wants_rows(v) ? show_rows(v) : v->watch ? watch(v) : show_once(v);
}

/* Of other nodes. */
static const struct elsewhere elsewhere = {
    .table = "devices",
    .show = "node,device,space,used,free,capacity,percent",
    .sort = "node,device",
};

const struct command cmd_devices = {
    .name = "devices",
    .usage = "devices [OPTION...]",
    .help = "how full each memory of each device is, and who holds it",
    .description =
        "Shows every device that a living process reports or that the NVIDIA driver knows: a bar for each of its memories, the "
        "on-chip memory as one sum of buffers, circular buffers and kernels, and the processes that "
        "hold most. The figures are read from the books as they are now; no daemon is needed.",
    .options = options,
    .examples = examples,
    .sections = sections,
    .elsewhere = &elsewhere,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = run,
};
