/* memoir trace run: trace a program from its start. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "cli/run_child.h"
#include "cli/trace.h"
#include "cli/trace_observer.h"
#include "cli/trace_summary.h"
#include "trace/ask.h"
#include "trace/dump.h"

enum { EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 }; /* as env(1) and shells have it */

static const struct option_spec options[] = {
    OPTION_HELP,
    {"output", 'o', OPTION_STRING, TRACE_AT(output), "FILE",
     "save the history to FILE at the end; all other subcommands read it"},
    {"json", 'j', OPTION_FLAG, TRACE_AT(json), .help = "with -o: save it as JSON"},
    {"quiet", 'q', OPTION_FLAG, TRACE_AT(quiet), .help = "print no summary"},
    TRACE_OPTION_SOCKET,
    TRACE_OPTION_DIR,
    TRACE_OPTION_COLOR,
    {0},
};

struct run {
    const struct trace_values *values;
    char **argv;
    struct trace_observer observer;   /* ours, where memoird has none */
    const char *socket;               /* that answers about the program */
    char why[TRACE_OBSERVER_WHY_MAX]; /* it is not traced; "": it is */
};

static void prepare(void *context, pid_t pid)
{
}

static void look(void *context, pid_t pid)
{
}

/* The program waits: nothing of it has run yet. */
static void started(void *context, pid_t pid)
{
    struct run *run = context;
    const char *shared = run->values->socket ? run->values->socket : TRACE_ASK_SOCKET;
    char request[32], refused[TRACE_ASK_WHY_MAX] = "";
    snprintf(request, sizeof(request), "trace %d", (int)pid);
    MEMOIR_CLEANUP(closep)
    int fd = trace_ask_open(shared);
    int r = fd < 0 ? fd : trace_ask(fd, request, NULL, refused);
    run->socket = shared;
    if (r == 0)
        return;
    if (r == -EREMOTEIO || run->values->socket) {
        snprintf(run->why, sizeof(run->why), "%s", *refused ? refused : strerror(-r));
        return;
    }
    r = trace_observer_start(&run->observer, pid, false, getenv("LD_LIBRARY_PATH"),
                             run->values->dir, run->why);
    run->socket = run->observer.socket;
    if (r < 0 && !*run->why)
        snprintf(run->why, sizeof(run->why), "%s", strerror(-r));
    if (*run->why)
        command_fail("'%s' runs without being traced: %s", run->argv[0], run->why);
}

static int history_get(struct run *run, pid_t pid, struct trace_history **ret_history)
{
    struct trace_values values = *run->values;
    char why[TRACE_OBSERVER_WHY_MAX];
    MEMOIR_CLEANUP(buffer_release)
    struct buffer dump = BUFFER_INIT(TRACE_DUMP_FILE_MAX);
    values.socket = run->socket;
    int r = trace_source_fetch(&values, pid, &dump, NULL, why, sizeof(why));
    return r < 0 ? r : trace_dump_decode(dump.data, dump.len, ret_history);
}

static int save(struct run *run, struct trace_source *source)
{
    const struct trace_values *v = run->values;
    trace_names_all(source->names);
    int r =
        trace_dump_save(source->history, v->json ? TRACE_DUMP_JSON : TRACE_DUMP_BINARY, v->output);
    if (r < 0)
        return command_fail("cannot write '%s': %s", v->output, strerror(-r));
    return COMMAND_OK;
}

