/* memoir leaks: which lines of code take memory and do not give it back. Asks memoird, which has watched all along, or
 * watches by itself. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/units.h"
#include "cli/absent.h"
#include "cli/command.h"
#include "cli/leaks_ask.h"
#include "cli/leaks_outside.h"
#include "cli/leaks_resident.h"
#include "cli/leaks_watch.h"
#include "cli/lost.h"
#include "cli/process_word.h"
#include "cli/suspects.h"
#include "cli/term.h"
#include "cli/view.h"
#include "ledger/follow.h"
#include "ledger/ledger.h"
#include "profile/site_names.h"
#include "query/query.h"
#include "query/view.h"

enum {
    OUTPUT_MAX = 64 << 20,
    TOP_SCREEN = 10, /* suspects on screen unless asked for more */
    LOOKS = 120,     /* in the time watched */
    INTERVAL_MAX_MS = 2000,
    INTERVAL_MIN_MS = 1,
    FOR_MAX_S = 7 * 86400,
    OPERANDS_MAX = 64,
};
#define TOP_UNSET UINT64_MAX
#define LATE_NS   (5 * NS_PER_S) /* on a busy machine memoird looks less often */

struct leaks_values {
    struct command_common common;
    uint64_t for_ns, interval_ns, needs_ns;
    bool watch; /* it was said how long, or how often */
    bool all, check, no_sites, scan;
    const char *min_rate;
    uint64_t min_rate_bytes; /* what it says, per minute */
    uint64_t top;
    struct view_options view;
    const char *dir, *socket;
};

static const struct leaks_values defaults = {.top = TOP_UNSET};

#define AT(field) offsetof(struct leaks_values, field)

static const struct option_spec options[] = {
    OPTION_HELP,
    {"for", 'f', OPTION_DURATION, AT(for_ns), "TIME",
     "watch for so long instead of asking memoird (default: ask; where it cannot tell, 30 seconds, which is the "
     "least that a verdict needs)"},
    {"scan", 's', OPTION_FLAG, AT(scan),
     .help =
         "do not watch: stop one process for a moment, and tell which of its blocks nothing points "
         "to any more"},
    {"all", 'a', OPTION_FLAG, AT(all),
     .help = "also sites that are steady, warming up, or not known yet"},
    {"min-rate", 'm', OPTION_STRING, AT(min_rate), "SIZE",
     "only what grows by so much a minute or more: 100K, 3MB"},
    {"top", 'n', OPTION_NUMBER, AT(top), "N",
     "show N suspects at most; 0 shows all (default: 10 on screen, all in JSON and CSV)"},
    {"limit", 0, OPTION_NUMBER, AT(top), "N", "the same, as other commands call it"},
    {"check", 0, OPTION_FLAG, AT(check),
     .help = "exit with status 1 if there is a leak, for scripts"},
    {"no-sites", 0, OPTION_FLAG, AT(no_sites),
     .help = "do not look up functions and lines: sites are then modules and offsets"},
    VIEW_OPTION_WHERE,
    VIEW_OPTION_BY,
    VIEW_OPTION_SHOW,
    {"sort", 0, OPTION_STRING, AT(view.sort), "COLUMNS", "the order, as in memoir query"},
    VIEW_OPTIONS_PRINT,
    OPTIONS_ELSEWHERE,
    OPTION_DIR,
    {"socket", 0, OPTION_STRING, AT(socket), "PATH",
     "ask the memoird that listens there; none: do not contact memoird (default: the user's or the machine's; none with "
     "--dir)"},
    {"interval", 0, OPTION_DURATION, AT(interval_ns), "TIME",
     "polling interval (default: a 120th of the time, at most 2 seconds)"},
    {"limit", 0, OPTION_NUMBER, AT(top), "N", .hidden = true}, /* what other commands call it */
    {"needs", 0, OPTION_DURATION, AT(needs_ns), "TIME", "the least that a verdict needs",
     .hidden = true},
    {0},
};

