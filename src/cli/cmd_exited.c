/* memoir exited: who ended, when, how, and with how much memory. A question to the table `exited`. */
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/exited_source.h"
#include "cli/query_print.h"
#include "cli/when.h"
#include "query/query.h"
#include "query/view.h"

enum {
    OUTPUT_MAX = 256 << 20,
    WHERE_MAX = 4096,
    ROWS_SHOWN = 40, /* in a table, unless told otherwise */
    FOLLOW_PAUSE_MS = 200,
    GAP_MIN_S = 2, /* a daemon that is restarted is away for less */
};

struct exited_values {
    struct command_common common;
    const char *user, *program, *by, *where, *show, *sort;
    int cause;
    uint64_t pid;
    uint64_t limit;
    bool follow;
    bool json, csv, no_header;
    int color;
    const char *state, *socket;
};

static const struct exited_values defaults = {.limit = UINT64_MAX};

enum { CAUSE_ANY, CAUSE_CODE, CAUSE_SIGNAL, CAUSE_OOM, CAUSE_CORE, CAUSE_FAILED };
static const char *const cause_words[] = {"any", "code", "signal", "oom", "core", "failed", NULL};
static const char *const cause_tests[] = {
    [CAUSE_CODE] = "kind=code",
    [CAUSE_SIGNAL] = "(kind=signal or kind=oom)",
    [CAUSE_OOM] = "kind=oom",
    [CAUSE_CORE] = "core=yes",
    [CAUSE_FAILED] = "(kind=signal or kind=oom or exit_code>0)",
};

#define AT(field) offsetof(struct exited_values, field)

static const struct option_spec options[] = {
    OPTION_HELP,
    {"since", 0, OPTION_STRING, AT(common.past.since), "WHEN",
     "only those that ended after it: 1h (ago), 12:30, yesterday, 2026-01-31 12:00"},
    {"until", 0, OPTION_STRING, AT(common.past.until), "WHEN",
     "with --since: only those that ended before it (default: now)"},
    {"at", 0, OPTION_STRING, AT(common.past.at), "WHEN",
     "only those that ended in the 10 seconds that this time lies in"},
    {"cause", 0, OPTION_CHOICE, AT(cause), "CAUSE",
     "only those that ended so: code (by themselves), signal, oom (chosen by the kernel's OOM killer), core (with "
     "a core dump), failed (by a signal, or with a code other than 0)",
     .choices = cause_words},
    {"user", 'u', OPTION_STRING, AT(user), "USER", "only processes of this user (name or number)",
     .completion = COMPLETE_USER},
    {"program", 0, OPTION_STRING, AT(program), "NAME",
     "only processes of this program; * and ? stand for anything"},
    {"pid", 'p', OPTION_NUMBER, AT(pid), "PID", "only the process that had this id"},
    {"where", 'w', OPTION_STRING, AT(where), "EXPRESSION",
     "only rows for which it holds, as in memoir query exited"},
    {"by", 'b', OPTION_STRING, AT(by), "COLUMNS",
     "sum up: one row for each program, cause, user or whatever is named, with all that were ever seen"},
    {"show", 0, OPTION_STRING, AT(show), "COLUMNS",
     "what to show, as in memoir query exited; memoir query exited --columns lists them"},
    {"sort", 's', OPTION_STRING, AT(sort), "COLUMNS",
     "the order: -X from large to small, +X from small to large (default: the latest first, groups by the number "
     "of processes)"},
    {"limit", 'n', OPTION_NUMBER, AT(limit), "N",
     "show N rows at most; 0 shows all (default: 40 in a table, all with --json and --csv)"},
    {"follow", 'f', OPTION_FLAG, AT(follow),
     .help = "go on showing processes as they end; with --json one object a line"},
    OPTION_JSON,
    OPTION_CSV,
    OPTION_NO_HEADER,
    OPTION_COLOR,
    OPTIONS_ELSEWHERE,
    {"state", 0, OPTION_STRING, AT(state), "DIR",
     "read the daemon's files in DIR (default: as root those in /var/lib/memoir, else the daemon is asked)",
     .completion = COMPLETE_DIRECTORY},
    {"socket", 0, OPTION_STRING, AT(socket), "PATH",
     "ask the daemon that listens at PATH (default: /run/memoird/memoir.sock, then "
     "$XDG_RUNTIME_DIR/memoird.sock)"},
    {0},
};

