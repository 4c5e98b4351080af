/* memoir attach, memoir detach: account the heap of a process that runs already. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/json_read.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/http_ask.h"
#include "cli/process_word.h"
#include "cli/trace_observer.h"
#include "ledger/proc.h"
#include "query/document.h"
#include "trace/ask.h"

enum { ANSWER_MAX = 1 << 20, WHY_MAX = TRACE_OBSERVER_WHY_MAX };

struct attach_values {
    struct command_common common;
    const char *dir, *socket, *budget;
    uint64_t sample_bytes, blocks;
    bool children, json, quiet;
};

static const struct attach_values defaults = {0};

#define AT(field) offsetof(struct attach_values, field)

static const struct option_spec attach_options[] = {
    OPTION_HELP,
    {"sample", 0, OPTION_NUMBER, AT(sample_bytes), "BYTES",
     "mean distance between sampled stacks (default: 524288)"},
    {"blocks", 0, OPTION_NUMBER, AT(blocks), "N", "live blocks that are kept (default: 1048576)"},
    {"budget", 0, OPTION_STRING, AT(budget), "PERCENT",
     "share of the process's CPU time for the probes; above it they are in for part of the time, and figures are "
     "estimates (default: 5; 0: no limit)"},
    {"children", 0, OPTION_FLAG, AT(children),
     .help = "attach to the processes that it forks, too; what they execute is not followed"},
    OPTION_JSON,
    {"quiet", 'q', OPTION_FLAG, AT(quiet), .help = "print nothing on success"},
    {"socket", 0, OPTION_STRING, AT(socket), "PATH",
     "memoird's HTTP socket (default: /run/memoird/memoir-http.sock)"},
    OPTION_DIR,
    {0},
};

static const struct option_spec detach_options[] = {
    OPTION_HELP,
    {"quiet", 'q', OPTION_FLAG, AT(quiet), .help = "print nothing on success"},
    {"socket", 0, OPTION_STRING, AT(socket), "PATH",
     "memoird's HTTP socket (default: /run/memoird/memoir-http.sock)"},
    {0},
};

/* ---- by memoird ---- */

/* 0: done; -EREMOTEIO: refused, as `why` says; other -errno: no memoird answers. */
static int ask_memoird(const struct attach_values *v, bool on, pid_t pid, int *ret_status,
                       char why[static WHY_MAX])
{
    char target[64];
    MEMOIR_CLEANUP(buffer_release)
    struct buffer answer = BUFFER_INIT(ANSWER_MAX);
    snprintf(target, sizeof(target), "/api/v1/processes/%d/tracking", (int)pid);
    int r = http_ask_post(v->socket ? v->socket : HTTP_ASK_PATH, target,
                          !on           ? "{\"on\":false}"
                          : v->children ? "{\"on\":true,\"children\":true}"
                                        : "{\"on\":true}",
                          ret_status, &answer);
    if (r < 0)
        return r;
    if (*ret_status == 200)
        return 0;
    http_ask_problem(&answer, why, WHY_MAX);
    return -EREMOTEIO;
}

/* ---- attach ---- */

static int pid_operand(const struct command *command, const struct operands *operands,
                       pid_t *ret_pid)
{
    uint64_t pid;
    struct proc_stat stat;
    if (operands->n < 1)
        return command_misuse(command, "missing argument: PID");
    if (!process_word_pid(operands->words[0], &pid))
        return command_misuse(command, "'%s' is not a valid PID", operands->words[0]);
    if (proc_stat_read((pid_t)pid, &stat) < 0 || stat.dead) {
        command_fail("no process %" PRIu64, pid);
        return COMMAND_NOTHING;
    }
    *ret_pid = (pid_t)pid;
    return COMMAND_OK;
}

/* What the observer says of itself; -errno: there is none that we may ask. */
static int status_ask(pid_t pid, struct buffer *out)
{
    char socket[TRACE_ASK_PATH_MAX], why[TRACE_ASK_WHY_MAX];
    if (!trace_ask_heap_find(pid, NULL, socket))
        return -ENOENT;
    MEMOIR_CLEANUP(closep)
    int fd = trace_ask_open(socket);
    return fd < 0 ? fd : trace_ask(fd, "status", out, why);
}

