/* memoir trace dump, load and diff: histories in files. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/table.h"
#include "cli/trace.h"
#include "cli/trace_summary.h"
#include "query/document.h"
#include "trace/diff.h"
#include "trace/dump.h"

/* ---- dump ---- */

static const struct option_spec dump_options[] = {
    OPTION_HELP,
    {"output", 'o', OPTION_STRING, TRACE_AT(output), "FILE",
     "write the dump to FILE; - is standard output"},
    {"json", 'j', OPTION_FLAG, TRACE_AT(json), .help = "write JSON instead of the binary format"},
    {"quiet", 'q', OPTION_FLAG, TRACE_AT(quiet), .help = "print nothing on success"},
    TRACE_OPTION_FOR,
    TRACE_OPTION_SOCKET,
    TRACE_OPTION_DIR,
    {0},
};

static int dump_run(const void *values, const struct operands *operands)
{
    const struct trace_values *v = values;
    MEMOIR_CLEANUP(trace_source_release)
    struct trace_source source = {0};
    enum trace_dump_format format = v->json ? TRACE_DUMP_JSON : TRACE_DUMP_BINARY;
    if (operands->n < 1)
        return command_misuse(&cmd_trace_dump, "missing argument: PID");
    if (!v->output)
        return command_misuse(&cmd_trace_dump,
                              "missing option: -o FILE, or -o - for standard output");
    bool out = strcmp(v->output, "-") == 0;
    if (out && !v->json && isatty(STDOUT_FILENO))
        return command_misuse(&cmd_trace_dump,
                              "a binary dump is not for a terminal: add --json, or name a file");
    int r = trace_source_open(&source, &cmd_trace_dump, v, operands->words[0]);
    if (r != COMMAND_OK)
        return r;
    trace_names_all(source.names); /* so that it can be read elsewhere */
    r = out ? trace_dump_write(source.history, format, STDOUT_FILENO)
            : trace_dump_save(source.history, format, v->output);
    if (r == -EPIPE)
        return COMMAND_FAILED;
    if (r < 0)
        return command_fail("cannot write '%s': %s", v->output, strerror(-r));
    if (!out && !v->quiet) {
        struct trace_totals totals = trace_history_totals(source.history);
        printf("Saved %" PRIu64 " allocations and %" PRIu64 " call sites of %s.\n",
               totals.kept_blocks, totals.sites, source.who);
    }
    return COMMAND_OK;
}

static const struct command_example dump_examples[] = {
    {"sudo memoir trace dump 4242 -o before.trace", "keep what is known of process 4242 now"},
    {"memoir trace dump run.trace --json -o - | jq .totals", "a dump as JSON"},
    {0},
};

const struct command cmd_trace_dump = {
    .name = "trace dump",
    .usage = "trace dump [OPTION...] PID|FILE -o FILE",
    .help = "save the history of a traced process",
    .description =
        "Writes the history to a file, with the names of functions, files and lines, so that it can be read on another machine. The process "
        "runs on. All subcommands that take a PID read the file as well; so does libmemoir-tracer. A FILE in place of the PID is converted.",
    .options = dump_options,
    .examples = dump_examples,
    .operands_max = 1,
    .takes_processes = true,
    .takes_files = true,
    .values_size = sizeof(trace_defaults),
    .defaults = &trace_defaults,
    .run = dump_run,
};

/* ---- load ---- */

static const struct option_spec load_options[] = {
    OPTION_HELP,
    TRACE_OPTION_JSON,
    TRACE_OPTION_COLOR,
    {0},
};

static void load_json(struct trace_source *source, struct buffer *out)
{
    static const char *const ways[TRACE_DIRECTIONS] = {"unknown", "to_device", "from_device",
                                                       "on_device", "on_host"};
    struct trace_totals t = trace_history_totals(source->history);
    struct trace_spaces spaces;
    struct json json;
    trace_spaces_read(source->history, &spaces);
    command_json_begin(&json, out, "memoir.trace.summary/2");
    trace_print_process(source, &json);
    json_key(&json, "spaces");
    json_object_begin(&json);
    for (unsigned i = 1; i < TRACE_SPACES; i++) {
        const struct trace_space *s = &spaces.space[i];
        if (!s->allocated_blocks)
            continue;
        json_key(&json, trace_space_name(i));
        json_object_begin(&json);
        json_field_u64(&json, "peak", s->peak_bytes);
        json_field_bool(&json, "peak_is_upper_bound", s->about);
        json_field_u64(&json, "bytes", s->live_bytes);
        json_field_u64(&json, "blocks", s->live_blocks);
        json_field_u64(&json, "allocated", s->allocated_bytes);
        json_field_u64(&json, "allocated_blocks", s->allocated_blocks);
        json_field_u64(&json, "never_freed", s->live_bytes + s->exit_bytes);
        json_object_end(&json);
    }
    json_object_end(&json);
    json_key(&json, "copies");
    json_object_begin(&json);
    for (size_t i = 0; i < TRACE_DIRECTIONS; i++) {
        json_key(&json, ways[i]);
        json_object_begin(&json);
        json_field_u64(&json, "copies", t.flow[i].copies);
        json_field_u64(&json, "bytes", t.flow[i].bytes);
        json_object_end(&json);
    }
    json_object_end(&json);
    json_field_u64(&json, "pageable_copies", t.pageable.copies);
    json_field_u64(&json, "pageable", t.pageable.bytes);
    json_field_u64(&json, "repeated_copies", t.repeated);
    json_field_u64(&json, "repeated", t.repeated_bytes);
    json_field_u64(&json, "failures", t.failures);
    json_field_u64(&json, "events", t.events);
    json_field_u64(&json, "kept_allocations", t.kept_blocks);
    json_field_u64(&json, "sites", t.sites);
    query_document_end(&json);
    json_finish(&json);
    buffer_append_char(out, '\n');
}

