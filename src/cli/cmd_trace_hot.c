/* memoir trace hot and cold: the buffers that cross the bus most, and least. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/table.h"
#include "cli/trace.h"
#include "cli/trace_hot.h"

enum {
    LIMIT_MAX = 1 << 20,
    COPY_SITES_MAX = 64,
    WORDS_MAX = 512,
    WIDE_COLUMNS = 180,
    DETAIL_INDENT = 8
};

enum {
    HOT_COPIES,
    HOT_TO,
    HOT_FROM,
    HOT_SIZE,
    HOT_SPACE,
    HOT_SITE,
    HOT_COPY_SITE,
    HOT_HOST,
    HOT_REPEATED,
    HOT_FAULTS,
    HOT_SYSTEM,
    HOT_AGE,
    HOT_STATE,
    HOT_ADDRESS,
    HOT_DEVICE,
    HOT_TO_COPIES,
    HOT_FROM_COPIES,
    HOT_ON_DEVICE,
    HOT_PAGEABLE,
    HOT_PAGEABLE_BYTES,
    HOT_REPEATED_BYTES,
    HOT_COPY_SITES,
    HOT_CLASS,
    HOT_CALL,
};

static const struct column columns[] = {
    [HOT_COPIES] =
        {"copies", "COPIES",
         "copies over the bus: to the device, from it, and those whose direction is not known",
         COLUMN_NUMBER},
    [HOT_TO] = {"to_device", "TO DEV", "bytes copied to the device", COLUMN_BYTES},
    [HOT_FROM] = {"from_device", "FROM DEV", "bytes copied from the device", COLUMN_BYTES},
    [HOT_SIZE] =
        {"size", "SIZE",
         "size of the buffer; of host memory that is known from copies only, of the range that was copied",
         COLUMN_BYTES},
    [HOT_SPACE] = {"space", "MEMORY",
                   "device, pinned, managed, registered, or host: pageable memory", COLUMN_TEXT},
    [HOT_SITE] = {"site", "ALLOCATED AT",
                  "the line that allocated it; absent where only copies tell of it", COLUMN_TEXT,
                  COLUMN_STRETCH | COLUMN_WIDE},
    [HOT_COPY_SITE] = {"copy_site", "COPIED AT",
                       "the line that copies it; with several, that of the most of its last copies",
                       COLUMN_TEXT, COLUMN_STRETCH | COLUMN_WIDE},
    [HOT_HOST] = {"host_side", "HOST SIDE",
                  "pinned, pageable, or mixed: the host's side of its copies", COLUMN_TEXT, 0, 2},
    [HOT_REPEATED] = {"repeated_copies", "REPEATED",
                      "copies of a range that was copied in this direction before", COLUMN_NUMBER,
                      0, 3},
    [HOT_FAULTS] = {"faults_before_copy", "FAULTS",
                    "page faults in the range before its first copy", COLUMN_NUMBER,
                    COLUMN_HIDE_EMPTY, 3},
    [HOT_SYSTEM] = {"system", "SYSTEM", "what the operating system did to the range", COLUMN_TEXT,
                    COLUMN_HIDE_EMPTY, 4},
    [HOT_AGE] = {"age", "AGE",
                 "time since it was allocated or first seen; of an ended one, how long it lived",
                 COLUMN_AGE, COLUMN_FINE, 5},
    [HOT_STATE] =
        {"state", "STATE",
         "live, seen, recorded, freed, exit, reset or unknown; found: it was live before tracing began",
         COLUMN_TEXT, 0, 1},
    [HOT_ADDRESS] = {"address", NULL, "its start", COLUMN_TEXT, COLUMN_EXPORT_ONLY},
    [HOT_DEVICE] = {"ordinal", NULL, "number of the device, as the process counts them",
                    COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    [HOT_TO_COPIES] = {"to_device_copies", NULL, "copies to the device", COLUMN_NUMBER,
                       COLUMN_EXPORT_ONLY},
    [HOT_FROM_COPIES] = {"from_device_copies", NULL, "copies from the device", COLUMN_NUMBER,
                         COLUMN_EXPORT_ONLY},
    [HOT_ON_DEVICE] = {"on_device_copies", NULL, "copies on the device and between devices",
                       COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    [HOT_PAGEABLE] = {"pageable_copies", NULL, "copies whose host side was pageable", COLUMN_NUMBER,
                      COLUMN_EXPORT_ONLY},
    [HOT_PAGEABLE_BYTES] = {"pageable", NULL, "bytes of these", COLUMN_BYTES, COLUMN_EXPORT_ONLY},
    [HOT_REPEATED_BYTES] = {"repeated", NULL, "bytes of repeated copies", COLUMN_BYTES,
                            COLUMN_EXPORT_ONLY},
    [HOT_COPY_SITES] = {"copy_sites", NULL, "lines among its last copies", COLUMN_NUMBER,
                        COLUMN_EXPORT_ONLY},
    [HOT_CLASS] =
        {"class", NULL,
         "own, shared, registered, virtual, system (a mapping), implicit (known from copies only), "
         "graph (recorded by a CUDA graph)",
         COLUMN_TEXT, COLUMN_EXPORT_ONLY},
    [HOT_CALL] = {"call", NULL, "number of the call that allocated it", COLUMN_NUMBER,
                  COLUMN_EXPORT_ONLY},
    {0},
};

static const struct command_fields fields[] = {{"Fields of a buffer", columns}, {0}};

static const struct option_spec options[] = {
    OPTION_HELP,
    TRACE_OPTION_LIMIT,
    {"by", 0, OPTION_CHOICE, TRACE_AT(by), "WHAT",
     "order by count (copies, the default) or by bytes", .choices = trace_by_words},
    {"space", 0, OPTION_STRING, TRACE_AT(space), "MEMORY",
     "only device, pinned, managed, registered or host memory"},
    {"device", 0, OPTION_NUMBER, TRACE_AT(device), "N",
     "only buffers of this device, as the process counts them"},
    {"live", 0, OPTION_FLAG, TRACE_AT(live), .help = "only buffers that are live"},
    TRACE_OPTION_FOR,
    TRACE_OPTION_SOCKET,
    TRACE_OPTION_DIR,
    TRACE_OPTION_TABLE,
    {0},
};

/* ---- a row ---- */

