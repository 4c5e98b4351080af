/* memoir ps: who holds how much. Reads the books itself, so it needs no daemon. */
#include <errno.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/ps.h"
#include "ledger/ledger.h"

enum { OUTPUT_MAX = 256 << 20 };

enum format { FORMAT_TEXT, FORMAT_CSV, FORMAT_JSON };

struct ps_values {
    struct command_common common;
    const char *dir;
    uint64_t pid;
    const char *user;
    const char *sort;
    bool wide;
    bool json, csv, no_header;
    int color;
    bool watch;
    uint64_t watch_ns;
    bool exited, blocks;
    const char *state;
};

static const struct ps_values defaults = {.watch_ns = 2 * NS_PER_S};

#define AT(field) offsetof(struct ps_values, field)

static const struct option_spec options[] = {
    OPTION_HELP,
    {"pid", 'p', OPTION_NUMBER, AT(pid), "PID", "only this process", .completion = COMPLETE_PID},
    {"user", 'u', OPTION_STRING, AT(user), "USER", "only processes of this user (name or number)",
     .completion = COMPLETE_USER},
    {"sort", 's', OPTION_STRING, AT(sort), "KEY",
     "sort by a column or field (rss, program, heap_bytes), sizes from large to small; -KEY and +KEY "
     "ask for large to small and small to large (default: device, with --wide the order of "
     "processes)"},
    {"wide", 'w', OPTION_FLAG, AT(wide),
     .help = "one line for each device and kind of memory of each process"},
    {"watch", 0, OPTION_DURATION, AT(watch_ns), "SECONDS",
     "show it again and again until interrupted (default: every 2 seconds)", .value_optional = true,
     .given_offset = AT(watch)},
    {"exited", 'x', OPTION_FLAG, AT(exited),
     .help = "processes that are gone, as the daemon remembers them, with the cause of death"},
    {"blocks", 'b', OPTION_FLAG, AT(blocks),
     .help = "with --exited: their largest blocks at the end"},
    {"json", 'j', OPTION_FLAG, AT(json), .help = "print JSON"},
    {"csv", 0, OPTION_FLAG, AT(csv), .help = "print CSV (RFC 4180)"},
    {"no-header", 0, OPTION_FLAG, AT(no_header), .help = "leave out the line of column names"},
    {"color", 0, OPTION_CHOICE, AT(color), "WHEN", "use colours: auto, always or never",
     .choices = term_color_words},
    {"dir", 0, OPTION_STRING, AT(dir), "DIR", "look for books in DIR instead of the usual places",
     .completion = COMPLETE_DIRECTORY},
    {"state", 0, OPTION_STRING, AT(state), "DIR",
     "with --exited: the daemon's state directory, where it is not the usual one",
     .completion = COMPLETE_DIRECTORY},
    {0},
};

static const struct command_example examples[] = {
    {"memoir ps", "all processes, those with the most device memory first"},
    {"memoir ps --wide --pid 4242", "what one process holds in each kind of memory"},
    {"memoir ps --watch 1 --sort rss", "refresh every second, largest resident memory first"},
    {"memoir ps --exited --pid 4242 --blocks", "what a dead process still held, and why it died"},
    {"memoir ps --json | jq '.processes[] | {pid, device_bytes}'", "for programs"},
    {0},
};

static const struct command_section sections[] = {
    {"JSON",
     "The document is one object: \"schema\" (\"memoir.ps/1\"), \"time\" (when it was taken), and "
     "\"processes\", an array of objects with the fields above. Each has \"spaces\", an array with one "
     "object for each device and kind of memory. A value that could not be read is null, never 0. "
     "Fields may be added; a change of meaning changes the schema's number."},
    {0},
};

/* ---- printing ---- */

static void json_document_begin(struct json *json, const char *schema)
{
    char time_text[32];
    time_t now = time(NULL);
    struct tm tm;
    strftime(time_text, sizeof(time_text), "%FT%TZ", gmtime_r(&now, &tm));
    json_object_begin(json);
    json_field_string(json, "schema", schema);
    json_field_string(json, "time", time_text);
}

static void json_spaces(const struct ps_view *view, size_t process, struct json *json)
{
    json_key(json, "spaces");
    json_array_begin(json);
    for (size_t i = 0; i < view->spaces.n_rows; i++) {
        if (view->space_owner[i] != process)
            continue;
        json_object_begin(json);
        table_json_row(&view->spaces, i, PS_SPACE_OWN_COLUMNS, json);
        json_object_end(json);
    }
    json_array_end(json);
}

