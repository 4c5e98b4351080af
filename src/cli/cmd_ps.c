/* memoir ps: who holds how much. Reads the books itself, so it needs no daemon. */
#include <errno.h>
#include <signal.h>
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
#include "cli/ps.h"
#include "cli/view.h"
#include "cli/world.h"
#include "ledger/ledger.h"
#include "profile/site_names.h"
#include "query/query.h"
#include "query/view.h"

enum { OUTPUT_MAX = 256 << 20, WHERE_MAX = 256 };

struct ps_values {
    struct command_common common;
    struct view_options view;
    const char *dir, *user, *state;
    uint64_t pid;
    bool wide, all, exited, blocks;
    bool watch;
    uint64_t watch_ns;
};

static const struct ps_values defaults = {.watch_ns = NS_PER_S};

#define AT(field) offsetof(struct ps_values, field)

static const struct option_spec options[] = {
    OPTION_HELP,
    {"pid", 'p', OPTION_NUMBER, AT(pid), "PID", "only this process", .completion = COMPLETE_PID},
    {"user", 'u', OPTION_STRING, AT(user), "USER", "only processes of this user (name or number)",
     .completion = COMPLETE_USER},
    VIEW_OPTION_WHERE,
    VIEW_OPTION_BY,
    VIEW_OPTION_SHOW,
    {"sort", 's', OPTION_STRING, AT(view.sort), "COLUMNS",
     "the order: -X from large to small, +X from small to large, X large figures first and texts from A to Z (default: "
     "those with the most device memory first)"},
    {"wide", 'w', OPTION_FLAG, AT(wide),
     .help = "one line for each device and kind of memory of each process"},
    {"all", 'a', OPTION_FLAG, AT(all),
     .help =
         "also processes that are gone, but whose books no daemon has retired yet, with their last figures"},
    {"watch", 0, OPTION_DURATION, AT(watch_ns), "TIME",
     "show it again and again until interrupted (default: every second)", .value_optional = true,
     .given_offset = AT(watch)},
    {"exited", 'x', OPTION_FLAG, AT(exited),
     .help =
         "processes with a book that are gone, as the daemon remembers them, with the cause of death; memoir "
         "exited shows those without a book, too"},
    {"blocks", 'b', OPTION_FLAG, AT(blocks),
     .help = "with --exited: their largest blocks at the end"},
    VIEW_OPTIONS_PRINT,
    OPTIONS_PAST,
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
    {"memoir ps --by user --show count,device,heap", "what each user holds"},
    {"memoir ps --watch --sort rss", "refresh every second, largest resident memory first"},
    {"memoir ps --exited --blocks 4242", "what a dead process still held, and why it died"},
    {"memoir ps --json | jq '.rows[] | {pid, device}'", "for programs"},
    {0},
};

static const struct command_section sections[] = {
    {"COLUMNS",
     "Rows and columns are those of the table processes of memoir query; with --wide of the table accounts, with --exited of the "
     "table exited, with --exited --blocks of exited_blocks. memoir query processes --columns lists them. Where figures begin at some moment of the process's life they "
     "end in + on screen, and estimates begin with ~; JSON lists such columns in at_least and estimate."},
    {"JSON",
     "The document is that of memoir query: \"schema\" (\"memoir.query/1\"), \"time\", \"table\", \"columns\" with name, "
     "kind and unit of each, \"rows\", an array of objects by column, and \"matched\". A value that could not be read is null, never 0. "
     "With --exited --blocks its rows are those of the table exited_blocks."},
    {0},
};

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