uint32_t trace_hot_copy_site(struct trace_history *history, const struct trace_block *block,
                             size_t *ret_sites)
{
    struct {
        uint32_t site;
        uint64_t copies;
    } seen[COPY_SITES_MAX];
    size_t n_seen = 0, most = 0;
    size_t room = block->moments_kept < 4096 ? block->moments_kept : 4096;
    MEMOIR_CLEANUP(freep)
    struct trace_moment *moments = calloc(room + 1, sizeof(*moments));
    ptrdiff_t n = moments ? trace_history_moments(history, block->id, moments, room) : 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        size_t k = 0;
        if (moments[i].kind != TRACE_COPY)
            continue;
        while (k < n_seen && seen[k].site != moments[i].site)
            k++;
        if (k == n_seen) {
            if (n_seen == COPY_SITES_MAX)
                continue;
            seen[n_seen].site = moments[i].site;
            seen[n_seen++].copies = 0;
        }
        if (++seen[k].copies > seen[most].copies)
            most = k;
    }
    *ret_sites = n_seen;
    return n_seen ? seen[most].site : 0;
}

const char *trace_hot_host_side(const struct trace_block *block)
{
    uint64_t bus = trace_block_value(block, TRACE_BY_COUNT);
    if (bus == 0)
        return NULL;
    return block->pageable.copies == 0     ? "pinned"
           : block->pageable.copies >= bus ? "pageable"
                                           : "mixed";
}

static const char *space_of(const struct trace_block *b)
{
    if (b->class == TRACE_CLASS_IMPLICIT || b->class == TRACE_CLASS_SYSTEM)
        return "host";
    return trace_space_name(b->space);
}

static const char *const class_words[] = {"own",    "shared",   "registered", "virtual",
                                          "system", "implicit", "graph"};

static void system_cell(struct table *t, const struct trace_block *b)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer words = BUFFER_INIT(WORDS_MAX);
    trace_system_words(b->system, &words);
    if (words.len)
        table_set_text(t, HOT_SYSTEM, buffer_string(&words));
}

static void lines_cells(struct trace_source *source, struct table *t, const struct trace_block *b)
{
    char label[TRACE_LABEL_MAX], all[TRACE_LABEL_MAX + 32];
    size_t sites = 0;
    uint32_t copier = trace_hot_copy_site(source->history, b, &sites);
    if (b->site && b->class != TRACE_CLASS_IMPLICIT) /* that one has the line of a copy */
        table_set_text(t, HOT_SITE, trace_names_label(source->names, b->site, label));
    if (sites == 0)
        return;
    trace_names_label(source->names, copier, label);
    snprintf(all, sizeof(all), sites > 1 ? "%s (+%zu)" : "%s", label, sites - 1);
    table_set_text(t, HOT_COPY_SITE, all);
    table_set_number(t, HOT_COPY_SITES, sites);
}

