/* memoir query: any question to the ledger, in words. Reads the books itself, so it needs no daemon. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/absent.h"
#include "cli/command.h"
#include "cli/query_print.h"
#include "cli/view.h"
#include "cli/world.h"
#include "query/query.h"

enum {
    OUTPUT_MAX = 1 << 30,
    WATCH_MIN_MS = 50,
};

struct query_values {
    struct command_common common;
    const char *by, *where, *show, *sort;
    uint64_t limit;
    int units;
    bool columns;
    bool json, csv, no_header;
    bool watch;
    uint64_t watch_ns;
    int color;
    const char *dir, *state;
};

static const struct query_values defaults = {.watch_ns = NS_PER_S};

static const char *const units_words[] = {"decimal", "binary", "bytes",
                                          NULL}; /* enum table_units */

#define AT(field) offsetof(struct query_values, field)

static const struct option_spec options[] = {
    OPTION_HELP,
    {"by", 'b', OPTION_STRING, AT(by), "COLUMNS",
     "one row for each group with the same values there, instead of one for each row of the table"},
    {"where", 'w', OPTION_STRING, AT(where), "EXPRESSION",
     "only rows for which it holds: = != < <= > >= ~ (contains, or matches with * and ?), and, or, "
     "not, parentheses; a comma is and"},
    {"show", 's', OPTION_STRING, AT(show), "COLUMNS",
     "what to show; groups also take count and sum(X), max(X), min(X), avg(X), count(X), same(X), any(X)"},
    {"sort", 'o', OPTION_STRING, AT(sort), "COLUMNS",
     "the order: -X from large to small, +X from small to large, X large figures first and texts "
     "from A to Z"},
    {"limit", 'n', OPTION_NUMBER, AT(limit), "N",
     "show N rows at most; 0 shows all (default: all)"},
    {"units", 0, OPTION_CHOICE, AT(units), "UNITS",
     "how sizes look in the table: decimal, binary or bytes", .choices = units_words},
    {"columns", 'c', OPTION_FLAG, AT(columns),
     .help = "list the columns of the table (without one, of all tables) and exit"},
    {"watch", 0, OPTION_DURATION, AT(watch_ns), "TIME",
     "show it again and again until interrupted (default: every second)", .value_optional = true,
     .given_offset = AT(watch)},
    OPTION_JSON,
    OPTION_CSV,
    OPTION_NO_HEADER,
    OPTION_COLOR,
    OPTIONS_PAST,
    OPTIONS_ELSEWHERE,
    {"socket", 0, OPTION_STRING, AT(common.elsewhere.socket), "PATH",
     "memoird's socket, for --cluster, --node and the table leaks (default: your own daemon's, else the machine's)"},
    OPTION_DIR,
    {"state", 0, OPTION_STRING, AT(state), "DIR",
     "for the table exited: the daemon's state directory (default: that of the daemon that runs, else "
     "/var/lib/memoir as root, $XDG_STATE_HOME/memoir or ~/.local/state/memoir)",
     .completion = COMPLETE_DIRECTORY},
    {0},
};

static const struct command_example examples[] = {
    {"memoir query --by program,node --where user=ann --show rss,device.dram --sort -device.dram",
     "what each of ann's programs holds"},
    {"memoir query --where 'device>1GB and age>10m'", "who holds much for long"},
    {"memoir query host --by user --show rss,pss,heap,device.dram --sort -rss",
     "what all programs of each user hold, with a book or without"},
    {"memoir query devices --where 'percent>=90%'",
     "which memories are nearly full; exit code 3: none"},
    {"memoir query accounts --by device,space,user --show bytes,count", "each user's share"},
    {"memoir query buffers --where 'pid=4242' --by tag,site --limit 10",
     "where one process got its memory"},
    {"memoir query exited --where 'signal=9' --limit 5 --json", "the last ones that were killed"},
    {"memoir query host --at 12:30 --sort -rss --limit 10",
     "the largest processes at half past twelve"},
    {"memoir query host --since 1h --by user --show rss",
     "what each user held during the last hour, step by step"},
    {"memoir query --cluster --by program,node --show rss,heap,count --sort -rss",
     "what each program holds on each node of the cluster"},
    {"memoir query buffers --columns", "what can be asked for"},
    {0},
};