/* `world`: that was asked; NULL: none. */
static int nothing(const struct ps_values *v, const struct world *world)
{
    if (v->pid || v->user)
        return nothing_specific(v);
    if (v->view.where) {
        command_fail("no process is like that");
        return COMMAND_NOTHING;
    }
    if (v->exited && world && world->told)
        return COMMAND_OK;
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

/* ---- the question ---- */

static const struct query_view *view_of(const struct ps_values *v)
{
    return v->blocks   ? query_view_route("exited_blocks")
           : v->exited ? query_view_find("exited")
           : v->wide   ? query_view_route("accounts")
                       : query_view_find("ps");
}

static int make_query(const struct ps_values *v, struct query **ret_query)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer where = BUFFER_INIT(WHERE_MAX);
    int r = COMMAND_OK;
    if (v->pid)
        view_test(&where, "pid=%llu", (unsigned long long)v->pid);
    if (v->user)
        r = view_test_user(&where, v->user);
    if (v->exited && !v->blocks)
        view_test(&where, "has_book=yes");
    if (v->all)
        view_test(&where, "state!=none");
    if (r != COMMAND_OK)
        return r;
    struct view_layout layout = {
        .rows = v->blocks   ? ps_block_rows
                : v->exited ? ps_exited_rows
                : v->wide   ? ps_wide_rows
                            : ps_rows,
        .sort = v->blocks   ? ps_block_sort
                : v->exited ? ps_exited_sort
                : v->wide   ? ps_wide_sort
                : v->all    ? ps_all_sort
                            : ps_sort,
    };
    return view_query(&cmd_ps, view_of(v), &v->view, buffer_string(&where), &layout, ret_query);
}

/* ---- running ---- */

/* Processes whose books are all that is left of them are not shown, but worth a word. */
static void mention_gone(struct ledger *ledger)
{
    size_t n, gone = 0;
    struct ledger_process *const *processes = ledger_processes(ledger, &n);
    for (size_t i = 0; i < n; i++)
        gone += !ledger_process_holds(processes[i]);
    if (gone)
        fprintf(stderr, "%zu process%s gone, with %s book still there: memoir ps --all\n", gone,
                gone == 1 ? " is" : "es are", gone == 1 ? "its" : "their");
}

/* One picture, printed into `out`. */
static int picture(const struct ps_values *v, struct world *world, const struct query *query,
                   struct query_result *result, const struct term *term, struct buffer *out)
{
    struct world_options how = {.dir = v->dir,
                                .state = v->state,
                                .repeated = v->watch,
                                .selective = v->pid || v->user || v->view.where};
    struct query_style style = view_style(&v->view);
    if (!view_is_plain(&v->view))
        style = v->exited ? ps_exited_layout(&style, v->blocks) : ps_layout(&style, v->wide);
    int r = world_ask(world, &how, query, result);
    return r == 0 ? query_print(result, query, &style, term, out) : r;
}

static int show_once(const struct ps_values *v, struct world *world, const struct query *query,
                     struct query_result *result)
{
    struct term term;
    term_init(&term, STDOUT_FILENO, (enum term_color)v->view.color);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    int r = picture(v, world, query, result, &term, &out);
    if (r != 0)
        return r;
    size_t rows = query_result_rows(result);
    if (rows || v->view.json || v->view.csv)
        r = command_output(&out);
    if (r != COMMAND_OK)
        return r;
    view_mention(query, result);
    if (world->ledger)
        mention_problems(world->ledger);
    if (rows == 0)
        return nothing(v, world);
    if (world->ledger && !v->all && !view_is_plain(&v->view) && !v->pid)
        mention_gone(world->ledger);
    return COMMAND_OK;
}

/* The line above the table. */
static void headline(const struct ps_values *v, size_t rows, struct buffer *out)
{
    char clock[32];
    time_t now = time(NULL);
    struct tm tm;
    strftime(clock, sizeof(clock), "%T", localtime_r(&now, &tm));
    if (v->wide || v->view.by)
        buffer_printf(out, "%s  %zu row%s\n\n", clock, rows, rows == 1 ? "" : "s");
    else
        buffer_printf(out, "%s  %zu process%s %s\n\n", clock, rows, rows == 1 ? "" : "es",
                      v->exited   ? "ended"
                      : rows == 1 ? "keeps a book"
                                  : "keep books");
}

static int watch(const struct ps_values *v, struct world *world, const struct query *query,
                 struct query_result *result)
{
    struct term term;
    term_init(&term, STDOUT_FILENO, (enum term_color)v->view.color);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer table = BUFFER_INIT(OUTPUT_MAX);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer frame = BUFFER_INIT(OUTPUT_MAX);
    if (term.tty)
        buffer_append_str(&frame, "\033[2J");
    command_output(&frame);
    for (bool first = true;; first = false) {
        term_init(&term, STDOUT_FILENO, (enum term_color)v->view.color); /* it may be resized */
        buffer_reset(&table);
        buffer_reset(&frame);
        int r = picture(v, world, query, result, &term, &table);
        if (r != 0)
            return r;
        if (!v->view.json && !v->view.csv) {
            if (!term.tty && !first)
                buffer_append_char(&frame, '\n');
            headline(v, query_result_rows(result), &frame);
        }
        buffer_append(&frame, buffer_string(&table), table.len);
        r = command_frame(&term, &frame);
        if (r != COMMAND_OK)
            return r;
        struct timespec pause = {(time_t)(v->watch_ns / NS_PER_S), (long)(v->watch_ns % NS_PER_S)};
        nanosleep(&pause, NULL);
    }
}