void trace_hot_row(struct trace_source *source, struct table *t, const struct trace_block *b,
                   uint64_t now_ns)
{
    char address[32];
    const char *side = trace_hot_host_side(b);
    uint64_t end = b->end_ns ? b->end_ns : now_ns;
    table_row(t);
    table_set_number(t, HOT_COPIES, trace_block_value(b, TRACE_BY_COUNT));
    table_set_number(t, HOT_TO, b->flow[TRACE_TO_DEVICE].bytes);
    table_set_number(t, HOT_FROM, b->flow[TRACE_FROM_DEVICE].bytes);
    table_set_number(t, HOT_SIZE, b->size);
    table_set_text(t, HOT_SPACE, space_of(b));
    lines_cells(source, t, b);
    if (side)
        table_set_text(t, HOT_HOST, side);
    if (side && strcmp(side, "pinned") != 0)
        table_set_style(t, HOT_HOST, STYLE_WARN);
    table_set_number(t, HOT_REPEATED, b->repeated);
    if (b->system[TRACE_SYSTEM_FAULT])
        table_set_number(t, HOT_FAULTS, b->system_early[TRACE_SYSTEM_FAULT]);
    system_cell(t, b);
    if (end >= b->start_ns)
        table_set_number(t, HOT_AGE, end - b->start_ns);
    table_set_text(t, HOT_STATE, trace_block_state(b));
    snprintf(address, sizeof(address), "0x%" PRIx64, b->address);
    table_set_text(t, HOT_ADDRESS, address);
    if (b->device >= 0)
        table_set_number(t, HOT_DEVICE, (uint64_t)b->device);
    table_set_number(t, HOT_TO_COPIES, b->flow[TRACE_TO_DEVICE].copies);
    table_set_number(t, HOT_FROM_COPIES, b->flow[TRACE_FROM_DEVICE].copies);
    table_set_number(t, HOT_ON_DEVICE, b->flow[TRACE_ON_DEVICE].copies);
    table_set_number(t, HOT_PAGEABLE, b->pageable.copies);
    table_set_number(t, HOT_PAGEABLE_BYTES, b->pageable.bytes);
    table_set_number(t, HOT_REPEATED_BYTES, b->repeated_bytes);
    if (b->class < sizeof(class_words) / sizeof(class_words[0]))
        table_set_text(t, HOT_CLASS, class_words[b->class]);
    if (b->call)
        table_set_number(t, HOT_CALL, b->call);
}

void trace_hot_table(struct table *table)
{
    table_init(table, columns);
}

static const struct trace_detail details[] = {
    {HOT_SITE, "allocated at"}, {HOT_COPY_SITE, "copied at"}, {HOT_SYSTEM, "system"}, {0, NULL}};

int trace_hot_text(const struct table *table, const struct table_layout *layout,
                   const struct term *term, struct buffer *out)
{
    return trace_print_details(table, layout, details, term, out);
}

/* ---- the commands ---- */

struct found {
    struct trace_source *source;
    struct trace_block *blocks;
};

static void row_frames(void *context, size_t row, struct json *json)
{
    const struct found *f = context;
    const struct trace_block *b = &f->blocks[row];
    size_t sites;
    trace_names_json(f->source->names, b->class == TRACE_CLASS_IMPLICIT ? 0 : b->site, "frames",
                     json);
    trace_names_json(f->source->names, trace_hot_copy_site(f->source->history, b, &sites),
                     "copy_frames", json);
}

uint64_t trace_now_ns(const struct trace_source *source)
{
    struct trace_totals totals = trace_history_totals(source->history);
    return totals.exit_ns ? totals.exit_ns : totals.last_ns;
}

