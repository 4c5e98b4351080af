/* memoir log: a line for every block that comes or goes, and for every process that is gone. Compares the
 * books again and again, so it needs no daemon. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/units.h"
#include "cli/absent.h"
#include "cli/command.h"
#include "cli/log_line.h"
#include "cli/log_table.h"
#include "cli/query_print.h"
#include "cli/retired_tail.h"
#include "cli/space_word.h"
#include "cli/view.h"
#include "ledger/changes.h"
#include "ledger/follow.h"
#include "profile/book_names.h"
#include "query/query.h"

enum {
    OUTPUT_MAX = 64 << 20,
    FLUSH_BYTES = 64 << 10, /* a look that tells more is written in pieces */
    INTERVAL_MIN_MS = 1,
    CAUSE_PATIENCE_MS = 2000, /* in one look, for a running daemon to tell how a process ended */
    TAG_BOOKS_MAX = 64,       /* books whose tags are remembered */
    WHERE_MAX = 16384,
};

struct log_values {
    struct command_common common;
    const char *dir, *state;
    uint64_t pid;
    const char *device, *space, *min;
    uint64_t interval_ns;
    uint64_t lines;
    struct view_options view;
};

static const struct log_values defaults = {.interval_ns = 50 * NS_PER_MS};

#define AT(field) offsetof(struct log_values, field)

static const struct option_spec options[] = {
    OPTION_HELP,
    {"pid", 'p', OPTION_NUMBER, AT(pid), "PID", "only this process; ends when it is gone",
     .completion = COMPLETE_PID},
    {"device", 'd', OPTION_STRING, AT(device), "DEVICE",
     "only this device, by its number, uid, bus address or name; host is the host's memory"},
    {"space", 's', OPTION_STRING, AT(space), "SPACE", "only this kind of memory: dram, l1, cb ..."},
    {"min", 'm', OPTION_STRING, AT(min), "SIZE",
     "only blocks, or sums of blocks that are only counted, of this size and more: 64K, 25.5MB (others are still part of the totals)"},
    {"interval", 'i', OPTION_DURATION, AT(interval_ns), "TIME",
     "polling interval (default: every 0.05 seconds)"},
    {"lines", 'n', OPTION_NUMBER, AT(lines), "N", "end after N lines"},
    VIEW_OPTION_WHERE,
    {"show", 0, OPTION_STRING, AT(view.show), "COLUMNS", "columns of JSON and CSV"},
    VIEW_OPTIONS_PRINT,
    OPTION_DIR,
    {"state", 0, OPTION_STRING, AT(state), "DIR",
     "the daemon's state directory, which tells how processes ended (default: as for memoir ps)",
     .completion = COMPLETE_DIRECTORY},
    {0},
};

static const struct command_example examples[] = {
    {"memoir log", "everything that happens, until Ctrl-C"},
    {"memoir log --device 0 --space dram", "what comes and goes in one memory"},
    {"memoir log 4242 --csv > story.csv", "the life of one process, until it ends"},
    {"memoir log --json | jq 'select(.kind == \"gone\")'", "for programs"},
    {0},
};

static const struct command_section sections[] = {
    {"WHAT IS SEEN",
     "A process's own counters miss nothing, and its table of live blocks tells which they are. Blocks "
     "that came and went between two looks are in no table any more: the counters tell how many "
     "there were, and one line says so. So all lines of a memory add up to its total, which stands "
     "at the end of each. A shorter --interval tells more of them one by one.\n\n"
     "In JSON every line is one object; columns that do not apply are null. Columns, for --where and --show, too: time, kind "
     "(begin, alloc, free, unseen, gone, held), pid, program, user, uid, device, ordinal, device_name, device_uid, device_bus, space, id, "
     "bytes, blocks, freed and freed_blocks (of unseen ones that went), tag, total (what all processes hold there then), cause."},
    {0},
};

/* ---- words of the books ---- */

struct tags {
    struct book_names names;
    uint64_t dev, ino, used_ns;
};