/* The document of --json: the fields of the observer's answer, or the PID alone where there is none. */
static int status_print(pid_t pid, const struct buffer *status)
{
    struct json json;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer out = BUFFER_INIT(ANSWER_MAX);
    const char *fields = buffer_string(status);
    size_t len = strlen(fields);
    command_json_begin(&json, &out, "memoir.attach/1");
    if (len > 2 && fields[0] == '{' && fields[len - 1] == '}') {
        buffer_append_char(&out, ',');
        buffer_append(&out, fields + 1, len - 2);
    } else {
        json_field_i64(&json, "pid", pid);
    }
    query_document_end(&json);
    buffer_append_char(&out, '\n');
    int r = json_finish(&json);
    return r < 0 ? r : command_output(&out);
}

/* One line where figures are estimates: by how much they may be off. */
static void estimate_print(const struct buffer *status)
{
    struct json_read read;
    struct json_text key;
    uint64_t error = 0, live = 0;
    struct json_number age = {0};
    bool estimate = false;
    char error_text[UNITS_TEXT_MAX], live_text[UNITS_TEXT_MAX], age_text[UNITS_TEXT_MAX];
    json_read_init(&read, buffer_string(status), status->len);
    json_read_object(&read);
    while (json_read_key(&read, &key))
        if (json_text_is(&key, "bytes_error"))
            estimate = json_read_u64(&read, &error);
        else if (json_text_is(&key, "bytes"))
            json_read_u64(&read, &live);
        else if (json_text_is(&key, "figures_age"))
            json_read_number(&read, &age);
        else
            json_read_skip(&read);
    if (json_read_finish(&read) < 0 || !estimate)
        return;
    printf("It allocates so often that probes are in for part of the time: figures are estimates, "
           "%s live, give or take %s, as of %s ago.\n",
           units_format_bytes(live_text, live, UNITS_DECIMAL),
           units_format_bytes(error_text, error, UNITS_DECIMAL),
           units_format_duration(age_text, (uint64_t)(age.d * NS_PER_S)));
}

static bool own_options(const struct attach_values *v)
{
    return v->dir || v->sample_bytes || v->blocks || v->budget;
}

/* By memoird, which answers for users; with options of our own, or where there is none, by ourselves as root. */
static int attach(const struct attach_values *v, pid_t pid, char why[static WHY_MAX])
{
    int status = 0;
    struct trace_heap_options options = {.dir = v->dir,
                                         .sample_bytes = v->sample_bytes,
                                         .blocks_max = v->blocks,
                                         .budget = v->budget,
                                         .children = v->children};
    bool own = own_options(v) && !v->socket;
    int r = own ? -ENOENT : ask_memoird(v, true, pid, &status, why);
    if (r == 0 || r == -EREMOTEIO)
        return r;
    if (v->socket || (r != -ENOENT && r != -ECONNREFUSED && geteuid() != 0)) {
        snprintf(why, WHY_MAX, "memoird at '%s' does not answer: %s",
                 v->socket ? v->socket : HTTP_ASK_PATH, strerror(-r));
        return r;
    }
    return trace_observer_heap_start(pid, &options, why);
}

static int attach_run(const void *values, const struct operands *operands)
{
    const struct attach_values *v = values;
    char why[WHY_MAX] = "";
    pid_t pid = 0;
    MEMOIR_CLEANUP(buffer_release)
    struct buffer status = BUFFER_INIT(ANSWER_MAX);
    int r = pid_operand(&cmd_attach, operands, &pid);
    if (r != COMMAND_OK)
        return r;
    bool already = status_ask(pid, &status) == 0;
    if (!already && attach(v, pid, why) < 0)
        return command_fail("cannot attach to process %d: %s", (int)pid, why);
    if (v->json) {
        if (!already)
            (void)status_ask(pid, &status);
        return status_print(pid, &status);
    }
    if (!v->quiet) {
        estimate_print(&status);
        printf("%s process %d. Blocks that are older are not counted.\n"
               "Next: memoir sites %d, memoir leaks %d, memoir explain %d, memoir detach %d\n",
               already ? "Already attached to" : "Attached to", (int)pid, (int)pid, (int)pid,
               (int)pid, (int)pid);
    }
    return COMMAND_OK;
}

