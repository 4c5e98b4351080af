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
#include "cli/absent.h"
#include "cli/command.h"
#include "cli/ps.h"
#include "ledger/ledger.h"
#include "profile/site_names.h"

enum { OUTPUT_MAX = 256 << 20 };

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

static const struct ps_values defaults = {.watch_ns = NS_PER_S};

#define AT(field) offsetof(struct ps_values, field)

static const struct option_spec options[] = {
    OPTION_HELP,
    {"pid", 'p', OPTION_NUMBER, AT(pid), "PID", "only this process", .completion = COMPLETE_PID},
    {"user", 'u', OPTION_STRING, AT(user), "USER", "only processes of this user (name or number)",
     .completion = COMPLETE_USER},
    {"sort", 's', OPTION_STRING, AT(sort), "KEY",
     "sort by a column or field of what is shown (rss, program, heap_bytes), sizes from large to small; -KEY and +KEY "
     "ask for large to small and small to large (default: those that run before those that are "
     "gone, then by device)"},
    {"wide", 'w', OPTION_FLAG, AT(wide),
     .help = "one line for each device and kind of memory of each process"},
    {"watch", 0, OPTION_DURATION, AT(watch_ns), "TIME",
     "show it again and again until interrupted (default: every second)", .value_optional = true,
     .given_offset = AT(watch)},
    {"exited", 'x', OPTION_FLAG, AT(exited),
     .help =
         "processes with a book that are gone, as the daemon remembers them, with the cause of death; memoir "
         "exited shows those without a book, too"},
    {"blocks", 'b', OPTION_FLAG, AT(blocks),
     .help = "with --exited: their largest blocks at the end"},
    OPTION_JSON,
    OPTION_CSV,
    OPTION_NO_HEADER,
    OPTION_COLOR,
    OPTIONS_ELSEWHERE,
    OPTION_DIR,
    {"state", 0, OPTION_STRING, AT(state), "DIR",
     "with --exited: the daemon's state directory (default: /var/lib/memoir as root, else "
     "$XDG_STATE_HOME/memoir or ~/.local/state/memoir)",
     .completion = COMPLETE_DIRECTORY},
    {0},
};

static const struct command_example examples[] = {
    {"memoir ps", "all processes, those with the most device memory first"},
    {"memoir ps --wide 4242", "what one process holds in each kind of memory"},
    {"memoir ps --watch --sort rss", "refresh every second, largest resident memory first"},
    {"memoir ps --exited --blocks 4242", "what a dead process still held, and why it died"},
    {"memoir ps --json | jq '.processes[] | {pid, device_bytes}'", "for programs"},
    {0},
};

static const struct command_fields fields[] = {
    {"Fields of a process", ps_process_columns},
    {"Fields of a space (--wide, JSON spaces)", ps_space_columns},
    {"Fields of a process that ended (--exited)", ps_exited_columns},
    {"Fields of a block (--exited --blocks, JSON blocks)", ps_block_columns},
    {0},
};

static const struct command_section sections[] = {
    {"JSON",
     "The document is one object: \"schema\" (\"memoir.ps/1\", with --exited \"memoir.exited/1\"), "
     "\"time\" (when it was taken), and \"processes\", an array of objects with the fields above. Each "
     "has \"spaces\", an array with one object for each device and kind of memory; with --exited it "
     "has \"blocks\" instead, the largest first. A value that could not be read is null, never 0. "
     "Fields may be added; a change of meaning changes the schema's number."},
    {0},
};

static struct ps_style style_of(const struct ps_values *v)
{
    return (struct ps_style){
        .format = v->json  ? PS_JSON
                  : v->csv ? PS_CSV
                           : PS_TEXT,
        .header = !v->no_header,
        .details = v->exited ? v->blocks : v->wide,
        .both = v->exited,
        .sort = v->sort,
        .schema = v->exited ? "memoir.exited/1" : "memoir.ps/1",
    };
}

/* ---- nothing to show ---- */

static int nothing_specific(const struct ps_values *v)
{
    if (v->exited && v->pid)
        command_fail("the daemon remembers no process %llu", (unsigned long long)v->pid);
    else if (v->exited)
        command_fail("the daemon remembers no process of user '%s'", v->user);
    else if (v->pid)
        return absent_process(v->pid,
                              "memoir doctor tells what could be wrong, and memoir query host what "
                              "/proc knows of it");
    else
        command_fail("no process of user '%s' keeps a book%s", v->user,
                     geteuid() == 0 ? "" : "; only root sees those of other users");
    return COMMAND_NOTHING;
}