struct log {
    const struct log_values *values;
    struct term term;
    struct query *query;
    struct query_result *result;
    struct buffer out;
    char cause[RETIRED_CAUSE_MAX];
    struct retired_tail *tail;
    struct tags tags[TAG_BOOKS_MAX];
    uint64_t now_real_ns;
    uint64_t patience_ns; /* left in this look */
    uint64_t lines;
    bool over;
};

/* Names of tags are copied when a number comes that the copy does not have. Borrowed until the next call. */
static const char *tag_of(struct log *log, const struct change *change)
{
    if (!change->tag || !change->book)
        return NULL;
    const struct book_identity *id = change->book->identity;
    struct tags *oldest = &log->tags[0], *found = NULL;
    for (size_t i = 0; i < TAG_BOOKS_MAX; i++) {
        struct tags *t = &log->tags[i];
        if (t->names.book && t->dev == id->st_dev && t->ino == id->st_ino)
            found = t;
        if (t->used_ns < oldest->used_ns)
            oldest = t;
    }
    if (!found || change->tag >= found->names.copy.n_tags) {
        struct tags *t = found ? found : oldest;
        book_names_release(&t->names);
        *t = (struct tags){.dev = id->st_dev, .ino = id->st_ino};
        if (book_names_load(change->book, &t->names) < 0)
            return NULL;
        found = t;
    }
    found->used_ns = log->now_real_ns;
    return book_names_tag(&found->names, change->tag);
}

/* The daemon may be a moment behind us. */
static bool cause_of(struct log *log, const struct change *change, char cause[RETIRED_CAUSE_MAX])
{
    if (!log->tail || !change->process->pid)
        return false;
    for (;;) {
        if (retired_tail_cause(log->tail, change->process->pid, cause))
            return true;
        if (log->patience_ns < 5 * NS_PER_MS || !retired_tail_exists(log->tail))
            return false;
        log->patience_ns -= 5 * NS_PER_MS;
        nanosleep(&(struct timespec){0, 5 * NS_PER_MS}, NULL);
    }
}

/* ---- lines ---- */

static const char *row_tag(const struct log_change *row)
{
    return tag_of(row->context, row->change);
}

static const char *row_cause(const struct log_change *row)
{
    struct log *log = row->context;
    return cause_of(log, row->change, log->cause) ? log->cause : NULL;
}

/* Lines of processes that begin or end stay, whatever part of the memory is asked for. */
#define PROCESS_LINE "kind=begin or kind=gone"

/* What the options ask for, as one expression. */
static int where_of(const struct log_values *v, struct buffer *where)
{
    uint64_t bytes;
    uint32_t space;
    if (v->pid)
        view_test(where, "pid=%llu", (unsigned long long)v->pid);
    if (v->device) {
        MEMOIR_CLEANUP(buffer_release)
        struct buffer device = BUFFER_INIT(WHERE_MAX);
        view_test_device(&device, v->device);
        view_test(where, "(" PROCESS_LINE " or %s)", buffer_string(&device));
    }
    if (v->space) {
        if (space_word_parse(&cmd_log, v->space, false, &space) != COMMAND_OK)
            return COMMAND_USAGE;
        view_test(where, "(" PROCESS_LINE " or space=\"%s\")", ledger_space_name(space));
    }
    if (v->min) {
        if (units_parse_bytes(v->min, &bytes) < 0)
            return command_misuse(
                &cmd_log, "invalid size '%s' for --min: expected 64K, 25.5MB, 4096", v->min);
        /* Of blocks that only counters tell of, none can be larger than their sum. */
        view_test(where, "(" PROCESS_LINE " or kind=held or bytes>=%llu or freed>=%llu)",
                  (unsigned long long)bytes, (unsigned long long)bytes);
    }
    if (v->view.where)
        view_test(where, "(%s)", v->view.where);
    return where->error ? where->error : COMMAND_OK;
}

static int make_query(struct log *log)
{
    const struct log_values *v = log->values;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer where = BUFFER_INIT(WHERE_MAX);
    struct query_error error = {0};
    int r = where_of(v, &where);
    if (r != COMMAND_OK)
        return r;
    struct query_spec spec = {.where = buffer_string(&where), .show = v->view.show};
    r = query_new_over(&log_table, &spec, &log->query, &error);
    if (r == -EINVAL)
        return view_misuse(&cmd_log, &error, &spec);
    return r < 0 ? r : query_result_new(log->query, 0, &log->result);
}

