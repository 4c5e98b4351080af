/* memoir top: every process of the machine, live. Reads /proc and the books itself, so it needs no daemon. */
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/command.h"
#include "cli/top.h"
#include "cli/top_print.h"
#include "cli/view.h"
#include "cli/world.h"
#include "ledger/host.h"
#include "query/query.h"
#include "query/view.h"

enum { OUTPUT_MAX = 256 << 20, INTERVAL_MIN_MS = 50, WHERE_MAX = 8192 };

/* For one picture everything may be read once, within reason. */
#define ONCE_NS (2 * NS_PER_S)
/* Between pictures that follow each other, as on the screen. */
#define AGAIN_PERMILLE 2

struct top_values {
    struct command_common common;
    const char *dir, *state;
    const char *sort, *filter, *user, *columns;
    bool tree, tracked, kernel, once;
    uint64_t number, limit, interval_ns;
    struct view_options view;
};

static const struct top_values defaults = {.interval_ns = NS_PER_S};

#define AT(field) offsetof(struct top_values, field)

static const struct option_spec options[] = {
    OPTION_HELP,
    {"sort", 's', OPTION_STRING, AT(sort), "KEY",
     "sort by a column or field (rss, rate, pss, heap, program); sizes from large to small, -KEY and +KEY ask for "
     "large to small and small to large (default: rss)"},
    {"filter", 'f', OPTION_STRING, AT(filter), "TEXT",
     "only processes whose program, user or command has TEXT in it, or whose PID starts with it"},
    {"user", 'u', OPTION_STRING, AT(user), "USER", "only processes of this user (name or number)",
     .completion = COMPLETE_USER},
    {"tree", 't', OPTION_FLAG, AT(tree),
     .help = "children below their parents, with the sums of families"},
    {"tracked", 0, OPTION_FLAG, AT(tracked), .help = "only processes that keep a book"},
    {"kernel", 0, OPTION_FLAG, AT(kernel), .help = "also threads of the kernel"},
    {"columns", 0, OPTION_STRING, AT(columns), "LIST",
     "columns of the full screen, by field or title: pid,user,rss,peak (default: those kept with "
     "C, else a choice)"},
    {"interval", 'i', OPTION_DURATION, AT(interval_ns), "TIME",
     "time from one look to the next (default: 1s)"},
    {"once", '1', OPTION_FLAG, AT(once), .help = "print one table and end; so it is on a pipe"},
    {"number", 'n', OPTION_NUMBER, AT(number), "N", "print N tables, one each interval, and end"},
    {"limit", 'l', OPTION_NUMBER, AT(limit), "N",
     "print the first N processes; 0 shows all, as by default"},
    VIEW_OPTION_WHERE,
    VIEW_OPTION_BY,
    VIEW_OPTION_SHOW,
    VIEW_OPTIONS_PRINT,
    OPTIONS_PAST,
    OPTIONS_ELSEWHERE,
    OPTION_DIR,
    {"state", 0, OPTION_STRING, AT(state), "DIR",
     "the daemon's state directory, whose history the page of a process shows (default: "
     "/var/lib/memoir as root, else $XDG_STATE_HOME/memoir or ~/.local/state/memoir)",
     .completion = COMPLETE_DIRECTORY},
    {0},
};

static const struct command_example examples[] = {
    {"memoir top", "full screen until q is pressed; ? tells the keys"},
    {"memoir top --sort rate", "who grows"},
    {"memoir top --user ann --tree", "one user's processes as a tree"},
    {"memoir top --once --limit 10", "the ten largest, as text"},
    {"memoir top --by user --show count,rss,heap", "what each user holds"},
    {"memoir top --json | jq '.rows[] | select(.growth > 1e6)'", "for programs"},
    {0},
};

static const struct command_fields fields[] = {
    {"Columns and fields of a process", top_fields},
    {0},
};

