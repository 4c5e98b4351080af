/* memoir history: what the figures were. Reads memoird's file itself, so that it also tells of a daemon that is gone. */
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/command.h"
#include "cli/history.h"
#include "cli/process_word.h"
#include "cli/ps.h"
#include "cli/query_print.h"
#include "cli/space_word.h"
#include "cli/view.h"
#include "cli/when.h"
#include "history/read.h"
#include "history/table.h"
#include "query/query.h"

enum { OUTPUT_MAX = 512 << 20, LIMIT = 40, SPACE_NONE = -1 };

static const char *const by_words[] = {"device", "process", "program", "user", NULL};

struct history_values {
    struct command_common common;
    uint64_t pid;
    const char *program, *user, *device, *space;
    const char *since, *until, *at;
    uint64_t step_ns;
    const char *by, *where, *show, *sort;
    bool blocks, system;
    uint64_t limit;
    bool json, csv, no_header;
    int color;
    const char *state;
};

static const struct history_values defaults = {.since = "1h", .limit = LIMIT};

#define AT(field) offsetof(struct history_values, field)

static const struct option_spec options[] = {
    OPTION_HELP,
    {"device", 'd', OPTION_STRING, AT(device), "DEVICE",
     "only this device: its number, name, uid or bus address, or host"},
    {"pid", 'p', OPTION_NUMBER, AT(pid), "PID", "only this process", .completion = COMPLETE_PID},
    {"program", 0, OPTION_STRING, AT(program), "NAME",
     "only programs of this name; * and ? stand for any letters"},
    {"user", 'u', OPTION_STRING, AT(user), "USER", "only processes of this user (name or number)",
     .completion = COMPLETE_USER},
    {"space", 0, OPTION_STRING, AT(space), "SPACE",
     "only this kind of memory: dram, l1, cb, kernel, heap, pinned ..., rss or pss"},
    {"since", 's', OPTION_STRING, AT(since), "WHEN",
     "from then on: 90s, 1h, 7d (ago), 12:30, yesterday, 2026-01-31, \"2026-01-31 12:30\", 2026-01-31T12:30:00Z (default: 1h)"},
    {"until", 0, OPTION_STRING, AT(until), "WHEN", "until then (default: now)"},
    {"at", 0, OPTION_STRING, AT(at), "WHEN",
     "at this moment alone: the step that it lies in, as fine as is kept; in place of --since and --until"},
    {"step", 0, OPTION_DURATION, AT(step_ns), "TIME",
     "length of a step, at least 1s (default: as many as fit on the screen); where only longer steps are kept, a "
     "multiple of those"},
    {"by", 'b', OPTION_STRING, AT(by), "WHAT",
     "a line for each device, process, program or user (default: process where one is asked for, "
     "else device); with --where, --show or --sort, or for other columns, groups as in memoir query"},
    {"where", 'w', OPTION_STRING, AT(where), "EXPRESSION",
     "only rows of the table history for which this holds: 'of=process and max>1GB'"},
    {"show", 0, OPTION_STRING, AT(show), "COLUMNS",
     "these columns of the table history: program,series,max,points"},
    {"sort", 0, OPTION_STRING, AT(sort), "COLUMNS", "order of the rows: -max,program"},
    {"blocks", 0, OPTION_FLAG, AT(blocks), .help = "how many blocks instead of how many bytes"},
    {"system", 0, OPTION_FLAG, AT(system),
     .help =
         "the machine's memory instead: total, available, the parts that add up to the total, and memory "
         "pressure"},
    {"limit", 'n', OPTION_NUMBER, AT(limit), "N",
     "show N lines at most, the largest first; 0 shows all (default: 40; JSON and CSV always have "
     "all)"},
    OPTION_JSON,
    {"csv", 0, OPTION_FLAG, AT(csv), .help = "print CSV (RFC 4180), a row for each point"},
    OPTION_NO_HEADER,
    OPTION_COLOR,
    OPTIONS_ELSEWHERE,
    {"state", 0, OPTION_STRING, AT(state), "DIR",
     "the daemon's state directory (default: that of the daemon that runs, else /var/lib/memoir as root, "
     "$XDG_STATE_HOME/memoir or ~/.local/state/memoir)",
     .completion = COMPLETE_DIRECTORY},
    {0},
};

static const struct command_example examples[] = {
    {"memoir history", "all devices and the host, during the last hour"},
    {"memoir history --device 0 --since 1d", "one device, since yesterday at this time"},
    {"memoir history 4242", "one process, whether it keeps a book or not"},
    {"memoir history --system --since 1d", "the machine's memory"},
    {"memoir history --by user --space dram --since yesterday --until today",
     "who used device memory yesterday"},
    {"memoir history --pid 4242 --since 5m --step 1s --csv",
     "every second of one process, for a plot"},
    {"memoir history --where 'of=process and series=rss' --by user --show count,end,points --json",
     "resident memory of each user over time, added up"},
    {"memoir history --at 12:30 --where 'of=process and series=rss' --sort -last --limit 10",
     "which processes were the largest at half past twelve"},
    {"memoir history --json | jq '.series[] | {device, space, max}'", "for programs"},
    {0},
};