static int flush(struct log *log)
{
    int r = log->out.len ? command_output(&log->out) : COMMAND_OK;
    buffer_reset(&log->out);
    return r;
}

static int print_row(struct log *log)
{
    const struct log_values *v = log->values;
    struct query_style style = {.format = v->view.json ? QUERY_FORMAT_LINES : QUERY_FORMAT_CSV};
    int r = query_result_finish(log->result);
    return r < 0 ? r : query_print(log->result, log->query, &style, &log->term, &log->out);
}

static int hear(const struct change *change, void *context)
{
    struct log *log = context;
    const struct log_values *v = log->values;
    struct log_change row = {change, log->now_real_ns, row_tag, row_cause, log};
    struct query_world world = {.sees_all = true, .now_real_ns = log->now_real_ns};
    if (log->over)
        return 0; /* the look goes on: sums must stay right */
    query_result_reset(log->result);
    int r = query_result_add(log->result, &world, &(struct query_row){.custom = &row});
    if (r <= 0)
        return r;
    if (v->view.json || v->view.csv) {
        r = print_row(log);
    } else {
        struct log_facts facts = {.real_ns = log->now_real_ns, .tag = row_tag(&row)};
        if (change->kind == CHANGE_GONE)
            facts.cause = row_cause(&row);
        log_line(change, &facts, &log->term, &log->out);
        r = log->out.error;
    }
    if (r < 0)
        return r;
    log->over = v->lines && ++log->lines == v->lines;
    return log->out.len >= FLUSH_BYTES ? flush(log) : 0;
}

/* ---- the loop ---- */

static volatile sig_atomic_t ended;

static void on_signal(int number)
{
    ended = 1;
}

/* Until the next look, a signal, or until the reader of our output ends. */
static bool wait_for_next(uint64_t interval_ns, const sigset_t *mask)
{
    struct timespec pause = {(time_t)(interval_ns / NS_PER_S), (long)(interval_ns % NS_PER_S)};
    struct pollfd reader = {.fd = STDOUT_FILENO};
    uint64_t begin_ns = clock_monotonic_ns();
    int n = ppoll(&reader, 1, &pause, mask);
    if (ended || (n > 0 && reader.revents & POLLERR))
        return false;
    uint64_t took_ns = clock_monotonic_ns() - begin_ns;
    if (n > 0 && took_ns < interval_ns) { /* an event that is none: a terminal may hang up */
        uint64_t left_ns = interval_ns - took_ns;
        struct timespec left = {(time_t)(left_ns / NS_PER_S), (long)(left_ns % NS_PER_S)};
        ppoll(NULL, 0, &left, mask);
    }
    return !ended;
}

static bool target_gone(const struct log *log, const struct ledger *ledger, bool *seen)
{
    if (!log->values->pid)
        return false;
    const struct ledger_process *p = ledger_process_find(ledger, (pid_t)log->values->pid);
    bool lives = p && ledger_process_holds(p);
    bool gone = *seen && !lives;
    *seen |= lives;
    return gone;
}

/* A process that does not exist gets no book: do not wait for it. 0: none was asked for. */
static bool no_such_process(pid_t pid)
{
    if (pid == 0 || kill(pid, 0) == 0 || errno != ESRCH)
        return false;
    command_fail("there is no process %d (memoir ps --exited knows dead ones)", (int)pid);
    return true;
}

static void say_hello(const struct log *log, const struct ledger *ledger)
{
    size_t n;
    ledger_processes(ledger, &n);
    /* It may come yet, but who mistyped should not wait for it. */
    if (log->values->device && absent_device(ledger, log->values->device, true))
        fputs("Waiting for it; Ctrl-C ends.\n", stderr);
    if (!isatty(STDERR_FILENO) || log->values->view.json || log->values->view.csv)
        return;
    if (log->values->pid && !ledger_process_find(ledger, (pid_t)log->values->pid))
        fprintf(stderr, "Process %llu keeps no book yet; waiting. Ctrl-C ends.\n",
                (unsigned long long)log->values->pid);
    else
        fprintf(stderr, "Watching %zu process%s; Ctrl-C ends.\n", n, n == 1 ? "" : "es");
}