static int nothing(const struct ps_values *v)
{
    if (v->pid || v->user)
        return nothing_specific(v);
    if (v->exited)
        fputs(
            "The daemon remembers no process that ended. It keeps the list while it runs: memoird\n",
            stderr);
    else
        absent_books("No process keeps a book yet.", "ps", v->dir);
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

static int take_live(const struct ps_values *v, const struct ps_filter *filter,
                     struct ps_view *ret_view)
{
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    int r = ledger_scan(v->dir, &ledger);
    if (r == 0)
        r = ps_view_live(ledger, filter, ret_view);
    if (r == 0 && !v->watch)
        mention_problems(ledger);
    return r;
}

static int take_exited(const struct ps_values *v, const struct ps_filter *filter,
                       struct ps_view *ret_view)
{
    size_t skipped = 0;
    MEMOIR_CLEANUP(site_names_freep)
    struct site_names *names = v->blocks ? site_names_new() : NULL;
    int r = ps_view_exited(v->state, filter, names, ret_view, &skipped);
    if (r == 0 && skipped && !v->watch)
        fprintf(stderr, "memoir: %zu line%s of the daemon's list made no sense\n", skipped,
                skipped == 1 ? "" : "s");
    return r;
}

/* One picture, printed into `out`. */
static int picture(const struct ps_values *v, const struct ps_filter *filter,
                   const struct term *term, struct buffer *out, size_t *ret_processes)
{
    MEMOIR_CLEANUP(ps_view_release)
    struct ps_view view = {0};
    int r = v->exited ? take_exited(v, filter, &view) : take_live(v, filter, &view);
    if (r < 0)
        return r;
    *ret_processes = view.processes.n_rows;
    if (v->exited && v->blocks && view.processes.n_rows && !view.details.n_rows && !v->watch)
        fputs("No blocks of it were remembered: it held none, or they could not be read.\n",
              stderr);
    struct ps_style style = style_of(v);
    return ps_print(&view, &style, term, out);
}

static int show_once(const struct ps_values *v, const struct ps_filter *filter)
{
    struct term term;
    term_init(&term, STDOUT_FILENO, (enum term_color)v->color);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    size_t processes = 0;
    int r = picture(v, filter, &term, &out, &processes);
    if (r < 0)
        return r;
    if (processes == 0 && !v->json && !v->csv)
        return nothing(v);
    r = command_output(&out);
    return processes == 0 && r == COMMAND_OK ? nothing(v) : r;
}

/* The line above the table. */
static void headline(const struct ps_values *v, size_t processes, struct buffer *out)
{
    char clock[32];
    time_t now = time(NULL);
    struct tm tm;
    strftime(clock, sizeof(clock), "%T", localtime_r(&now, &tm));
    buffer_printf(out, "%s  %zu process%s %s\n\n", clock, processes, processes == 1 ? "" : "es",
                  v->exited        ? "ended"
                  : processes == 1 ? "keeps a book"
                                   : "keep books");
}

static int watch(const struct ps_values *v, const struct ps_filter *filter)
{
    struct term term;
    term_init(&term, STDOUT_FILENO, (enum term_color)v->color);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer table = BUFFER_INIT(OUTPUT_MAX);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer frame = BUFFER_INIT(OUTPUT_MAX);
    if (term.tty)
        buffer_append_str(&frame, "\033[2J");
    command_output(&frame);
    for (bool first = true;; first = false) {
        term_init(&term, STDOUT_FILENO, (enum term_color)v->color); /* it may have been resized */
        buffer_reset(&table);
        buffer_reset(&frame);
        size_t processes = 0;
        int r = picture(v, filter, &term, &table, &processes);
        if (r < 0)
            return r;
        if (!v->json && !v->csv) {
            if (!term.tty && !first)
                buffer_append_char(&frame, '\n');
            headline(v, processes, &frame);
        }
        buffer_append(&frame, buffer_string(&table), table.len);
        r = command_frame(&term, &frame);
        if (r != COMMAND_OK)
            return r;
        struct timespec pause = {(time_t)(v->watch_ns / NS_PER_S), (long)(v->watch_ns % NS_PER_S)};
        nanosleep(&pause, NULL);
    }
}

/* The columns by which --sort may sort. */
static const struct column *columns_of(const struct ps_values *v)
{
    struct ps_style style = style_of(v);
    bool details = style.details && !v->json;
    if (v->exited)
        return details ? ps_block_columns : ps_exited_columns;
    return details ? ps_space_columns : ps_process_columns;
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
    if (v->exited && (v->wide || v->dir))
        return command_misuse(&cmd_ps, "--wide and --dir do not go with --exited");
    if (v->sort && table_sort_parse(columns_of(v), v->sort, &sort) < 0)
        return command_misuse(&cmd_ps, "there is no column '%s' to sort by", v->sort);
    return COMMAND_OK;
}

static int run(const void *values, const struct operands *operands)
{
    struct ps_values with_pid = *(const struct ps_values *)values;
    const struct ps_values *v = &with_pid;
    int r = command_pid_operand(&cmd_ps, operands, &with_pid.pid);
    struct ps_filter filter = {.pid = v->pid};
    if (r == COMMAND_OK)
        r = check(v);
    if (r == COMMAND_OK)
        r = command_check_dir(v->dir);
    if (r == COMMAND_OK)
        r = find_user(v, &filter);
    if (r != COMMAND_OK)
        return r;
    r = v->watch ? watch(v, &filter) : show_once(v, &filter);
    if (r >= 0 || !v->exited)
        return r;
    if (r == -ENOENT && !v->state)
        return nothing(v); /* no daemon has run yet */
    if (r == -ENOENT) {
        command_fail("there is no list of processes that ended in '%s' yet: memoird keeps it; "
                     "start it with 'memoird --daemon', or name its state directory by --state",
                     v->state);
        return COMMAND_NOTHING;
    }
    return command_fail("cannot read the daemon's list in '%s': %s", ps_state_find(v->state),
                        strerror(-r));
}

/* Of other nodes. */
static const struct elsewhere elsewhere = {
    .table = "processes",
    .show = "node,pid,program,user,rss,heap,pinned,device,age",
    .sort = "-rss",
    .operand = "pid",
};

const struct command cmd_ps = {
    .name = "ps",
    .usage = "ps [OPTION...] [PID]",
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
    .fields = fields,
    .operands_max = 1,
    .takes_processes = true,
    .elsewhere = &elsewhere,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = run,
};