static void load_text(struct trace_source *source, const struct term *term, struct buffer *out)
{
    struct trace_totals t = trace_history_totals(source->history);
    char when[64] = "", count[UNITS_TEXT_MAX], length[UNITS_TEXT_MAX];
    time_t seconds = (time_t)(source->identity.start_real_ns / 1000000000);
    struct tm tm;
    if (localtime_r(&seconds, &tm))
        strftime(when, sizeof(when), "%F %T", &tm);
    trace_summary(source, term, out);
    buffer_printf(
        out, "\n%s events in %s, traced since %s", units_format_count(count, t.events),
        units_format_duration(length, t.last_ns > t.first_ns ? t.last_ns - t.first_ns : 0), when);
    if (*source->identity.host) {
        buffer_append_str(out, " on ");
        term_append(term, out, source->identity.host, 0);
    }
    buffer_printf(out, t.exit_ns ? "; the process ended\n" : "; the process ran\n");
}

static int load_run(const void *values, const struct operands *operands)
{
    const struct trace_values *v = values;
    MEMOIR_CLEANUP(trace_source_release)
    struct trace_source source = {0};
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(TRACE_OUTPUT_MAX);
    struct term term;
    if (operands->n < 1)
        return command_misuse(&cmd_trace_load, "missing argument: FILE");
    int r = trace_source_open(&source, &cmd_trace_load, v, operands->words[0]);
    if (r != COMMAND_OK)
        return r;
    term_init(&term, STDOUT_FILENO, (enum term_color)v->color);
    if (v->json)
        load_json(&source, &out);
    else
        load_text(&source, &term, &out);
    return command_output(&out);
}

static const struct command_example load_examples[] = {
    {"memoir trace load run.trace", "what the dump holds"},
    {"memoir trace load run.trace --json", "its sums, for programs"},
    {0},
};

const struct command cmd_trace_load = {
    .name = "trace load",
    .usage = "trace load [OPTION...] FILE",
    .help = "show what a dump holds",
    .description =
        "Loads a dump, binary or JSON, and shows the summary that trace run prints at the end. Takes the PID of a traced process as well.",
    .options = load_options,
    .examples = load_examples,
    .operands_max = 1,
    .takes_processes = true,
    .takes_files = true,
    .values_size = sizeof(trace_defaults),
    .defaults = &trace_defaults,
    .run = load_run,
};

/* ---- diff ---- */

enum {
    DIFF_CHANGE,
    DIFF_LIVE,
    DIFF_COPIES,
    DIFF_COPIED,
    DIFF_SPACE,
    DIFF_SITE,
    DIFF_DEVICE,
    DIFF_LIVE_BEFORE,
    DIFF_LIVE_AFTER,
    DIFF_BLOCKS_BEFORE,
    DIFF_BLOCKS_AFTER,
};

static const struct column diff_columns[] = {
    [DIFF_CHANGE] = {"change", "CHANGE", "new, gone, grown, shrunk, busier, calmer or same",
                     COLUMN_TEXT},
    [DIFF_LIVE] = {"live_change", "LIVE", "change of live bytes", COLUMN_CHANGE_BYTES},
    [DIFF_COPIES] = {"copies_change", "COPIES", "change of the number of copies", COLUMN_CHANGE},
    [DIFF_COPIED] = {"copied_change", "COPIED", "change of copied bytes", COLUMN_CHANGE_BYTES},
    [DIFF_SPACE] = {"space", "MEMORY", "device, pinned, managed, registered or host", COLUMN_TEXT},
    [DIFF_SITE] =
        {"site", "LINE",
         "the line that allocated it; of host memory that only copies tell of, the line that copied it",
         COLUMN_TEXT, COLUMN_STRETCH},
    [DIFF_DEVICE] = {"ordinal", NULL, "number of the device, as the process counts them",
                     COLUMN_NUMBER, COLUMN_EXPORT_ONLY},
    [DIFF_LIVE_BEFORE] = {"live_before", NULL, "live bytes in the first", COLUMN_BYTES,
                          COLUMN_EXPORT_ONLY},
    [DIFF_LIVE_AFTER] = {"live_after", NULL, "live bytes in the second", COLUMN_BYTES,
                         COLUMN_EXPORT_ONLY},
    [DIFF_BLOCKS_BEFORE] = {"allocations_before", NULL,
                            "allocations in the first, ended ones included", COLUMN_NUMBER,
                            COLUMN_EXPORT_ONLY},
    [DIFF_BLOCKS_AFTER] = {"allocations_after", NULL, "allocations in the second", COLUMN_NUMBER,
                           COLUMN_EXPORT_ONLY},
    {0},
};