/* 0, or an exit code of ours where the program's own was 0. */
static int tell(struct run *run, pid_t pid)
{
    const struct trace_values *v = run->values;
    MEMOIR_CLEANUP(trace_source_release)
    struct trace_source source = {0};
    struct trace_history *history = NULL;
    struct term term;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(TRACE_OUTPUT_MAX);
    int r = history_get(run, pid, &history);
    if (r == -ESRCH) {
        if (!v->quiet)
            fprintf(stderr, "memoir: '%s' made no call of the CUDA driver%s\n", run->argv[0],
                    v->output ? ", so nothing was saved" : "");
        return v->output ? COMMAND_FAILED : COMMAND_OK;
    }
    if (r < 0)
        return command_fail("cannot read the history of '%s': %s", run->argv[0], strerror(-r));
    r = trace_source_take(&source, &cmd_trace_run, v, history, false);
    if (r < 0)
        return command_fail("cannot read the history of '%s': %s", run->argv[0], strerror(-r));
    r = v->output ? save(run, &source) : COMMAND_OK;
    if (v->quiet)
        return r;
    term_init(&term, STDERR_FILENO, (enum term_color)v->color);
    trace_summary(&source, &term, &out);
    if (v->output && r == COMMAND_OK) {
        buffer_append_str(&out, "Saved to ");
        term_append(&term, &out, v->output, 0);
        buffer_append_str(&out, "; look with: memoir trace hot ");
        term_append(&term, &out, v->output, 0);
        buffer_append_char(&out, '\n');
    }
    fs_write_all(STDERR_FILENO, buffer_string(&out), out.len);
    return r;
}

/* run_wait() leaves signals blocked. What came for the program is dropped; from now on, Ctrl-C ends the summary. */
static void signals_take_back(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    while (sigtimedwait(&set, NULL, &(struct timespec){0}) > 0)
        ;
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static int run_run(const void *values, const struct operands *operands)
{
    struct run run = {.values = values, .argv = operands->words, .observer = {.hold = -1}};
    struct run_end end;
    if (!run.argv[0])
        return command_misuse(&cmd_trace_run, "missing argument: COMMAND");
    if (run.values->json && !run.values->output)
        return command_misuse(&cmd_trace_run,
                              "--json needs -o FILE: standard output is the program's");
    struct run_child child = {.argv = run.argv,
                              .prepare = prepare,
                              .started = started,
                              .look = look,
                              .fd = -1,
                              .context = &run};
    int r = run_wait(&child, &end);
    if (r < 0) {
        trace_observer_end(&run.observer);
        command_fail("cannot run '%s': %s", run.argv[0], strerror(-r));
        return r == -ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
    }
    signals_take_back();
    int told = *run.why ? (run.values->output ? COMMAND_FAILED : COMMAND_OK) : tell(&run, end.pid);
    trace_observer_end(&run.observer);
    return end.status == 0 ? told : run_end_alike(end.status);
}

static const struct command_example examples[] = {
    {"sudo memoir trace run python3 train.py",
     "a summary of its CUDA memory and copies at the end"},
    {"sudo memoir trace run -o run.trace ./app --steps 100", "and keep the history"},
    {"sudo -E memoir trace run --quiet -o run.json --json ./test",
     "for programs: the history as JSON"},
    {0},
};

static const struct command_section sections[] = {
    {"HOW IT RUNS",
     "The program waits until probes are attached, and then runs unchanged: nothing is preloaded, its output, exit code and signals are what they "
     "would be without memoir. Signals sent to memoir are handed on. The summary is written to standard error. Children of the program are not part of its "
     "history; where memoird's observer runs, they have histories of their own.\n\n"
     "Where it cannot be traced, one line on standard error says why and the program runs all the same. memoir doctor tells what is missing. With -o, "
     "the exit status is then 1 if the program's own was 0."},
    {0},
};

const struct command cmd_trace_run = {
    .name = "trace run",
    .usage = "trace run [OPTION...] [--] COMMAND [ARGUMENT...]",
    .help = "trace a program from its start",
    .description =
        "Runs a program, unchanged, with every CUDA allocation and copy traced from the first. At the end a summary tells the peaks of device, "
        "pinned, managed and registered memory, the copies each way, the hottest buffers with their lines, copies of pageable memory with what "
        "pinning would save, allocations that were never copied, and an allocation that failed for lack of memory.",
    .options = options,
    .examples = examples,
    .sections = sections,
    .operands_max = INT_MAX,
    .starts_other = true,
    .values_size = sizeof(trace_defaults),
    .defaults = &trace_defaults,
    .run = run_run,
};