static const struct command_section sections[] = {
    {"TABLES",
     "processes (the default): one row for each process that keeps a book. host: one for each process of the "
     "machine, with what /proc tells and, where it keeps a book, what that says. system: one row for the "
     "machine's memory, in parts that add up to the total. accounts: one for each "
     "device and kind of memory of each process. devices: one for each kind of memory of each "
     "device. buffers: one for each live block. sites: one for each place in the code that "
     "allocates. exited: one for each process that ended, as the daemon remembers them. "
     "--columns lists their columns.\n\n"
     "Processes that are gone, but whose books no daemon has retired yet, hold nothing and are left out, "
     "unless --where or --by names state: --where state=exited."},
    {"THE PAST",
     "--at and --since ask memoird's history instead of the present, for the tables host, processes, system, devices and exited. The rows are "
     "those of the tables host_past, processes_past, system_past and devices_past: one for each row and step, with the start of the step in time and the columns that "
     "are recorded. memoir query host_past --columns lists them. Of exited those that ended in the time are shown. Steps are of one length, a multiple of those that are kept, and aligned to the epoch, so that "
     "with --cluster all nodes have the same; nodes tells how many have a value. Other tables have no past."},
    {"EXPRESSIONS",
     "A test is COLUMN OPERATOR VALUE. Values are read in the unit of the column: sizes (1.5GB, 64K), "
     "durations (10m, 1.5h; a bare number is seconds), percentages (75%), times "
     "(2026-01-31T12:00, with a Z at the end for UTC), numbers, yes and no, texts. Texts with spaces "
     "or operators in them stand in quotes. ~ looks for a part of a text in any case of letters, or "
     "with * and ? compares the whole of it; !~ is its contrary. A figure can be compared with "
     "another column (freed < allocated).\n\n"
     "and binds more than or, and the comma, which also means and, binds least: "
     "'user=ann or user=bob, rss>1GB'.\n\n"
     "What is not known compares with nothing: neither rss>1GB nor not rss>1GB holds for a process "
     "whose rss could not be read. rss=none finds these."},
    {"GROUPS",
     "With --by, or with count or another aggregate in --show, rows are combined: sizes and counts are "
     "added, of ages the largest is shown, percentages are those of the sums, and of texts and "
     "identifiers the value that all rows have. A figure to which a row that could not be read would "
     "belong is marked with + (at least), an estimate with ~."},
    {"JSON",
     "The document is one object: \"schema\" (\"memoir.query/1\"), \"time\", \"table\", \"columns\" (an "
     "array of objects with \"name\" and \"kind\"), \"rows\" (an array of objects with one field for each "
     "column) and \"matched\", the number of rows before --limit. Kinds bytes are in bytes, ages in "
     "seconds, times in ISO 8601, percentages in percent. A value that is not known is null, never 0; "
     "\"at_least\" and \"estimate\" of a row list the columns with such marks."},
    {0},
};

/* ---- running ---- */

/* Of this machine, or of other nodes; `summary` then tells which. */
static int ask(const struct query_values *v, const struct query *query, struct world *world,
               struct query_result *result, struct buffer *summary)
{
    struct past_window window;
    int r = past_window_of(&cmd_query, &v->common.past, &window);
    if (r != COMMAND_OK)
        return r;
    if (elsewhere_wanted(&v->common.elsewhere)) {
        struct elsewhere_values other = v->common.elsewhere;
        other.since_s = window.since_s;
        other.until_s = window.until_s;
        other.step_s = window.step_s;
        buffer_reset(summary);
        return elsewhere_ask(&other, query_spec_of(query), result, summary);
    }
    struct world_options how = {.dir = v->dir,
                                .state = v->state,
                                .repeated = v->watch,
                                .selective = v->where,
                                .socket = v->common.elsewhere.socket,
                                .window = window};
    return world_ask(world, &how, query, result);
}

static struct query_style style_of(const struct query_values *v)
{
    return (struct query_style){
        .format = v->json  ? QUERY_FORMAT_JSON
                  : v->csv ? QUERY_FORMAT_CSV
                           : QUERY_FORMAT_TEXT,
        .header = !v->no_header,
        .fit = !v->show,
        .units = (enum table_units)v->units,
    };
}

static int show_once(const struct query_values *v, const struct query *query, struct world *world,
                     struct query_result *result)
{
    struct term term;
    struct query_style style = style_of(v);
    term_init(&term, STDOUT_FILENO, (enum term_color)v->color);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer summary = BUFFER_INIT(OUTPUT_MAX);
    int r = ask(v, query, world, result, &summary);
    style.cluster = summary.len ? &summary : NULL;
    if (r == 0 && (query_result_rows(result) || style.format != QUERY_FORMAT_TEXT)) {
        r = query_print(result, query, &style, &term, &out);
        if (r == 0)
            r = command_output(&out);
    }
    if (r != 0)
        return r;
    if (summary.len && style.format != QUERY_FORMAT_JSON)
        elsewhere_mention(&summary);
    else if (!summary.len)
        view_mention(query, result);
    if (query_result_rows(result))
        return COMMAND_OK;
    if (v->where) {
        command_fail("nothing in the table %s matches", query_table_of(query)->name);
        return COMMAND_NOTHING;
    }
    if (query_needs(query) & QUERY_NEEDS_HISTORY || past_wanted(&v->common.past)) {
        command_fail("no data for this selection and period");
        return COMMAND_NOTHING;
    }
    if (summary.len) {
        fputs("No node has told of anything.\n", stderr);
        return COMMAND_OK;
    }
    char empty[128];
    snprintf(empty, sizeof(empty), "No process has told of anything for the table %s yet.",
             query_table_of(query)->name);
    if (!(query_needs(query) & QUERY_NEEDS_EXITS))
        absent_books(empty, "query", v->dir);
    else if (!world->told)
        fputs("The daemon remembers no process that ended.\n", stderr);
    return COMMAND_OK;
}