static const struct command_example examples[] = {
    {"memoir leaks", "what memoird has seen; without one, watch all processes for half a minute"},
    {"memoir leaks 4242", "one process"},
    {"memoir leaks --for 10m server", "longer: slow leaks show, and warm-ups end"},
    {"memoir leaks --scan 4242", "a proof: what it can never free again"},
    {"memoir leaks --all --top 0 4242", "what each of its sites does"},
    {"memoir leaks --check --min-rate 1MB --for 2m 4242", "in a test: ends with 1 if it leaks"},
    {"memoir leaks --json | jq '.rows[] | {verdict, site, growth}'", "for programs"},
    {0},
};

static const struct command_fields fields[] = {
    {"Fields of a row of --scan", lost_columns},
    {0},
};

static const struct command_section sections[] = {
    {"VERDICTS",
     "leak: what a place in the code holds rises all the time, in bytes and in blocks, does not slow "
     "down, and by more than twice what comes and goes; and none of the ordinary reasons fits.\n\n"
     "growing: it rises, but it may be a few large blocks, a buffer that grows, more load, chance, or "
     "memory that is freed in bulk later.\n\n"
     "warming up: it rose, and has stopped or slows down: a cache that fills, a start.\n\n"
     "steady: it does not rise. unknown yet: not watched for long enough.\n\n"
     "A verdict is about a time, and a leak looks like a cache that has not filled yet: "
     "watch for longer than that takes. doc/leaks.md has the method and how often it errs."},
    {"SCAN",
     "--scan stops a process that 'memoir run' started, follows every pointer from its registers, stacks "
     "and data, and lets it go on. A block that no pointer leads to is lost: it cannot be freed any "
     "more; one that only lost blocks lead to is indirectly lost. That is a proof, unless the program "
     "hides its pointers (in files, XORed, compressed). What is reachable is no proof of the "
     "opposite: a list that only grows is reachable, too, and shows when it is watched. The document of "
     "--json is \"memoir.lost/2\". A few system calls of the process that wait (epoll_wait, and "
     "others of signal(7)) return EINTR, as under a debugger."},
    {"IN SCRIPTS",
     "The exit code is 0, whether anything leaks or not; with --check it is 1 when there is a leak or, with --scan, a "
     "lost block. It is 3 when there is no process that was asked for."},
    {"JSON",
     "The document is that of memoir query leaks: \"schema\" (\"memoir.query/1\"), \"time\", \"columns\" with their units, "
     "\"rows\" and \"matched\". memoir query leaks --columns tells what each column is. growth is in bytes a second, "
     "confidence and freed_share are fractions from 0 to 1. Without --by and --show a row has all that is known: names, the "
     "stack, the trend, examples of blocks."},
    {0},
};

/* ---- what was asked for ---- */

static bool names(const char *word, const struct ledger_process *p)
{
    char *end;
    unsigned long pid = strtoul(word, &end, 10);
    if (*word && !*end)
        return p->valid & LEDGER_HAS_PID && (unsigned long)p->pid == pid;
    return process_word_calls(word, p);
}

static bool wanted(const struct ledger_process *p, void *context)
{
    const struct operands *operands = context;
    for (int i = 0; i < operands->n; i++)
        if (names(operands->words[i], p))
            return true;
    return operands->n == 0;
}

static bool wanted_other(uint64_t pid, const char *program, void *context)
{
    const struct operands *operands = context;
    for (int i = 0; i < operands->n; i++) {
        char *end;
        unsigned long long number = strtoull(operands->words[i], &end, 10);
        if (*operands->words[i] &&
            (*end ? strcmp(operands->words[i], program) == 0 : number == pid))
            return true;
    }
    return operands->n == 0;
}