static const struct command_section sections[] = {
    {"FIGURES",
     "RSS counts shared pages in full, so a sum of it is too much; PSS divides each page by how many processes "
     "share it. Reading PSS is costly for large processes and holds them up meanwhile, so it is read for those that "
     "changed the most, within a small share of the time; a figure that is not fresh says how old it is. "
     "RATE is the growth of RSS over the last 10 seconds; it is yellow from 100 kB a second on and red where it "
     "would fill the available memory within 10 minutes.\n\n"
     "HEAP, PINNED and DEVICE are live bytes as the books of the process tell; memoir run PROGRAM starts a "
     "program that keeps one. TRACKED says whether every allocation is accounted, and if not, why: "
     "static programs, Go, setuid and 32-bit programs cannot be; others were not asked to.\n\n"
     "A value that is not known is a dash on screen, absent in CSV and null in JSON, never 0. On screen + "
     "after a figure means at least, ~ before it an estimate, and sizes are decimal: 1k is 1,000 bytes."},
    {"KEYS",
     "Arrows, PgUp, PgDn, Home, End, j, k, wheel and click choose a process; Enter or a double click shows "
     "all about it: figures with their ages, a chart, what its books say, the call sites that hold the most, and "
     "why it is not tracked. / filters while you type. s, < and >, or a click on a heading sort, r turns the order "
     "round. t shows a tree, in which left folds a family into one row of sums. u shows users and what "
     "they hold, T only processes with a book, K threads of the kernel, m the memory of the machine. C "
     "chooses columns; Enter there keeps them, with the order, for the next time. Space stands still, + and - change the "
     "interval, ? helps, q ends."},
    {"JSON",
     "With --json, --csv, --where, --by or --show the answer is that of memoir query host, and --sort takes columns of that table; "
     "memoir query host --columns lists them, and memoir query system has the memory of the machine. With --number each document is "
     "one line of its own."},
    {"FILES",
     "$XDG_CONFIG_HOME/memoir/toprc, else ~/.config/memoir/toprc: columns and order of the full screen. Options of the "
     "command line go first; without the file everything is as delivered."},
    {0},
};

static bool wants_rows(const struct top_values *v)
{
    return view_is_plain(&v->view) || v->view.where;
}

static int find_user(const struct top_values *v, struct top_wish *wish)
{
    if (!v->user)
        return COMMAND_OK;
    char *end;
    errno = 0;
    unsigned long number = strtoul(v->user, &end, 10);
    const struct passwd *entry = getpwnam(v->user);
    wish->by_uid = true;
    if (entry)
        wish->uid = entry->pw_uid;
    else if (*v->user >= '0' && *v->user <= '9' && !*end && !errno && number < UINT32_MAX)
        wish->uid = (uint32_t)number;
    else
        return command_misuse(&cmd_top, "there is no user '%s'", v->user);
    return COMMAND_OK;
}

static int make_wish(const struct top_values *v, struct top_options *o)
{
    o->columns = top_columns_default;
    o->wish = (struct top_wish){
        .sort = TOP_COLUMN_RSS,
        .tree = v->tree,
        .only_tracked = v->tracked,
        .kernel = v->kernel,
    };
    char word[32];
    if (!v->once && !v->number && !wants_rows(v))
        top_config_load(&o->columns, &o->wish);
    if (v->sort && !wants_rows(v) && top_sort_parse(v->sort, &o->wish) < 0)
        return command_misuse(&cmd_top, "there is no column '%s' to sort by", v->sort);
    if (v->columns && top_columns_parse(v->columns, &o->columns, word) < 0)
        return command_misuse(&cmd_top, "there is no column '%s'", word);
    if (v->filter && strlen(v->filter) >= sizeof(o->wish.filter))
        return command_misuse(&cmd_top, "the filter is longer than %zu bytes",
                              sizeof(o->wish.filter) - 1);
    if (v->filter)
        snprintf(o->wish.filter, sizeof(o->wish.filter), "%s", v->filter);
    return find_user(v, &o->wish);
}

static int nothing(const struct top_values *v)
{
    if (v->tracked)
        command_fail("no process %skeeps a book; start one with: memoir run PROGRAM",
                     v->filter || v->user ? "like that " : "");
    else
        command_fail("no process is like that");
    return COMMAND_NOTHING;
}

/* `number` pictures, each an interval after the one before; 0: until interrupted. */
static int print(const struct top_values *v, const struct top_options *o, uint64_t number)
{
    struct term term;
    term_init(&term, STDOUT_FILENO, (enum term_color)v->view.color);
    MEMOIR_CLEANUP(top_source_release)
    struct top_source source = {0};
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    struct top_style style = {!v->view.no_header, (size_t)v->limit};
    size_t rows = 0;
    int r = top_source_open(&source, v->dir);
    for (uint64_t i = 0; r == COMMAND_OK && (i < number || !number); i++) {
        if (i) {
            struct timespec pause = {(time_t)(v->interval_ns / NS_PER_S),
                                     (long)(v->interval_ns % NS_PER_S)};
            nanosleep(&pause, NULL);
        }
        buffer_reset(&out);
        if (i)
            buffer_append_char(&out, '\n');
        r = top_source_look(&source, i ? v->interval_ns / 1000 * AGAIN_PERMILLE : ONCE_NS);
        if (r == 0)
            r = top_print(&source, &o->wish, &style, &term, &out, &rows);
        if (r == 0 && rows)
            r = command_output(&out);
    }
    if (r != COMMAND_OK || rows)
        return r;
    return nothing(v);
}

/* ---- rows of the query core ---- */