static int print_json(const struct ps_view *view, const size_t *order, struct buffer *out)
{
    struct json json;
    json_init(&json, out);
    json_document_begin(&json, "memoir.ps/1");
    json_key(&json, "processes");
    json_array_begin(&json);
    for (size_t i = 0; i < view->processes.n_rows; i++) {
        size_t row = order ? order[i] : i;
        json_object_begin(&json);
        table_json_row(&view->processes, row, 0, &json);
        json_spaces(view, row, &json);
        json_object_end(&json);
    }
    json_array_end(&json);
    json_object_end(&json);
    buffer_append_char(out, '\n');
    return json_finish(&json);
}

/* The view as the options want it. */
static int print_view(const struct ps_values *v, const struct ps_view *view,
                      const struct term *term, struct buffer *out)
{
    bool spaces = v->wide && !v->json;
    const struct table *table = spaces ? &view->spaces : &view->processes;
    MEMOIR_CLEANUP(freep)
    size_t *order = NULL;
    const char *key = v->sort ? v->sort : spaces ? NULL : "device";
    struct table_sort sort;
    if (key) {
        if (table_sort_parse(table->columns, key, &sort) < 0)
            return -EINVAL;
        int r = table_sort(table, &sort, &order);
        if (r < 0)
            return r;
    }
    struct table_layout layout = {.header = !v->no_header, .order = order};
    if (v->json)
        return print_json(view, order, out);
    if (v->csv)
        return table_print_csv(table, &layout, out);
    return table_print(table, &layout, term, out);
}

/* ---- nothing to show ---- */

static void hint(const char *text)
{
    fprintf(stderr, "%s\n", text);
}

static int nothing(const struct ps_values *v)
{
    if (v->pid) {
        command_fail(
            "no process %llu keeps a book%s", (unsigned long long)v->pid,
            kill((pid_t)v->pid, 0) < 0 && errno == ESRCH
                ? "; there is no such process (memoir ps --exited knows dead ones)"
                : "; it runs, but reports nothing (memoir doctor tells what could be wrong)");
        return COMMAND_NOTHING;
    }
    if (v->user) {
        command_fail("no process of user '%s' keeps a book%s", v->user,
                     geteuid() == 0 ? "" : "; only root sees those of other users");
        return COMMAND_NOTHING;
    }
    hint("No process keeps a book yet. Try: memoir demo, and memoir ps in another terminal.\n"
         "Programs that report their memory link with -lmemoir; memoir doctor tells what could be "
         "wrong.");
    return COMMAND_OK;
}

static void mention_problems(const struct ledger *ledger)
{
    uint64_t n = 0;
    for (int kind = 0; kind < LEDGER_PROBLEM_KINDS; kind++)
        if (kind != LEDGER_PROBLEM_NOT_READY)
            n += ledger_problem_count(ledger, (enum ledger_problem_kind)kind);
    if (n)
        fprintf(stderr, "memoir: %llu book%s left out; memoir doctor tells why\n",
                (unsigned long long)n, n == 1 ? " is" : "s are");
}

/* ---- running ---- */

static int find_user(const struct ps_values *v, struct ps_filter *filter)
{
    if (!v->user)
        return COMMAND_OK;
    char *end;
    unsigned long number = strtoul(v->user, &end, 10);
    filter->by_uid = true;
    if (*v->user >= '0' && *v->user <= '9' && !*end) {
        filter->uid = (uint32_t)number;
        return COMMAND_OK;
    }
    const struct passwd *pw = getpwnam(v->user);
    if (!pw) {
        command_fail("there is no user '%s'", v->user);
        return COMMAND_NOTHING;
    }
    filter->uid = pw->pw_uid;
    return COMMAND_OK;
}

static int take_picture(const struct ps_values *v, const struct ps_filter *filter,
                        struct ps_view *view)
{
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    int r = ledger_scan(v->dir, &ledger);
    if (r < 0)
        return r;
    r = ps_view_fill(view, ledger, filter);
    if (r == 0 && !v->watch)
        mention_problems(ledger);
    return r;
}