static const struct command_example examples[] = {
    {"memoir exited", "the last ones that ended"},
    {"memoir exited --since 1h --cause oom", "processes killed by the OOM killer in the last hour"},
    {"memoir exited --by program,cause", "what a build's thousands of processes were"},
    {"memoir exited --follow --cause failed", "failures, as they happen"},
    {"memoir exited --where 'peak_rss>1GB' --json", "the large ones, for programs"},
    {0},
};

static const struct command_section sections[] = {
    {"CAUSES",
     "exited with N: by itself, with that code. killed by SIGNAL: by a signal; (core dumped) where a core dump was "
     "written. OOM kill: by the kernel's OOM killer, because the machine or the cgroup had no memory left. "
     "replaced by exec: the program ended, the process went on as another one."},
    {"WHAT IS KEPT",
     "memoird as root sees every process of the machine by BPF when it ends. It keeps the last 4,096 that exited and, "
     "apart from these, the last 1,024 that were killed, in a file of fixed size that outlives it. Older ones are "
     "added up by hour, user, program and cause; --by counts these too, and --since then counts whole hours. Where BPF "
     "is not allowed, only processes that keep a book are known; memoir doctor tells why.\n\n"
     "PEAK_RSS is the most that the process had in memory at a time, as the kernel counted it. HEAP and DEVICE are what "
     "its book said that it held at the end; processes without a book have none."},
    {"JSON",
     "The document is that of memoir query exited. Sizes are bytes, ages seconds, times ISO 8601; a value that is not known "
     "is null. With --follow there is one object a line and nothing around them."},
    {0},
};

/* ---- the question ---- */