static int watch(const struct query_values *v, const struct query *query, struct world *world,
                 struct query_result *result)
{
    struct term term;
    struct query_style style = style_of(v);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer summary = BUFFER_INIT(OUTPUT_MAX);
    for (bool first = true;; first = false) {
        term_init(&term, STDOUT_FILENO, (enum term_color)v->color); /* it may have been resized */
        buffer_reset(&out);
        if (style.format == QUERY_FORMAT_TEXT && !first && !term.tty)
            buffer_append_char(&out, '\n');
        int r = ask(v, query, world, result, &summary);
        style.cluster = summary.len ? &summary : NULL;
        if (r == 0)
            r = query_print(result, query, &style, &term, &out);
        if (r == 0 && style.format == QUERY_FORMAT_TEXT && !query_result_rows(result))
            buffer_append_str(&out, "(nothing matches)\n");
        if (r == 0)
            r = command_frame(&term, &out);
        if (r != 0)
            return r;
        struct timespec pause = {(time_t)(v->watch_ns / NS_PER_S), (long)(v->watch_ns % NS_PER_S)};
        nanosleep(&pause, NULL);
    }
}

static int list_columns(const struct query_values *v, const char *table)
{
    struct term term;
    struct query_style style = style_of(v);
    term_init(&term, STDOUT_FILENO, (enum term_color)v->color);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    int r = query_print_columns(table ? query_table_find(table) : NULL, &style, &term, &out);
    return r < 0 ? r : command_output(&out);
}

static int run(const void *values, const struct operands *operands)
{
    const struct query_values *v = values;
    struct query_spec spec = {
        .table = operands->n ? operands->words[0] : NULL,
        .by = v->by,
        .where = v->where,
        .show = v->show,
        .sort = v->sort,
        .limit = v->limit,
    };
    if (v->json && v->csv)
        return command_misuse(&cmd_query, "--json and --csv exclude each other");
    if (v->watch && v->watch_ns < WATCH_MIN_MS * NS_PER_MS)
        return command_misuse(&cmd_query, "--watch cannot be faster than every 0.05 seconds");
    MEMOIR_CLEANUP(query_freep)
    struct query *query = NULL;
    struct query_error error;
    struct past_window window;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer texts = BUFFER_INIT(4 * QUERY_TEXT_MAX);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer columns = BUFFER_INIT(QUERY_TEXT_MAX);
    int r = past_window_of(&cmd_query, &v->common.past, &window);
    if (r != COMMAND_OK)
        return r;
    r = past_spec(&spec, &window, &texts, &error);
    if (r == 0)
        r = elsewhere_columns(&v->common.elsewhere, &spec, &columns);
    if (r == 0)
        r = query_new(&spec, &query, &error);
    if (r == -EINVAL)
        return view_misuse(&cmd_query, &error, &spec);
    if (r < 0)
        return r;
    if (v->columns)
        return list_columns(v, spec.table);
    if (command_check_dir(v->dir) != COMMAND_OK)
        return COMMAND_FAILED;
    struct world world = {0};
    struct query_result *result = NULL;
    r = query_result_new(query, 0, &result);
    if (r == 0)
        r = v->watch ? watch(v, query, &world, result) : show_once(v, query, &world, result);
    query_result_free(result);
    world_release(&world);
    return r;
}

const struct command cmd_query = {
    .name = "query",
    .usage = "query [TABLE] [OPTION...]",
    .help = "any question about processes, devices, blocks and ended processes",
    .description =
        "Filters, groups and sorts the rows of a table: processes (the default), host, system, cgroups, "
        "accounts, devices, buffers, sites, lines, stacks, leaks, explain, exited, history and others (completion "
        "offers all). The figures are read from the books as they are now; no daemon is "
        "needed. Exits with status 3 if --where matches nothing; an empty table is no failure.",
    .options = options,
    .examples = examples,
    .sections = sections,
    .operands_max = 1,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = run,
};