static const struct command_fields fields[] = {
    {"Fields of a line", history_line_columns},
    {"Fields of a point (--csv)", history_point_columns},
    {0},
};

static const struct command_section sections[] = {
    {"WHAT IS KEPT",
     "memoird notes the figures of every second, and writes them every 10 seconds to history.db in "
     "its state directory. Seconds are kept for an hour, the last and the largest value of every 10 "
     "seconds for a day, and those of every minute for 30 days; together no more than 1 GB. "
     "memoird.conf has keys for all of that (history-*).\n\n"
     "Processes that keep no book are noted too, the largest 500 of them (history-processes), with their resident "
     "and, where it is known, their proportional size (rss, pss).\n\n"
     "Where several processes are added up, the largest value of a step is the sum of what each had at "
     "most: it can have been no more. Sums of devices and of the host are exact."},
    {"JSON",
     "The document is that of GET /api/v1/history: \"schema\" (\"memoir.history/2\"), \"time\", \"from\" and \"to\" (seconds "
     "since 1970), \"step\" (seconds), \"t\" (the start of each step), \"series\", \"oldest\" (of all that is kept) and "
     "\"damaged\". Each series has its \"name\" (\"rss\", \"device.0.dram\"), \"kind\" (\"bytes\", \"percent\", or \"number\" of blocks), of "
     "\"pid\", \"start\", \"user\", \"uid\", \"program\", \"processes\" and \"node\" what --by leaves, of one on a device \"ordinal\", "
     "\"device_name\", \"device_id\" and \"space\", \"capacity\" where it is known, and two arrays with one element a step: "
     "\"last\", the value at its end, and \"max\", the largest in it. A step about which nothing is known is null, never 0."},
    {0},
};

/* ---- what was asked for ---- */

static int find_user(const char *word, struct read_query *query)
{
    char *end;
    unsigned long number = strtoul(word, &end, 10);
    query->by_uid = true;
    if (*word >= '0' && *word <= '9' && !*end) {
        query->uid = (uint32_t)number;
        return COMMAND_OK;
    }
    const struct passwd *pw = getpwnam(word);
    if (!pw) {
        command_fail("there is no user '%s'", word);
        return COMMAND_NOTHING;
    }
    query->uid = pw->pw_uid;
    return COMMAND_OK;
}

static int find_times(const struct history_values *v, unsigned columns, struct read_query *query)
{
    uint64_t now_s = clock_real_ns() / NS_PER_S;
    query->until_s = now_s + 1; /* this second is part of it */
    if (v->at) {
        if (v->until || v->since != defaults.since)
            return command_misuse(&cmd_history, "--at takes the place of --since and --until");
        if (when_parse(v->at, now_s, &query->since_s) < 0)
            return command_misuse(&cmd_history,
                                  "invalid time '%s' for --at; try 1h, 12:30 or 2026-01-31", v->at);
        query->until_s = query->since_s + 1;
        query->step_s = v->step_ns >= NS_PER_S ? v->step_ns / NS_PER_S : 1;
        return COMMAND_OK;
    }
    if (when_parse(v->since, now_s, &query->since_s) < 0)
        return command_misuse(
            &cmd_history, "invalid time '%s' for --since; try 1h, 12:30 or 2026-01-31", v->since);
    if (v->until && when_parse(v->until, now_s, &query->until_s) < 0)
        return command_misuse(
            &cmd_history, "invalid time '%s' for --until; try 1h, 12:30 or 2026-01-31", v->until);
    if (query->until_s <= query->since_s)
        return command_misuse(&cmd_history, "--until must be later than --since");
    if (v->step_ns % NS_PER_S)
        return command_misuse(&cmd_history, "--step takes whole seconds");
    query->step_s = v->step_ns ? v->step_ns / NS_PER_S
                               : read_step(query->until_s - query->since_s, columns - 1);
    return COMMAND_OK;
}

/* enum read_by; -1: it is no such word. */
static int by_word(const char *word)
{
    for (int i = 0; word && by_words[i]; i++)
        if (strcmp(by_words[i], word) == 0)
            return i;
    return -1;
}