static void where_add(struct buffer *where, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void where_add(struct buffer *where, const char *fmt, ...)
{
    va_list args;
    if (where->len)
        buffer_append_str(where, " and ");
    va_start(args, fmt);
    buffer_vprintf(where, fmt, args);
    va_end(args);
}

static int where_past(struct buffer *where, const struct past_values *past)
{
    char text[QUERY_TIME_TEXT_MAX];
    struct past_window window;
    int r = past_window_of(&cmd_exited, past, &window);
    if (r != COMMAND_OK)
        return r;
    where_add(where, "ended>=%s", query_time_text(text, window.since_s * NS_PER_S));
    if (past->at || past->until) /* else those that end later, too: --follow */
        where_add(where, "ended<%s", query_time_text(text, window.until_s * NS_PER_S));
    return COMMAND_OK;
}

static int where_user(struct buffer *where, const char *user)
{
    char *end;
    unsigned long number = strtoul(user, &end, 10);
    const struct passwd *pw = NULL;
    if (*user < '0' || *user > '9' || *end) {
        pw = getpwnam(user);
        if (!pw) {
            command_fail("there is no user '%s'", user);
            return COMMAND_NOTHING;
        }
        number = pw->pw_uid;
    }
    where_add(where, "uid=%lu", number);
    return COMMAND_OK;
}

static int where_program(struct buffer *where, const char *program)
{
    if (strpbrk(program, "\"\\"))
        return command_misuse(&cmd_exited, "--program: no quotes and backslashes; use ?");
    where_add(where, "program%s\"%s\"", strpbrk(program, "*?") ? "~" : "=", program);
    return COMMAND_OK;
}

/* COMMAND_OK and all that the options ask for as one expression. */
static int where_of(const struct exited_values *v, struct buffer *where)
{
    int r = COMMAND_OK;
    if (past_wanted(&v->common.past))
        r = where_past(where, &v->common.past);
    if (r == COMMAND_OK && v->user)
        r = where_user(where, v->user);
    if (r == COMMAND_OK && v->program)
        r = where_program(where, v->program);
    if (v->cause != CAUSE_ANY)
        where_add(where, "%s", cause_tests[v->cause]);
    if (v->pid)
        where_add(where, "pid=%" PRIu64, v->pid);
    if (v->where)
        where_add(where, "(%s)", v->where);
    return r;
}

static bool is_filtered(const struct exited_values *v)
{
    return past_wanted(&v->common.past) || v->user || v->program || v->cause != CAUSE_ANY ||
           v->pid || v->where;
}

static const char list_columns[] = "ended,lived,program,user,pid,cause,peak_rss,heap,device,cgroup";
static struct query_spec spec_of(const struct exited_values *v, const char *where)
{
    bool table = !v->json && !v->csv;
    return (struct query_spec){
        .table = "exited",
        .by = v->by,
        .where = *where ? where : NULL,
        .show = v->show ? v->show
                : v->by ? "processes,peak_rss,cpu,lived,ended"
                : table ? list_columns
                        : query_view_find("exited")->show,
        .sort = v->sort ? v->sort
                : v->by ? "-processes"
                        : "-ended,-sequence",
        .limit = v->limit != UINT64_MAX ? v->limit
                 : table && !v->follow  ? ROWS_SHOWN
                                        : 0,
    };
}

static int query_make(const struct query_spec *spec, struct query **ret_query)
{
    struct query_error error;
    int r = query_new(spec, ret_query, &error);
    return r == -EINVAL ? command_misuse(&cmd_exited, "%s", error.text) : r;
}

static struct query_style style_of(const struct exited_values *v)
{
    return (struct query_style){
        .format = v->json && v->follow ? QUERY_FORMAT_LINES
                  : v->json            ? QUERY_FORMAT_JSON
                  : v->csv             ? QUERY_FORMAT_CSV
                                       : QUERY_FORMAT_TEXT,
        .header = !v->no_header,
        .fit = true,
        .fine = true,
    };
}

/* ---- once ---- */

static int source_fail(const struct exited_source *source, const struct exited_values *v, int r)
{
    if (r == -ENOENT && (v->state || v->socket)) {
        command_fail(
            v->socket
                ? "no server at '%s': start memoird there with --socket"
                : "there is no list of processes that ended in '%s' yet: memoird keeps it; start it "
                  "with 'memoird --daemon', or name its state directory by --state",
            source->path);
        return COMMAND_NOTHING;
    }
    if (r == -ENOENT) {
        fputs(
            "The daemon remembers no process that ended: memoird keeps the list while it runs. Start it as "
            "root\nto see all processes of the machine: memoird --daemon\n",
            stderr);
        return COMMAND_OK;
    }
    if (r == -EACCES && source->by_socket)
        return command_fail(
            "may not ask the daemon at '%s': its owner lets the members of a group do that "
            "(memoird --socket-group)",
            source->path);
    if (r == -EPROTO)
        return command_fail("the daemon at '%s' did not answer: %s", source->path,
                            source->why[0] ? source->why : "it may be of another version");
    return command_fail("cannot %s '%s': %s",
                        source->by_socket ? "ask the daemon at" : "read the daemon's list in",
                        source->path, strerror(-r));
}

/* How many are only in sums, so that who counts the rows knows. */
static void mention_sums(struct exited_source *source, const struct exited_values *v,
                         const char *where)
{
    char text[WHERE_MAX + 64], count[UNITS_TEXT_MAX];
    snprintf(text, sizeof(text), "summed=yes%s%s%s", *where ? " and (" : "", where,
             *where ? ")" : "");
    struct query_spec spec = {
        .table = "exited", .by = "summed", .where = text, .show = "processes"};
    MEMOIR_CLEANUP(query_freep)
    struct query *query = NULL;
    struct query_error error;
    struct query_result *result = NULL;
    if (query_new(&spec, &query, &error) < 0 || query_result_new(query, 0, &result) < 0)
        return;
    if (exited_source_ask(source, &spec, query, result) == 0 && query_result_rows(result) == 1) {
        struct query_value value = query_result_value(result, 0, 1);
        if (value.number)
            fprintf(stderr, "%s earlier ones are only in the sums: memoir exited --by program\n",
                    units_format_count(count, value.number));
    }
    query_result_free(result);
}

/* Who ended while no daemon ran is not among the rows: say so where that time is. */
static void mention_gap(const struct exited_source *source, const struct query_result *result)
{
    uint64_t oldest = UINT64_MAX;
    for (size_t row = 0; row < query_result_rows(result); row++) {
        struct query_value ended = query_result_value(result, row, 0);
        if (ended.state & QUERY_KNOWN && ended.number < oldest)
            oldest = ended.number;
    }
    if (source->gap_to_ns < oldest ||
        source->gap_to_ns - source->gap_from_ns < GAP_MIN_S * NS_PER_S)
        return;
    char from[32], to[32];
    struct tm tm;
    time_t begin = (time_t)(source->gap_from_ns / NS_PER_S);
    time_t end = (time_t)(source->gap_to_ns / NS_PER_S);
    strftime(from, sizeof(from), "%F %T", localtime_r(&begin, &tm));
    strftime(to, sizeof(to), "%F %T", localtime_r(&end, &tm));
    fprintf(stderr, "memoir: no watcher from %s to %s: processes that ended then are missing\n",
            from, to);
}

static void mention(struct exited_source *source, const struct exited_values *v, const char *where,
                    const struct query_result *result)
{
    char count[UNITS_TEXT_MAX];
    uint64_t shown = query_result_rows(result), matched = query_result_matched(result);
    if (matched > shown)
        fprintf(stderr, "%s more; --limit 0 shows all\n",
                units_format_count(count, matched - shown));
    if (source->lost)
        fprintf(stderr, "%s exits were not seen: too many processes ended at once\n",
                units_format_count(count, source->lost));
    if (source->state == EXITED_FAILED)
        fprintf(stderr, "memoir: only processes that keep a book are seen: %s\n", source->why);
    if (!v->by) {
        if (!v->show) /* its first column is when they ended */
            mention_gap(source, result);
        mention_sums(source, v, where);
    }
}

static int nothing(const struct exited_source *source, const struct exited_values *v)
{
    if (is_filtered(v)) {
        command_fail("no process that ended is remembered for which that holds");
        return COMMAND_NOTHING;
    }
    fputs("The daemon remembers no process that ended.\n", stderr);
    if (source->state == EXITED_FAILED)
        fprintf(stderr, "It sees only processes that keep a book: %s\n", source->why);
    else if (source->state == EXITED_UNWATCHED)
        fputs(
            "It sees only processes that keep a book; as root, without --dir or with --exits yes, it sees all.\n",
            stderr);
    return COMMAND_OK;
}

static int show_once(struct exited_source *source, const struct exited_values *v,
                     const char *filter)
{
    char where[WHERE_MAX + 64];
    /* Groups are also of those that are only in sums. */
    snprintf(where, sizeof(where), "%s%s%s%s", v->by ? "(summed=yes or summed=no)" : "",
             v->by && *filter ? " and (" : "", filter, v->by && *filter ? ")" : "");
    struct query_spec spec = spec_of(v, where);
    struct query_style style = style_of(v);
    MEMOIR_CLEANUP(query_freep)
    struct query *query = NULL;
    struct query_result *result = NULL;
    int r = query_make(&spec, &query);
    if (r != 0)
        return r;
    r = query_result_new(query, 0, &result);
    if (r < 0)
        return r;
    r = exited_source_ask(source, &spec, query, result);
    if (r < 0) {
        query_result_free(result);
        return source_fail(source, v, r);
    }
    struct term term;
    term_init(&term, STDOUT_FILENO, (enum term_color)v->color);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    if (query_result_rows(result) || style.format != QUERY_FORMAT_TEXT) {
        r = query_print(result, query, &style, &term, &out);
        if (r == 0)
            r = command_output(&out);
    }
    if (r == COMMAND_OK && query_result_rows(result) == 0)
        r = nothing(source, v);
    else if (r == COMMAND_OK && style.format == QUERY_FORMAT_TEXT)
        mention(source, v, filter, result);
    query_result_free(result);
    return r;
}

/* ---- on and on ---- */

/* The last exit that the kernel told of; 0: there is none. */
static int last_sequence(struct exited_source *source, uint64_t *ret_sequence)
{
    struct query_spec spec = {.table = "exited", .show = "max(sequence)"};
    MEMOIR_CLEANUP(query_freep)
    struct query *query = NULL;
    struct query_result *result = NULL;
    int r = query_make(&spec, &query);
    if (r == 0)
        r = query_result_new(query, 0, &result);
    if (r != 0)
        return r;
    r = exited_source_ask(source, &spec, query, result);
    *ret_sequence = 0;
    if (r == 0 && query_result_rows(result) > 0) {
        struct query_value value = query_result_value(result, 0, 0);
        *ret_sequence = value.state & QUERY_KNOWN ? value.number : 0;
    }
    query_result_free(result);
    return r;
}

enum {
    LINE_TIME,
    LINE_LIVED,
    LINE_PROGRAM,
    LINE_USER,
    LINE_PID,
    LINE_CAUSE,
    LINE_PEAK,
    LINE_CELLS
};

/* A table's columns are as wide as what is in it; of an endless one they are fixed. */
static void line_print(char cells[static LINE_CELLS][64], const struct term *term,
                       struct buffer *out)
{
    static const int widths[] = {8, 9, -16, -10, 7, -31, 9};
    char line[LINE_CELLS * 80];
    size_t len = 0;
    for (size_t i = 0; i < LINE_CELLS; i++)
        len += (size_t)snprintf(line + len, sizeof(line) - len, "%s%*s", i ? "  " : "", widths[i],
                                cells[i]);
    while (len > 0 && line[len - 1] == ' ')
        line[--len] = '\0';
    term_append(term, out, line, 0);
    buffer_append_char(out, '\n');
}

static void lines_print(const struct query_result *result, bool header, const struct term *term,
                        struct buffer *out)
{
    char cells[LINE_CELLS][64] = {"ENDED", "LIVED", "PROGRAM", "USER", "PID", "CAUSE", "PEAK_RSS"};
    if (header)
        line_print(cells, term, out);
    for (size_t row = 0; row < query_result_rows(result); row++) {
        for (size_t c = 0; c < LINE_CELLS; c++) {
            struct query_value value = query_result_value(result, row, c);
            char text[UNITS_TEXT_MAX];
            struct tm tm;
            time_t seconds = (time_t)(value.number / NS_PER_S);
            if (!(value.state & QUERY_KNOWN))
                snprintf(cells[c], sizeof(cells[c]), "-");
            else if (c == LINE_TIME)
                strftime(cells[c], sizeof(cells[c]), "%T", localtime_r(&seconds, &tm));
            else if (c == LINE_LIVED)
                snprintf(cells[c], sizeof(cells[c]), "%s",
                         units_format_duration(text, value.number));
            else if (c == LINE_PEAK)
                snprintf(cells[c], sizeof(cells[c]), "%s",
                         units_format_bytes(text, value.number, UNITS_DECIMAL));
            else if (c == LINE_PID)
                snprintf(cells[c], sizeof(cells[c]), "%" PRIu64, value.number);
            else
                snprintf(cells[c], sizeof(cells[c]), "%.*s", (int)value.len, value.text);
        }
        line_print(cells, term, out);
    }
}

/* Those after `from` up to `to`, the earliest first. */
static int follow_print(struct exited_source *source, const struct exited_values *v,
                        const char *filter, uint64_t from, uint64_t to, bool header)
{
    char where[WHERE_MAX + 128];
    snprintf(where, sizeof(where), "sequence>%" PRIu64 " and sequence<=%" PRIu64 "%s%s%s", from, to,
             *filter ? " and (" : "", filter, *filter ? ")" : "");
    struct query_spec spec = spec_of(v, where);
    struct query_style style = style_of(v);
    spec.sort = "+sequence";
    style.header = header && !v->no_header;
    MEMOIR_CLEANUP(query_freep)
    struct query *query = NULL;
    struct query_result *result = NULL;
    int r = query_make(&spec, &query);
    if (r == 0)
        r = query_result_new(query, 0, &result);
    if (r != 0)
        return r;
    struct term term;
    term_init(&term, STDOUT_FILENO, (enum term_color)v->color);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    r = exited_source_ask(source, &spec, query, result);
    if (r == 0 && style.format == QUERY_FORMAT_TEXT)
        lines_print(result, style.header, &term, &out);
    else if (r == 0 && (query_result_rows(result) || header))
        r = query_print(result, query, &style, &term, &out);
    query_result_free(result);
    return r == 0 && out.len ? command_output(&out) : r;
}

/* Ends with an error, or when the reader of our output ends. */
static int follow(struct exited_source *source, const struct exited_values *v, const char *filter)
{
    uint64_t seen = 0;
    int r = last_sequence(source, &seen);
    if (r != 0)
        return r < 0 ? source_fail(source, v, r) : r;
    if (source->state != EXITED_WATCHED)
        return command_fail("the daemon does not see processes end: %s",
                            source->state == EXITED_FAILED
                                ? source->why
                                : "it has to run as root, without --dir or with --exits yes");
    r = follow_print(source, v, filter, seen, seen, true);
    while (r == 0) {
        struct timespec pause = {.tv_nsec = (long)(FOLLOW_PAUSE_MS * NS_PER_MS)};
        nanosleep(&pause, NULL);
        uint64_t now = seen;
        if (!exited_source_changed(source))
            continue;
        r = last_sequence(source, &now);
        if (r == 0 && now > seen)
            r = follow_print(source, v, filter, seen, now, false);
        seen = now > seen ? now : seen;
    }
    return r < 0 ? source_fail(source, v, r) : r;
}

static int check(const struct exited_values *v)
{
    if (v->json && v->csv)
        return command_misuse(&cmd_exited, "--json and --csv exclude each other");
    if (v->state && v->socket)
        return command_misuse(&cmd_exited, "--state and --socket exclude each other");
    if (v->follow && (v->by || v->sort || v->limit != UINT64_MAX))
        return command_misuse(&cmd_exited, "--by, --sort and --limit do not go with --follow");
    return COMMAND_OK;
}

/* An invalid question is an error also where no memoird answers. */
static int question_check(const struct exited_values *v, const char *where)
{
    struct query_spec spec = spec_of(v, where);
    struct query *query = NULL;
    int r = query_make(&spec, &query);
    query_free(query);
    return r;
}

static int run(const void *values, const struct operands *operands)
{
    struct exited_values with_pid = *(const struct exited_values *)values;
    const struct exited_values *v = &with_pid;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer where = BUFFER_INIT(WHERE_MAX);
    int r = command_pid_operand(&cmd_exited, operands, &with_pid.pid);
    if (r == COMMAND_OK)
        r = check(v);
    if (r == COMMAND_OK)
        r = where_of(v, &where);
    if (r != COMMAND_OK)
        return r;
    if (where.error)
        return command_misuse(&cmd_exited, "the options are too long");
    r = question_check(v, buffer_string(&where));
    if (r != COMMAND_OK)
        return r;
    struct exited_source source;
    r = exited_source_open(v->state, v->socket, &source);
    if (r < 0)
        return source_fail(&source, v, r);
    r = v->follow ? follow(&source, v, buffer_string(&where))
                  : show_once(&source, v, buffer_string(&where));
    exited_source_close(&source);
    return r;
}

/* Of other nodes. */
static const struct elsewhere elsewhere = {
    .table = "exited",
    .show = "node,pid,program,user,ended,cause,peak_rss",
    .own_past = true,
};

const struct command cmd_exited = {
    .name = "exited",
    .usage = "exited [OPTION...] [PID]",
    .help = "processes that ended: when, how, and with how much memory",
    .description =
        "Shows one row for each process that ended, the latest first: when, how long it lived, its cause of death, the "
        "most memory that it had, and, where it kept a book, what it still held. memoird as root sees every "
        "process of the machine, however short it lived; without BPF, or as a user, those that keep a book.\n\n"
        "Root reads the daemon's files. Others ask the daemon, which tells them of all processes but not "
        "what is private. Exits with status 3 if no recorded exit matches.",
    .options = options,
    .examples = examples,
    .sections = sections,
    .operands_max = 1,
    .elsewhere = &elsewhere,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = run,
};