static const struct command_example attach_examples[] = {
    {"sudo memoir attach 4242", "account what process 4242 allocates from now on"},
    {"memoir attach 4242 && memoir leaks 4242 --for 1m",
     "of your own process, where memoird runs as root; then watch what grows"},
    {0},
};

static const struct command_section attach_sections[] = {
    {"WHAT IT DOES",
     "Probes in the kernel (eBPF) watch the allocator that the process has: malloc and its kin of the C library, of jemalloc, tcmalloc or "
     "mimalloc, in a library or inside the program, if its symbols are there. The process is not stopped, and nothing is loaded into it. Live "
     "blocks are kept in the kernel; a book on behalf of the process shows them in every view: sites, leaks, flame, explain, top, page.\n\n"
     "Counts are exact by the line that asked; functions that hand requests on, such as operator new, strdup or zmalloc, are passed over. Whole "
     "stacks are a sample. Blocks that are older than the attach are in no figure and never called a leak.\n\n"
     "A call of malloc and its free take about 2 µs longer while the probes are in. At the end of the process, at its exec, with memoir detach, "
     "and when the observer ends, by whatever signal, the kernel removes them."},
    {"WHO MAY",
     "Root, and through memoird the user of the process, if that user could trace it with ptrace. Linux 6.6 or later on x86-64 is needed."},
    {"LIMITS",
     "Programs in Go have no malloc, and a stripped static program has no symbols to find it by. Children of the process are attached with --children, a third of a second after the "
     "fork; a program that the process or a child executes is not."},
    {0},
};

const struct command cmd_attach = {
    .name = "attach",
    .usage = "attach [OPTION...] PID",
    .help = "account the heap of a process that runs already",
    .description =
        "Begins to account every allocation of a running process, by the line that asked for it, without stopping or restarting it. memoir run "
        "does the same from the start and costs less; attach is for the process that leaks now.",
    .options = attach_options,
    .examples = attach_examples,
    .sections = attach_sections,
    .operands_max = 1,
    .takes_processes = true,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = attach_run,
};

/* ---- detach ---- */

static int detach(const struct attach_values *v, pid_t pid, char why[static WHY_MAX])
{
    char socket[TRACE_ASK_PATH_MAX];
    int status = 0;
    if (!trace_ask_heap_find(pid, NULL, socket))
        trace_ask_heap_socket(pid, v->dir, socket);
    int r = v->socket ? -ENOENT : trace_observer_stop(socket);
    if (r == 0)
        return 0;
    if (r == -ECONNREFUSED)
        unlink(socket); /* its observer was killed */
    int asked = ask_memoird(v, false, pid, &status, why);
    if (asked == 0)
        return 0;
    if (asked != -EREMOTEIO)
        snprintf(why, WHY_MAX, "%s", strerror(-r));
    return (asked == -EREMOTEIO && status == 409) || (r == -ENOENT && asked != -EREMOTEIO)
               ? -ESRCH
               : -EREMOTEIO;
}

static int detach_run(const void *values, const struct operands *operands)
{
    const struct attach_values *v = values;
    char why[WHY_MAX] = "";
    pid_t pid = 0;
    int r = pid_operand(&cmd_detach, operands, &pid);
    if (r != COMMAND_OK)
        return r;
    r = detach(v, pid, why);
    if (r == -ESRCH) {
        command_fail("process %d is not attached", (int)pid);
        return COMMAND_NOTHING;
    }
    if (r < 0)
        return command_fail("cannot detach from process %d: %s", (int)pid, why);
    if (!v->quiet)
        printf("Detached from process %d.\n", (int)pid);
    return COMMAND_OK;
}

static const struct command_example detach_examples[] = {
    {"sudo memoir detach 4242", "remove the probes; the process goes on as before"},
    {0},
};

const struct command cmd_detach = {
    .name = "detach",
    .usage = "detach [OPTION...] PID",
    .help = "end what attach began",
    .description =
        "Removes the probes that memoir attach has put into a process. Its book goes with them: save what you want to keep before, by memoir "
        "sites --save or memoir flame. The process runs on without a trace of them.",
    .options = detach_options,
    .examples = detach_examples,
    .operands_max = 1,
    .takes_processes = true,
    .values_size = sizeof(defaults),
    .defaults = &defaults,
    .run = detach_run,
};