static int look(const struct command *command, const struct trace_values *v,
                const struct operands *operands, bool hot)
{
    MEMOIR_CLEANUP(trace_source_release)
    struct trace_source source = {0};
    MEMOIR_CLEANUP(table_release)
    struct table table;
    struct trace_filter filter = {.active = v->live, .device = -1, .min = hot};
    table_init(&table, columns);
    int r = trace_source_operand(&source, command, v, operands);
    if (r == COMMAND_OK)
        r = trace_space_parse(command, v->space, &filter.space);
    if (r != COMMAND_OK)
        return r;
    if (v->limit == 0 || v->limit > LIMIT_MAX)
        return command_misuse(command, "invalid number '%" PRIu64 "' for --limit: expected 1 to %d",
                              v->limit, LIMIT_MAX);
    if (v->device <= INT32_MAX) {
        filter.by_device = true;
        filter.device = (int32_t)v->device;
    }
    if (!hot) { /* all mappings of a process are no answer to what it never copied */
        filter.classes = 1u << TRACE_CLASS_OWN | 1u << TRACE_CLASS_REGISTERED;
        filter.active |= trace_history_totals(source.history).exit_ns == 0;
    }
    MEMOIR_CLEANUP(freep)
    struct trace_block *blocks = calloc(v->limit, sizeof(*blocks));
    if (!blocks)
        return -ENOMEM;
    ptrdiff_t n = (hot ? trace_history_hot : trace_history_cold)(
        source.history, (enum trace_by)v->by, &filter, blocks, v->limit);
    if (n < 0)
        return (int)n;
    for (ptrdiff_t i = 0; i < n; i++)
        trace_hot_row(&source, &table, &blocks[i], trace_now_ns(&source));
    struct found found = {&source, blocks};
    struct trace_print print = {
        .schema = hot ? "memoir.trace.hot/2" : "memoir.trace.cold/2",
        .rows = "buffers",
        .empty = hot ? "No buffer was copied over the bus." : "No allocation is live.",
        .details = details,
        .row_extra = row_frames,
        .copies = true,
        .context = &found,
    };
    return trace_print_table(&source, &table, &print);
}

static int hot_run(const void *values, const struct operands *operands)
{
    return look(&cmd_trace_hot, values, operands, true);
}

static int cold_run(const void *values, const struct operands *operands)
{
    return look(&cmd_trace_cold, values, operands, false);
}

static const struct command_example hot_examples[] = {
    {"sudo memoir trace hot 4242", "the 20 buffers that cross the bus most often"},
    {"memoir trace hot run.trace --by bytes -n 5", "of a dump, by bytes"},
    {"sudo memoir trace hot 4242 --space host", "only pageable host memory"},
    {0},
};
static const struct command_example cold_examples[] = {
    {"sudo memoir trace cold 4242", "live allocations that are copied least"},
    {"sudo memoir trace cold 4242 --space pinned", "pinned memory that hardly serves transfers"},
    {0},
};

static const struct command_section sections[] = {
    {"BOTH SIDES",
     "A copy over the bus has two sides, and counts for both: the device's buffer and the host's each have a row. Host memory that no call of "
     "the driver allocated is told by the mapping of the operating system that it lies in, or, where there is none of 1 MiB or more, by the range that "
     "was copied."},
    {"LINES",
     "A line is the innermost one of the program's own: of a script that is no installed package, else of any script, else of native code "
     "outside the CUDA runtime and well-known libraries. JSON has the whole stacks, \"frames\" of the allocation and \"copy_frames\"."},
    {0},
};

const struct command cmd_trace_hot = {
    .name = "trace hot",
    .usage = "trace hot [OPTION...] PID|FILE",
    .help = "which buffers cross the bus most, from which line, and what the system did to them",
    .description =
        "Shows the buffers that were copied to and from the device most, with the lines that allocated and that copy them, whether the "
        "host's side was pinned, how often the same range was copied again, and what the operating system did to them.",
    .options = options,
    .examples = hot_examples,
    .sections = sections,
    .fields = fields,
    .operands_max = 1,
    .takes_processes = true,
    .takes_files = true,
    .values_size = sizeof(trace_defaults),
    .defaults = &trace_defaults,
    .run = hot_run,
};

const struct command cmd_trace_cold = {
    .name = "trace cold",
    .usage = "trace cold [OPTION...] PID|FILE",
    .help = "which allocations are hardly ever copied",
    .description =
        "Shows the allocations that were copied to and from the device least: candidates for memory that is not needed, or not needed there. Of "
        "a process that runs, only live ones.",
    .options = options,
    .examples = cold_examples,
    .sections = sections,
    .fields = fields,
    .operands_max = 1,
    .takes_processes = true,
    .takes_files = true,
    .values_size = sizeof(trace_defaults),
    .defaults = &trace_defaults,
    .run = cold_run,
};