static void where_filter(struct buffer *where, const char *filter)
{
    char *end;
    unsigned long number = strtoul(filter, &end, 10);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer any = BUFFER_INIT(WHERE_MAX);
    query_where_text(&any, "program", "~", filter);
    buffer_append_str(&any, " or ");
    struct buffer user = BUFFER_INIT(WHERE_MAX), command = BUFFER_INIT(WHERE_MAX);
    query_where_text(&user, "user", "~", filter);
    query_where_text(&command, "command", "~", filter);
    /* Our own command line has the filter in it. */
    buffer_printf(&any, "%s or (%s and pid!=%d)", buffer_string(&user), buffer_string(&command),
                  (int)getpid());
    if (*filter >= '0' && *filter <= '9' && !*end)
        buffer_printf(&any, " or pid=%lu", number);
    buffer_release(&user);
    buffer_release(&command);
    view_test(where, "(%s)", buffer_string(&any));
}

static int make_query(const struct top_values *v, struct query **ret_query)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer where = BUFFER_INIT(WHERE_MAX);
    int r = COMMAND_OK;
    struct view_options asked = v->view;
    asked.sort = v->sort;
    if (v->user)
        r = view_test_user(&where, v->user);
    if (v->filter)
        where_filter(&where, v->filter);
    if (v->tracked)
        view_test(&where, "book_size!=none");
    if (v->kernel)
        view_test(&where, "kernel_thread!=none");
    if (r != COMMAND_OK)
        return r;
    return view_query(&cmd_top, query_view_find("top"), &asked, buffer_string(&where),
                      &(struct view_layout){.limit = v->limit}, ret_query);
}

static int print_rows(const struct top_values *v, uint64_t number)
{
    MEMOIR_CLEANUP(query_freep)
    struct query *query = NULL;
    MEMOIR_CLEANUP(world_release)
    struct world world = {0};
    struct query_result *result = NULL;
    struct world_options how = {.dir = v->dir};
    struct timespec pause = {(time_t)(v->interval_ns / NS_PER_S),
                             (long)(v->interval_ns % NS_PER_S)};
    int r = make_query(v, &query);
    if (r == COMMAND_OK)
        r = query_result_new(query, 0, &result);
    top_allow_files();
    for (uint64_t i = 0; r == COMMAND_OK && i < number; i++) {
        if (i)
            nanosleep(&pause, NULL);
        how.repeated = i > 0;
        r = world_ask(&world, &how, query, result);
        if (r == COMMAND_OK)
            r = view_print(query, result, &v->view);
    }
    if (r == COMMAND_OK && query_result_rows(result) == 0)
        r = nothing(v);
    query_result_free(result);
    return r;
}

static int run(const void *values, const struct operands *operands)
{
    const struct top_values *v = values;
    struct top_options o = {
        .dir = v->dir,
        .state = v->state,
        .interval_ns = v->interval_ns,
        .color = (enum term_color)v->view.color,
    };
    if (v->view.json && v->view.csv)
        return command_misuse(&cmd_top, "--json and --csv exclude each other");
    if (v->interval_ns < INTERVAL_MIN_MS * NS_PER_MS)
        return command_misuse(&cmd_top, "--interval cannot be shorter than 0.05 seconds");
    if (command_check_dir(v->dir) != COMMAND_OK)
        return COMMAND_FAILED;
    int r = make_wish(v, &o);
    if (r != COMMAND_OK)
        return r;
    if (wants_rows(v))
        return print_rows(v, v->number ? v->number : 1);
    if (v->number || v->once || v->limit)
        return print(v, &o, v->number ? v->number : 1);
    r = top_run(&o);
    if (r ==
        -ENOTTY) /* a pipe gets one picture, a terminal that cannot place the cursor one after another */
        return print(v, &o, isatty(STDOUT_FILENO) ? 0 : 1);
    return r;
}

/* Of other nodes. */
static const struct elsewhere elsewhere = {
    .table = "host",
    .show = "node,pid,program,user,rss,anon,swap,heap,device,threads",
    .sort = "-rss",
};

const struct command cmd_top = {
    .name = "top",
    .usage = "top [OPTION...]",
    .help = "every process of the machine, live: memory, growth, heap, devices",
    .description =
        "Shows all processes on the whole screen, those with the most resident memory first: how much each "
        "holds, how fast it grows, how much of it is really its own, what of it lies in swap, and, for programs that "
        "keep a book, the live bytes of the heap, pinned memory and devices. Above them stands the memory of the "
        "machine as one bar that adds up to the total.\n\n"
        "On a pipe, or with --once, --number, --limit, --where, --by, --show, --json or --csv, it prints tables instead. No daemon is needed.",
    .options = options,
    .examples = examples,
    .sections = sections,
    .fields = fields,
    .elsewhere = &elsewhere,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = run,
};