static int make_query(const struct history_values *v, unsigned columns, struct read_query *query)
{
    bool of_processes = v->pid || v->program || v->user;
    if (v->system && (of_processes || v->device || v->space || v->blocks || v->by))
        return command_misuse(&cmd_history,
                              "--system is about the whole machine: it goes with no filter");
    *query = (struct read_query){
        .blocks = v->blocks,
        .pid = (int64_t)v->pid,
        .program = v->program,
        .device = v->device,
        .by_space = v->space != NULL,
        .pss = v->space && strcasecmp(v->space, "pss") == 0,
        .system = v->system,
        .by = by_word(v->by) >= 0 ? (enum read_by)by_word(v->by)
              : of_processes      ? READ_BY_PROCESS
                                  : READ_BY_DEVICE,
    };
    int r = v->space && !query->pss ? space_word_parse(&cmd_history, v->space, true, &query->space)
                                    : COMMAND_OK;
    if (r == COMMAND_OK && v->user)
        r = find_user(v->user, query);
    return r == COMMAND_OK ? find_times(v, columns, query) : r;
}

/* ---- nothing to show ---- */

static int no_file(const char *state)
{
    command_fail("there is no history in '%s' yet: memoird keeps it while it runs; start it with "
                 "'memoird --daemon', or name another place by --state",
                 state);
    return COMMAND_NOTHING;
}

static int nothing(const struct read_result *result, const struct read_query *query)
{
    char text[32];
    time_t oldest = (time_t)result->oldest_s;
    struct tm tm;
    if (!result->oldest_s)
        command_fail("the history is empty yet: memoird writes to it every few seconds");
    else if (result->oldest_s >= query->until_s && localtime_r(&oldest, &tm) &&
             strftime(text, sizeof(text), "%F %T", &tm))
        command_fail("nothing is known of that time: the history begins at %s", text);
    else
        command_fail("no data for this selection and period");
    return COMMAND_NOTHING;
}

static int failed(int error, const char *path)
{
    if (error == -EBADMSG)
        return command_fail("'%s' is damaged or no history of this version; memoird sets it aside "
                            "and begins a new one when it runs",
                            path);
    if (error == -E2BIG)
        return command_fail(
            "that would be too many points: ask for a longer --step, a shorter time or "
            "less");
    return command_fail("cannot read '%s': %s", path, strerror(-error));
}

/* ---- the table ---- */

static bool asks_table(const struct history_values *v)
{
    return v->where || v->show || v->sort || (v->by && by_word(v->by) < 0) ||
           elsewhere_wanted(&v->common.elsewhere);
}

static const char *user_name(uint32_t uid, void *context)
{
    const struct passwd *pw = getpwuid(uid);
    return pw ? pw->pw_name : NULL;
}

/* What is asked for by options of its own becomes a part of `where`. */
static int table_where(const struct history_values *v, struct buffer *out)
{
    if (v->pid)
        buffer_printf(out, "pid=%llu and ", (unsigned long long)v->pid);
    if (v->program)
        buffer_printf(out, "program~\"%s\" and ", v->program);
    if (v->system)
        buffer_append_str(out, "of=system and ");
    buffer_printf(out, "measure=%s", v->blocks ? "blocks" : "bytes or measure=\"percent/100\"");
    if (v->where)
        buffer_printf(out, ", (%s)", v->where);
    return out->error;
}

static int rows_print(const struct history_values *v, const struct query *query,
                      struct history_world *history, const struct term *term)
{
    struct query_result *result = NULL;
    struct query_world world = {.history = history, .sees_all = true, .user_name = user_name};
    struct query_style style = {.format = v->json  ? QUERY_FORMAT_JSON
                                          : v->csv ? QUERY_FORMAT_CSV
                                                   : QUERY_FORMAT_TEXT,
                                .header = !v->no_header,
                                .fit = !v->show};
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer summary = BUFFER_INIT(OUTPUT_MAX);
    struct elsewhere_values other = v->common.elsewhere;
    other.since_s = history->since_s;
    other.until_s = history->until_s;
    other.step_s = history->step_s;
    int r = query_result_new(query, 0, &result);
    if (r == 0 && elsewhere_wanted(&other)) {
        r = elsewhere_ask(&other, query_spec_of(query), result, &summary);
        style.cluster = &summary;
    } else if (r == 0) {
        r = query_run(query, &world, result);
        if (r == 0)
            r = query_result_finish(result);
    }
    bool any = r == 0 && query_result_rows(result);
    if (r == 0 && (any || style.format != QUERY_FORMAT_TEXT)) {
        r = query_print(result, query, &style, term, &out);
        r = r < 0 ? r : command_output(&out);
    }
    query_result_free(result);
    if (summary.len && style.format != QUERY_FORMAT_JSON)
        elsewhere_mention(&summary);
    if (r == COMMAND_OK && !any) {
        command_fail("no data for this selection and period");
        return COMMAND_NOTHING;
    }
    return r == -EBADMSG || r == -E2BIG ? failed(r, history->path) : r;
}