static int show_once(const struct ps_values *v, const struct ps_filter *filter)
{
    struct term term;
    term_init(&term, STDOUT_FILENO, (enum term_color)v->color);
    MEMOIR_CLEANUP(ps_view_release)
    struct ps_view view;
    ps_view_init(&view);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    int r = take_picture(v, filter, &view);
    if (r < 0)
        return r;
    bool empty = view.processes.n_rows == 0;
    if (empty && !v->json && !v->csv)
        return nothing(v);
    r = print_view(v, &view, &term, &out);
    if (r < 0)
        return r;
    r = command_output(&out);
    return empty && r == COMMAND_OK ? nothing(v) : r;
}

/* On a terminal each picture replaces the last one in place, line by line, so that nothing flickers;
 * elsewhere pictures follow each other. */
static int frame(const struct ps_values *v, const struct term *term, const struct buffer *picture)
{
    if (!term->tty)
        return command_output(picture);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer screen = BUFFER_INIT(OUTPUT_MAX);
    buffer_append_str(&screen, "\033[H");
    const char *line = buffer_string(picture);
    for (unsigned row = 1; *line && (!term->height || row < term->height); row++) {
        size_t len = strcspn(line, "\n");
        buffer_append(&screen, line, len);
        buffer_append_str(&screen, "\033[K\n");
        line += len + (line[len] == '\n');
    }
    buffer_append_str(&screen, "\033[J");
    return command_output(&screen);
}

static int watch(const struct ps_values *v, const struct ps_filter *filter)
{
    struct term term;
    term_init(&term, STDOUT_FILENO, (enum term_color)v->color);
    if (term.tty)
        printf("\033[2J");
    fflush(stdout);
    for (bool first = true;; first = false) {
        term_init(&term, STDOUT_FILENO, (enum term_color)v->color); /* it may have been resized */
        MEMOIR_CLEANUP(ps_view_release)
        struct ps_view view;
        ps_view_init(&view);
        MEMOIR_CLEANUP(buffer_release)
        struct buffer out = BUFFER_INIT(OUTPUT_MAX);
        int r = take_picture(v, filter, &view);
        if (r < 0)
            return r;
        char clock[32];
        time_t now = time(NULL);
        struct tm tm;
        strftime(clock, sizeof(clock), "%T", localtime_r(&now, &tm));
        size_t n = view.processes.n_rows;
        if (!v->json && !v->csv)
            buffer_printf(&out, "%s%s  %zu process%s keep%s a book\n\n",
                          first || term.tty ? "" : "\n", clock, n, n == 1 ? "" : "es",
                          n == 1 ? "s" : "");
        r = print_view(v, &view, &term, &out);
        if (r == 0)
            r = frame(v, &term, &out);
        if (r != 0)
            return r;
        struct timespec pause = {(time_t)(v->watch_ns / NS_PER_S), (long)(v->watch_ns % NS_PER_S)};
        nanosleep(&pause, NULL);
    }
}

static int check(const struct ps_values *v)
{
    struct table_sort sort;
    if (v->json && v->csv)
        return command_misuse(&cmd_ps, "--json and --csv exclude each other");
    if (v->watch && v->watch_ns < 50 * NS_PER_MS)
        return command_misuse(&cmd_ps, "--watch cannot be faster than every 0.05 seconds");
    if (!v->exited && (v->blocks || v->state))
        return command_misuse(&cmd_ps, "--blocks and --state go with --exited");
    const struct column *columns = v->wide && !v->json ? ps_space_columns : ps_process_columns;
    if (v->sort && !v->exited && table_sort_parse(columns, v->sort, &sort) < 0)
        return command_misuse(&cmd_ps, "there is no column '%s' to sort by", v->sort);
    return COMMAND_OK;
}

static int run(const void *values, const struct operands *operands)
{
    const struct ps_values *v = values;
    struct ps_filter filter = {.pid = v->pid};
    int r = check(v);
    if (r == COMMAND_OK)
        r = find_user(v, &filter);
    if (r != COMMAND_OK)
        return r;
    return v->watch ? watch(v, &filter) : show_once(v, &filter);
}

const struct command cmd_ps = {
    .name = "ps",
    .usage = "ps [OPTION...]",
    .help = "who holds how much memory, on devices and on the host",
    .description =
        "Shows one row for each process that keeps a book: a program that reports its memory by "
        "libmemoir, or that is observed. The figures are read from the books as they are now; no "
        "daemon is needed.\n\n"
        "A process that died keeps its row, with the last figures, until the daemon retires its "
        "book; then --exited shows it. Root sees all processes, others their own.",
    .options = options,
    .examples = examples,
    .sections = sections,
    .columns = ps_process_columns,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = run,
};