static int parse(struct leaks_values *v)
{
    if (v->view.json && v->view.csv)
        return command_misuse(&cmd_leaks, "--json and --csv exclude each other");
    if (v->min_rate && units_parse_bytes(v->min_rate, &v->min_rate_bytes) < 0)
        return command_misuse(&cmd_leaks, "invalid size '%s' for --min-rate: try 100K, 3MB or 4096",
                              v->min_rate);
    if (!v->needs_ns)
        v->needs_ns = DETECT_NEEDS_NS;
    v->watch = v->for_ns || v->interval_ns;
    if (!v->for_ns)
        v->for_ns = v->needs_ns;
    if (v->for_ns > FOR_MAX_S * NS_PER_S)
        return command_misuse(&cmd_leaks, "--for takes a week at most; memoird watches for longer");
    if (!v->interval_ns) {
        v->interval_ns = v->for_ns / LOOKS;
        if (v->interval_ns > INTERVAL_MAX_MS * NS_PER_MS)
            v->interval_ns = INTERVAL_MAX_MS * NS_PER_MS;
    }
    if (v->interval_ns < INTERVAL_MIN_MS * NS_PER_MS)
        v->interval_ns = INTERVAL_MIN_MS * NS_PER_MS;
    if (v->top == TOP_UNSET)
        v->top = v->view.json || v->view.csv ? 0 : TOP_SCREEN;
    if (v->top == 0)
        v->top = TOP_UNSET;
    return COMMAND_OK;
}

/* ---- running ---- */

/* What grows too slowly to be of interest. */
static void drop_slow(const struct leaks_values *v, struct suspects *s)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (s->rows[i].bytes_per_s * 60 >= (double)v->min_rate_bytes)
            s->rows[kept++] = s->rows[i];
        else
            suspect_release(&s->rows[i]);
    }
    s->n = kept;
}

/* The helper that knows names is started only now: a Ctrl-C that ends the watch would have ended it, too. */
static void name(const struct leaks_values *v, struct suspects *suspects,
                 const struct ledger *ledger)
{
    MEMOIR_CLEANUP(site_names_freep)
    struct site_names *symbols = v->no_sites ? NULL : site_names_new();
    suspects_name(suspects, v->top, ledger, symbols);
    leaks_outside_name(suspects);
}

/* memoird watches already, and will know sooner than we would. -ENODATA: it would not, or does not in time. */
static int await(const struct leaks_values *v, const struct leaks_ask *request, uint64_t watched_ns,
                 struct suspects *ret_suspects)
{
    uint64_t looks_ns = (DETECT_POINTS_MIN + 2) * NS_PER_S; /* one a second */
    uint64_t needs_ns = looks_ns > DETECT_NEEDS_NS ? looks_ns : DETECT_NEEDS_NS;
    uint64_t left_ns = needs_ns > watched_ns ? needs_ns - watched_ns : 0;
    if (watched_ns == 0 || left_ns >= v->for_ns)
        return -ENODATA;
    char has[UNITS_TEXT_MAX], left[UNITS_TEXT_MAX];
    if (isatty(STDERR_FILENO))
        fprintf(stderr,
                "memoir: memoird has watched for %s, and can tell in about %s: waiting for it\n",
                units_format_duration(has, watched_ns), units_format_duration(left, left_ns));
    uint64_t until_ns = clock_monotonic_ns() + left_ns + LATE_NS;
    bool more; /* sites of which it cannot tell yet: they came later */
    int r;
    do {
        suspects_release(ret_suspects);
        *ret_suspects = (struct suspects){0};
        nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
        r = leaks_ask(request, ret_suspects, &watched_ns);
        more = r == -ENODATA || (r == 0 && ret_suspects->verdicts[DETECT_UNKNOWN] > 0);
    } while (more && clock_monotonic_ns() < until_ns);
    return r;
}

/* What memoird knows, where it is to be asked and can tell. -EAGAIN: watch. */
static int ask(const struct leaks_values *v, const struct operands *operands,
               struct suspects *ret_suspects)
{
    bool named = v->socket && strcmp(v->socket, "none") != 0;
    if (v->watch || (!named && (v->socket || v->dir)))
        return -EAGAIN;
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    int r = ledger_scan(v->dir, &ledger);
    if (r < 0)
        return r;
    struct leaks_ask request = {
        .socket = v->socket,
        .ledger = ledger,
        .all = v->all,
        .wanted = wanted,
        .wanted_other = wanted_other,
        .context = (void *)operands,
    };
    uint64_t watched_ns = 0;
    r = leaks_ask(&request, ret_suspects, &watched_ns);
    if (r == -ENODATA)
        r = await(v, &request, watched_ns, ret_suspects);
    if (r < 0 && r != -ENODATA && named)
        fprintf(stderr, "memoir: no memoird answers at '%s': %s; watching instead\n", v->socket,
                strerror(-r));
    if (r == -ENOMEM)
        return r;
    if (r < 0)
        return -EAGAIN;
    if (v->min_rate_bytes)
        drop_slow(v, ret_suspects);
    name(v, ret_suspects, ledger);
    return 0;
}