static int run_table(const struct history_values *v, const char *path, const struct term *term)
{
    struct read_query times = {0};
    int r = find_times(v, history_chart_columns(term), &times);
    if (r != COMMAND_OK)
        return r;
    if (v->user || v->device || v->space)
        return command_misuse(&cmd_history,
                              "with --where, --show or --sort, name user, device_id and "
                              "series in --where");
    MEMOIR_CLEANUP(buffer_release)
    struct buffer where = BUFFER_INIT(2 * QUERY_TEXT_MAX);
    r = table_where(v, &where);
    struct query_spec spec = {.table = history_table.name,
                              .by = v->by,
                              .where = buffer_string(&where),
                              .show =
                                  v->show || v->by || !elsewhere_wanted(&v->common.elsewhere)
                                      ? v->show
                                      : "node,of,pid,program,device_id,series,measure,min,max,last",
                              .sort = v->sort,
                              .limit = v->json || v->csv ? 0 : v->limit};
    MEMOIR_CLEANUP(query_freep)
    struct query *query = NULL;
    struct query_error error;
    if (r == 0)
        r = query_new(&spec, &query, &error);
    if (r == -EINVAL)
        return view_misuse(&cmd_history, &error, &spec);
    struct history_world history = {.path = path,
                                    .since_s = times.since_s,
                                    .until_s = times.until_s,
                                    .step_s = times.step_s,
                                    .pid = (int64_t)v->pid};
    return r < 0 ? r : rows_print(v, query, &history, term);
}

/* ---- running ---- */

static int print(const struct history_values *v, const struct read_result *result,
                 const struct term *term)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    struct history_style style = {
        .blocks = v->blocks, .header = !v->no_header, .limit = (size_t)v->limit};
    int r = v->json  ? history_print_json(result, &style, &out)
            : v->csv ? history_print_csv(result, &style, &out)
                     : history_print_text(result, &style, term, &out);
    return r < 0 ? r : command_output(&out);
}

static int run(const void *values, const struct operands *operands)
{
    struct history_values with_pid = *(const struct history_values *)values;
    const struct history_values *v = &with_pid;
    char path[PS_STATE_PATH_MAX + 4096];
    struct term term;
    struct read_query query;
    term_init(&term, STDOUT_FILENO, (enum term_color)v->color);
    const char *word = operands->n ? operands->words[0] : NULL;
    if (word && (with_pid.pid || with_pid.program))
        return command_misuse(&cmd_history, "unexpected argument '%s' beside --pid or --program",
                              word);
    if (word && *word >= '0' && *word <= '9' && !process_word_pid(word, &with_pid.pid))
        return command_misuse(&cmd_history, "'%s' is not a valid PID", word);
    if (word && !with_pid.pid)
        with_pid.program = word;
    const char *state = ps_state_find(v->state);
    if (snprintf(path, sizeof(path), "%s/%s", state, HISTORY_FILE) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    if (v->json && v->csv)
        return command_misuse(&cmd_history, "--json and --csv exclude each other");
    if (asks_table(v))
        return !elsewhere_wanted(&v->common.elsewhere) && access(path, F_OK) < 0
                   ? no_file(state)
                   : run_table(v, path, &term);
    int r = make_query(v, history_chart_columns(&term), &query);
    if (r != COMMAND_OK)
        return r;
    MEMOIR_CLEANUP(read_release)
    struct read_result result = {0};
    r = read_history(path, &query, &result);
    if (r == -ENOENT)
        return no_file(state);
    if (r < 0)
        return failed(r, path);
    if (v->pid)
        read_choose_process(&result, 0);
    if (result.n_earlier && !v->json && !v->csv)
        fprintf(stderr,
                "memoir: %zu earlier process%s had this PID; --until shows an earlier one\n",
                result.n_earlier, result.n_earlier == 1 ? "" : "es");
    if (result.damaged)
        fprintf(stderr, "memoir: %llu pieces of the history are damaged and left out\n",
                (unsigned long long)result.damaged);
    if (result.n_lines > 0 || v->json || v->csv)
        r = print(v, &result, &term);
    return r == COMMAND_OK && result.n_lines == 0 ? nothing(&result, &query) : r;
}

const struct command cmd_history = {
    .name = "history",
    .usage = "history [PID|NAME] [OPTION...]",
    .help = "what devices and processes held, over time",
    .description =
        "Shows how much memory was held during the last hour, or any other time: of each device and of the "
        "host, or of processes, programs or users. Each line is a chart from left to right with the "
        "least, the largest and the latest value; its height is the largest value of the line.\n\n"
        "The figures are those that memoird noted while it ran. They are read from its file, so it need not run "
        "now.",
    .options = options,
    .examples = examples,
    .sections = sections,
    .fields = fields,
    .operands_max = 1,
    .takes_processes = true,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = run,
};