/* ---- blocks of processes that ended ---- */

/* Text tells of the processes first. */
static int show_ended(const struct ps_values *v, struct world *world, size_t *ret_rows)
{
    struct ps_values processes = *v;
    processes.blocks = false;
    processes.view.sort = NULL;
    MEMOIR_CLEANUP(query_freep)
    struct query *query = NULL;
    MEMOIR_CLEANUP(query_result_freep)
    struct query_result *result = NULL;
    int r = make_query(&processes, &query);
    if (r == COMMAND_OK)
        r = query_result_new(query, 0, &result);
    if (r == COMMAND_OK)
        r = show_once(&processes, world, query, result);
    *ret_rows = r == COMMAND_OK ? query_result_rows(result) : 0;
    return r;
}

static int show_blocks(const struct ps_values *v, struct world *world, const struct query *query,
                       struct query_result *result)
{
    size_t ended = 0;
    bool text = !view_is_plain(&v->view) && !v->view.where;
    int r = text ? show_ended(v, world, &ended) : COMMAND_OK;
    if (r != COMMAND_OK || (text && !ended))
        return r;
    struct term term;
    term_init(&term, STDOUT_FILENO, (enum term_color)v->view.color);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    if (text)
        buffer_append_char(&out, '\n');
    r = picture(v, world, query, result, &term, &out);
    if (r != 0)
        return r;
    size_t rows = query_result_rows(result);
    if (text && !rows)
        fputs("No blocks of it were remembered: it held none, or they could not be read.\n",
              stderr);
    if (rows || v->view.json || v->view.csv)
        r = command_output(&out);
    return r == COMMAND_OK && !rows && !text ? nothing(v, world) : r;
}

static int check(const struct ps_values *v)
{
    if (v->view.json && v->view.csv)
        return command_misuse(&cmd_ps, "--json and --csv exclude each other");
    if (v->watch && v->watch_ns < 50 * NS_PER_MS)
        return command_misuse(&cmd_ps, "--watch cannot be faster than every 0.05 seconds");
    if (!v->exited && (v->blocks || v->state))
        return command_misuse(&cmd_ps, "--blocks and --state go with --exited");
    if (v->blocks && v->watch)
        return command_misuse(&cmd_ps, "--blocks and --watch exclude each other");
    if (v->exited && (v->wide || v->dir || v->all))
        return command_misuse(&cmd_ps, "--wide, --all and --dir do not go with --exited");
    return COMMAND_OK;
}

static int run(const void *values, const struct operands *operands)
{
    struct ps_values with_pid = *(const struct ps_values *)values;
    const struct ps_values *v = &with_pid;
    int r = command_pid_operand(&cmd_ps, operands, &with_pid.pid);
    if (r == COMMAND_OK)
        r = check(v);
    if (r == COMMAND_OK)
        r = command_check_dir(v->dir);
    if (r != COMMAND_OK)
        return r;
    MEMOIR_CLEANUP(query_freep)
    struct query *query = NULL;
    struct query_result *result = NULL;
    MEMOIR_CLEANUP(world_release)
    struct world world = {0};
    r = make_query(v, &query);
    if (r == COMMAND_OK)
        r = query_result_new(query, 0, &result);
    if (r == COMMAND_OK)
        r = v->watch    ? watch(v, &world, query, result)
            : v->blocks ? show_blocks(v, &world, query, result)
                        : show_once(v, &world, query, result);
    query_result_free(result);
    return r;
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
        "libmemoir, or that memoir run, memoir attach or memoir trace accounts. The figures are read from the "
        "books as they are now; no daemon is needed.\n\n"
        "With --all a process that died keeps its row, with the last figures, until the daemon retires its "
        "book; then --exited shows it. Root sees all processes, others their own.",
    .options = options,
    .examples = examples,
    .sections = sections,
    .operands_max = 1,
    .takes_processes = true,
    .elsewhere = &elsewhere,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = run,
};