static int look(const struct leaks_values *v, const struct operands *operands,
                struct suspects *ret_suspects)
{
    MEMOIR_CLEANUP(follow_freep)
    struct follow *follow = NULL;
    struct leaks_watch watch = {
        .dir = v->dir,
        .for_ns = v->for_ns,
        .interval_ns = v->interval_ns,
        .needs_ns = v->needs_ns,
        .all = v->all,
        .progress = isatty(STDERR_FILENO),
        .wanted = wanted,
        .context = (void *)operands,
    };
    pid_t pid = operands->n == 1 ? (pid_t)atol(operands->words[0]) : 0;
    struct leaks_outside *outside = leaks_outside_start(pid, v->needs_ns);
    int r = leaks_watch(&watch, &follow, ret_suspects);
    if (r != -ENOENT || pid == 0)
        leaks_outside_tell(outside);
    if (r == -ENOENT && pid > 0) {
        r = leaks_resident(&watch, pid, ret_suspects);
        if (r == 0)
            fprintf(
                stderr,
                "memoir: PID %d %s, so only its resident size was watched; memoir run tracks a program "
                "from its start\n",
                (int)pid,
                absent_why((uint64_t)pid) == ABSENT_FORBIDDEN
                    ? "is another user's, whose books you are not permitted to read"
                    : "keeps no book");
        leaks_outside_tell(outside);
        return r == -ESRCH ? -ENOENT : r;
    }
    if (r < 0)
        return r;
    if (v->min_rate_bytes)
        drop_slow(v, ret_suspects);
    name(v, ret_suspects, follow_ledger(follow));
    return 0;
}

static int nothing(const struct leaks_values *v, const struct operands *operands)
{
    if (operands->n == 0) {
        absent_books("No process keeps a book, so there is nothing to watch.", "leaks", v->dir);
        return COMMAND_OK;
    }
    if (operands->n == 1 && strspn(operands->words[0], "0123456789") == strlen(operands->words[0]))
        return absent_process(strtoull(operands->words[0], NULL, 10),
                              "memoir run tracks a program from its start");
    else
        command_fail(
            "no process %s keeps a book; memoir ps lists those that do, and 'memoir run %s' "
            "starts one that does",
            operands->words[0], operands->words[0]);
    return COMMAND_NOTHING;
}

/* As memoir query prints its table. */
static int print_plain(const struct leaks_values *v, const struct suspects *s, struct query *query)
{
    MEMOIR_CLEANUP(query_result_freep)
    struct query_result *result = NULL;
    int r = query_result_new(query, 0, &result);
    if (r == 0)
        r = query_run(query, &(struct query_world){.suspects = s, .sees_all = true}, result);
    if (r == 0)
        r = query_result_finish(result);
    return r < 0 ? r : view_print(query, result, &v->view);
}

/* Which rows the options ask for, as tests of the question; the layout for people takes the same. */
static int question(const struct leaks_values *v, struct query **ret_query)
{
    const struct view_layout layout = {.limit = v->top == TOP_UNSET ? 0 : v->top};
    return view_query(&cmd_leaks, query_view_find("leaks"), &v->view, v->all ? "level>=0" : "",
                      &layout, ret_query);
}