static int loop(struct log *log, const sigset_t *mask)
{
    MEMOIR_CLEANUP(follow_freep)
    struct follow *follow = NULL;
    MEMOIR_CLEANUP(changes_freep)
    struct changes *changes = NULL;
    int r = follow_new(log->values->dir, &follow);
    if (r == 0)
        r = changes_new(&changes);
    bool target_seen = false, watched = false;
    for (bool first = true; r == 0; first = false) {
        r = follow_look(follow, false);
        if (r < 0)
            return r;
        log->now_real_ns = clock_real_ns();
        log->patience_ns = watched ? CAUSE_PATIENCE_MS * NS_PER_MS : 0;
        r = changes_look(changes, follow_ledger(follow), hear, log);
        if (r == 0)
            r = flush(log);
        if (r != 0)
            return r;
        watched = follow_watched(follow); /* by the next death, its book may have been the last */
        if (log->over || target_gone(log, follow_ledger(follow), &target_seen))
            return COMMAND_OK;
        if (!target_seen && no_such_process((pid_t)log->values->pid))
            return COMMAND_NOTHING;
        if (first)
            say_hello(log, follow_ledger(follow));
        if (!wait_for_next(log->values->interval_ns, mask))
            return COMMAND_OK;
    }
    return r;
}

static int header(struct log *log)
{
    struct query_style style = {.format = QUERY_FORMAT_CSV, .header = true};
    if (!log->values->view.csv || log->values->view.no_header)
        return COMMAND_OK;
    int r = query_result_finish(log->result);
    if (r == 0)
        r = query_print(log->result, log->query, &style, &log->term, &log->out);
    return r < 0 ? r : flush(log);
}

static void log_free(struct log *log)
{
    for (size_t i = 0; i < TAG_BOOKS_MAX; i++)
        book_names_release(&log->tags[i].names);
    retired_tail_freep(&log->tail);
    query_result_free(log->result);
    query_free(log->query);
    buffer_release(&log->out);
    free(log);
}

static int run(const void *values, const struct operands *operands)
{
    struct log_values given = *(const struct log_values *)values;
    const struct log_values *v = &given;
    if (command_pid_operand(&cmd_log, operands, &given.pid) != COMMAND_OK)
        return COMMAND_USAGE;
    if (v->view.json && v->view.csv)
        return command_misuse(&cmd_log, "--json and --csv exclude each other");
    if (v->view.show && !v->view.json && !v->view.csv)
        return command_misuse(&cmd_log, "--show goes with --json or --csv");
    if (v->interval_ns < INTERVAL_MIN_MS * NS_PER_MS)
        return command_misuse(&cmd_log, "--interval cannot be shorter than 0.001 seconds");
    if (command_check_dir(v->dir) != COMMAND_OK)
        return COMMAND_FAILED;
    struct log *log = calloc(1, sizeof(*log));
    if (!log)
        return -ENOMEM;
    log->values = v;
    term_init(&log->term, STDOUT_FILENO, (enum term_color)v->view.color);
    buffer_init(&log->out, OUTPUT_MAX);
    int r = make_query(log);
    if (r != COMMAND_OK) {
        log_free(log);
        return r;
    }
    log->tail = retired_tail_new(v->state);
    /* Signals come only while we wait, so that no line is cut. */
    sigset_t signals, before;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, &before);
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_signal}, NULL);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_signal}, NULL);
    sigaction(SIGHUP, &(struct sigaction){.sa_handler = on_signal}, NULL);
    r = header(log);
    if (r == COMMAND_OK)
        r = loop(log, &before);
    log_free(log);
    return r;
}

const struct command cmd_log = {
    .name = "log",
    .usage = "log [OPTION...] [PID]",
    .help = "a line for every block that comes or goes, live",
    .description =
        "Prints a line when a block is allocated or freed, when a process begins to report and when "
        "one is gone, with what all processes then hold in that memory. The books are compared again "
        "and again; no daemon is needed. Where one runs, it tells how processes ended.",
    .options = options,
    .examples = examples,
    .sections = sections,
    .operands_max = 1,
    .takes_processes = true,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = run,
};