static const struct command_fields diff_fields[] = {{"Fields of a line", diff_columns}, {0}};

static const struct option_spec diff_options[] = {
    OPTION_HELP, TRACE_OPTION_LIMIT, TRACE_OPTION_FOR, TRACE_OPTION_SOCKET, TRACE_OPTION_TABLE, {0},
};

static void diff_row(struct table *t, const struct trace_diff_row *row, struct trace_names *before,
                     struct trace_names *after)
{
    char label[TRACE_LABEL_MAX];
    bool host = row->class == TRACE_CLASS_IMPLICIT || row->class == TRACE_CLASS_SYSTEM;
    table_row(t);
    table_set_text(t, DIFF_CHANGE, trace_change_word((enum trace_change)row->change));
    table_set_change(t, DIFF_LIVE, row->live_bytes);
    table_set_change(t, DIFF_COPIES, row->copies);
    table_set_change(t, DIFF_COPIED, row->copied_bytes);
    table_set_text(t, DIFF_SPACE, host ? "host" : trace_space_name(row->space));
    table_set_text(t, DIFF_SITE,
                   row->after_site ? trace_names_label(after, row->after_site, label)
                                   : trace_names_label(before, row->before_site, label));
    if (row->device >= 0)
        table_set_number(t, DIFF_DEVICE, (uint64_t)row->device);
    table_set_number(t, DIFF_LIVE_BEFORE, row->before.live_bytes);
    table_set_number(t, DIFF_LIVE_AFTER, row->after.live_bytes);
    table_set_number(t, DIFF_BLOCKS_BEFORE, row->before.allocated_blocks);
    table_set_number(t, DIFF_BLOCKS_AFTER, row->after.allocated_blocks);
    if (row->live_bytes)
        table_set_style(t, DIFF_LIVE, row->live_bytes > 0 ? STYLE_BAD : STYLE_GOOD);
}

static void diff_extra(void *context, struct json *json)
{
    const struct trace_diff *diff = context;
    json_field_bool(json, "same_process", diff->same_process);
    json_field_i64(json, "live_change", diff->live_bytes);
    json_field_i64(json, "copied_change", diff->copied_bytes);
    json_field_i64(json, "failures_change", diff->failures);
}

static int diff_run(const void *values, const struct operands *operands)
{
    const struct trace_values *v = values;
    MEMOIR_CLEANUP(trace_source_release)
    struct trace_source before = {0};
    MEMOIR_CLEANUP(trace_source_release)
    struct trace_source after = {0};
    MEMOIR_CLEANUP(table_release)
    struct table table;
    struct trace_diff *diff = NULL;
    table_init(&table, diff_columns);
    if (operands->n < 2)
        return command_misuse(&cmd_trace_diff, "missing argument: two dumps, or a dump and a PID");
    int r = trace_source_open(&before, &cmd_trace_diff, v, operands->words[0]);
    if (r == COMMAND_OK)
        r = trace_source_open(&after, &cmd_trace_diff, v, operands->words[1]);
    if (r != COMMAND_OK)
        return r;
    r = trace_diff_new(before.history, after.history, &diff);
    if (r < 0)
        return r;
    size_t shown = 0;
    for (size_t i = 0; i < diff->n_rows && shown < v->limit; i++) {
        if (diff->rows[i].change == TRACE_CHANGE_SAME)
            continue;
        diff_row(&table, &diff->rows[i], before.names, after.names);
        shown++;
    }
    struct trace_print print = {.schema = "memoir.trace.diff/2",
                                .rows = "sites",
                                .empty = "No line holds or copies more or less.",
                                .extra = diff_extra,
                                .context = diff};
    r = trace_print_table(&after, &table, &print);
    trace_diff_free(diff);
    return r;
}

static const struct command_example diff_examples[] = {
    {"memoir trace diff before.trace after.trace",
     "what changed between two moments of a process, or two runs"},
    {"sudo memoir trace diff before.trace 4242", "what changed since the dump was taken"},
    {0},
};

const struct command cmd_trace_diff = {
    .name = "trace diff",
    .usage = "trace diff [OPTION...] BEFORE AFTER",
    .help = "what changed between two dumps",
    .description =
        "Compares two histories by the line that allocated, the kind of memory and the device: which lines hold more or less, and copy more or "
        "less. Lines are the same in every run of a program. Largest changes of live bytes come first.",
    .options = diff_options,
    .examples = diff_examples,
    .fields = diff_fields,
    .operands_max = 2,
    .takes_processes = true,
    .takes_files = true,
    .values_size = sizeof(trace_defaults),
    .defaults = &trace_defaults,
    .run = diff_run,
};