/* Drop the rows that --where leaves out. */
static int narrow(const struct leaks_values *v, struct suspects *s)
{
    MEMOIR_CLEANUP(query_freep)
    struct query *query = NULL;
    size_t kept = 0;
    int r = v->view.where ? question(v, &query) : 0;
    if (r != 0 || !query)
        return r;
    for (size_t i = 0; i < s->n; i++) {
        MEMOIR_CLEANUP(query_result_freep)
        struct query_result *result = NULL;
        r = query_result_new(query, 0, &result);
        if (r == 0)
            r = query_result_add(result, &(struct query_world){.suspects = s, .sees_all = true},
                                 &(struct query_row){.custom = &s->rows[i]});
        if (r < 0)
            return r;
        struct suspect one = s->rows[i];
        if (r == 1)
            s->rows[kept++] = one;
        else
            suspect_release(&one);
    }
    s->n = kept;
    return 0;
}

static int print(const struct leaks_values *v, struct suspects *s)
{
    struct suspects_style style = {.header = !v->view.no_header, .shown = v->top};
    MEMOIR_CLEANUP(query_freep)
    struct query *query = NULL;
    int r = view_is_plain(&v->view) ? question(v, &query) : narrow(v, s);
    if (r != 0)
        return r;
    if (query)
        return print_plain(v, s, query);
    struct term term;
    term_init(&term, STDOUT_FILENO, (enum term_color)v->view.color);
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    suspects_print(s, &style, &term, &out);
    return command_output(&out);
}

static int scan(const struct leaks_values *v, const struct operands *operands)
{
    if (operands->n != 1)
        return command_misuse(&cmd_leaks, "--scan looks at one process: name it");
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(OUTPUT_MAX);
    int r = lost_report(&(struct lost_request){
        .word = operands->words[0],
        .dir = v->dir,
        .top = v->top == TOP_UNSET ? 0 : v->top,
        .all = v->all,
        .check = v->check,
        .no_header = v->view.no_header,
        .no_sites = v->no_sites,
        .color = v->view.color,
        .terminal = STDOUT_FILENO,
        .text = v->view.json || v->view.csv ? NULL : &out,
        .json = v->view.json ? &out : NULL,
        .csv = v->view.csv ? &out : NULL,
    });
    if (r < 0 || out.len == 0)
        return r;
    if (v->view.json)
        buffer_append_char(&out, '\n');
    int printed = command_output(&out);
    return printed != COMMAND_OK ? printed : r;
}

static int run(const void *values, const struct operands *operands)
{
    struct leaks_values v = *(const struct leaks_values *)values;
    int r = parse(&v);
    if (r != COMMAND_OK)
        return r;
    if (command_check_dir(v.dir) != COMMAND_OK)
        return COMMAND_FAILED;
    if (v.scan)
        return scan(&v, operands);
    MEMOIR_CLEANUP(suspects_release)
    struct suspects suspects = {0};
    r = ask(&v, operands, &suspects);
    if (r == -EAGAIN)
        r = look(&v, operands, &suspects);
    if (r == -ENOENT)
        return nothing(&v, operands);
    if (r < 0)
        return r;
    r = print(&v, &suspects);
    if (r == COMMAND_OK && v.check)
        for (size_t i = 0; i < suspects.n; i++)
            if (suspects.rows[i].verdict == DETECT_LEAK)
                return COMMAND_FAILED;
    return r;
}

/* Of other nodes. */
static const struct elsewhere elsewhere = {
    .table = "leaks",
    .show = "node,pid,program,space,verdict,growth,bytes,site",
    .sort = "-growth",
    .operand = "pid",
    .names = true,
};

const struct command cmd_leaks = {
    .name = "leaks",
    .usage = "leaks [OPTION...] [PID|NAME...]",
    .help = "which lines of code take memory and do not give it back",
    .description =
        "Watches how much every place in the code of every process holds, and ranks those that grow: "
        "with a verdict and how sure it is, the rate, what is held now, how much of it was ever freed, the time until a limit is "
        "reached, a sentence that tells why, and sample blocks. Works for every process that keeps a "
        "book, while it runs. Of one that keeps none, given by its PID, the resident size is watched, which "
        "may be called growing, but never a leak.",
    .options = options,
    .examples = examples,
    .sections = sections,
    .fields = fields,
    .operands_max = OPERANDS_MAX,
    .takes_processes = true,
    .elsewhere = &elsewhere,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = run,
};
